package store

import (
	"math"

	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// Pages go from where they earn least to where they earn most: hits, which
// would be misses without them. What a page of a class would lose or gain is
// told by two things, both counted for each class and fading:
//
//   - The items that come and go. By Little's law an item stays for as long as
//     there are items over the rate of inserts, and an item that has not been
//     read for a time T is read next with a probability that falls about as
//     1/T: so inserts over items. But only as far as items of the class are
//     read at all before they go: those of a scan are not.
//   - First hits in probation, over the items there: what would go next, and is
//     read. It speaks for a hot set that fits, in which nothing comes or goes.
//
// A page holds the more items, the smaller they are, so that is what each item
// earns, over its size. Keeping only the time alike in all classes would be one
// LRU over all of them, and would hold a large item as long as dozens of small
// ones that cost as many misses in all: misses on the traces, as a part of
// memcached's, are 0.97 in the mean so, and 0.84 with the size (sizePower).
//
// An item set over an older one with its key is not an insert here: it makes
// room for itself. Nor is one of a tenant at its quota, which takes the place
// of another of the tenant's: with these, a scan by one tenant cost its
// neighbour 2.4 points of 67, mostly by pages that moved for nothing.
type balance struct {
	of       []classBalance // by order class
	inserts  float64        // of all classes, fading
	evictsTo []int          // by slab class: evictions until it is weighed again
}

// classBalance counts what happened in an order class of late.
type classBalance struct {
	inserts  float64 // of new keys
	gone     float64 // evicted
	goneRead float64 // of them, read at least once
	lowHits  float64 // first hits in probation
}

const (
	// lowWeight is what a first hit in probation counts against an insert.
	// With 0 a hot set that fits is not seen at all; with 0.3 what is
	// protected in turn speaks too loud, and a scan with items of all sizes
	// costs a hot set of all sizes 7 points of its hits in place of 1. Later
	// hits count nothing: what is read often in a row is protected anyway.
	lowWeight = 0.15
	// readPrior is how many of the first evicted item of a class were read.
	// Items of which none was read earn next to nothing.
	readPrior = 0.02
	// sizePower of the size is what earnings are divided by. 1 would be what
	// the model says; a page of large items that came by takes longer to show
	// that nobody reads it, for want of items: with 1 the cloudphysics trace
	// at 256 MB comes 34 % of the way from LRU to Belady, with 1.3 46 %, and
	// the other traces gain or stay.
	sizePower = 1.3
	// balanceSlack is how much less a page must earn than another to move:
	// a move costs the hits of what it evicts.
	balanceSlack = 1.5
	// fadeAfter inserts for each item, all counts are halved.
	fadeAfter = 2
)

func newBalance(s *Store) balance {
	return balance{of: make([]classBalance, s.orderClasses()), evictsTo: make([]int, s.table.Len())}
}

// sizesOf are the bytes of an item of each order class, to the sizePower: its
// chunk, or the middle of half a doubling.
func sizesOf(t *slab.Classes) []float64 {
	sizes := make([]float64, t.Len()+chainedClasses)
	for c := range sizes {
		size := float64(t.Largest()) * math.Exp2(float64(c-t.Len())/2-0.75)
		if c < t.Len() {
			size = float64(t.Bytes(c))
		}
		sizes[c] = math.Pow(size, sizePower)
	}
	return sizes
}

// noteInsert counts a new key in order class oc.
func (sh *shard) noteInsert(oc int) {
	b := &sh.balance
	b.of[oc].inserts++
	if b.inserts++; b.inserts > float64(sh.idx.items*fadeAfter) {
		b.inserts /= 2
		for i := range b.of {
			n := &b.of[i]
			n.inserts, n.gone, n.goneRead, n.lowHits = n.inserts/2, n.gone/2, n.goneRead/2, n.lowHits/2
		}
	}
}

// noteEvicted counts an item of order class oc that had to go.
func (sh *shard) noteEvicted(oc int, t slab.Tag) {
	n := &sh.balance.of[oc]
	n.gone++
	if t&lru.Fetched != 0 {
		n.goneRead++
	}
}

// noteHit counts a hit on an item of order class oc that had tag t.
func (sh *shard) noteHit(oc int, t slab.Tag) {
	if lru.SegmentOf(t) == lru.Probation && t&lru.Active == 0 {
		sh.balance.of[oc].lowHits++
	}
}

// cost is what a byte of order class oc costs: the inverse of what it earns.
// It is 0 when the class has no item.
func (sh *shard) cost(oc int) float64 {
	items := sh.order.Items(oc)
	if items == 0 {
		return 0
	}
	n := &sh.balance.of[oc]
	earns := (n.inserts + 1) / float64(items) * (n.goneRead + readPrior) / (n.gone + 1)
	earns += lowWeight * n.lowHits / float64(sh.order.Len(oc, lru.Probation)+1)
	return sh.s.sizes[oc] / earns
}

// dearest is the order class of slab class c that costs most, and how much.
// The chained items are all of the last slab class.
func (sh *shard) dearest(c int) (oc int, cost float64) {
	oc, cost = c, sh.cost(c)
	if c == sh.s.table.Len()-1 {
		for x := c + 1; x < sh.s.orderClasses(); x++ {
			if v := sh.cost(x); v > cost {
				oc, cost = x, v
			}
		}
	}
	return oc, cost
}

// victim is the item of slab class c that should go next, 0 if it has none.
func (sh *shard) victim(c int) slab.Ref {
	oc, _ := sh.dearest(c)
	if sh.s.cfg.CompatSlabs {
		oc = sh.oldest(c)
	}
	return sh.order.Victim(oc)
}

// rebalance is called when slab class c needs room. A few times for each page
// that it evicts it is weighed whether a page of another class would earn
// more here; if so, that page begins to move, and goes on moving with each
// call.
func (sh *shard) rebalance(c int, now Time) {
	if sh.move.page != 0 {
		sh.moveStep(moveChunksAStep, now)
		return
	}
	b := &sh.balance
	if b.evictsTo[c]--; b.evictsTo[c] > 0 || !sh.s.automove.Load() {
		return
	}
	b.evictsTo[c] = sh.s.table.PerPage(c)/4 + 1
	_, own := sh.dearest(c)
	donor, most := -1, own*balanceSlack
	for d := range sh.s.table.Len() {
		if d == c || sh.a.Use(d).Pages == 0 {
			continue
		}
		if _, cost := sh.dearest(d); cost > most {
			donor, most = d, cost
		}
	}
	if donor < 0 {
		return
	}
	if n := sh.pageOf(donor); n != 0 {
		sh.startMove(n, c)
	}
}
