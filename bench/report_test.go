package bench

import (
	"math"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

func TestPercentiles(t *testing.T) {
	h := hdrhistogram.New(1, latencyMaxNS, latencyDigits)
	for us := range int64(1000) {
		if err := h.RecordValue((us + 1) * 1000); err != nil {
			t.Fatal(err)
		}
	}
	got := latencyOf(h)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"mean", got.MeanUS, 500.5},
		{"p50", got.P50US, 500},
		{"p90", got.P90US, 900},
		{"p99", got.P99US, 990},
		{"p99.9", got.P999US, 999},
		{"max", got.MaxUS, 1000},
	} {
		if math.Abs(c.got-c.want) > 0.002*c.want {
			t.Errorf("%s: got %.2f us, want %.2f", c.name, c.got, c.want)
		}
	}
}

// TestAnswered records requests that began together together, and those that
// were due at other times apart.
func TestAnswered(t *testing.T) {
	w := &worker{
		control:   &control{start: time.Now().Add(-time.Hour)},
		latency:   hdrhistogram.New(1, latencyMaxNS, latencyDigits),
		recording: true,
		inFlight:  5,
	}
	c := &conn{replies: replies{queue: newQueue(8, 1), counts: &w.counts}}
	now := w.control.nowNS()
	for _, ago := range []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second, time.Second, time.Second} {
		c.queue.push(kindGet, now-int64(ago))
	}
	c.queue.head = 4 // one is still in flight
	w.answered(c, 0)
	if n, p50, low := w.latency.TotalCount(), w.latency.ValueAtQuantile(50), w.latency.Min(); n != 4 ||
		p50 < int64(3*time.Second)*99/100 || low > int64(2*time.Second) {
		t.Errorf("got %d latencies, p50 %v, min %v", n, time.Duration(p50), time.Duration(low))
	}
	if w.inFlight != 1 {
		t.Errorf("in flight: got %d, want 1", w.inFlight)
	}
}

func TestCountsAdd(t *testing.T) {
	a := counts{requests: 5, hits: 4, misses: 3, sets: 2, fills: 1, errors: 6, corrupt: 7, sentBytes: 8, receivedBytes: 9, latencySumNS: 10}
	if got := a.plus(a).minus(a); got != a {
		t.Errorf("a+a-a: got %+v, want %+v", got, a)
	}
	if got := a.operations(); got != 4+3+2+6 {
		t.Errorf("operations: got %d, want 15", got)
	}
}
