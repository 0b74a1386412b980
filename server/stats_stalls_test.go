package server

import (
	"math"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// stallTime is clocks that stand still but for what a test says.
type stallTime struct{ store.Moment }

func (t *stallTime) stalls() *store.Stalls {
	return store.NewStalls(store.StallClocks{
		Wall: func() int64 { return t.Wall },
		Read: func(m *store.Moment) { *m = t.Moment },
	}, 1)
}

// pass lets d pass, in which this thread computes for own and others for others.
func (t *stallTime) pass(d, own, others time.Duration) {
	t.Wall += int64(d)
	t.Thread += int64(own)
	t.Process += int64(own + others)
}

func TestStatsStalls(t *testing.T) {
	s, addr := startServer(t, Config{Extended: Extended{Stalls: true}})
	talkTo(t, addr, "stats reset\r\n")
	var from store.Moment
	s.stalls.Read(&from)
	from.Process, from.ThreadID = math.MaxInt64/2, -1
	s.stalls.Note(&from, s.stalls.Now()-int64(3*time.Second), store.Stall{Doing: "set", Requests: 2, BytesIn: 300_000, BytesOut: 16})
	got := talkTo(t, addr, "stats stalls\r\n")
	for _, want := range []string{
		"STAT own ", "STAT lock ", "STAT beside ", "STAT machine ", "STAT gc_cycles ", "STAT gc_pause_1ms ", "STAT goroutine_wait_longest_us ",
		"STAT stall:1 cause=machine us=300",
		" doing=set requests=2 in=300000 out=16 at_ms=",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, which lacks %q", got, want)
		}
	}
	talkTo(t, addr, "stats reset\r\n")
	if got := talkTo(t, addr, "stats stalls\r\n"); strings.Contains(got, "us=300") {
		t.Errorf("after stats reset: got %q", got)
	}
}

// TestStatsStallsOff: without -o stalls it is no command, as in memcached.
func TestStatsStallsOff(t *testing.T) {
	_, addr := startServer(t, Config{})
	if got := talkTo(t, addr, "stats stalls\r\n"); got != "ERROR\r\n" {
		t.Errorf("got %q, want ERROR", got)
	}
}

// TestTurns: a turn that takes long is told with its command, a wait in which
// others computed with the step that did, and a wait for something to do not at
// all.
func TestTurns(t *testing.T) {
	const ms = time.Millisecond
	var now stallTime
	now.Wall = 1
	tu := turns{stalls: now.stalls()}
	w := new(worker)
	w.req.Op, w.req.Verb = meta.OpSet, meta.VerbSet

	tu.called()
	now.pass(10*time.Microsecond, 10*time.Microsecond, 0)
	tu.end(w, 100)
	now.pass(50*ms, 0, 0) // nothing to do
	tu.called()
	w.n.requests, w.n.bytesWritten = 3, 24
	now.pass(2*ms, 2*ms, 0)
	tu.end(w, 300_000)
	step := tu.stalls.Begin("metrics")
	now.pass(1500*time.Microsecond, 1500*time.Microsecond, 0)
	step.End()
	tu.called()

	list, _ := tu.stalls.Longest()
	var got []string
	for _, st := range list {
		if st.Cause == store.StallOwn && st.Doing == "set" && st.BytesIn == 300_000 && st.BytesOut == 24 && st.Requests == 3 && st.Length == 2*ms {
			got = append(got, "set")
		} else {
			got = append(got, st.Cause.String()+" "+st.Doing+" "+st.By)
		}
	}
	if s := strings.Join(got, ", "); s != "set, own metrics , beside wait metrics" {
		t.Errorf("got %s of %+v", s, list)
	}
}

func TestLongPauses(t *testing.T) {
	h := &metrics.Float64Histogram{
		Counts:  []uint64{1, 2, 0, 3, 4, 0},
		Buckets: []float64{math.Inf(-1), 0, 0.0005, 0.001, 0.004, 0.008, math.Inf(1)},
	}
	if n, longest := longPauses(h); n != 7 || longest != 0.004 {
		t.Errorf("got %d, longest %v, want 7, 0.004", n, longest)
	}
	if n, longest := longPauses(&metrics.Float64Histogram{Counts: []uint64{5}, Buckets: []float64{math.Inf(-1), 0}}); n != 0 || longest != 0 {
		t.Errorf("got %d, longest %v, want none", n, longest)
	}
}

// BenchmarkTurns is what a turn costs more where stalls are kept.
func BenchmarkTurns(b *testing.B) {
	tu := turns{stalls: store.NewStalls(store.SystemStallClocks(), 1)}
	w := new(worker)
	b.ReportAllocs()
	for b.Loop() {
		tu.called()
		tu.end(w, 0)
	}
}
