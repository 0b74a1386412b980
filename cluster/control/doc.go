// Package control keeps the cluster's map where its nodes and operators find it.
//
//	                    ┌─ file: one file on one machine
//	operator ──► Store ─┤
//	nodes    ◄──        └─ etcd: one of your own, or that of quarry control
//
// Words: a store has one map at a time, the newest that was published, and a
// history of the last ones. To publish is to put the next map in the place of
// the present one. Presence is what a node says of itself while its lease
// lasts.
//
// Invariants:
//
//  1. A map takes the place of the one that its publisher has seen, and of no
//     other: of two who publish at once one gets ErrConflict.
//  2. A map that does not follow the present one (bucket.Map.Follows) is never
//     stored, so in a store the epoch only rises. What somebody does to a store
//     from outside, by restoring a backup or editing the file, is seen and
//     reported to those who watch.
//  3. Watch leaves out maps when they come faster than they are taken, and
//     never the last one.
//
// A store may have been restored from a backup, and know less than the nodes.
// So a publisher asks the nodes first what they know (Take), and publishes above
// that.
//
// Agreement between machines is etcd's; there is none of our own.
package control
