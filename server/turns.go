package server

import (
	"time"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// clocksReadAfter is how old a reading of all clocks may be that a turn is
// measured from: they cost system calls, so most turns do without, and what a
// stall is told to have computed may have so much of what was done before it.
const clocksReadAfter = 100 * time.Microsecond

// turns notes the turns of a loop that are stalls, and the times between them.
// A loop that waits for something to do looks like one that waits for its
// processor; but only in the latter case do others compute meanwhile.
type turns struct {
	stalls *store.Stalls // nil: off
	read   store.Moment  // at most clocksReadAfter before the turn, or the time before it
	began  int64         // the turn, or the time since the last call from gnet
}

// called is called when gnet calls: what was before that may have been a wait
// for something to do.
func (t *turns) called() {
	now := t.stalls.Now()
	if t.began != 0 && now-t.began >= int64(store.StallMin) {
		t.stalls.NoteIdle(&t.read, t.began, store.Stall{Doing: "wait"})
	}
	t.begin(now)
}

// begin is called when a turn begins.
func (t *turns) begin(now int64) {
	t.began = now
	if now-t.read.Wall >= int64(clocksReadAfter) {
		t.stalls.Read(&t.read)
	}
}

// end is called when a turn of w has ended that began with bytesIn of input.
func (t *turns) end(w *worker, bytesIn int) {
	now := t.stalls.Now()
	d := now - t.began
	if d >= int64(store.StallMin) {
		t.stalls.Note(&t.read, t.began, store.Stall{
			Doing: commandName(&w.req), Requests: w.n.requests,
			BytesIn: uint64(bytesIn), BytesOut: w.n.bytesWritten,
		})
	}
	t.begin(now)
}

// commandName is a word for a request that was decoded.
func commandName(r *meta.Request) string {
	switch word := r.Verb.String(); {
	case word != "":
		return word
	case r.Op == meta.OpStats:
		return "stats"
	}
	return commandClassNames[classOf(r)]
}
