package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/cluster"
)

// SourceConfig is what a source is like: the database behind the cache.
type SourceConfig struct {
	Latency time.Duration // of a load
	Errors  float64       // share of the loads that fail
	Absent  float64       // share of the keys that it does not have
}

func (c *SourceConfig) validate() error {
	switch {
	case c.Latency < 0 || c.Latency > sourceLateMax:
		return fmt.Errorf("bench: source latency %v: want 0 to %v", c.Latency, sourceLateMax)
	case !(c.Errors >= 0 && c.Errors <= 1):
		return fmt.Errorf("bench: source errors %g: want 0 to 1", c.Errors)
	case !(c.Absent >= 0 && c.Absent <= 1):
		return fmt.Errorf("bench: source absent %g: want 0 to 1", c.Absent)
	}
	return nil
}

// source has every key, or so many of them, each at a version that rises with
// each change. The bytes of a value do not change.
type source struct {
	SourceConfig
	keys    *keys
	values  *values
	first   uint64          // version: the time, so that it is above those of earlier runs
	changes []atomic.Uint64 // of each key

	loads, failed, under, underMax atomic.Int64
}

func newSource(c SourceConfig, ks *keys, vs *values, n uint64) *source {
	return &source{SourceConfig: c, keys: ks, values: vs, first: uint64(time.Now().UnixMilli()), changes: make([]atomic.Uint64, n)}
}

// errSource is the failure of a load.
var errSource = errors.New("bench: the source failed")

// has reports whether the source has key k.
func (s *source) has(k uint64) bool {
	return s.Absent == 0 || float64(s.values.hash(k)>>11)/(1<<53) >= s.Absent
}

// version is that of key k.
func (s *source) version(k uint64) uint64 { return s.first + s.changes[k].Load() }

// change changes key k, and is its version from then on.
func (s *source) change(k uint64) uint64 { return s.first + s.changes[k].Add(1) }

// load is a cluster.Loader. What it has it has as of its beginning.
func (s *source) load(ctx context.Context, q cluster.LoadRequest) (l cluster.Loaded, err error) {
	s.loads.Add(1)
	now := s.under.Add(1)
	defer s.under.Add(-1)
	for old := s.underMax.Load(); now > old && !s.underMax.CompareAndSwap(old, now); old = s.underMax.Load() {
	}
	k, ok := s.keys.number([]byte(q.Key))
	if !ok {
		return l, fmt.Errorf("bench: a load of %q, which is no key", q.Key)
	}
	l.Version = s.version(k)
	if s.Latency > 0 {
		t := time.NewTimer(s.Latency)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			s.failed.Add(1)
			return l, ctx.Err()
		}
	}
	switch {
	case s.Errors > 0 && rand.Float64() < s.Errors:
		s.failed.Add(1)
		return l, errSource
	case !s.has(k):
		return l, cluster.ErrNotFound
	}
	l.Value = s.values.append(nil, k)
	return l, nil
}

// right reports whether r is something that the source has had of key k. What is
// left of earlier runs may have been there then.
func (s *source) right(k uint64, r *cluster.Result) bool {
	switch {
	case !r.Found() && r.Outcome != cluster.Negative:
		return true
	case r.Version > s.version(k) || r.Found() && !s.values.is(k, r.Value):
		return false
	}
	return r.Version < s.first || r.Found() == s.has(k)
}
