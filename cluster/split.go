package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/cluster/bucket"
)

// A key that is read so often that one node cannot serve it is split: its value
// is in n places, key#0, key#1, …, ordinary keys with owners and grants of their
// own. The map says which keys are split, so that everyone who writes knows. A
// reader keeps to one place, and never goes back behind a version that it has
// seen.

// split is a key that is split.
type split struct {
	n      int // places to read from
	former int // places that may hold something from before, if more
	seen   *atomic.Uint64
}

// SplitChoice says which place of a split key a client reads.
type SplitChoice uint8

const (
	// SplitSticky is one place for each client and key: jump consistent
	// hashing of Options.ClientID, so that few clients change their place when
	// there are more of them.
	SplitSticky SplitChoice = iota
	// SplitRandom is any place at each read: more even with few clients, and
	// every client sees every place.
	SplitRandom
)

// splitKey is the key of a place.
func splitKey(key string, i int) string { return key + "#" + strconv.Itoa(i) }

// split is how a key is split, nil if it is not.
func (v *view) split(key string) *split {
	if v.splits == nil {
		return nil
	}
	return v.splits[key]
}

// noteSplits takes the splits of the map. What was seen of a key stays known.
func (v *view) noteSplits(old *view) {
	if len(v.m.Splits) == 0 {
		return
	}
	v.splits = make(map[string]*split, len(v.m.Splits))
	for i := range v.m.Splits {
		s := &v.m.Splits[i]
		n := &split{n: s.N, former: s.Former}
		if old != nil {
			if o := old.split(string(s.Key)); o != nil {
				n.seen = o.seen
			}
		}
		fill(&n.seen, new(atomic.Uint64))
		v.splits[string(s.Key)] = n
	}
}

// place is the key of the place that this client reads, key itself when it is
// not split.
func (c *Client) place(ctx context.Context, key string) (place string, s *split) {
	v, err := c.current(ctx)
	if err != nil {
		return key, nil // nothing will be read
	}
	if s = v.split(key); s == nil {
		return key, nil
	}
	if s.n == 1 {
		return key, s
	}
	i := 0
	if c.opt.SplitChoice == SplitRandom {
		i = rand.IntN(s.n)
	} else {
		i = jump(xxhash.Sum64String(key)^c.idHash, s.n)
	}
	return splitKey(key, i), s
}

// isSplit reports whether a key is split, so that it cannot be written plainly.
func (c *Client) isSplit(ctx context.Context, key string) bool {
	v, err := c.current(ctx)
	return err == nil && v.split(key) != nil
}

// seen is the highest version of a key that this client has seen, if the key is
// split: nothing older is shown from any place, near cache or copy.
func (c *Client) seen(key string) uint64 {
	v := c.view.Load()
	if v == nil {
		return 0
	}
	s := v.split(key)
	if s == nil {
		return 0
	}
	return s.seen.Load()
}

// show notes the version of a result that is about to be shown to callers, if its
// key is split: what is read from then on is not older.
func (c *Client) show(key string, r *Result) {
	if !r.Found() {
		return
	}
	if v := c.view.Load(); v != nil {
		if s := v.split(key); s != nil {
			s.saw(r.Version)
		}
	}
}

// saw notes a version that was read or stored.
func (s *split) saw(version uint64) {
	for {
		old := s.seen.Load()
		if version <= old || s.seen.CompareAndSwap(old, version) {
			return
		}
	}
}

// behind reports whether a version is older than one that was seen, and notes
// it otherwise. A place that is behind is repaired: what it has goes, and the
// next reader loads (S0-07, S0-08).
func (c *Client) behind(s *split, place string, version uint64) bool {
	if s == nil || version == 0 {
		return false
	}
	seen := s.seen.Load()
	if version >= seen {
		s.saw(version)
		return false
	}
	c.counters.disagreed.Add(1)
	c.start(func() { _ = c.Take(c.base, place, seen) })
	return true
}

// offersMax bounds the values that are on their way to other places.
const offersMax = 16

// offer gives a value that was loaded for one place of a split key to the
// others. Hard stays; soft is another one in each place, so that they are not
// refreshed together (S2-09).
func (c *Client) offer(ctx context.Context, key, from string, s *split, v Versioned) {
	if s == nil || s.n < 2 {
		return
	}
	s.saw(v.Version)
	if c.offers.Add(1) > offersMax {
		c.offers.Add(-1)
		return
	}
	if !c.start(func() {
		defer c.offers.Add(-1)
		for i := range s.n {
			if place := splitKey(key, i); place != from {
				_ = c.storeAt(ctx, place, c.jittered(v))
			}
		}
	}) {
		c.offers.Add(-1)
	}
}

// jittered is v with an earlier soft deadline.
func (c *Client) jittered(v Versioned) Versioned {
	if v.Soft > v.Read && v.Read > 0 && c.opt.Fetch.Jitter > 0 {
		v.Soft -= uint64(rand.Float64() * c.opt.Fetch.Jitter * float64(v.Soft-v.Read))
	}
	return v
}

// storeAll stores a value in all places of a split key.
func (c *Client) storeAll(ctx context.Context, key string, s *split, v Versioned) error {
	var all []error
	for i := range s.n {
		var no *RefusedError
		err := c.storeAt(ctx, splitKey(key, i), c.jittered(v))
		if errors.As(err, &no) && no.Reason == ReasonVersion {
			err = nil // it has that version or a newer one already
		}
		all = append(all, err)
	}
	s.saw(v.Version)
	return errors.Join(all...)
}

// ErrSplitKey: the key cannot be split, or into so many places.
var ErrSplitKey = errors.New("cluster: the key cannot be split so")

// FillSplit copies the value of a key into n places of it, so that it is there
// when a map is published that splits the key, or splits it further. It returns
// the number of places that have it.
func (c *Client) FillSplit(ctx context.Context, key string, n int) (filled int, err error) {
	if key == "" || len(key) > bucket.SplitKeyMax || n < 1 || n > bucket.SplitMax {
		return 0, ErrSplitKey
	}
	if err := c.needVersions(ctx, key); err != nil {
		return 0, err
	}
	place, _ := c.place(ctx, key)
	l := c.lookup(ctx, place, LookupOptions{})
	if l.Outcome != Hit || l.Version == 0 {
		return 0, l.Err() // there is nothing to copy, and nothing lost
	}
	v := Versioned{l.Value, l.Flags, l.Version, l.Deadlines}
	var all []error
	for i := range n {
		err := c.storeAt(ctx, splitKey(key, i), c.jittered(v))
		var no *RefusedError
		if err == nil || errors.As(err, &no) && no.Reason == ReasonVersion {
			filled++
			continue
		}
		all = append(all, err)
	}
	return filled, errors.Join(all...)
}
