package store

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/quarrycache/quarry/slab"
)

// The index finds an item by its key's hash: linear hashing over buckets of
// one cache line, off the Go heap.
//
//	 0  tags       12  one byte of the hash for each entry
//	12  overflow    4  the bucket that goes on, 0 none
//	16  refs    12 x 4  0 none
//
// A chain is a bucket and its overflow buckets. Its entries are dense: only
// the last bucket of a chain is not full. An insert splits at most one
// bucket, so that the table grows without a pause; buckets in the part that
// is not split yet are fuller, and spill into overflow buckets.
//
// The bits of a hash:
//
//	63-52  bucket of the cluster's map
//	51-40  shard
//	39-32  tag
//	31-0   position
type index struct {
	mem  *slab.Memory // buckets
	over *slab.Memory // overflow buckets, numbered from 1

	level uint   // buckets there were when this round of splits began, log2
	split uint32 // buckets split in this round
	items int

	shape uint64 // level<<32 | split: atomic, for prefetch, which has no lock

	overFree uint32 // freed overflow buckets, linked by their overflow field
	overNext uint32 // the first never used
	nOver    int    // in use
}

const (
	bucketBytes   = 64
	bucketEntries = 12
	overflowOff   = 12
	refsOff       = 16

	// indexLevelMin is the size of an empty index, log2 of its buckets.
	indexLevelMin = 8
	// loadMax is the number of items a bucket, in the mean, beyond which an
	// insert splits one. Chosen by TestIndexDensity: 7.7 to 8.3 bytes an item
	// at every size, overflow buckets included.
	loadMax = 10
	// chainOverflowMax bounds a chain. Keys made to collide cost no more than
	// this many cache lines a lookup; a chain that is full loses its oldest.
	chainOverflowMax = 8
	chainEntriesMax  = bucketEntries * (1 + chainOverflowMax)
)

func shardBits(h uint64) uint32 { return uint32(h>>40) & 0xfff }
func tagBits(h uint64) uint64   { return h >> 32 & 0xff }

// newIndex is an empty index with address space for at most itemsMax items.
func newIndex(itemsMax int64) (index, error) {
	x := index{overNext: 1}
	x.setShape(indexLevelMin, 0)
	var err error
	// A full chain of every bucket is far beyond what hashing makes.
	if x.mem, err = slab.Reserve(max(itemsMax/(loadMax/2)*bucketBytes, bucketBytes<<indexLevelMin)); err != nil {
		return x, err
	}
	if x.over, err = slab.Reserve(max(itemsMax/bucketEntries*bucketBytes, bucketBytes<<indexLevelMin)); err != nil {
		return x, err
	}
	return x, x.mem.Commit(bucketBytes << indexLevelMin)
}

// resize makes an empty index one that has grown to a level and a split. False:
// they make no sense, or there is no memory for it.
func (x *index) resize(level, split uint32) bool {
	if level < indexLevelMin || level > 31 || split >= 1<<level ||
		x.mem.Commit((1<<level+int64(split))*bucketBytes) != nil {
		return false
	}
	x.setShape(uint(level), split)
	return true
}

func (x *index) close() error {
	if err := x.mem.Release(); err != nil {
		return err
	}
	return x.over.Release()
}

// buckets is their number, overflow buckets not counted.
func (x *index) buckets() uint32 { return 1<<x.level + x.split }

// bytes is the memory that the index has written to.
func (x *index) bytes() int64 {
	return int64(x.buckets())*bucketBytes + int64(x.overNext-1)*bucketBytes
}

// position is the bucket for hash h.
func (x *index) position(h uint64) uint32 { return positionIn(h, x.level, x.split) }

func positionIn(h uint64, level uint, split uint32) uint32 {
	p := uint32(h) & (1<<level - 1)
	if p < split {
		p = uint32(h) & (1<<(level+1) - 1)
	}
	return p
}

func (x *index) setShape(level uint, split uint32) {
	x.level, x.split = level, split
	atomic.StoreUint64(&x.shape, uint64(level)<<32|uint64(split))
}

