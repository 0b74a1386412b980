package cluster

import (
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

// nearCache is the cache in the process: small, for a short time, and never past
// a hard deadline. Entries are not changed.
type nearCache struct {
	cache  *otter.Cache[string, *nearEntry] // nil: there is none
	floors *floors
	life   time.Duration
	now    func() int64 // ms of Unix time
}

type nearEntry struct {
	Result
	until  int64         // ms of Unix time
	hidden atomic.Uint32 // reads that it has answered
	stats  *prefixCounters
}

// nearEntryBytes is what an entry takes beside its key and value, about.
const nearEntryBytes = 256

func newNearCache(o *NearOptions, f *floors, now func() int64, run func(func()), retired func(key string, e *nearEntry)) *nearCache {
	n := &nearCache{floors: f, life: o.Life, now: now}
	if o.Bytes < 0 {
		return n
	}
	n.cache = otter.Must(&otter.Options[string, *nearEntry]{
		MaximumWeight: uint64(o.Bytes),
		Weigher: func(key string, e *nearEntry) uint32 {
			return uint32(min(len(key)+len(e.Value)+nearEntryBytes, 1<<31))
		},
		OnAtomicDeletion: func(e otter.DeletionEvent[string, *nearEntry]) { retired(e.Key, e.Value) },
		Executor:         run,
	})
	return n
}

// get is what the cache has of a key, of version min at least.
func (n *nearCache) get(key string, min uint64) (*nearEntry, bool) {
	if n.cache == nil {
		return nil, false
	}
	e, ok := n.cache.GetIfPresent(key)
	if !ok || e.Version < min || n.now() >= e.until {
		return nil, false
	}
	e.hidden.Add(1)
	e.stats.near.Add(1)
	return e, true
}

// put keeps a result, for life at most, if nothing newer is known. begun is when
// it was asked for.
func (n *nearCache) put(key string, r Result, life time.Duration, begun mark, stats *prefixCounters) {
	if n.cache == nil || life <= 0 || r.Outcome != Hit && r.Outcome != Negative {
		return
	}
	e := &nearEntry{Result: r, until: n.now() + life.Milliseconds(), stats: stats}
	e.From, e.CAS, e.Cause = FromNear, 0, nil
	if r.Hard != 0 {
		e.until = min(e.until, int64(r.Hard))
	}
	n.cache.Set(key, e)
	// A notice of this process raises the floor first and then drops the
	// entry: it cannot have missed this one on both sides.
	if !n.floors.allow(key, r.Version, begun) {
		n.drop(key, e)
	}
}

// drop removes an entry, if it is still the one.
func (n *nearCache) drop(key string, e *nearEntry) {
	n.cache.ComputeIfPresent(key, func(old *nearEntry) (*nearEntry, otter.ComputeOp) {
		if old == e {
			return nil, otter.InvalidateOp
		}
		return old, otter.CancelOp
	})
}

// dropBelow removes what is older than a version.
func (n *nearCache) dropBelow(key string, version uint64) {
	if n.cache == nil {
		return
	}
	if e, ok := n.cache.GetIfPresent(key); ok && e.Version < version {
		n.drop(key, e)
	}
}

// dropAll removes everything.
func (n *nearCache) dropAll() {
	if n.cache != nil {
		n.cache.InvalidateAll()
	}
}
