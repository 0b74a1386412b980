package cluster

import (
	"sync/atomic"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// view is where keys are: by the map with what nodes have said since, or by the
// ring. But for the patches it is not changed.
type view struct {
	m     *bucket.Map // nil: there is none
	epoch uint64      // of m
	nodes []*node     // by their index in m, or in the ring
	ring  *ring       // without a map

	former *former           // nil: nothing has changed its owner lately
	splits map[string]*split // of m

	patches [bucket.Count]atomic.Pointer[patch]
}

// patch is an owner that a node has named, of a map newer than ours.
type patch struct {
	epoch uint64
	n     *node
}

// place is where a key is.
type place struct {
	owner  *node
	epoch  uint64 // of the map that says so, 0 without one
	bucket int
	mapped bool
}

// of finds the place of a key with that hash.
func (v *view) of(key string, hash uint64) place {
	if v.m == nil {
		return place{owner: v.nodes[v.ring.of(key, hash)]}
	}
	b := bucket.OfHash(hash)
	if p := v.patches[b].Load(); p != nil {
		return place{p.n, p.epoch, b, true}
	}
	return place{v.nodes[v.m.Buckets[b].Owner], v.epoch, b, true}
}

// copies are the nodes with copies of a bucket.
func (v *view) copies(b int) []bucket.NodeIndex {
	if v.m == nil {
		return nil
	}
	return v.m.Buckets[b].Copies
}

// patch notes what a node said: at an epoch, n owns bucket b. It reports whether
// that is newer than what was known.
func (v *view) patch(b int, epoch uint64, n *node) bool {
	for {
		old := v.patches[b].Load()
		known := v.epoch
		if old != nil {
			known = old.epoch
		}
		if epoch <= known {
			return false
		}
		if v.patches[b].CompareAndSwap(old, &patch{epoch, n}) {
			return true
		}
	}
}

// keep takes over from an older view what is newer than its own map.
func (v *view) keep(old *view) {
	if old == nil || old.m == nil {
		return
	}
	for b := range old.patches {
		if p := old.patches[b].Load(); p != nil && p.epoch > v.epoch {
			v.patches[b].Store(p)
		}
	}
}

// uses reports whether n is in the view.
func (v *view) uses(n *node) bool {
	for _, x := range v.nodes {
		if x == n {
			return true
		}
	}
	for b := range v.patches {
		if v.formerOwner(b) == n {
			return true
		}
		if p := v.patches[b].Load(); p != nil && p.n == n {
			return true
		}
	}
	return false
}
