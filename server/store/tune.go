package store

import "github.com/quarrycache/quarry/lru"

// Tuning is what an operator may change of the order of items while the store
// is in use. Percents are of the items of a class.
type Tuning struct {
	Flat         bool    // one list a class, in the place of segments
	WindowPct    float64 // the window has as many; 0 is what the load asks for
	ProtectedPct float64 // as many may be protected; 0 is three quarters of those outside the window
	Eager        bool    // what is read in probation is protected at once

	// TemporarySeconds is how soon an item must expire, counted from when it
	// is stored, to be kept beside the order: it makes no room for others
	// before its time, and takes no place that they have earned. -1 is never.
	TemporarySeconds int64
}

// Tune makes t hold from now on. It moves no item that is stored.
func (s *Store) Tune(t Tuning) {
	for _, sh := range s.shards {
		sh.lock()
		sh.order.Tune(lru.Tuning{Flat: t.Flat, WindowPct: t.WindowPct, ProtectedPct: t.ProtectedPct, Eager: t.Eager})
		sh.temporarySeconds = t.TemporarySeconds
		sh.unlock()
	}
}

// hasTemporary reports whether items can be temporary.
func (sh *shard) hasTemporary() bool { return sh.temporarySeconds >= 0 }

// isTemporary reports whether a new item expires so soon that it is temporary.
func (sh *shard) isTemporary(it item, now Time) bool {
	if !sh.hasTemporary() {
		return false
	}
	e := it.expiry()
	return e != 0 && int64(e)-int64(now.Seconds()) <= sh.temporarySeconds
}
