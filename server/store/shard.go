package store

import (
	"bytes"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// shard is a part of the store that works by itself: one arena, its index,
// its order. Keys are spread over shards by their hash.
type shard struct {
	mu sync.Mutex // all below, and every item reached through them

	along    bool // Config.ReadAlong
	changing bool // the version is odd

	_       [2 * cacheLineBytes]byte
	version atomic.Uint64 // of what readers without the lock read: odd while it changes
	_       [2 * cacheLineBytes]byte

	s     *Store
	id    int
	a     *slab.Arena
	order *lru.Order
	idx   index

	seq      uint64 // stores so far; the CAS of an item is made of it
	seqFirst uint64 // seq at the start
	flushed  uint64 // items with a CAS up to this are gone
	withheld uint64 // items with a CAS up to this are not shown unless they have a version
	marked   uint64 // the highest of all such marks: items with a CAS above it need no look at them
	flushAt  uint32 // second at which the next flush is due, 0 none
	explicit int    // items whose CAS is explicit: a flush must look for them

	freshShard

	// earliest[n] is the earliest second at which the sweeper has something
	// to do in page n: the first expiry there, or 0 after a flush.
	earliest []uint32
	dueAt    uint32 // nothing in the shard expires earlier
	sweep    sweep
	move     move
	stuckAt  uint32 // the page whose move was given up last, 0: the last one went through

	balance balance

	pins map[slab.Ref]int // readers of items being sent, by item

	pieceBytes int64 // headers of the pieces of items
	goneBytes  int64 // chunks of items that are gone, but still being sent

	view     Item // what a Visitor is shown
	event    Event
	observer Observer // of what no request names one for; nil: there is none
	holder   holder
	tally    sweepTally

	n       counts
	classes []classCounts

	tenants *tenants // nil: there are none
	sizes   sizes    // nil: sizes are not counted

	temporarySeconds int64 // items that expire within that are temporary; -1 none are

	_ [64]byte // shards that neighbour in memory share no cache line
}

// never is an earliest that does not come.
const never = math.MaxUint32

func newShard(s *Store, id int, reserve int64) (*shard, error) {
	var a *slab.Arena
	var err error
	if s.file != nil {
		a, err = s.file.newArena(s.table, s.budget, id)
	} else {
		a, err = slab.NewArena(s.table, s.budget, reserve)
	}
	if err != nil {
		return nil, err
	}
	if s.cfg.CompatSlabs {
		a.KeepPages()
	}
	sh := &shard{
		s: s, id: id, a: a, dueAt: never,
		pins:    make(map[slab.Ref]int),
		classes: make([]classCounts, s.orderClasses()),
		balance: newBalance(s),
		tenants: newTenants(&s.cfg.Tenants, s.cfg.Shards, s.table.Len()),

		temporarySeconds: -1,
	}
	if s.cfg.TrackSizes {
		sh.sizes = sizes{}
	}
	if sh.along = s.cfg.ReadAlong; sh.along {
		a.ReadAlong()
	}
	if sh.freshShard, err = s.fresh.newShard(s, id); err != nil {
		return nil, err
	}
	if sh.order, err = lru.New(a, s.orderClasses(), sh, s.cfg.Policy, reserve/slab.ChunkMinBytes); err != nil {
		return nil, err
	}
	if sh.idx, err = newIndex(reserve / slab.ChunkMinBytes); err != nil {
		return nil, err
	}
	return sh, nil
}

// useLargePages has items and index in large pages of the system.
func (sh *shard) useLargePages() error {
	for _, m := range []*slab.Memory{sh.a.Memory, sh.idx.mem, sh.idx.over} {
		if err := m.UseLargePages(); err != nil {
			return err
		}
	}
	return nil
}

func (sh *shard) close() error {
	if err := sh.order.Close(); err != nil {
		return err
	}
	if err := sh.records.close(); err != nil {
		return err
	}
	if err := sh.idx.close(); err != nil {
		return err
	}
	return sh.a.Close()
}

// find is the item with key k, 0 when there is none; it may have expired.
func (sh *shard) find(k Key) slab.Ref {
	b := sh.idx.bucketOf(k.Hash)
	tag := tagBits(k.Hash)
	for {
		c, overflow := b.match(tag)
		for i := c.next(); i >= 0; i = c.next() {
			r := b.ref(i)
			if r == 0 {
				continue
			}
			it := sh.item(r)
			if it.keyLen() == len(k.Bytes) && bytes.Equal(it.key(), k.Bytes) {
				return r
			}
		}
		if overflow == 0 {
			return 0
		}
		b = bucket{sh.idx.over, uint64(overflow-1) * bucketBytes}
	}
}

// live is the item with key k, if it is neither expired nor flushed; if it
// is, it is freed. o, unless nil, is told.
func (sh *shard) live(k Key, now Time, o Observer) (item, bool) {
	it, how := sh.lookUp(k, now)
	if o != nil {
		sh.tellLookup(o, k, how, it, now)
	}
	return it, how == LookupHit
}

// lookUp is live that also says what it found instead.
func (sh *shard) lookUp(k Key, now Time) (it item, how Lookup) {
	r := sh.find(k)
	if r == 0 {
		return item{}, LookupMiss
	}
	it = sh.item(r)
	if it.tag&(explicitCAS|hasExtra) == 0 && it.cas() > sh.marked && !isExpired(it, now.Seconds()) {
		return it, LookupHit // as nearly all are
	}
	switch {
	case sh.isFlushed(it):
		sh.n.getFlushed++
		how = LookupFlushed
	case isExpired(it, now.Seconds()):
		sh.n.getExpired++
		how = LookupExpired
	case sh.withheld != 0 && sh.isWithheld(it):
		sh.n.getFlushed++
		how = LookupFlushed
	case it.tag&hasExtra != 0:
		return sh.lookUpExtra(it, k, now)
	default:
		return it, LookupHit
	}
	sh.unlink(it, k.Hash)
	return item{}, how
}

// lookUpExtra is lookUp for an item with an extra header. A known absence, and
// a value with a deadline while the clock is not trusted, are left where they
// are, and not shown.
func (sh *shard) lookUpExtra(it item, k Key, now Time) (item, Lookup) {
	x := it.extra()
	switch {
	case x.Hard != 0 && sh.s.fresh.untrusted.Load():
		return item{}, LookupMiss
	case x.Hard != 0 && x.Hard <= sh.deadlineTime(now):
		sh.n.getExpired++
		sh.unlink(it, k.Hash)
		return item{}, LookupExpired
	}
	if x.absent {
		return it, LookupMiss
	}
	return it, LookupHit
}

func isExpired(it item, second uint32) bool {
	e := it.expiry()
	return e != 0 && e <= second
}

// isFlushed reports whether a mark that was set after it was stored makes it
// gone.
func (sh *shard) isFlushed(it item) bool {
	if it.tag&explicitCAS != 0 {
		return false
	}
	cas := it.cas()
	return cas <= sh.flushed ||
		it.tag&hasExtra != 0 && cas <= sh.rebased && it.extra().Hard != 0 ||
		sh.owned != nil && sh.isHidden(it, cas)
}

// HashOf is the hash of the key of item r.
func (sh *shard) HashOf(r slab.Ref) uint64 { return xxhash.Sum64(sh.item(r).key()) }

// AgeOf is how many stores ago item r was stored; 0 when its CAS does not
// tell.
func (sh *shard) AgeOf(r slab.Ref) uint64 {
	it := sh.item(r)
	if it.tag&explicitCAS != 0 {
		return 0
	}
	return sh.seq - it.cas()/uint64(len(sh.s.shards))
}

// nextCAS is a number that no other item of the store has or had: a counter
// of the shard, times the number of shards, plus the shard's own.
func (sh *shard) nextCAS() uint64 {
	sh.seq++
	return sh.casOf(sh.seq)
}

func (sh *shard) casOf(seq uint64) uint64 {
	return seq*uint64(len(sh.s.shards)) + uint64(sh.id)
}

// alloc takes a chunk of class c, and makes room for it if it must. 0: there
// is none to be had.
func (sh *shard) alloc(c int, now Time) slab.Ref {
	for {
		if r, ok := sh.a.Alloc(c); ok {
			return r
		}
		if !sh.makeRoom(c, now) {
			sh.classes[c].outOfMemory++
			return 0
		}
	}
}

// makeRoom frees something for slab class c: what has expired, or what should
// go next. When the class has nothing to give, it gets a page of another one.
func (sh *shard) makeRoom(c int, now Time) bool {
	if sh.dueAt <= now.Seconds() {
		sh.sweepStep(sweepPagesForRoom, sweepChunksForRoom, now)
		if sh.a.HasRoom(c) {
			return true
		}
	}
	if sh.s.cfg.NoEvict {
		r := sh.victim(c)
		if r == 0 || !sh.isGone(r, now) {
			return false
		}
		sh.evict(r, now)
		return true
	}
	if !sh.s.cfg.CompatSlabs {
		sh.rebalance(c, now)
	}
	if sh.a.HasRoom(c) {
		return true
	}
	r := sh.nextVictim(c)
	if r == 0 {
		return sh.stealPage(c, now)
	}
	sh.evict(r, now)
	return true
}

// isFilled reports whether item r is the one for whose key a fill needs room.
func (sh *shard) isFilled(r slab.Ref) bool { return sh.filling != 0 && sh.HashOf(r) == sh.filling }

// nextVictim is the item of slab class c that goes next, but not the one whose
// place a fill is to take. 0: there is none.
func (sh *shard) nextVictim(c int) slab.Ref {
	r := sh.victim(c)
	if r == 0 || !sh.isFilled(r) {
		return r
	}
	it := sh.item(r)
	oc := sh.orderClass(it)
	sh.order.Remove(oc, r)
	other := sh.victim(c)
	if lru.SegmentOf(it.tag) == lru.Temporary {
		sh.order.InsertTemporary(oc, r)
	} else {
		sh.order.Insert(oc, r)
	}
	return other
}

// isGone reports whether item r is past its time, or was flushed.
func (sh *shard) isGone(r slab.Ref, now Time) bool {
	it := sh.item(r)
	return isExpired(it, now.Seconds()) || sh.isFlushed(it) || it.tag&hasExtra != 0 && sh.isPastHard(it, now)
}

// isPastHard reports whether the hard deadline of an item with an extra header
// has come, which can be a part of a second before its expiry.
func (sh *shard) isPastHard(it item, now Time) bool {
	x := it.extra()
	return x.Hard != 0 && x.Hard <= sh.deadlineTime(now)
}

// evict frees an item to make room for any other, which the balance between
// classes learns from.
func (sh *shard) evict(r slab.Ref, now Time) {
	if !sh.isGone(r, now) {
		it := sh.item(r)
		sh.noteEvicted(sh.orderClass(it), it.tag)
	}
	sh.remove(r, now)
}

// remove frees an item, and counts what it was. If it has not gone before, the
// token of its key ends.
func (sh *shard) remove(r slab.Ref, now Time) {
	it := sh.item(r)
	second := now.Seconds()
	n := &sh.classes[sh.orderClass(it)]
	n.evictedTime = it.idleSeconds(second)
	if sh.isGone(r, now) {
		n.reclaimed++
		if it.tag&lru.Fetched == 0 {
			n.expiredUnfetched++
		}
	} else {
		n.evicted++
		n.directReclaims++
		if it.expiry() != 0 {
			n.evictedNonzero++
		}
		if it.tag&lru.Fetched == 0 {
			n.evictedUnfetched++
		}
		if it.tag&lru.Active != 0 {
			n.evictedActive++
		}
		if sh.tenants != nil {
			sh.tenants.charged(it).n.evicted++
		}
		if sh.records.n > 0 {
			sh.endToken(Key{sh.HashOf(r), it.key()}, now)
		}
		if sh.observer != nil {
			sh.tellEvict(it, now)
		}
	}
	sh.unlink(it, sh.HashOf(r))
}

// link makes a whole item visible, with the next CAS or the one given. Its
// key is not in the index.
//
// What it counts, adoption.count counts too.
func (sh *shard) link(it item, h uint64, hasCAS bool, cas uint64, now Time) {
	sh.setCAS(&it, hasCAS, cas)
	c := sh.orderClass(it)
	n := &sh.classes[c]
	n.items++
	n.memRequested += uint64(sh.footprint(it))
	n.payload += uint64(it.payload())
	if it.tag&chained != 0 {
		sh.pieceBytes += it.pieceHeaders()
	}
	sh.n.totalItems++
	if it.tag&hasExtra != 0 {
		sh.nExtra++
	}
	sh.noteExpiry(it)
	for !sh.idx.insert(h, it.r) {
		sh.evictFromChain(h, now)
	}
	if sh.idx.wantsSplit() {
		sh.idx.splitOne(sh.HashOf)
	}
	sh.intoOrder(it, c, now)
	if sh.sizes != nil {
		sh.sizes.add(sh.footprint(it))
	}
	if sh.tenants != nil {
		sh.linked(it, h, now)
	}
}

// intoOrder puts an item of order class c into the order.
func (sh *shard) intoOrder(it item, c int, now Time) {
	if sh.isTemporary(it, now) {
		sh.order.InsertTemporary(c, it.r)
	} else {
		sh.order.Insert(c, it.r)
	}
}

// evictFromChain frees the item that was accessed longest ago among those
// whose hashes collide with h.
func (sh *shard) evictFromChain(h uint64, now Time) {
	var buf [chainEntriesMax]slab.Ref
	oldest, idle := slab.Ref(0), uint32(0)
	for _, r := range sh.idx.chain(h, buf[:0]) {
		if n := sh.item(r).idleSeconds(now.Seconds()); oldest == 0 || n > idle {
			oldest, idle = r, n
		}
	}
	if oldest == 0 {
		panic(fmt.Sprintf("store: no room in the empty chain of hash %#x", h))
	}
	sh.n.chainEvictions++
	sh.evict(oldest, now)
}

// unlink takes an item out of index and order and frees it, or leaves that
// to its last reader.
func (sh *shard) unlink(it item, h uint64) {
	sh.change()
	c := sh.orderClass(it)
	n := &sh.classes[c]
	n.items--
	n.memRequested -= uint64(sh.footprint(it))
	n.payload -= uint64(it.payload())
	if sh.sizes != nil {
		sh.sizes.remove(sh.footprint(it))
	}
	if it.tag&chained != 0 {
		sh.pieceBytes -= it.pieceHeaders()
	}
	if it.tag&explicitCAS != 0 {
		sh.explicit--
	}
	if it.tag&hasExtra != 0 {
		sh.leaveFloor(it, h)
	}
	if sh.tenants != nil {
		sh.discharge(it)
	}
	sh.idx.remove(h, it.r)
	sh.order.Remove(c, it.r)
	if len(sh.pins) > 0 && sh.pins[it.r] > 0 {
		sh.a.SetTag(it.r, sh.a.Tag(it.r).WithState(slab.StatePinned))
		sh.goneBytes += it.chunkBytes()
		return
	}
	sh.free(it)
}

// free gives the chunks of an item back, which is in no list any more.
func (sh *shard) free(it item) {
	if it.tag&chained != 0 {
		for p := it.firstPiece(); p != 0; {
			next := sh.a.Next(p)
			sh.a.Free(p)
			p = next
		}
	}
	sh.a.Free(it.r)
}

// noteExpiry tells the sweeper when to look at the item's page.
func (sh *shard) noteExpiry(it item) {
	e := it.expiry()
	if e == 0 {
		return
	}
	n := sh.a.PageOf(it.r)
	for uint32(len(sh.earliest)) <= n {
		sh.earliest = append(sh.earliest, never)
	}
	sh.earliest[n] = min(sh.earliest[n], e)
	sh.dueAt = min(sh.dueAt, e)
}

// setExpiry changes when an item is gone.
func (sh *shard) setExpiry(it item, e uint32) {
	if it.tag&hasExtra != 0 {
		x := it.extra()
		x.ttl = e
		it.setExtra(&x, Time(sh.s.fresh.offset.Load()))
	} else {
		it.setExpiry(e)
	}
	sh.noteExpiry(it)
}
