package store

import (
	"math/bits"

	"github.com/quarrycache/quarry/slab"
)

// Walk is where a walk over all items is. The zero value is its beginning.
//
// It goes through each shard's index in the order of the positions' bits read
// backwards. A bucket has all hashes that end in the same bits, so those that
// a step has walked are all those below some number, and they stay so when
// buckets are split: an item that is there from the beginning of the walk to
// its end is shown exactly once, however many others come and go, and wherever
// it moves. No key is shown twice, unless it was deleted and stored again.
type Walk struct {
	shard int
	at    uint64 // of 2^32: reversed positions below it are done
}

// Walk shows v the items behind w, of all classes or of those in only, by class
// number: at least items of them, unless it reports that there are no more, and
// at most as many as a chain of the index more. Those that a get does not see are
// left out. One shard at a time is locked, once.
func (s *Store) Walk(w *Walk, items int, only ClassSet, now Time, v Visitor) (more bool) {
	sh := s.shards[w.shard]
	sh.lock()
	defer sh.unlock()
	step := sh.beginStep("walk")
	defer sh.endStep(&step)
	sh.enter(now)
	// Buckets without an item of a class in only cost time, too.
	for looked := 0; looked < items && w.at < 1<<32; {
		b, width := sh.idx.reversed(uint32(w.at))
		w.at += width
		looked++
		var buf [chainEntriesMax]slab.Ref
		for _, r := range sh.idx.refs(b, buf[:0]) {
			looked++
			if !sh.isShown(r, now) || !only.has(sh.a.ClassOf(r)+1) {
				continue
			}
			it := sh.item(r)
			view := sh.show(it, now)
			view.Footprint = sh.footprint(it)
			v.VisitItem(view)
		}
	}
	if w.at >= 1<<32 {
		w.shard++
		w.at = 0
	}
	return w.shard < len(s.shards)
}

// isShown reports whether a walk shows item r: what plain commands would find.
func (sh *shard) isShown(r slab.Ref, now Time) bool {
	if sh.isGone(r, now) {
		return false
	}
	it := sh.item(r)
	if it.tag&hasExtra == 0 {
		return true
	}
	x := it.extra()
	return !x.absent && (x.Hard == 0 || !sh.s.fresh.untrusted.Load())
}

// reversed is the bucket of the hashes whose low 32 bits, read backwards, are
// at, and how many of such numbers, from at on, are the bucket's.
func (x *index) reversed(at uint32) (b bucket, width uint64) {
	h := bits.Reverse32(at)
	level := x.level
	if h&(1<<level-1) < x.split {
		level++
	}
	return x.bucketOf(uint64(h)), 1 << (32 - level)
}

// ClassSet is a set of class numbers, which count from 1. A nil one is all.
type ClassSet []bool

// Add puts class number n into the set; it must not be nil.
func (c ClassSet) Add(n int) { c[n] = true }

func (c ClassSet) has(n int) bool { return c == nil || n < len(c) && c[n] }

// PageWalk is where a walk over the pages of some classes is, in the order of
// addresses. It is for one class faster than Walk, but items that move
// meanwhile may be left out or met twice.
type PageWalk struct {
	only  ClassSet
	left  []int // by class number: items to look at yet
	shard int
	page  uint32
	chunk int
}

// NewPageWalk is the beginning of a walk over the pages of the classes in only,
// of which at most itemsMax items each are looked at; 0 is all.
func (s *Store) NewPageWalk(only ClassSet, itemsMax int) *PageWalk {
	w := &PageWalk{only: only, page: 1}
	if itemsMax > 0 {
		w.left = make([]int, s.table.Len()+1)
		for i := range w.left {
			w.left[i] = itemsMax
		}
	}
	return w
}

// pagesAStep bounds the pages that a step of a PageWalk passes over.
const pagesAStep = 1024

// step calls f for each item in the next chunks, at most that many, until f
// reports false. It locks one shard, once.
func (s *Store) step(w *PageWalk, chunks int, now Time, f func(sh *shard, it item) bool) (more bool) {
	sh := s.shards[w.shard]
	sh.lock()
	defer sh.unlock()
	step := sh.beginStep("crawl")
	defer sh.endStep(&step)
	sh.enter(now)
	for pages := 0; pages < pagesAStep && w.page < sh.a.Pages(); pages++ {
		page := sh.a.Page(w.page)
		n := page.Class + 1
		for ; n > 0 && w.only.has(n) && w.chunk < page.N; w.chunk++ {
			if w.left != nil && w.left[n] == 0 {
				break
			}
			if chunks--; chunks < 0 {
				return true
			}
			it := sh.item(page.At(w.chunk))
			if it.tag.State() < slab.StateItem {
				continue
			}
			if w.left != nil {
				w.left[n]--
			}
			if !f(sh, it) {
				w.chunk++
				return true
			}
			if now := sh.a.Page(w.page); now.Class != page.Class {
				break // the page left its class with its last item
			}
		}
		w.page, w.chunk = w.page+1, 0
	}
	if w.page >= sh.a.Pages() {
		w.shard, w.page = w.shard+1, 1
	}
	return w.shard < len(s.shards)
}

// crawlChunksAStep bounds the chunks that one step of a crawl looks at, while
// a lock is held.
const crawlChunksAStep = 128

// CrawlStep goes a step along w and frees what has expired or was flushed. It
// reports how many items it has looked at, and whether there are more.
func (s *Store) CrawlStep(w *PageWalk, now Time) (items int, more bool) {
	more = s.step(w, crawlChunksAStep, now, func(sh *shard, it item) bool {
		items++
		sh.classes[sh.orderClass(it)].sweepChecked++
		if sh.isGone(it.r, now) {
			sh.reclaim(it, false)
		}
		return true
	})
	return items, more
}

// ShowStep goes a step along w and shows v at most items of the items there,
// but not those that a get does not see.
func (s *Store) ShowStep(w *PageWalk, items int, now Time, v Visitor) (more bool) {
	return s.step(w, max(items, crawlChunksAStep), now, func(sh *shard, it item) bool {
		if sh.isShown(it.r, now) {
			v.VisitItem(sh.show(it, now))
			items--
		}
		return items > 0
	})
}

// Classes is the number of slab classes.
func (s *Store) Classes() int { return s.table.Len() }
