package store

import (
	"math"

	"github.com/quarrycache/quarry/slab"
)

// Pages go from where a page earns least to where it earns most.
//
// What a page earns are the hits on the items that would not be there without
// it: those at the end of their class's order. An item that has not been read
// for a time T is read within the next moment with a probability that falls
// about as 1/T (traces of real systems agree on that, whatever the sizes), so
// a page of items of size s whose class keeps them for T earns
//
//	pageBytes / s · 1/T
//
// and all pages earn the same when s · T is the same in all classes. T needs
// no clock and no ghost entries: by Little's law it is the number of items of
// a class over the rate of its inserts. Keeping T alone equal would be one
// LRU over all classes, and would hold a large item as long as dozens of
// small ones that cost as many misses in all.
//
// An item set over an older one with its key is not an insert here: it makes
// room for itself.
type balance struct {
	inserts  []float64 // by order class, of late: they fade
	all      float64   // their sum
	evictsTo []int     // by slab class: evictions until it is weighed again
}

const (
	// sizeWeight is the power of the size in s · T. Measured on the traces:
	// misses, as a part of memcached's, are 0.97 in the mean with 0 (one LRU
	// over all), 0.85 with 1, 0.84 with 1.25 to 1.6, 0.84 with 2.
	sizeWeight = 1.25
	// balanceSlack is how much less a page must earn than another to move:
	// a move costs the hits of what it evicts.
	balanceSlack = 1.2
	// fadeAfter inserts for each item, their counts are halved.
	fadeAfter = 2
)

func newBalance(s *Store) balance {
	return balance{inserts: make([]float64, s.orderClasses()), evictsTo: make([]int, s.table.Len())}
}

// weightsFor is size to the power of sizeWeight, for each order class.
func weightsFor(t *slab.Classes) []float64 {
	w := make([]float64, t.Len()+chainedClasses)
	for c := range w {
		size := 0.0
		if c < t.Len() {
			size = float64(t.Bytes(c))
		} else {
			// The middle of half a doubling.
			size = float64(t.Largest()) * math.Exp2(float64(c-t.Len())/2-0.75)
		}
		w[c] = math.Pow(size, sizeWeight)
	}
	return w
}

// noteInsert counts a new key in order class oc.
func (sh *shard) noteInsert(oc int) {
	b := &sh.balance
	b.inserts[oc]++
	if b.all++; b.all > float64(sh.idx.items*fadeAfter) {
		b.all /= 2
		for i := range b.inserts {
			b.inserts[i] /= 2
		}
	}
}

// stay is s · T of order class oc, 0 when it has no item.
func (sh *shard) stay(oc int) float64 {
	n := sh.order.Items(oc)
	if n == 0 {
		return 0
	}
	return float64(n) / (sh.balance.inserts[oc] + 1) * sh.s.weights[oc]
}

// longest is the order class of slab class c with the largest s · T. The
// chained items are all of the last slab class.
func (sh *shard) longest(c int) (oc int, stay float64) {
	oc, stay = c, sh.stay(c)
	if c == sh.s.table.Len()-1 {
		for x := c + 1; x < sh.s.orderClasses(); x++ {
			if v := sh.stay(x); v > stay {
				oc, stay = x, v
			}
		}
	}
	return oc, stay
}

// victim is the item of slab class c that should go next, 0 if it has none.
func (sh *shard) victim(c int) slab.Ref {
	oc, _ := sh.longest(c)
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
	_, own := sh.longest(c)
	donor, most := -1, own*balanceSlack
	for d := range sh.s.table.Len() {
		if d == c || sh.a.Use(d).Pages == 0 {
			continue
		}
		if _, stay := sh.longest(d); stay > most {
			donor, most = d, stay
		}
	}
	if donor < 0 {
		return
	}
	if n := sh.pageOf(donor); n != 0 {
		sh.startMove(n, c)
	}
}
