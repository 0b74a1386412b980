package store

import (
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// commitFill is commit for what has a version.
func (sh *shard) commitFill(it item, k Key, o *SetOptions, now Time) SetResult {
	f := o.Fill
	old, x, found := sh.stored(k, now)
	if o.Observer != nil {
		how := LookupMiss
		if found && !x.absent {
			how = LookupHit
		}
		sh.tellLookup(o.Observer, k, how, old, now)
	}
	rec, why := sh.judge(k, f, &x, found, now)
	if why != ReasonNone {
		if o.Observer != nil {
			sh.tellStore(o, Refused, it, now)
		}
		res := sh.refuseFill(k, o, rec, why, now) // k may be a view of it
		sh.free(it)
		return res
	}
	if f.Kind == FillRevalidate {
		sh.free(it)
		return sh.revalidate(old, rec, f, o, now)
	}

	floor, raised := sh.takeFloor(k)
	newer := f.Version > floor
	if newer {
		floor, raised = f.Version, now
		sh.fresh.Raises++
	}
	n := extra{version: f.Version, floor: floor, raised: raised, Deadlines: f.Deadlines, ttl: o.Expiry, absent: f.Kind == FillAbsent}
	switch {
	case rec != nil:
		n.fill = max(now-rec.grant.granted, 1)
		rec.grant.pause = 0
		sh.endGrant(rec, now, n.fill)
		if n.absent {
			sh.fresh.Absences++
		} else {
			sh.fresh.Fills++
		}
	default:
		sh.fresh.VersionedWrites++
		if newer {
			sh.endToken(k, now) // it is a notice of its version
		}
		if sh.floorsUnknown(k, now) {
			it.setTag(it.tag | stale | winSent)
		}
	}
	sh.noteChange(k)
	if f.Version < floor { // from the owner, whose value is stale
		it.setTag(it.tag | stale | winSent)
	}
	it.setExtra(&n, Time(sh.s.fresh.offset.Load()))
	if o.Observer != nil {
		sh.tellFresh(o.Observer, k, now, Event{
			Kind: EventFill, Version: f.Version, Fill: f.Kind, Granted: rec != nil, TookMillis: n.fill, Size: it.valueLen(),
		})
	}
	if r := sh.find(k); r != 0 {
		it.setTag(it.tag | lru.Heir(sh.a.Tag(r)))
		sh.unlink(sh.item(r), k.Hash)
	} else {
		sh.noteInsert(sh.orderClass(it))
	}
	return sh.store(it, k.Hash, o, now)
}

// judge decides whether f may be stored under k, whose item has the extra
// header x, and returns the record of its token, unless it has none that is
// out.
func (sh *shard) judge(k Key, f *Fill, x *extra, found bool, now Time) (*record, Reason) {
	fr := &sh.s.fresh
	var rec *record
	if f.HasToken {
		var why Reason
		if rec, why = sh.redeem(k, f, now); why != ReasonNone {
			return nil, why
		}
	}
	at, slack := sh.deadlineTime(now), 2*Time(fr.cfg.SkewMaxMillis)
	floor, _ := sh.floorOf(k)
	if f.FromOwner {
		switch {
		case f.Hard != 0 && f.Hard <= at:
			return nil, ReasonPast
		case found && f.Version < x.version:
			return nil, ReasonFloor
		}
		return nil, ReasonNone
	}
	switch {
	case fr.untrusted.Load() && f.Deadlines != Deadlines{}:
		return rec, ReasonClock
	case f.Read != 0 && f.Read > at+slack:
		return rec, ReasonClock
	case f.Read != 0 && rec != nil && f.Read < sh.deadlineTime(rec.grant.granted)-slack:
		return rec, ReasonClock
	case f.Hard != 0 && f.Hard <= at:
		return rec, ReasonPast
	case rec == nil && f.Read != 0 && f.Read-slack+Time(fr.cfg.RetentionMillis) <= at:
		return rec, ReasonPast // floors of that time may be forgotten
	case f.Version < floor, found && f.Version < x.version:
		return rec, ReasonFloor
	case rec == nil && found && f.Version == x.version && x.version != 0:
		return rec, ReasonFloor
	case f.Kind == FillRevalidate && (rec == nil || !found || x.absent || f.Version != x.version || f.Version == 0):
		return rec, ReasonUnequal
	}
	return rec, ReasonNone
}

// redeem finds the record of the token of f.
func (sh *shard) redeem(k Key, f *Fill, now Time) (*record, Reason) {
	t := f.Token
	switch {
	case f.BadToken || t.incarnation != sh.s.fresh.incarnation:
		return nil, ReasonIncarnation
	case sh.owned != nil && t.sequence <= sh.owned.tokens[k.Bucket()]:
		return nil, ReasonOwnership
	}
	rec := sh.records.find(k)
	switch {
	case rec == nil || t.sequence != rec.grant.sequence || t.nonce != rec.grant.nonce || t.sequence <= sh.tokenMark:
		return nil, ReasonToken
	case rec.grant.ends <= now:
		return nil, ReasonExpired
	}
	return rec, ReasonNone
}

// refuseFill answers why. Where nothing better can come of the token of rec,
// it ends.
func (sh *shard) refuseFill(k Key, o *SetOptions, rec *record, why Reason, now Time) SetResult {
	sh.fresh.Refused[why]++
	if o.Observer != nil {
		e := Event{Kind: EventRefuse, Reason: why}
		if o.Fill != nil {
			e.Version = o.Fill.Version
		}
		sh.tellFresh(o.Observer, k, now, e)
	}
	if rec != nil && (why == ReasonFloor || why == ReasonPast || why == ReasonQuota) {
		sh.endGrant(rec, now, 0)
	}
	return SetResult{Status: Refused, Reason: why}
}

// endFill ends the token of a fill that cannot be stored, for its size or for
// want of room: what is stored stays.
func (sh *shard) endFill(k Key, f *Fill, now Time) {
	if f == nil || !f.HasToken {
		return
	}
	if rec, why := sh.redeem(k, f, now); why == ReasonNone {
		sh.endGrant(rec, now, 0)
	}
}

// revalidate renews the deadlines of it, whose version is still the source's.
func (sh *shard) revalidate(it item, rec *record, f *Fill, o *SetOptions, now Time) SetResult {
	x := it.extra()
	x.Deadlines = f.Deadlines
	x.fill = max(now-rec.grant.granted, 1)
	if o.HasExpiry {
		x.ttl = o.Expiry
	}
	rec.grant.pause = 0
	sh.endGrant(rec, now, x.fill)
	sh.setExtra(it, &x)
	it.setTag(it.tag &^ (stale | winSent))
	sh.noteChange(Key{sh.HashOf(it.r), it.key()})
	sh.fresh.Revalidations++
	if o.Observer != nil {
		sh.tellFresh(o.Observer, Key{Bytes: it.key()}, now, Event{
			Kind: EventFill, Version: f.Version, Fill: f.Kind, Granted: true, TookMillis: x.fill, Size: it.valueLen(),
		})
	}
	res := SetResult{Status: OK, CAS: it.cas(), Size: it.valueLen()}
	if sh.s.cfg.NoCAS {
		res.CAS = 0
	}
	return res
}

// setExtra is item.setExtra for an item that is stored: the sweeper hears of it.
func (sh *shard) setExtra(it item, x *extra) {
	it.setExtra(x, Time(sh.s.fresh.offset.Load()))
	sh.noteExpiry(it)
}

// floorOf is the floor of k, wherever it is; 0 is none.
func (sh *shard) floorOf(k Key) (floor uint64, raised Time) {
	if sh.nExtra > 0 {
		if r := sh.find(k); r != 0 {
			x := sh.item(r).extra()
			floor, raised = x.floor, x.raised
		}
	}
	if rec := sh.records.find(k); rec != nil && rec.floor > floor {
		floor, raised = rec.floor, rec.raised
	}
	return floor, raised
}

// takeFloor is floorOf, and takes it from where it is, for the caller to put
// it elsewhere.
func (sh *shard) takeFloor(k Key) (floor uint64, raised Time) {
	floor, raised = sh.floorOf(k)
	if r := sh.find(k); r != 0 && sh.a.Tag(r)&hasExtra != 0 {
		sh.a.PutU64(sh.item(r).extraOff()+extraFloor, 0)
	}
	if rec := sh.records.find(k); rec != nil && rec.floor != 0 {
		rec.floor, rec.raised = 0, 0
		sh.records.changed(rec)
	}
	return floor, raised
}

// putFloor keeps a floor of k in the records.
func (sh *shard) putFloor(k Key, floor uint64, raised, now Time) {
	rec := sh.records.add(k, now, sh.uncount)
	if rec == nil {
		sh.records.lost(raised)
		return
	}
	if floor > rec.floor {
		rec.floor, rec.raised = floor, raised
		sh.records.changed(rec)
	}
}

// leaveFloor keeps the floor of an item that goes, as long as floors without a
// value are kept.
func (sh *shard) leaveFloor(it item, h uint64) {
	sh.nExtra--
	x := it.extra()
	if x.floor != 0 && x.raised+Time(sh.s.fresh.cfg.RetentionMillis) > sh.now {
		sh.putFloor(Key{h, it.key()}, x.floor, x.raised, sh.now)
	}
}

// supersede prepares a plain write of it, which is not linked yet, under k: no
// token survives it, but the floor does.
func (sh *shard) supersede(k Key, it item, now Time) {
	sh.endToken(k, now)
	sh.noteIfVersioned(k)
	floor, raised := sh.takeFloor(k)
	switch {
	case floor == 0:
	case it.tag&hasExtra != 0:
		x := it.extra()
		x.floor, x.raised = floor, raised
		it.setExtra(&x, 0)
	default:
		// It was begun before there was a floor. See carryFloor.
		sh.putFloor(k, floor, raised, now)
	}
}

// carryFloor gives the item of k the floor that came while it was on its way,
// so that it is kept for as long as the item is.
func (sh *shard) carryFloor(k Key, now Time) {
	r, rec := sh.find(k), sh.records.find(k)
	if r == 0 || rec == nil || rec.floor == 0 || sh.a.Tag(r)&hasExtra != 0 {
		return
	}
	it, ok := sh.withExtra(sh.item(r), k, now)
	if !ok || it.tag&hasExtra == 0 {
		return // no room: it is kept for as long as floors without a value are
	}
	x := it.extra()
	x.floor, x.raised = sh.takeFloor(k)
	sh.setExtra(it, &x)
}

// missWrite is a plain write of k that stores nothing: the source may have what
// it was about, so the token ends all the same.
func (sh *shard) missWrite(k Key, now Time) {
	if sh.records.n > 0 {
		sh.endToken(k, now)
	}
}

// unversion is supersede for an item whose value was changed in place. What is
// left of the value was read when it was read, so its deadlines stay.
func (sh *shard) unversion(it item, k Key, now Time) {
	sh.endToken(k, now)
	sh.noteIfVersioned(k)
	if it.tag&hasExtra != 0 {
		x := it.extra()
		sh.setExtra(it, &extra{floor: x.floor, raised: x.raised, ttl: x.ttl, Deadlines: x.Deadlines})
	}
}

// inherit gives it, which was made of the value of old, old's deadlines.
func (sh *shard) inherit(it, old item) {
	if x := old.extra(); x.Hard|x.Soft != 0 && it.tag&hasExtra != 0 {
		n := it.extra()
		n.Deadlines, n.ttl = x.Deadlines, x.ttl
		it.setExtra(&n, Time(sh.s.fresh.offset.Load()))
	}
}

// dropHidden drops what is stored under k and live does not show: whatever made
// a plain delete come, it is not known any more.
func (sh *shard) dropHidden(k Key) {
	if r := sh.find(k); r != 0 {
		sh.unlink(sh.item(r), k.Hash)
	}
}

// supersedeNew is supersede for a key of which live shows nothing: what it has
// left there goes.
func (sh *shard) supersedeNew(k Key, it item, now Time) {
	sh.supersede(k, it, now)
	sh.dropHidden(k)
}

// preJudge is why what o says need not be tried: there is no room made then
// for nothing.
func (sh *shard) preJudge(k Key, o *SetOptions, now Time) Reason {
	if o.Fill == nil && len(sh.s.fresh.cfg.GrantOnly) == 0 {
		return ReasonNone
	}
	return sh.judgeEarly(k, o, now)
}

func (sh *shard) judgeEarly(k Key, o *SetOptions, now Time) Reason {
	if o.Fill == nil {
		if sh.s.fresh.cfg.grantOnly(k.Bytes) {
			return sh.refuseFill(k, o, nil, ReasonGrantOnly, now).Reason
		}
		return ReasonNone
	}
	_, x, found := sh.stored(k, now)
	if rec, why := sh.judge(k, o.Fill, &x, found, now); why != ReasonNone {
		return sh.refuseFill(k, o, rec, why, now).Reason
	}
	return ReasonNone
}

// refuseQuota answers a store that the quota of its tenant does not allow.
func (sh *shard) refuseQuota(k Key, st Status, o *SetOptions, now Time) SetResult {
	if o.Fill == nil {
		return SetResult{Status: sh.refuse(k, st, o, now)}
	}
	if why := sh.preJudge(k, o, now); why != ReasonNone {
		return SetResult{Status: Refused, Reason: why}
	}
	rec, _ := sh.redeem(k, o.Fill, now)
	return sh.refuseFill(k, o, rec, ReasonQuota, now)
}

// allocFor is allocOrRelieve for a value under k: a fill does not evict what
// it is to take the place of.
func (sh *shard) allocFor(k Key, class int, o *SetOptions, now Time) (r slab.Ref, relieved bool) {
	if o.Fill == nil {
		return sh.allocOrRelieve(class, now)
	}
	sh.filling = k.Hash
	r, relieved = sh.allocOrRelieve(class, now)
	sh.filling = 0
	return r, relieved
}

// needsExtra reports whether a plain value under k needs an extra header, to
// keep the floor in.
func (sh *shard) needsExtra(k Key) bool { return sh.usesFresh() && sh.hasFloor(k) }

func (sh *shard) hasFloor(k Key) bool {
	floor, _ := sh.floorOf(k)
	return floor != 0
}
