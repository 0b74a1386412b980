package store

import (
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// Item is a view of an item for a Visitor; it ends with the visit.
type Item struct {
	Key        []byte
	CAS        uint64
	Number     uint64 // arith: the number after it
	Flags      uint32
	Size       int   // bytes of the value
	TTL        int64 // seconds left, -1 none
	OldTTL     int64 // the same before this request touched it
	LastAccess int64 // seconds since the access before this one
	Class      int   // number of its slab class, from 1
	Footprint  int   // bytes of header, key and value

	HitBefore bool // read since it was stored, before this request
	Won       bool // W: this caller is to refresh it
	Stale     bool // X
	WinSent   bool // Z: another caller was told to refresh it
	Vivified  bool // made by this request
	Binary    bool // its key was stored as base64

	Fresh *ItemFreshness // nil: nothing is known of a version

	sh *shard
	it item
}

// ItemFreshness is what is known of an item's version.
type ItemFreshness struct {
	Version   uint64 // of the value, 0 none
	Floor     uint64 // under the versions of the key, 0 none
	Deadlines        // of the value
	Absent    bool   // known to be absent: only Peek shows that
}

// AppendValue copies the value behind dst.
func (v *Item) AppendValue(dst []byte) []byte {
	if v.it.tag&chained == 0 {
		return append(dst, v.it.a.Bytes(v.it.valueOff(), v.it.tag.Length())...)
	}
	p := v.it.pieces()
	return p.appendTo(dst)
}

// show makes the shard's view one of it.
func (sh *shard) show(it item, now Time) *Item {
	v := &sh.view
	// Field by field: as one literal it is made on the stack and copied.
	v.Key = it.key()
	v.CAS = it.cas()
	v.Number = 0
	v.Flags = it.flags()
	v.Size = it.valueLen()
	v.TTL = ttl(it.expiry(), now)
	v.LastAccess = int64(it.idleSeconds(now.Seconds()))
	v.Class = sh.a.ClassOf(it.r) + 1
	v.Footprint = 0
	v.HitBefore = it.tag&lru.Fetched != 0
	v.Won = false
	v.Stale = it.tag&stale != 0
	v.WinSent = it.tag&winSent != 0
	v.Vivified = false
	v.Binary = it.tag&keyBinary != 0
	v.Fresh = nil
	v.sh = sh
	v.it = it
	v.OldTTL = v.TTL
	if it.tag&hasExtra != 0 {
		sh.showExtra(it, now)
	}
	if sh.s.cfg.NoCAS {
		v.CAS = 0
	}
	return v
}

// showExtra puts what the extra header of it says into the shard's view.
func (sh *shard) showExtra(it item, now Time) {
	x, v := it.extra(), &sh.view
	v.TTL = sh.ttlOf(it, now)
	v.OldTTL = v.TTL
	if f := (ItemFreshness{x.version, x.floor, x.Deadlines, x.absent}); f != (ItemFreshness{}) {
		sh.viewFresh = f
		v.Fresh = &sh.viewFresh
	}
}

// ttl is the seconds left: -1 for ever, 0 if there are none.
func ttl(expiry uint32, now Time) int64 {
	if expiry == 0 {
		return -1
	}
	return max(int64(expiry)-int64(now.Seconds()), 0)
}

// ttlOf is ttl for it: not more than whole seconds until its hard deadline.
func (sh *shard) ttlOf(it item, now Time) int64 {
	left := ttl(it.expiry(), now)
	if it.tag&hasExtra != 0 {
		if hard := it.extra().Hard; hard != 0 && left >= 0 {
			left = min(left, max(int64((hard-sh.deadlineTime(now))/millisPerSecond), 0))
		}
	}
	return left
}

// Get reads the item with key k. On OK v, unless nil, has been shown it once,
// a vivified one too.
func (s *Store) Get(k Key, o *GetOptions, now Time, v Visitor) Status {
	if o.Reader != nil && v != nil && o.isPlain() && s.shardOf(k).getAlong(k, o.Reader, now, v) {
		return OK
	}
	sh := s.lockToRead(k, now)
	defer sh.unlock()
	if !o.isPlain() {
		sh.change()
	}
	if a := o.Ask; a != nil {
		if a.Class != GrantNone {
			return sh.lookup(k, o, now, v)
		}
		if sh.below(k, a, now) {
			if o.Observer != nil {
				sh.tellLookup(o.Observer, k, LookupMiss, item{}, now)
			}
			sh.missed(k, o)
			return Miss
		}
	}
	it, found := sh.live(k, now, o.Observer)
	if sh.tenants != nil {
		sh.tenants.countGet(k.Bytes, found)
	}
	if !found {
		if o.Vivify {
			it, found = sh.vivify(k, nil, o.VivifyExpiry, o.HasNewCAS, o.NewCAS, now)
		}
		if !found {
			sh.missed(k, o)
			return Miss
		}
		if !o.NoBump {
			sh.order.Miss(k.Hash)
		}
		view := sh.show(it, now)
		view.Vivified, view.Won, view.OldTTL = true, true, -1
		it.setTag(it.tag | winSent)
		sh.hit(it, k, o, now, v)
		return OK
	}

	view := sh.show(it, now)
	before := it.expiry()
	if o.Touch {
		sh.setExpiry(it, o.Expiry)
		view.TTL = sh.ttlOf(it, now)
	}
	if it.tag&winSent == 0 && !o.NoWin {
		expiry := it.expiry()
		if o.RecacheFirst {
			expiry = before
		}
		// A stale item without a winner has one now.
		view.Won = it.tag&stale != 0 || o.Recache && expiry != 0 && expiry < o.RecacheBefore
		if view.Won {
			sh.change()
			it.setTag(it.tag | winSent)
		}
	}
	sh.hit(it, k, o, now, v)
	return OK
}

// hit counts a hit on it, notes that it was read, and shows v the shard's
// view, which was made before that.
func (sh *shard) hit(it item, k Key, o *GetOptions, now Time, v Visitor) {
	oc := sh.orderClass(it)
	n := &sh.classes[oc]
	if o.Touch {
		n.touchHits++
	} else {
		n.getHits++
	}
	if !o.NoBump {
		sh.bump(oc, &it, k.Hash, now)
	}
	sh.view.it = it
	if v != nil {
		v.VisitItem(&sh.view)
	}
}

// vivify makes an item with the given value where there is none.
func (sh *shard) vivify(k Key, value []byte, expiry uint32, hasCAS bool, cas uint64, now Time) (item, bool) {
	l := sh.s.layoutFor(len(k.Bytes), len(value), 0, sh.needsExtra(k))
	if sh.tenants != nil && sh.admit(k, len(value), l.head+len(value), &SetOptions{}, now) != OK {
		return item{}, false
	}
	r := sh.alloc(l.class, now)
	if r == 0 {
		return item{}, false
	}
	it := sh.init(r, l, k.Bytes, len(value), 0, expiry, now.Seconds())
	copy(sh.a.Bytes(it.valueOff(), len(value)), value)
	sh.seal(it)
	sh.noteInsert(l.class)
	if sh.usesFresh() {
		sh.supersedeNew(k, it, now)
	}
	if len(value) == 0 && it.tag&hasExtra != 0 {
		x := it.extra()
		x.stub = true
		it.setExtra(&x, 0)
	}
	sh.link(it, k.Hash, hasCAS, cas, now)
	return sh.item(r), true
}

// Peek shows v the item with key k and changes nothing, no counter either.
func (s *Store) Peek(k Key, now Time, v Visitor) Status { return s.PeekObserved(k, now, v, nil) }

// PeekObserved is Peek that tells o, unless nil, of the look-up.
func (s *Store) PeekObserved(k Key, now Time, v Visitor, o Observer) Status {
	sh := s.lockToRead(k, now)
	defer sh.unlock()
	r := sh.find(k)
	how := sh.lookupOf(r, now)
	var it item
	if r != 0 {
		it = sh.item(r)
	}
	if o != nil {
		sh.tellLookup(o, k, how, it, now)
	}
	if how != LookupHit {
		return Miss
	}
	view := sh.show(it, now)
	view.Footprint = sh.footprint(it)
	if v != nil {
		v.VisitItem(view)
	}
	return OK
}

// Delete removes the item with key k, or what o says instead. OK, Miss,
// Exists, or NoMemory when an emptied value finds no chunk.
func (s *Store) Delete(k Key, o *DeleteOptions, now Time) Status {
	sh := s.lock(k, now)
	defer sh.unlock()
	if sh.usesFresh() {
		sh.endToken(k, now)
		sh.noteIfVersioned(k)
	}
	it, found := sh.live(k, now, o.Observer)
	if !found {
		if sh.nExtra > 0 {
			sh.dropHidden(k)
		}
		sh.n.deleteMisses++
		return Miss
	}
	if o.Compare && it.cas() != o.CompareCAS {
		sh.n.deleteMisses++
		return Exists
	}
	c := sh.orderClass(it)
	if !o.RemoveValue && !o.Invalidate {
		sh.classes[c].deleteHits++
		if o.Observer != nil {
			o.Observer.Observe(sh.eventOf(EventDelete, it, now))
		}
		sh.unlink(it, k.Hash)
		return OK
	}
	if o.RemoveValue {
		emptied, ok := sh.emptied(it, k, o, now)
		if !ok {
			return NoMemory
		}
		it = emptied
	}
	if !o.Invalidate {
		sh.classes[c].deleteHits++
		if o.Observer != nil {
			o.Observer.Observe(sh.eventOf(EventDelete, it, now))
		}
		return OK
	}
	if it.isStub() { // what tells of that goes
		if it, found = sh.withExtra(it, k, now); !found {
			return OK
		}
		if it.isStub() { // there is no room to tell of it
			sh.unlink(it, k.Hash)
			return OK
		}
	}
	if o.Touch {
		sh.setExpiry(it, o.Expiry)
	}
	it.setTag(it.tag&^winSent | stale)
	sh.renewCAS(&it, o.HasNewCAS, o.NewCAS)
	return OK
}

// emptied puts an item without a value in the place of old, which keeps its
// CAS unless o has one.
func (sh *shard) emptied(old item, k Key, o *DeleteOptions, now Time) (item, bool) {
	cas, explicit := old.cas(), old.tag&explicitCAS != 0
	binary := old.tag & keyBinary
	sh.pins[old.r]++
	defer sh.unpin(old.r)
	// Who asks for a grant must see that it is a stub.
	l := sh.s.layoutFor(len(k.Bytes), 0, o.Flags, true)
	r := sh.alloc(l.class, now)
	if r == 0 {
		return item{}, false
	}
	expiry := uint32(0)
	if o.Touch {
		expiry = o.Expiry
	}
	it := sh.init(r, l, k.Bytes, 0, o.Flags, expiry, now.Seconds())
	it.setTag(it.tag | binary)
	sh.seal(it)
	sh.supersede(k, it, now)
	x := it.extra()
	x.stub = true
	it.setExtra(&x, 0)
	if o.Observer != nil { // memcached stores it with a set
		sh.tellLookup(o.Observer, k, LookupHit, old, now)
		sh.tellStore(&SetOptions{Observer: o.Observer}, OK, it, now)
	}
	if sh.a.Tag(old.r).State() >= slab.StateItem {
		sh.unlink(sh.item(old.r), k.Hash)
	}
	sh.link(it, k.Hash, false, 0, now)
	it = sh.item(r)
	sh.discharge(it)
	switch {
	case o.HasNewCAS:
		sh.setCAS(&it, true, o.NewCAS)
	case explicit:
		sh.setCAS(&it, true, cas)
	default:
		it.setCAS(cas)
	}
	sh.charge(it)
	return it, true
}

// renewCAS gives an item that is stored the next CAS, or the one given. The
// item may be charged to another row of its tenants afterwards.
func (sh *shard) renewCAS(it *item, has bool, cas uint64) {
	sh.discharge(*it)
	sh.setCAS(it, has, cas)
	sh.charge(*it)
}

// setCAS gives an item the next CAS, or the one given.
func (sh *shard) setCAS(it *item, has bool, cas uint64) {
	if it.tag&explicitCAS != 0 {
		sh.explicit--
		it.setTag(it.tag &^ explicitCAS)
	}
	if has {
		sh.explicit++
		it.setTag(it.tag | explicitCAS)
	} else {
		cas = sh.nextCAS()
	}
	it.setCAS(cas)
}
