package store

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// Reads that do not wait. Whoever changes what is read here makes the shard's
// version odd first, and even again when it has done. A reader looks at the
// version, reads, and looks again: if the version is as it was, and even, what
// was read is what the shard held at that moment. Else it may be anything, and
// the read is made again under the lock. Nothing that is read so can be out of
// reach: refs and numbers of buckets lead to memory that was in use once, which
// stays readable, and lengths are held against its end before they are used.
//
// Only what needs no writing is read so: an item that was read again since it
// last moved, of which the order wants to know no more, and under the lock in
// this same second. So items have the marks and dates that they would have
// without such readers, and a flush that was due has happened.
//
// It rests on loads and stores of one core being seen in their order, as on
// amd64, and on a compiler that does not move them over atomic ones. The race
// detector would see it for what it is, so it is off there.

// ReadsAlong reports whether Config.ReadAlong is of any use in this program.
const ReadsAlong = runtime.GOARCH == "amd64" && !raceEnabled

// change says that a change begins, if none is under way. The shard is locked.
func (sh *shard) change() {
	if sh.along && !sh.changing {
		sh.changing = true
		sh.version.Add(1)
	}
}

// lock takes the shard, to change it.
func (sh *shard) lock() {
	sh.mu.Lock()
	sh.change()
}

// lockToRead takes the shard. change says when it is to be changed after all.
// Marks of a hit, and when it was, are no change: they leave an item what it is.
func (sh *shard) lockToRead() { sh.mu.Lock() }

// unlock ends the change, if there was one, and gives the shard back.
func (sh *shard) unlock() {
	if sh.changing {
		sh.changing = false
		sh.version.Add(1)
	}
	sh.mu.Unlock()
}

// Reader reads without the lock where that is possible. One goroutine uses it
// at a time. What it counts, statistics have at once.
type Reader struct {
	hits [][lru.Temporary + 1]uint64 // by class and segment
	vain uint64                      // reads that had to be made again
	view Item                        // what a Visitor is shown

	base *Reader // counts at the last reset, of readers.mu
}

// readers are all that NewReader has made.
type readers struct {
	mu  sync.Mutex
	all []*Reader
}

// HasReaders reports whether NewReader makes any: with Config.ReadAlong, but not
// with tenants, whose reads are counted under the lock.
func (s *Store) HasReaders() bool { return s.cfg.ReadAlong && s.cfg.Tenants.Delimiter == 0 }

// NewReader makes a Reader for GetOptions, for the life of the store; nil where
// there are none.
func (s *Store) NewReader() *Reader {
	if !s.HasReaders() {
		return nil
	}
	rd := &Reader{base: new(Reader)}
	rd.hits = make([][lru.Temporary + 1]uint64, s.table.Len())
	rd.base.hits = make([][lru.Temporary + 1]uint64, s.table.Len())
	s.readers.mu.Lock()
	defer s.readers.mu.Unlock()
	s.readers.all = append(s.readers.all, rd)
	return rd
}

// plainMarks are the marks of an item that getAlong looks at. It must have
// those of them that are in readMarks, and no other.
const (
	readMarks  = lru.Fetched | lru.Active
	plainMarks = readMarks | chained | hasExtra | explicitCAS | stale | winSent
)

// keyLenSlack is the most by which a key may seem to be longer when its length is
// read once more: what comes behind the key is read from there on.
const keyLenSlack = 1<<8 - 1

// getAlong is Get for what can be read without the lock. False says nothing:
// Get is to look.
func (sh *shard) getAlong(k Key, rd *Reader, now Time, v Visitor) bool {
	version := sh.version.Load()
	if version&1 != 0 {
		return false
	}
	it, ok := sh.seek(k)
	if !ok {
		return false
	}
	second := now.Seconds()
	c, ok := sh.a.ClassSeen(it.r)
	if !ok || it.tag&plainMarks != readMarks || it.tag.State() < slab.StateItem ||
		it.access() != second&accessMask || it.cas() <= sh.marked || isExpired(it, second) ||
		!sh.a.Holds(it.valueOff(), uint64(it.tag.Length())+keyLenSlack) {
		return false
	}
	view := &rd.view
	// Field by field, as show does it.
	view.Key = k.Bytes
	view.CAS = it.cas()
	view.Number = 0
	view.Flags = it.flags()
	view.Size = it.tag.Length()
	view.TTL = ttl(it.expiry(), now)
	view.LastAccess = 0
	view.Class = c + 1
	view.Footprint = 0
	view.HitBefore = true
	view.Won, view.Stale, view.WinSent, view.Vivified = false, false, false, false
	view.Binary = it.tag&keyBinary != 0
	view.Fresh = nil
	view.sh = sh
	view.it = it
	view.OldTTL = view.TTL
	if sh.s.cfg.NoCAS {
		view.CAS = 0
	}
	if view.Size > AlongMaxBytes {
		return false
	}
	v.VisitItem(view)
	if sh.version.Load() != version {
		rd.vain++
		return false
	}
	rd.hits[c][lru.SegmentOf(it.tag)]++
	return true
}

// AlongMaxBytes is the longest value that is read without the lock.
const AlongMaxBytes = 8<<10 - 1

// seek is find without the lock: what looked like the item of k, with a key
// that is in reach.
func (sh *shard) seek(k Key) (item, bool) {
	b := sh.idx.bucketAbout(k.Hash)
	for range 1 + chainOverflowMax {
		c, overflow := b.match(tagBits(k.Hash))
		for i := c.next(); i >= 0; i = c.next() {
			r := b.ref(i)
			if r == 0 || !sh.a.Holds(r.Off(), headerBytes) {
				continue
			}
			it := sh.item(r)
			if it.keyLen() == len(k.Bytes) && sh.a.Holds(it.keyOff(), keyLenSlack) &&
				bytes.Equal(it.key(), k.Bytes) {
				return it, true
			}
		}
		if overflow == 0 {
			break
		}
		b = bucket{sh.idx.over, uint64(overflow-1) * bucketBytes}
		if !b.m.Holds(b.off, bucketBytes) {
			break
		}
	}
	return item{}, false
}

// addTo adds what the readers have counted to st. One goroutine writes each of
// the numbers, so that others may read them as they are.
func (rs *readers) addTo(st *Stats) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, rd := range rs.all {
		for c := range rd.hits {
			t := &st.Classes[c]
			w := rd.since(c, lru.Window)
			x := rd.since(c, lru.Probation)
			y := rd.since(c, lru.Protected)
			z := rd.since(c, lru.Temporary)
			t.HitsWindow += w
			t.HitsProbation += x
			t.HitsProtected += y
			t.HitsTemporary += z
			t.GetHits += w + x + y + z
			st.ReadAlong += w + x + y + z
		}
		st.ReadInVain += atomic.LoadUint64(&rd.vain) - rd.base.vain
	}
}

// since is the hits in segment s of class c since the last reset.
func (rd *Reader) since(c int, s lru.Segment) uint64 {
	return atomic.LoadUint64(&rd.hits[c][s]) - rd.base.hits[c][s]
}

// reset makes all that was counted 0.
func (rs *readers) reset() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, rd := range rs.all {
		for c := range rd.hits {
			for s := range rd.hits[c] {
				rd.base.hits[c][s] = atomic.LoadUint64(&rd.hits[c][s])
			}
		}
		rd.base.vain = atomic.LoadUint64(&rd.vain)
	}
}
