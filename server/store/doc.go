// Package store is meaning: items under keys, in memory off the Go heap.
//
// Words. A [Store] is divided into shards by the hash of a key. A shard has an
// arena (package slab), an index from hashes to refs, an eviction order
// (package lru), and one lock over all three: this package is the one place
// where they change together. An item is a chunk, or a chain of chunks when
// it is large; item.go draws it. To evict is to remove an item for room, to
// expire is to be past one's time, to reclaim is to take the memory of an
// expired item back. A [Pin] keeps a value's bytes while they are sent; an
// [Upload] is a value on its way in. A [Reader] reads what is hot without the
// lock; reader.go says how that goes well. A tenant is what keys with the same prefix
// have in common; tenant.go tells how they share a store.
//
//	Key ── hash ──► shard ──► index ──► ref ──► chunk in a page of the arena
//	                             │        └───► links of the order
//	                             └ 12 tags and refs in a cache line
//
// With Config.File items outlive the process: [Store.Save] writes what is not
// in them, and the next [Open] takes over what it finds, as [Store.Restart]
// says.
//
// What holds everywhere (see [Store.Check] for what can be recounted):
//
//  1. A value becomes visible when it is whole, in one step, and until then
//     belongs to its writer alone.
//  2. An item past its expiry or stored before a flush is never answered,
//     whether its memory has been taken back or not.
//  3. What is stored is found by a read right after it.
//  4. Never are two shards locked at once, and nothing blocks under a lock.
//  5. What a client can make the store keep for it has a bound: items by the
//     limit, pinned values by a quarter of it and half-sent ones by three
//     quarters, index chains by
//     chainOverflowMax, the account of tenants by TenantConfig.
//
// It speaks Go and no protocol, has no clock and starts no goroutine: an
// embedder passes the time in and runs [Store.Background], or calls
// [Store.Sweep] now and then.
package store
