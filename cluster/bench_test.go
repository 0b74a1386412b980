package cluster

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/quarrycache/quarry/server"
	"golang.org/x/sys/unix"
)

// TestNearAllocatesNothing: a Get, and a Fetch, that the near cache answers.
func TestNearAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c := newClient(t, Options{Servers: []string{startServer(t, server.Config{})}, Near: NearOptions{Life: time.Hour}})
	s := newSource(1)
	load := s.load
	c.Fetch(bg, "k", load)
	if n := testing.AllocsPerRun(1000, func() {
		if r := c.Get(bg, "k"); r.From != FromNear {
			t.Fatalf("got %v from %v", r.Outcome, r.From)
		}
	}); n != 0 {
		t.Errorf("Get: %v allocations, want none", n)
	}
	if n := testing.AllocsPerRun(1000, func() { c.Fetch(bg, "k", load) }); n != 0 {
		t.Errorf("Fetch: %v allocations, want none", n)
	}
}

// TestMultiAllocatesLittle: a GetMulti allocates what it returns, and not for
// each key. Values share memory, and none can be written to through another.
func TestMultiAllocatesLittle(t *testing.T) {
	ns := startNodes(t, 3, 0)
	c := newClient(t, Options{Seeds: ns.addrs})
	var keys []string
	want := make(map[string]string)
	for i := range 100 {
		key := fmt.Sprint("key", i)
		keys = append(keys, key)
		want[key] = strings.Repeat(key, i%30) // none, a few
		if i%40 == 7 {
			want[key] = strings.Repeat(key, 1000) // and one of its own
		}
		if err := c.Set(bg, &Item{Key: key, Value: []byte(want[key])}); err != nil {
			t.Fatal(err)
		}
	}
	got := c.GetMulti(bg, keys)
	for _, r := range got {
		_ = append(r.Value, "overwritten"...)
	}
	for key, r := range got {
		if r.Outcome != Hit || string(r.Value) != want[key] {
			t.Errorf("%s: %v, %.20q, want %.20q", key, r.Outcome, r.Value, want[key])
		}
	}
	if raceEnabled {
		return // the race detector allocates
	}
	if n := testing.AllocsPerRun(200, func() { c.GetMulti(bg, keys) }); n > 40 {
		t.Errorf("%v allocations for %d keys", n, len(keys))
	}
}

// TestSystemMillis holds the clock of the near cache against Go's.
func TestSystemMillis(t *testing.T) {
	for range 1000 {
		before, got, after := time.Now().UnixMilli(), systemMillis(), time.Now().UnixMilli()
		if got < before || got > after {
			t.Fatalf("got %d between %d and %d", got, before, after)
		}
	}
	if n := testing.AllocsPerRun(100, func() { systemMillis() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGet(b *testing.B) {
	addr := startServer(b, server.Config{})
	b.Run("near", func(b *testing.B) {
		c := newClient(b, Options{Servers: []string{addr}, Near: NearOptions{Life: time.Hour}})
		c.Fetch(bg, "k", newSource(1).load)
		b.ReportAllocs()
		before := cpuTime(b)
		for b.Loop() {
			c.Get(bg, "k")
		}
		reportCPU(b, before)
	})
	b.Run("loopback", func(b *testing.B) {
		c := newClient(b, Options{Servers: []string{addr}})
		if err := c.Set(bg, &Item{Key: "k100", Value: make([]byte, 100)}); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			c.Get(bg, "k100")
		}
	})
}

func BenchmarkMulti(b *testing.B) {
	ns := startNodes(b, 3, 0)
	c := newClient(b, Options{Seeds: ns.addrs})
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint("key", i))
		if err := c.Set(bg, &Item{Key: keys[i], Value: make([]byte, 100)}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		if got := c.GetMulti(bg, keys); len(got) != len(keys) {
			b.Fatal(len(got))
		}
	}
	reportCPU(b, before)
}

// BenchmarkOf64 has 64 goroutines read over loopback, through this client and
// through gomemcache, side by side: reads a second, the 99th percentile, and the
// CPU time of a read, the server's included.
func BenchmarkOf64(b *testing.B) {
	addr := startServer(b, server.Config{})
	c := newClient(b, Options{Servers: []string{addr}})
	if err := c.Set(bg, &Item{Key: "k", Value: make([]byte, 100)}); err != nil {
		b.Fatal(err)
	}
	g := memcache.New(addr)
	g.MaxIdleConns = 64
	g.Timeout = 3 * time.Second
	defer g.Close()
	for _, client := range []struct {
		name string
		get  func() error
	}{
		{"quarry", func() error { r := c.Get(bg, "k"); return r.Err() }},
		{"gomemcache", func() error { _, err := g.Get("k"); return err }},
	} {
		b.Run(client.name, func(b *testing.B) {
			var mu sync.Mutex
			var took []time.Duration
			before := cpuTime(b)
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				var mine []time.Duration
				for pb.Next() {
					begin := time.Now()
					if err := client.get(); err != nil {
						b.Error(err)
					}
					mine = append(mine, time.Since(begin))
				}
				mu.Lock()
				took = append(took, mine...)
				mu.Unlock()
			})
			slices.Sort(took)
			reportCPU(b, before)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// reportCPU reports the CPU time of an operation, that of servers in this process
// included: it says more than the time on the wall where the machine has other work.
func reportCPU(b *testing.B, before time.Duration) {
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// cpuTime is what this process has used.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
