// Package lru is order: which item of a size class goes next.
//
// Words. An [Order] is the eviction order of one shard. Each class of it has
// three segments, lists linked through the chunks themselves:
//
//	newcomers ─► window ──hit twice──► protected ◄──hit── probation ─► evicted
//	               └──────────otherwise──────────► probation
//	                                   protected ──too long──► probation
//
// The window takes what is new and forgives a burst of reads right after the
// store; probation is what has not been read since it left the window or was
// pushed out of protected; protected is what was. A scan passes through the
// window and probation, and leaves protected as it was.
//
// A hit only marks the item, in the word that the reader has at hand anyway:
// no neighbour is touched. The lists are put in order when something is
// stored or evicted, a bounded number of moves at a time.
//
// Invariants, recounted by [Order.Check]:
//
//  1. An item stands in exactly one list: that of its class and of the
//     segment that its tag names.
//  2. Lists are linked the same both ways, and their lengths are counted.
//
// What it does not do: it frees nothing, knows no keys and no expiry, and
// takes no lock; an Order belongs to its shard's lock.
package lru
