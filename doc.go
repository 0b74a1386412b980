// Package quarry is the root of the module: a memcached-compatible cache
// server, and a client that turns many of them into one cluster. It holds no
// code. ARCHITECTURE.md says what is in which folder; the commands are
// cmd/quarryd (the server) and cmd/quarry (the operator's tool).
package quarry
