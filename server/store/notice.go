package store

import "github.com/quarrycache/quarry/slab"

// Notice says that the source has version of k: nothing older may be served as
// fresh from now on, and a fill that read something older is refused. An older
// value is kept as stale, or with takedown not at all. It works on keys that
// have no value, too. It is OK also when nothing changes.
func (s *Store) Notice(k Key, version uint64, takedown bool, now Time) Status {
	return s.NoticeObserved(k, version, takedown, now, nil)
}

// NoticeObserved is Notice that tells o, unless nil.
func (s *Store) NoticeObserved(k Key, version uint64, takedown bool, now Time, o Observer) Status {
	sh := s.lock(k, now)
	defer sh.unlock()
	if takedown {
		sh.fresh.Takedowns++
	} else {
		sh.fresh.Notices++
	}
	it, x, found := sh.stored(k, now)
	floor, _ := sh.floorOf(k)
	newer := version > floor
	sh.tellFresh(o, k, now, Event{Kind: EventNotice, Version: version, Takedown: takedown, Newer: newer})
	if newer {
		sh.endToken(k, now)
		sh.fresh.Raises++
	}
	if newer || found {
		sh.noteChange(k)
	}
	switch {
	case !found || x.version >= version:
	case takedown || x.absent:
		sh.unlink(it, k.Hash)
		found = false
	case newer: // else it is marked already, or is no version at all
		if it.tag&hasExtra == 0 {
			if it, found = sh.withExtra(it, k, now); !found {
				break // it went to make room for itself
			}
			if x = it.extra(); it.isStub() { // and nothing would tell that any more
				sh.unlink(it, k.Hash)
				found = false
				break
			}
		}
		it.setTag(it.tag | stale | winSent)
		sh.renewCAS(&it, false, 0)
	}
	if !newer {
		return OK
	}
	if found && it.tag&hasExtra != 0 {
		sh.takeFloor(k)
		x.floor, x.raised = version, now
		sh.setExtra(it, &x)
		return OK
	}
	sh.putFloor(k, version, now, now)
	return OK
}

// withExtra puts an item with an extra header, and the same CAS, in the place
// of old, which has none. When there is no room for it, it returns old, and
// false if that had to make room.
func (sh *shard) withExtra(old item, k Key, now Time) (item, bool) {
	sh.pins[old.r]++
	defer sh.unpin(old.r)
	l := sh.s.layoutFor(len(k.Bytes), old.valueLen(), old.flags(), true)
	r := sh.alloc(l.class, now)
	if r == 0 {
		return old, sh.a.Tag(old.r).State() >= slab.StateItem
	}
	it := sh.init(r, l, k.Bytes, old.valueLen(), old.flags(), old.expiry(), now.Seconds())
	w := sh.writer(it)
	copied := w.copyValue(old, now)
	if there := sh.a.Tag(old.r).State() >= slab.StateItem; !copied || !there {
		sh.free(sh.item(r))
		return old, there
	}
	it = sh.item(r)
	it.setTag(it.tag | old.tag&(keyBinary|stale|winSent))
	if old.isStub() {
		it.setExtra(&extra{ttl: old.expiry(), stub: true}, 0)
	}
	sh.seal(it)
	cas, explicit := old.cas(), old.tag&explicitCAS != 0
	sh.unlink(sh.item(old.r), k.Hash)
	sh.link(it, k.Hash, explicit, cas, now)
	it = sh.item(r)
	if !explicit {
		sh.discharge(it)
		it.setCAS(cas)
		sh.charge(it)
	}
	return it, true
}

// GiveBack ends the token of a loader that has failed: the next grant may be
// had at once, and when that is given back too, there is none for a while, and
// then for longer. ReasonNone, or why the token is none.
func (s *Store) GiveBack(k Key, t Token, valid bool, now Time) Reason {
	return s.GiveBackObserved(k, t, valid, now, nil)
}

// GiveBackObserved is GiveBack that tells o, unless nil.
func (s *Store) GiveBackObserved(k Key, t Token, valid bool, now Time, o Observer) Reason {
	sh := s.lock(k, now)
	defer sh.unlock()
	rec, why := sh.redeem(k, &Fill{Token: t, BadToken: !valid}, now)
	if why != ReasonNone {
		sh.fresh.Refused[why]++
		sh.tellFresh(o, k, now, Event{Kind: EventRefuse, Reason: why})
		return why
	}
	sh.fresh.GivenBack++
	sh.tellFresh(o, k, now, Event{Kind: EventGiveBack})
	g := &rec.grant
	g.next = now + g.pause
	g.pause = min(max(2*g.pause, givenBackPause), Time(s.fresh.cfg.GrantMaxMillis))
	sh.endGrant(rec, now, 0)
	return ReasonNone
}
