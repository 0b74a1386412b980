package slab

import "sync/atomic"

// Budget is the memory that the pages of all arenas share, in bytes. It is
// safe for concurrent use.
type Budget struct {
	limit atomic.Int64
	taken atomic.Int64
}

// NewBudget is a budget of limit bytes.
func NewBudget(limit int64) *Budget {
	b := new(Budget)
	b.limit.Store(limit)
	return b
}

// Limit is the number of bytes that may be taken.
func (b *Budget) Limit() int64 { return b.limit.Load() }

// SetLimit changes the limit. What is taken beyond it stays taken until it is
// given back.
func (b *Budget) SetLimit(limit int64) { b.limit.Store(limit) }

// Taken is the number of bytes that arenas hold.
func (b *Budget) Taken() int64 { return b.taken.Load() }

// take takes n bytes if the limit allows it.
func (b *Budget) take(n int64) bool {
	if b.taken.Add(n) <= b.limit.Load() {
		return true
	}
	b.taken.Add(-n)
	return false
}

// force takes n bytes beyond the limit.
func (b *Budget) force(n int64) { b.taken.Add(n) }

// give gives n bytes back.
func (b *Budget) give(n int64) { b.taken.Add(-n) }