// bucketsAbout is buckets, for those who have no lock.
func (x *index) bucketsAbout() uint32 {
	shape := atomic.LoadUint64(&x.shape)
	return 1<<(shape>>32) + uint32(shape)
}

// bucketAbout is bucketOf for those who have no lock: it may be another one by
// the time that it is looked at.
func (x *index) bucketAbout(h uint64) bucket {
	shape := atomic.LoadUint64(&x.shape)
	return bucket{x.mem, uint64(positionIn(h, uint(shape>>32), uint32(shape))) * bucketBytes}
}

// prefetch brings the bucket for hash h into the cache. It needs no lock.
func (x *index) prefetch(h uint64) { x.mem.Prefetch(x.bucketAbout(h).off) }

// bucket is a view of one bucket.
type bucket struct {
	m   *slab.Memory
	off uint64
}

func (x *index) bucketOf(h uint64) bucket {
	return bucket{x.mem, uint64(x.position(h)) * bucketBytes}
}

func (b bucket) ref(i int) slab.Ref { return slab.Ref(b.m.U32(b.off + refsOff + uint64(i)*4)) }
func (b bucket) overflow() uint32   { return b.m.U32(b.off + overflowOff) }
func (b bucket) tag(i int) byte     { return b.m.U8(b.off + uint64(i)) }

func (b bucket) set(i int, tag byte, r slab.Ref) {
	b.m.PutU8(b.off+uint64(i), tag)
	b.m.PutU32(b.off+refsOff+uint64(i)*4, uint32(r))
}

// len is the number of entries in this bucket.
func (b bucket) len() int {
	n := 0
	for n < bucketEntries && b.ref(n) != 0 {
		n++
	}
	return n
}

// next is the overflow bucket behind b.
func (x *index) next(b bucket) (bucket, bool) {
	o := b.overflow()
	return bucket{x.over, uint64(o-1) * bucketBytes}, o != 0
}

// candidates is a set of entries of a bucket whose tag may be the wanted one:
// bit 8i+7 is entry i of lo, and of hi entry 8+i. An entry may be in it by
// mistake (the borrow of the subtraction runs on to the next byte), and
// emptied entries are: so a key is always compared.
type candidates struct{ lo, hi uint64 }

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// match finds the entries of b with the tag, and its overflow bucket.
func (b bucket) match(tag uint64) (c candidates, overflow uint32) {
	lo, hi := b.m.U64(b.off), b.m.U64(b.off+8)
	pattern := tag * lowBits
	x, y := lo^pattern, hi^pattern
	c.lo = (x - lowBits) &^ x & highBits
	c.hi = (y - lowBits) &^ y & (highBits >> 32)
	return c, uint32(hi >> 32)
}

// next takes the first entry out of the set; -1 when there is none.
func (c *candidates) next() int {
	if c.lo != 0 {
		i := bits.TrailingZeros64(c.lo) >> 3
		c.lo &= c.lo - 1
		return i
	}
	if c.hi != 0 {
		i := bits.TrailingZeros64(c.hi) >> 3
		c.hi &= c.hi - 1
		return 8 + i
	}
	return -1
}

// insert adds ref r under hash h. False means that its chain is full, or that
// there is no memory for an overflow bucket: nothing was changed then.
func (x *index) insert(h uint64, r slab.Ref) bool {
	if !x.add(x.bucketOf(h), byte(tagBits(h)), r) {
		return false
	}
	x.items++
	return true
}

// add puts an entry at the end of the chain of b.
func (x *index) add(b bucket, tag byte, r slab.Ref) bool {
	for depth := 0; ; depth++ {
		if n := b.len(); n < bucketEntries {
			b.set(n, tag, r)
			return true
		}
		next, ok := x.next(b)
		if !ok {
			o := uint32(0)
			if depth < chainOverflowMax {
				o = x.allocOverflow()
			}
			if o == 0 {
				return false
			}
			b.m.PutU32(b.off+overflowOff, o)
			next = bucket{x.over, uint64(o-1) * bucketBytes}
		}
		b = next
	}
}

