// Package cluster is the Go client: of a cluster of Quarry's, of one server, or
// of several memcached servers.
//
//	application ──► Client ──► view: key ──► node ──► links, breaker ──► server
//	                             ▲
//	                 map, MOVED, p │ refresh: one for all callers
//
// Words: the view is where keys are, by the cluster's map and what nodes have
// said since, or by a ring of servers. A node is one server, with a few
// pipelined connections and a breaker. An outcome is what a read found: Hit,
// Stale, Miss, Negative or Unavailable. A cause is why the cache could not be
// asked.
//
// What always holds:
//
//  1. An error of the cache is never an error of the application: a read that
//     could not be done is a miss with a cause.
//  2. A request takes two timeouts at most: one for the owner, one for a copy.
//     While a breaker is open nobody waits for its node.
//  3. What a copy answers is Stale, and says nothing about what is not there.
//  4. A value that has passed its hard deadline is not given to anyone.
//  5. The map is fetched once for all callers that were told of a newer one.
//  6. Goroutines and connections have ended when Close returns.
//
// What it does not do: it does not choose between values, and it never sends a
// write twice unless it knows that the first one was not sent, or that a second
// one changes nothing.
package cluster
