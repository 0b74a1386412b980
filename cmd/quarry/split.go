package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// keyUse is how often a key is used, a second, by what nodes count (stats
// hotkeys).
type keyUse struct{ reads, writes float64 }

// keyUseMin is how often a key is used at least if it is to be judged. Nodes count
// one use in a hundred: of less, a write that happens to be counted says nothing.
const keyUseMin = 1000

// useOf asks all nodes at once how often a key is used. What does not answer, or
// counts nothing, adds nothing.
func (f *wireFlags) useOf(ctx context.Context, m *bucket.Map, key string) (use keyUse) {
	var mu sync.Mutex // use
	var wg sync.WaitGroup
	for _, n := range m.Nodes {
		wg.Go(func() {
			hot, err := f.hotKeysOf(ctx, n.Addr)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range hot {
				use.add(key, &hot[i])
			}
		})
	}
	wg.Wait()
	return use
}

// add adds what a node says of a key, or of one of its places if it is split
// already: they share its reads, and each has all its writes.
func (u *keyUse) add(key string, h *topHot) {
	if place, ok := strings.CutPrefix(h.Name, key+"#"); ok {
		if _, err := strconv.ParseUint(place, 10, 16); err != nil {
			return
		}
	} else if h.Name != key {
		return
	}
	u.reads += h.Reads
	u.writes = max(u.writes, h.Writes)
}

// allows is nil if a key that is used so gains by n places.
func (u keyUse) allows(key string, n int) error {
	limit := bucket.SplitLimit(u.reads, u.writes)
	if u.reads+u.writes < keyUseMin || n <= limit {
		return nil
	}
	most := "it is not worth a split"
	if limit > 1 {
		most = fmt.Sprintf("it is worth %d places at most", limit)
	}
	return fmt.Errorf("quarry: key %q is read %.0f and written %.0f times a second, and each of %d places would have all the writes: %s (--force splits it all the same)",
		key, u.reads, u.writes, n, most)
}

// hotKeysOf are the keys that a server says are used most.
func (f *wireFlags) hotKeysOf(ctx context.Context, addr string) ([]topHot, error) {
	w, err := f.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.hotKeys()
}