// remove takes ref r, stored under hash h, out. The last entry of the chain
// takes its place.
func (x *index) remove(h uint64, r slab.Ref) {
	at, i := x.find(h, r)
	last, before := x.bucketOf(h), bucket{}
	for next, ok := x.next(last); ok; next, ok = x.next(last) {
		before, last = last, next
	}
	n := last.len() - 1
	at.set(i, last.tag(n), last.ref(n))
	last.set(n, 0, 0)
	if n == 0 && before.m != nil {
		x.freeOverflow(before.overflow())
		before.m.PutU32(before.off+overflowOff, 0)
	}
	x.items--
}

// replace makes the entry of ref from, stored under hash h, one of ref to.
func (x *index) replace(h uint64, from, to slab.Ref) {
	b, i := x.find(h, from)
	b.set(i, byte(tagBits(h)), to)
}

// find is the entry of ref r, which is stored under hash h.
func (x *index) find(h uint64, r slab.Ref) (bucket, int) {
	b := x.bucketOf(h)
	for {
		c, _ := b.match(tagBits(h))
		for i := c.next(); i >= 0; i = c.next() {
			if b.ref(i) == r {
				return b, i
			}
		}
		next, ok := x.next(b)
		if !ok {
			panic(fmt.Sprintf("store: ref %d with hash %#x is not in the index", r, h))
		}
		b = next
	}
}

// chain appends the refs of the chain of hash h to refs.
func (x *index) chain(h uint64, refs []slab.Ref) []slab.Ref {
	return x.refs(x.bucketOf(h), refs)
}

func (x *index) refs(b bucket, refs []slab.Ref) []slab.Ref {
	for ok := true; ok; b, ok = x.next(b) {
		for i := range b.len() {
			refs = append(refs, b.ref(i))
		}
	}
	return refs
}

// wantsSplit reports whether the index is to grow by a bucket.
func (x *index) wantsSplit() bool { return x.items > int(x.buckets())*loadMax }

// splitOne divides the next bucket in two. hashOf is asked for the hash of
// each entry. Without memory for the new bucket nothing happens: the index
// works on, with longer chains.
func (x *index) splitOne(hashOf func(slab.Ref) uint64) {
	from := bucket{x.mem, uint64(x.split) * bucketBytes}
	to := bucket{x.mem, uint64(x.buckets()) * bucketBytes}
	if x.mem.Commit(int64(to.off)+bucketBytes) != nil {
		return
	}
	var buf [chainEntriesMax]slab.Ref
	refs := x.refs(from, buf[:0])
	x.clear(from)
	bit := uint64(1) << x.level
	for _, r := range refs {
		h := hashOf(r)
		b := from
		if h&bit != 0 {
			b = to
		}
		// The overflow buckets that clear has freed suffice.
		if !x.add(b, byte(tagBits(h)), r) {
			panic(fmt.Sprintf("store: no room for ref %d while bucket %d is split", r, x.split))
		}
	}
	if x.split+1 == 1<<x.level {
		x.setShape(x.level+1, 0)
	} else {
		x.setShape(x.level, x.split+1)
	}
}

// clear empties the chain of b.
func (x *index) clear(b bucket) {
	for o := b.overflow(); o != 0; {
		next := bucket{x.over, uint64(o-1) * bucketBytes}.overflow()
		x.freeOverflow(o)
		o = next
	}
	clear(b.m.Bytes(b.off, bucketBytes))
}

// allocOverflow takes an overflow bucket, all zero; 0 when there is none.
func (x *index) allocOverflow() uint32 {
	if o := x.overFree; o != 0 {
		b := bucket{x.over, uint64(o-1) * bucketBytes}
		x.overFree = b.overflow()
		b.m.PutU32(b.off+overflowOff, 0)
		x.nOver++
		return o
	}
	if x.over.Commit(int64(x.overNext)*bucketBytes) != nil {
		return 0
	}
	x.overNext++
	x.nOver++
	return x.overNext - 1
}

func (x *index) freeOverflow(o uint32) {
	b := bucket{x.over, uint64(o-1) * bucketBytes}
	clear(b.m.Bytes(b.off, bucketBytes))
	b.m.PutU32(b.off+overflowOff, x.overFree)
	x.overFree = o
	x.nOver--
}
