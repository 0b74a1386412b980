package server

import "sync/atomic"

// counters are what a batch counts beside the store's own counters: plain
// numbers of one worker, added to the server's totals when the batch ends.
type counters struct {
	slot int // of totals, from 1; 0 until the worker first publishes

	requests     uint64 // command lines executed
	flushes      uint64 // cmd_flush
	metas        uint64 // cmd_meta: me alone
	authCmds     uint64 // auth_cmds: attempts to log in
	authErrors   uint64 // auth_errors: those that failed
	yields       uint64 // conn_yields
	rounds       uint64 // batches of connections that a loop read from together
	roundTurns   uint64 // connections in them
	bytesRead    uint64
	bytesWritten uint64
}

// totalSlots spreads the totals, so that loops which publish at the same time
// do not share a cache line.
const totalSlots = 32

// totals are the published counters of all workers since the last reset.
type totals struct {
	next  atomic.Uint32 // hands out slots
	slots [totalSlots]totalSlot
}

type totalSlot struct {
	requests, flushes, metas, authCmds, authErrors, yields, rounds, roundTurns, bytesRead, bytesWritten atomic.Uint64

	_ [128 - 10*8]byte // two cache lines: neighbours are fetched in pairs
}

// publish adds what w counted to t and empties w's counters.
func (t *totals) publish(n *counters) {
	if n.slot == 0 {
		n.slot = int(t.next.Add(1)-1)%totalSlots + 1
	}
	slot := &t.slots[n.slot-1]
	add(&slot.requests, n.requests)
	add(&slot.flushes, n.flushes)
	add(&slot.metas, n.metas)
	add(&slot.authCmds, n.authCmds)
	add(&slot.authErrors, n.authErrors)
	add(&slot.yields, n.yields)
	add(&slot.rounds, n.rounds)
	add(&slot.roundTurns, n.roundTurns)
	add(&slot.bytesRead, n.bytesRead)
	add(&slot.bytesWritten, n.bytesWritten)
	*n = counters{slot: n.slot}
}

// add adds n to a, and spares the locked instruction when n is 0.
func add(a *atomic.Uint64, n uint64) {
	if n != 0 {
		a.Add(n)
	}
}

// sum is what all workers have published.
func (t *totals) sum() (n counters) {
	for i := range t.slots {
		slot := &t.slots[i]
		n.requests += slot.requests.Load()
		n.flushes += slot.flushes.Load()
		n.metas += slot.metas.Load()
		n.authCmds += slot.authCmds.Load()
		n.authErrors += slot.authErrors.Load()
		n.yields += slot.yields.Load()
		n.rounds += slot.rounds.Load()
		n.roundTurns += slot.roundTurns.Load()
		n.bytesRead += slot.bytesRead.Load()
		n.bytesWritten += slot.bytesWritten.Load()
	}
	return n
}

// reset makes all totals 0. What a worker publishes meanwhile may be lost or
// kept, as if it had come just before or after.
func (t *totals) reset() {
	for i := range t.slots {
		slot := &t.slots[i]
		slot.requests.Store(0)
		slot.flushes.Store(0)
		slot.metas.Store(0)
		slot.authCmds.Store(0)
		slot.authErrors.Store(0)
		slot.yields.Store(0)
		slot.rounds.Store(0)
		slot.roundTurns.Store(0)
		slot.bytesRead.Store(0)
		slot.bytesWritten.Store(0)
	}
}

// publish adds the batch's counters to the server's totals.
func (w *worker) publish(s *Server) { s.totals.publish(&w.n) }
