// Package link is one pipelined connection to one node: the way of the Go
// client to servers, and of servers to each other.
//
//	callers ──append──► out ──one of them writes──► socket
//	callers ◄──done──── calls in order ◄──reader──── socket
//
// Words: a call is one request and its reply. Calls of all goroutines share the
// connection; whoever finds nobody writing writes what all of them have
// appended, so that there is one system call for many requests when there are
// many, and no other goroutine between when there is one.
//
// Invariants:
//
//  1. Replies come in the order of requests: the n-th reply is the n-th call's.
//  2. Every call that was accepted ends once: with its reply, or with the error
//     that ended its connection, or when its context ends. A call that its
//     caller has left keeps its place until its reply has come.
//  3. Calls and bytes that wait are bounded; beyond, a call fails at once.
//  4. A connection on which calls wait and nothing has come for the timeout is
//     ended: all calls on it fail, and the next one dials anew.
//
// What it does not do: it never sends a request twice. Whether a request that
// failed may be repeated is the caller's to know.
package link
