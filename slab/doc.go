// Package slab is bytes: memory off the Go heap, cut into pages and chunks.
//
// Words. An [Arena] is the memory of one shard: address space reserved at
// its start, of which it uses what its [Budget] grants. A page is what an
// arena takes from the budget and gives to one size class of its [Classes].
// A chunk is one allocation in a page; a [Ref] is its address as a number,
// so that the same bytes can be mapped somewhere else and still be read.
//
//	arena  |-- page 0 --|-- page 1 --|-- page 2 --| … reserved, not yet taken
//	        never used    class 7      class 31
//	page   |chunk|chunk|chunk|chunk|  not carved  |
//	chunk  |tag 4|next 4|prev 4| … owned by the user of the chunk
//
// Every chunk begins with a [Tag], whose state says what it is, followed by
// two links. Free chunks are linked with them into the free list of their
// class; in other states they belong to whoever took the chunk (package lru
// links items with them). So a walk over a page, chunk by chunk, knows at
// each step what it has before it.
//
// A [File] is memory that outlives the process. An arena in it keeps a [Ledger]
// of which class each page is of, and can be made anew from what is there: see
// [Arena.Adopt].
//
// Invariants, recounted by [Arena.Check]:
//
//  1. A page belongs to at most one class, and its chunks do not overlap.
//  2. A chunk below its page's carved mark is free, and then it stands in
//     the free list of its class exactly once, or used, and counted so.
//  3. The pages that the arenas hold are what the budget has granted.
//  4. Ref 0 is no chunk.
//
// What it does not do: it knows no keys, no clock and no network, moves
// nothing and evicts nothing. Nothing here is safe for concurrent use but
// the Budget; an arena belongs to its shard's lock.
package slab
