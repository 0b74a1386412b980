// Package bucket is the cluster's map: which node owns which keys.
//
//	key ──XXH64──► top 12 bits: bucket ──map──► owner, copies
//
// Words: a bucket is a 4096th of all keys, and a key never changes its bucket;
// the map says who owns each, since which epoch, and who has copies. An epoch
// numbers maps; it always rises. The planner makes the next map out of one and
// a change, and moves as few buckets as it can.
//
// Everything here is a pure function: no I/O, no clock, and nothing random but
// what is passed in.
//
// Invariants of a valid map (Validate), and of two in succession (Follows):
//
//  1. Every bucket has one owner; its copies are other nodes, all different,
//     and in other zones as far as there are zones enough.
//  2. A bucket's since is at most the epoch, and becomes the epoch when its
//     owner changes, or has to begin anew.
//  3. The node-set revision rises when nodes join, leave or are reached
//     elsewhere, and only then unless maps in between are unknown.
//  4. The predecessor's digest is in the map: one epoch, one map.
//
// The encodings are two: JSON in canonical order, for people and files, and a
// compact one for the wire. Both have a test of their own for reading what was
// written, and testdata/vectors.json has keys and their buckets for clients in
// other languages.
package bucket
