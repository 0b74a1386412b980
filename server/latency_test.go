package server

import (
	"testing"
	"time"
)

// Each duration is in the bucket that ends at it or next above it.
func TestLatencyBuckets(t *testing.T) {
	last := -1
	for i := range latencyBuckets - 1 {
		end := latencyEnd(i)
		if got := latencyBucket(end); got != i {
			t.Fatalf("%d ns are in bucket %d, want %d", end, got, i)
		}
		if got := latencyBucket(end + 1); got != i+1 {
			t.Fatalf("%d ns are in bucket %d, want %d", end+1, got, i+1)
		}
		if i > 0 && float64(end) > 1.126*float64(latencyEnd(i-1)) {
			t.Errorf("bucket %d ends at %d, the one before at %d", i, end, latencyEnd(i-1))
		}
		if int(end) <= last {
			t.Errorf("bucket %d ends at %d", i, end)
		}
		last = int(end)
	}
	if end := latencyEnd(latencyBuckets - 2); end != 1<<latencyMaxBits {
		t.Errorf("the buckets end at %d", end)
	}
	if got := latencyBucket(1 << 62); got != latencyBuckets-1 {
		t.Errorf("a long time is in bucket %d", got)
	}
}

// A batch that is timed counts all its commands, each in its class, and about
// one batch in sampleBatches is.
func TestSample(t *testing.T) {
	p := newTestPeer(t, Config{})
	l := &p.srv.latencies
	m := &p.w.sample
	m.begin()
	if !m.on {
		t.Fatal("the first batch is not timed")
	}
	p.send("set a 0 0 1\r\n1\r\nget a\r\nmg a v\r\nincr a 1\r\ntouch a 0\r\nmd a\r\nmn\r\nnonsense\r\n")
	m.end(l)
	for class, want := range [commandClasses]uint64{classGet: 2, classSet: 1, classDelete: 1, classArith: 1, classTouch: 1, classOther: 1} {
		var counts [commandClasses]latencyCounts
		l.counts(&counts)
		if got := counts[class].count(); got != want {
			t.Errorf("%s: %d, want %d", commandClassNames[class], got, want)
		}
		if got := counts[class].sumNanos; got == 0 {
			t.Errorf("%s took no time", commandClassNames[class])
		}
	}
	const batches = 100_000
	timed := 0
	for range batches {
		m.begin()
		if m.on {
			timed++
		}
		m.end(l)
	}
	if low, high := batches/sampleBatches*8/10, batches/sampleBatches*12/10; timed < low || timed > high {
		t.Errorf("%d of %d batches were timed, want %d to %d", timed, batches, low, high)
	}
}

// Timing a batch allocates nothing.
func TestSampleNoAllocations(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.send("set a 0 0 1\r\n1\r\n")
	in := []byte("get a\r\nset a 0 0 1\r\n1\r\n")
	run := func() {
		p.w.sample.start()
		p.run(in)
		p.w.sample.end(&p.srv.latencies)
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkSample is what a batch pays for being timed now and then.
func BenchmarkSample(b *testing.B) {
	p := newTestPeer(b, Config{})
	m := &p.w.sample
	b.ReportAllocs()
	for b.Loop() {
		m.begin()
		m.commands[classGet] = 1
		m.end(&p.srv.latencies)
	}
	b.ReportMetric(time.Duration(b.Elapsed()).Seconds()*1e9/float64(b.N), "ns/batch")
}
