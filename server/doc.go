// Package server is a cache server that memcached's clients cannot tell from
// memcached: connections and commands, around a [store.Store].
//
// # Words
//
// A listener is a socket that connections come from. A loop is an event loop
// of gnet; there are -t of them. A session is the state machine of one
// connection: bytes in, replies out, and no word about sockets. A batch is what
// a session makes of the bytes of one read; a worker is what it needs for that
// and a connection does not keep. A turn is what a loop does for one connection
// before the others: a few batches at most. A connection that is aside is
// driven by a goroutine of its own, because its peer does not take its replies,
// or because what it asks for takes long: a SASL login, a dump of items. A
// watcher is a connection that has said watch, and is told what happens. Over
// UDP (-U) a session lasts as long as a datagram; a goroutine for each socket
// drives it.
//
//	accept ──► conn ──► loop ──────────────────────────► aside
//	           │        reads, turns, writes at once     reads only when nothing
//	           │        ◄─────────────────────────────   is pending, writes wait
//	           └─ session.feed ──► command ──► store     the same session
//
// A connection with TLS is in no loop: a goroutine drives its session from the
// handshake to the end, and reads only when nothing is pending.
//
// # What always holds
//
//  1. A connection in a loop has no pending output.
//  2. The replies to all that one read gave are written together, by us, never
//     by gnet; a connection whose peer shut down its sending side still gets
//     all of them.
//  3. What one connection makes the server hold is bounded: a broken line, one
//     half-sent value, the input of two reads, outHighBytes of replies and one
//     value more.
//  4. No peer makes another one wait for longer than a turn.
//  5. The time is read once a batch, or once for all batches of a round, after
//     their bytes have arrived.
//  6. Every connection ends in Server.ended, once, with its reason.
//  7. Goroutines start in Start or for a connection, and have ended when Close
//     returns.
//
// # What it does not do
//
// It reads no command line and no environment, and installs no signal handler:
// that is cmd/quarryd. What items mean is [store]; what the wire looks like is
// package meta.
package server
