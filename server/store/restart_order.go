package store

import (
	"cmp"
	"slices"

	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// takeOrder takes the lists of the order over as they are, or, where something
// is missing, links them anew: by the time of the last access, and among those
// of the same second, by that of the store.
func (ad *adoption) takeOrder() {
	if ad.clean {
		states := make([]lru.ClassState, len(ad.meta.classes))
		for c := range states {
			states[c] = ad.meta.classes[c].ClassState
		}
		if ad.lists.Take(states) {
			return
		}
	}
	ad.orderLost = true
	sh := ad.sh
	var lists [lru.Segments][][]placed
	for s := range lists {
		lists[s] = make([][]placed, sh.s.orderClasses())
	}
	second := ad.now.Seconds()
	for n := uint32(1); n < sh.a.Pages(); n++ {
		page := sh.a.Page(n)
		for i := range page.N {
			it := sh.item(page.At(i))
			if it.tag.State() < slab.StateItem {
				continue
			}
			of := lists[lru.SegmentOf(it.tag)]
			c := sh.orderClass(it)
			of[c] = append(of[c], placed{uint64(it.idleSeconds(second))<<placedAgeBits | ad.age(it), it.r})
		}
	}
	var refs []slab.Ref
	for s := range lists {
		for c, items := range lists[s] {
			if len(items) == 0 {
				continue
			}
			slices.SortFunc(items, placed.compare)
			refs = refs[:0]
			for _, p := range items {
				refs = append(refs, p.r)
			}
			ad.lists.Link(c, lru.Segment(s), refs)
		}
	}
	ad.lists.Linked()
}

// placed is what the place of an item in its list follows from:
//
//	bits  0-39  stores since it was stored
//	bits 40-63  seconds since it was accessed
type placed struct {
	order uint64
	r     slab.Ref
}

const placedAgeBits = 40

// age is how many stores ago it was stored, as far as its CAS tells and a
// placed can say.
func (ad *adoption) age(it item) uint64 {
	const most = 1<<placedAgeBits - 1
	if it.tag&explicitCAS != 0 {
		return most
	}
	return min(ad.seqMax-it.cas()/uint64(len(ad.sh.s.shards)), most)
}

// compare puts what was accessed last first.
func (p placed) compare(q placed) int { return cmp.Compare(p.order, q.order) }
