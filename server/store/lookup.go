package store

import "math"

// stored is the item of k that has not gone, and its extra header: a known
// absence too, and a value that is not shown because the clock is not trusted.
func (sh *shard) stored(k Key, now Time) (it item, x extra, ok bool) {
	if it, ok = sh.live(k, now, nil); ok {
		return it, it.extra(), true
	}
	// What live does not show, but has left there.
	if r := sh.find(k); r != 0 {
		it = sh.item(r)
		return it, it.extra(), true
	}
	return item{}, extra{}, false
}

// known is stored without what cannot be shown: nothing with a deadline is,
// while the clock is not trusted.
func (sh *shard) known(k Key, now Time) (it item, x extra, ok bool) {
	it, x, ok = sh.stored(k, now)
	return it, x, ok && !(x.Hard != 0 && sh.s.fresh.untrusted.Load())
}

// below applies the minimum version of a lookup that asks for no grant. It
// reports whether what is stored is not good enough.
func (sh *shard) below(k Key, a *Ask, now Time) bool {
	it, x, ok := sh.known(k, now)
	sh.tellFloor(k, a, &x)
	if !sh.s.fresh.cfg.inRange(k.Bytes, max(a.Floor, x.version), a.Min) {
		sh.fresh.OutOfRange++
		a.OutOfRange = true
		return true
	}
	if ok && x.absent && a.Min > x.version {
		sh.unlink(it, k.Hash) // a reader knows of something newer
	}
	return ok && !x.absent && x.version < a.Min
}

// tellFloor puts the floor of k into a; x is the extra header of its item.
func (sh *shard) tellFloor(k Key, a *Ask, x *extra) {
	a.Floor = x.floor
	if rec := sh.records.find(k); rec != nil {
		a.Floor = max(a.Floor, rec.floor)
	}
}

// lookup is Get for a request that asks for a grant if one is due.
func (sh *shard) lookup(k Key, o *GetOptions, now Time, v Visitor) Status {
	a := o.Ask
	it, x, ok := sh.known(k, now)
	sh.tellFloor(k, a, &x)
	value := ok && !x.absent
	if sh.tenants != nil {
		sh.tenants.countGet(k.Bytes, value && x.version >= a.Min)
	}
	class := a.Class
	switch highest := max(a.Floor, x.version); {
	case !sh.s.fresh.cfg.inRange(k.Bytes, highest, a.Min):
		sh.fresh.OutOfRange++
		a.OutOfRange = true
		return Miss
	case highest == 0 && a.Min > 0 && class == GrantForeground:
		class = GrantStrong // nothing says that there is such a version
	}
	switch {
	case ok && x.absent && a.Min <= x.version:
		sh.fresh.AbsentHits++
		a.Absent, a.Version = true, x.version
		if o.Observer != nil {
			sh.tellLookup(o.Observer, k, LookupMiss, it, now)
		}
		sh.missed(k, o)
		return Miss
	case ok && x.absent:
		sh.unlink(it, k.Hash) // a reader knows of something newer
	case value && (x.version < a.Min || x.stub || it.isStub()):
		value = false
	}

	isStale := value && (it.tag&stale != 0 || x.version == 0)
	at := sh.deadlineTime(now)
	switch {
	case !value, isStale, x.Soft != 0 && at >= x.Soft:
		sh.takeGrant(k, a, class, now)
	case x.Soft != 0 && sh.isEarly(&x, at):
		// Nobody is told to wait, or that there is none: the value is fresh.
		early := Ask{MaxMillis: a.MaxMillis, NoGrant: a.NoGrant}
		waits, denials := sh.fresh.Waits, sh.fresh.Denials
		if sh.takeGrant(k, &early, GrantBackground, now) {
			sh.fresh.GrantsEarly++
			a.Granted, a.Token, a.LifeMillis = true, early.Token, early.LifeMillis
		}
		sh.fresh.Waits, sh.fresh.Denials = waits, denials
		class = GrantBackground
	}
	if a.Granted && o.Observer != nil {
		sh.tellFresh(o.Observer, k, now, Event{
			Kind: EventGrant, Version: a.Floor, Grant: class, TookMillis: Time(a.LifeMillis),
			Early: value && !isStale && at < x.Soft,
		})
	}
	if o.Observer != nil {
		how := LookupMiss
		if value {
			how = LookupHit
		}
		sh.tellLookup(o.Observer, k, how, it, now)
	}
	if !value {
		sh.missed(k, o)
		return Miss
	}
	view := sh.show(it, now)
	if o.Touch {
		sh.setExpiry(it, o.Expiry)
		view.TTL = sh.ttlOf(it, now)
	}
	view.Won, view.WinSent, view.Stale = a.Granted, a.Waits, isStale
	sh.hit(it, k, o, now, v)
	return OK
}

// missed counts a miss, and teaches the order that k was asked for.
func (sh *shard) missed(k Key, o *GetOptions) {
	if !o.NoBump {
		sh.order.Miss(k.Hash)
	}
	if o.Touch {
		sh.n.touchMisses++
	} else {
		sh.n.getMisses++
	}
}

// isStub reports whether it is what N left behind for its winner: nothing that
// somebody stored.
func (it item) isStub() bool {
	return it.tag&(winSent|stale|hasExtra|chained) == winSent && it.tag.Length() == 0
}

// isEarly decides, the more often the nearer soft is, that a refresh begins
// before it, so that it is done by then: XFetch, by how long the last fill
// took. Source: Vattani, Chierichetti, Lowenstein, Optimal Probabilistic Cache
// Stampede Prevention.
func (sh *shard) isEarly(x *extra, at Time) bool {
	beta := sh.s.fresh.cfg.EarlyBeta
	if beta < 0 || x.fill == 0 {
		return false
	}
	u := 1 - sh.random.Float64() // in (0, 1]
	return float64(at)-float64(x.fill)*beta*math.Log(u) >= float64(x.Soft)
}
