package store

import (
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// Set stores a value that is there as a whole. It copies key and value.
func (s *Store) Set(k Key, value []byte, o *SetOptions, now Time) SetResult {
	if s.tooLarge(len(k.Bytes), len(value), o.Flags) {
		return SetResult{Status: s.refuse(k, TooLarge, o, now)}
	}
	sh := s.lock(k, now)
	extra := false
	if o.Fill != nil || sh.usesFresh() || s.fresh.cfg.GrantOnly != nil {
		var res SetResult
		var done bool
		if res, done, extra = sh.beforeSet(k, o, now); done {
			sh.unlock()
			return res
		}
	}
	l := s.layoutFor(len(k.Bytes), len(value), o.Flags, extra)
	if l.marks&chained != 0 {
		// Large values take the way of those that arrive in parts.
		sh.unlock()
		return s.setLarge(k, value, o, now)
	}
	defer sh.unlock()
	if sh.tenants != nil {
		if st := sh.admit(k, len(value), l.head+len(value), o, now); st != OK {
			return sh.refuseQuota(k, st, o, now)
		}
	}
	if it, ok := sh.overwritable(k, l, o, now); ok {
		return sh.overwrite(it, l, k, value, o, now)
	}
	var r slab.Ref
	var relieved bool
	if o.Fill == nil {
		r, relieved = sh.allocOrRelieve(l.class, now)
	} else {
		r, relieved = sh.allocFor(k, l.class, o, now)
	}
	if r == 0 {
		return SetResult{Status: sh.refuse(k, NoMemory, o, now)}
	}
	it := sh.init(r, l, k.Bytes, len(value), o.Flags, o.Expiry, now.Seconds())
	copy(sh.a.Bytes(it.valueOff(), len(value)), value)
	sh.seal(it)
	sh.classes[sh.orderClass(it)].cmdSet++
	res := sh.commit(it, k.Hash, o, now)
	if relieved && sh.records.n > 0 {
		sh.carryFloor(k, now)
	}
	return res
}

// overwritable is the item under k, if a plain value with layout l can take its
// chunk: the item is of that class, nobody is being sent it, and nothing is
// known of it that would have to be told or kept.
func (sh *shard) overwritable(k Key, l layout, o *SetOptions, now Time) (item, bool) {
	if o.Mode != ModeSet || o.Compare || o.HasNewCAS || o.Fill != nil || o.Observer != nil ||
		sh.tenants != nil || sh.sizes != nil || sh.owned != nil || sh.usesFresh() {
		return item{}, false
	}
	r := sh.find(k)
	if r == 0 || sh.a.ClassOf(r) != l.class {
		return item{}, false
	}
	it := sh.item(r)
	return it, it.tag&(chained|hasExtra|explicitCAS) == 0 &&
		it.cas() > max(sh.flushed, sh.withheld) && !isExpired(it, now.Seconds()) &&
		(len(sh.pins) == 0 || sh.pins[r] == 0)
}

// overwrite puts a value in the place of old's, as if it was a new item that
// had got the same chunk: it has a CAS of its own, and in the order a new place
// unless the old one is kept. While it is written its tag says that it is
// pending, so that what is found after a crash is whole.
func (sh *shard) overwrite(old item, l layout, k Key, value []byte, o *SetOptions, now Time) SetResult {
	c := l.class
	n := &sh.classes[c]
	n.memRequested -= uint64(sh.footprint(old))
	n.payload -= uint64(old.payload())
	stays := !sh.hasTemporary() && sh.order.Stays(old.tag)
	if !stays {
		sh.order.Remove(c, old.r)
	}
	it := sh.init(old.r, l, k.Bytes, len(value), o.Flags, o.Expiry, now.Seconds())
	copy(sh.a.Bytes(it.valueOff(), len(value)), value)
	sh.seal(it)
	n.cmdSet++
	if o.Binary {
		it.setTag(it.tag | keyBinary)
	}
	it.setCAS(sh.nextCAS())
	n.memRequested += uint64(sh.footprint(it))
	n.payload += uint64(it.payload())
	sh.n.totalItems++
	sh.noteExpiry(it)
	if stays {
		sh.order.Stay(it.r, old.tag)
	} else {
		sh.intoOrder(it, c, now)
	}
	res := SetResult{Status: OK, CAS: it.cas(), Size: len(value)}
	if sh.s.cfg.NoCAS {
		res.CAS = 0
	}
	return res
}

// beforeSet is what Set does with k first when there are grants and versions.
// Unless that is all, the value needs room, with an extra header or without.
func (sh *shard) beforeSet(k Key, o *SetOptions, now Time) (res SetResult, done, extra bool) {
	if why := sh.preJudge(k, o, now); why != ReasonNone {
		return SetResult{Status: Refused, Reason: why}, true, false
	}
	if o.Fill == nil {
		return SetResult{}, false, sh.needsExtra(k)
	}
	if o.Fill.Kind != FillRevalidate {
		return SetResult{}, false, true
	}
	it, _, _ := sh.stored(k, now)
	rec, _ := sh.redeem(k, o.Fill, now)
	return sh.revalidate(it, rec, o.Fill, o, now), true, false // it needs no room
}

func (s *Store) setLarge(k Key, value []byte, o *SetOptions, now Time) SetResult {
	var u Upload
	if st := s.Begin(k, len(value), o, now, &u); st != OK {
		return SetResult{Status: st, Reason: u.Refusal}
	}
	u.Observe(o.Observer)
	if st := u.Write(value, now); st != OK {
		u.Abort()
		return SetResult{Status: st}
	}
	return u.Commit(now)
}

// refuse answers st for a value that cannot be stored; where the old value
// must not stay behind, it goes.
func (s *Store) refuse(k Key, st Status, o *SetOptions, now Time) Status {
	sh := s.lock(k, now)
	defer sh.unlock()
	return sh.refuse(k, st, o, now)
}

func (sh *shard) refuse(k Key, st Status, o *SetOptions, now Time) Status {
	if st == TooLarge {
		sh.n.tooLarge++
	} else {
		sh.n.noMemory++
	}
	if o.Observer != nil {
		sh.tellRefused(o, st, k, now)
	}
	if o.Fill != nil {
		sh.endFill(k, o.Fill, now)
		return st
	}
	sh.missWrite(k, now)
	if o.DropOnError {
		if it, ok := sh.live(k, now, o.Observer); ok {
			sh.unlink(it, k.Hash)
		} else if sh.nExtra > 0 {
			sh.dropHidden(k)
		}
	}
	return st
}

// commit makes the whole item it visible as o asks, over what is stored under
// its key, or frees it. It is the one place where a value replaces another.
func (sh *shard) commit(it item, h uint64, o *SetOptions, now Time) SetResult {
	k := Key{Hash: h, Bytes: it.key()}
	if o.Fill != nil {
		return sh.commitFill(it, k, o, now)
	}
	old, how := sh.lookUp(k, now)
	if o.Observer != nil {
		sh.tellLookup(o.Observer, k, how, old, now)
	}
	if how != LookupHit {
		if how != LookupMiss {
			sh.classes[sh.orderClass(it)].reclaimed++
		}
		return sh.commitNew(it, h, o, now)
	}
	oldClass := &sh.classes[sh.orderClass(old)]
	switch {
	case o.Mode == ModeAdd:
		old.setAccess(now.Seconds())
		return sh.drop(it, NotStored, o, now)

	case o.Mode == ModeAppend || o.Mode == ModePrepend:
		if o.Compare && o.CompareCAS != 0 && o.CompareCAS != old.cas() {
			return sh.drop(it, Exists, o, now)
		}
		return sh.join(old, it, h, o, now)

	case !o.Compare:
		// set and replace

	case o.CompareCAS != 0 && o.CompareCAS == old.cas():
		oldClass.casHits++

	case o.CompareCAS != 0 && o.Invalidate && o.CompareCAS < old.cas():
		// A value older than what is there, but welcome: it is stale from
		// the start, and lives as long as the old one would have.
		sh.setExpiry(it, old.expiry())
		it.setTag(it.tag | stale | old.tag&winSent)
		oldClass.casHits++

	default:
		oldClass.casBadval++
		return sh.drop(it, Exists, o, now)
	}
	if sh.usesFresh() {
		sh.supersede(k, it, now)
	}
	it.setTag(it.tag | lru.Heir(old.tag))
	sh.unlink(old, h)
	return sh.store(it, h, o, now)
}

// commitNew is commit where nothing is stored under the key.
func (sh *shard) commitNew(it item, h uint64, o *SetOptions, now Time) SetResult {
	st := NotStored
	switch o.Mode {
	case ModeAdd:
		return sh.storeNew(it, h, o, now)
	case ModeSet, ModeReplace:
		if o.Compare {
			sh.n.casMisses++
			st = Miss
		} else if o.Mode == ModeSet {
			return sh.storeNew(it, h, o, now)
		}
	case ModeAppend, ModePrepend:
		if o.Vivify {
			sh.setExpiry(it, o.VivifyExpiry)
			return sh.storeNew(it, h, o, now)
		}
	}
	sh.missWrite(Key{h, it.key()}, now)
	return sh.drop(it, st, o, now)
}

// drop frees an item that is not stored after all, and answers why.
func (sh *shard) drop(it item, why Status, o *SetOptions, now Time) SetResult {
	if o.Observer != nil {
		sh.tellStore(o, why, it, now)
	}
	sh.free(it)
	return SetResult{Status: why}
}

// storeNew is store for a key that had no item.
func (sh *shard) storeNew(it item, h uint64, o *SetOptions, now Time) SetResult {
	if sh.tenants == nil || !sh.atQuota(it) {
		sh.noteInsert(sh.orderClass(it))
	}
	if sh.usesFresh() {
		sh.supersedeNew(Key{h, it.key()}, it, now)
	}
	return sh.store(it, h, o, now)
}

// store links it and answers for it.
func (sh *shard) store(it item, h uint64, o *SetOptions, now Time) SetResult {
	if o.Binary {
		it.setTag(it.tag | keyBinary)
	}
	sh.link(it, h, o.HasNewCAS, o.NewCAS, now)
	if o.Observer != nil {
		sh.tellStore(o, OK, it, now)
	}
	res := SetResult{Status: OK, CAS: it.cas(), Size: it.valueLen()}
	if sh.s.cfg.NoCAS {
		res.CAS = 0
	}
	return res
}

// join stores old's value with it's behind (append) or before (prepend). Old
// keeps flags and TTL, and is pinned while room is made for both.
func (sh *shard) join(old, it item, h uint64, o *SetOptions, now Time) SetResult {
	s := sh.s
	sh.missWrite(Key{h, it.key()}, now) // as it is if there is no room for both
	key, n := it.key(), old.valueLen()+it.valueLen()
	flags, expiry, binary := old.flags(), old.expiry(), old.tag&keyBinary
	if s.tooLarge(len(key), n, flags) || sh.tenants != nil && !sh.admitJoined(key, n) {
		sh.n.tooLarge++
		return sh.drop(it, NotStored, o, now)
	}
	sh.pins[old.r]++
	defer sh.unpin(old.r)

	k := Key{h, key}
	l := s.layoutFor(len(key), n, flags, sh.needsExtra(k))
	r := sh.alloc(l.class, now)
	if r == 0 {
		return sh.drop(it, NotStored, o, now)
	}
	both := sh.init(r, l, key, n, flags, expiry, now.Seconds())
	w := sh.writer(both)
	first, second := old, it
	if o.Mode == ModePrepend {
		first, second = it, old
	}
	ok := w.copyValue(first, now) && w.copyValue(second, now)
	if !ok {
		sh.free(both)
		return sh.drop(it, NotStored, o, now)
	}
	sh.free(it)
	if sh.usesFresh() {
		sh.supersede(Key{h, both.key()}, both, now)
		sh.inherit(both, old)
	}
	if t := sh.a.Tag(old.r); t.State() >= slab.StateItem {
		both.setTag(both.tag | lru.Heir(t))
		sh.unlink(sh.item(old.r), h)
	}
	both.setTag(both.tag | binary)
	sh.seal(both)
	return sh.store(both, h, o, now)
}

// bump notes that an item of order class oc was read.
func (sh *shard) bump(oc int, it *item, h uint64, now Time) {
	sh.noteHit(oc, it.tag)
	it.tag = sh.order.Hit(oc, it.r, it.tag, h)
	it.setAccess(now.Seconds())
}

// writer fills the value of a new item, and takes pieces as it needs them.
type writer struct {
	sh   *shard
	it   item
	at   slab.Ref // chunk being written
	off  uint64   // where in the arena
	room int      // bytes left in it
	left int      // bytes of the value still to come, behind this chunk
}

func (sh *shard) writer(it item) writer {
	n := it.inFirst()
	return writer{sh: sh, it: it, at: it.r, off: it.valueOff(), room: n, left: it.valueLen() - n}
}

// nextPiece is how many bytes the next piece will hold, and its class.
func (w *writer) nextPiece() (n, class int) {
	t := w.sh.s.table
	n = min(w.left, t.Largest()-pieceHeaderBytes)
	return n, w.sh.s.pieceClass(n)
}

// grow takes the next piece. The shard must be locked.
func (w *writer) grow(now Time) bool {
	n, c := w.nextPiece()
	r := w.sh.alloc(c, now)
	if r == 0 {
		return false
	}
	w.attach(r, n)
	return true
}

// attach makes chunk r the next piece, for n bytes.
func (w *writer) attach(r slab.Ref, n int) {
	sh := w.sh
	sh.a.SetTag(r, slab.MakeTag(slab.StatePiece, 0))
	sh.a.SetNext(r, 0)
	sh.a.SetPrev(r, w.it.r)
	if w.at == w.it.r {
		w.it.setFirstPiece(r)
	} else {
		sh.a.SetNext(w.at, r)
	}
	w.at, w.off = r, r.Off()+pieceHeaderBytes
	w.room, w.left = n, w.left-n
}

// free is what is left of the current chunk.
func (w *writer) free() []byte { return w.sh.a.Bytes(w.off, w.room) }

// advance says that the first n bytes of it were written.
func (w *writer) advance(n int) {
	w.off += uint64(n)
	w.room -= n
}

// put copies as much of p as the current chunk takes.
func (w *writer) put(p []byte) int {
	n := copy(w.free(), p)
	w.advance(n)
	return n
}

// copyValue writes the whole value of from, which must not move meanwhile.
func (w *writer) copyValue(from item, now Time) bool {
	p := from.pieces()
	for b := p.bytes(); b != nil; b = p.bytes() {
		if w.room == 0 && !w.grow(now) {
			return false
		}
		p.advance(w.put(b))
	}
	return true
}
