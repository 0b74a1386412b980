// Package lru is order: which item of a class goes next, and whether a newcomer
// deserves a place.
//
// Words. An [Order] is the eviction order of one shard, divided into classes.
// Each class has three segments, lists linked through the chunks themselves:
//
//	newcomers ─► window ──read twice──► protected ◄──read── probation ─► evicted
//	               │                       └──too long──► probation
//	               └─► contest with the last of probation: the loser is evicted,
//	                   the winner has its place
//
// The window takes what is new and forgives one read right after the store.
// Probation is what has not been read since it left the window or was pushed
// out of protected; protected is what was. The contest is TinyLFU's: who was
// asked for more often lately, by a sketch that remembers keys that are gone,
// too. It is held only when the class needs room. So what is stored is there
// for the next reader, and a scan passes through the window alone.
//
// How large the window should be differs from one load to another, over its
// whole range: it is weighed all the time what a place in its older half earns
// against a place in probation, and the window follows, 5 % of itself a step.
//
// A hit only marks the item, in the word that the reader has at hand anyway,
// and counts in the sketch until it has both marks: no neighbour is touched. The lists are put in order
// when something is stored or evicted, a bounded number of moves at a time.
//
// Only reads teach the sketch, hits and misses: not the store that follows a
// miss, and no move.
//
// What is stored over an item begins anew in the window, as if the key had not
// been there: so what is written all the time and read by nobody has to pass the
// contest each time, and fills the window alone. Two cases are left where they
// are, which saves the cache lines of their neighbours. What is protected stays
// so, or each write would cost a popular key its place; if it is not read any
// more it goes as others do there. And while nothing has to go, all items stay
// where they are, since it matters to nobody.
//
// Invariants, recounted by [Order.Check]:
//
//  1. An item stands in exactly one list: that of its class and of the
//     segment that its tag names.
//  2. Lists are linked the same both ways, and their lengths are counted.
//
// What it does not do: it frees nothing, knows no keys and no expiry, and
// takes no lock; an Order belongs to its shard's lock. How much memory a class
// has is not its business either.
package lru
