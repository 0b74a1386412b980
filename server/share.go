package server

import (
	"sync"

	"github.com/quarrycache/quarry/server/store"
)

// share is this node's part of the budget for reads of the source that the map
// gives to the cluster as a whole. It falls as soon as a map says so, and rises
// only when all nodes that answer have that map: else two nodes could spend the
// same part at once. It is bounded by the flags in any case.
type share struct {
	mu      sync.Mutex // all below
	known   bool
	now     rates // that hold
	wanted  rates // of the newest map
	waiting bool  // now is lower than wanted
}

// rates are grants in any second, 0 no limit.
type rates struct{ foreground, background int }

// lower is the lower of each.
func (a rates) lower(b rates) rates {
	one := func(a, b int) int {
		if a == 0 || b != 0 && b < a {
			return b
		}
		return a
	}
	return rates{one(a.foreground, b.foreground), one(a.background, b.background)}
}

// shareOf is the node's part by a map.
func (v *view) shareOf() rates {
	part := func(n int) int {
		if n == 0 {
			return 0
		}
		return max(v.m.Share(v.self, n), 1) // 0 is no limit, and a budget may be less than one for each node
	}
	if !v.member {
		return rates{}
	}
	return rates{part(v.m.Budget.Foreground), part(v.m.Budget.Background)}
}

// apply takes the share that a new map gives.
func (b *share) apply(want rates, st *store.Store) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = want
	if !b.known { // no grants are given yet
		b.known, b.now = true, want
	} else {
		b.now = b.now.lower(want)
	}
	b.waiting = b.now != b.wanted
	st.LimitFills(b.now.foreground, b.now.background)
}

// raise lets the share rise to what the newest map gives.
func (b *share) raise(st *store.Store) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting {
		b.now, b.waiting = b.wanted, false
		st.LimitFills(b.now.foreground, b.now.background)
	}
}

// waits reports whether raise would change something.
func (b *share) waits() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// figures are the share that holds, and the one of the newest map.
func (b *share) figures() (now, wanted rates) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now, b.wanted
}
