// Package bench puts load on a memcached-compatible server and reports what
// it did.
//
// Its words: a key is a number below Config.Keys, and its text, its value and
// its value's size are functions of that number. A request is one line that
// gets one reply; an operation is one key of it (a get of fifty keys is one
// request and fifty operations). A thread is one worker, which owns its
// connections, its random numbers and its counts.
//
//	Run ─► worker (an OS thread) ─► poll (epoll)
//	          │   ▲                       │ ready
//	          │   └────────── conn ◄──────┘
//	          ├─► keys, popularity     which key
//	          ├─► values, Sizes        which bytes
//	          ├─► encoder              requests, appended to conn.out
//	          └─► replies              scans what came, against what was asked
//
// What holds:
//
//  1. The generator must not be what is measured. There is no goroutine a
//     connection: a worker writes whole batches to non-blocking descriptors
//     and reads into one buffer, and allocates nothing after its start. (One
//     goroutine a connection on Go's poller, which did no checks, needed 6 to
//     16 % more CPU for each operation at pipeline 1: 7.5 to 8.3 against
//     7.1 us, median of 5, 50 connections, pinned to one core of a Xeon VM. With
//     a trivial server on the other core: 1.35 M ops/s at pipeline 16, 2.3 M
//     at 32.)
//  2. Every reply is held against its request: the right kind, the right key,
//     the right length, the right end. Config.Verify compares the data too.
//     Anything else ends the run with an error.
//  3. Latency counts in a closed loop from just before the batch was written;
//     with Config.Rate from the moment the request was due, even if it could
//     not be sent then.
//  4. What is reported lies between two instants after the warm-up: counts,
//     time, and the server's CPU are read at both.
//
// RunCluster puts load on a cluster through the Go client, as applications do:
// goroutines that ask one request at a time. There the client is part of what is
// measured. The source behind the cache is simulated.
//
//	RunLadder ─► RunCluster ─► asker (a goroutine) ─► cluster.Client ─► nodes
//	                              ├─► keys, popularity, values   │
//	                              └─► source ◄── loads of Fetch ─┘
//
// The other half replays traces: requests that real systems made, look-aside,
// with a limit on bytes. What counts there is misses.
//
//	Replay ─► OpenTrace, traceSize    which keys, and how large
//	   │
//	   ├─► replayStore      the store, in this process
//	   ├─► replayServer     any server, over a connection
//	   ├─► policy           LRU, S3-FIFO, W-TinyLFU, Belady, simulated
//	   └─► Table            text for people, TSV to keep and compare with
//
// In TLS (Config.TLS) two goroutines a connection stand between worker and
// server: there the generator is the bottleneck, and the server's CPU time is
// what the report is about.
//
// It needs Linux: epoll, timerfd and /proc.
package bench
