package bench

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// unitCosts charges 1 for each of n keys: a cache of items.
func unitCosts(n int) []uint32 { return slices.Repeat([]uint32{1}, n) }

// missPercent replays requests for keys with these costs.
func missPercent(name string, requests, cost []uint32, capacity uint64) float64 {
	p := policies[name](&workload{trace: &Trace{Requests: requests}}, capacity, cost)
	misses := 0
	for i, k := range requests {
		if !p.request(i, k) {
			misses++
		}
	}
	return 100 * float64(misses) / float64(len(requests))
}

// hits replays requests and says with a letter each which hit and missed.
func hits(name string, capacity uint64, cost []uint32, requests ...uint32) string {
	p := policies[name](&workload{trace: &Trace{Requests: requests}}, capacity, cost)
	var said []byte
	for i, k := range requests {
		if p.request(i, k) {
			said = append(said, 'h')
		} else {
			said = append(said, '-')
		}
	}
	return string(said)
}

// TestLRUIsAList holds the LRU against a slice in order of use.
func TestLRUIsAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.SliceOfN(rapid.Uint32Range(1, 9), 8, 8).Draw(t, "cost")
		capacity := rapid.Uint64Range(1, 30).Draw(t, "capacity")
		p := newLRU(nil, capacity, cost)
		var model []uint32 // newest first
		var evicted uint64
		for i, k := range rapid.SliceOf(rapid.Uint32Range(0, 7)).Draw(t, "requests") {
			at := slices.Index(model, k)
			if got := p.request(i, k); got != (at >= 0) {
				t.Fatalf("request %d for %d: got hit %t, the model has %v", i, k, got, model)
			}
			if at >= 0 {
				model = slices.Delete(model, at, at+1)
			} else if uint64(cost[k]) > capacity {
				continue
			}
			model = slices.Insert(model, 0, k)
			for used(model, cost) > capacity {
				model = model[:len(model)-1]
				evicted++
			}
		}
		if p.evictions() != evicted {
			t.Fatalf("got %d evictions, want %d", p.evictions(), evicted)
		}
	})
}

func used(keys, cost []uint32) (sum uint64) {
	for _, k := range keys {
		sum += uint64(cost[k])
	}
	return sum
}

// TestPoliciesKeepWithinCapacity recounts what each policy that queues holds.
func TestPoliciesKeepWithinCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.SliceOfN(rapid.Uint32Range(1, 9), 12, 12).Draw(t, "cost")
		capacity := rapid.Uint64Range(1, 60).Draw(t, "capacity")
		requests := rapid.SliceOf(rapid.Uint32Range(0, 11)).Draw(t, "requests")
		w := &workload{trace: &Trace{Requests: requests}}
		for name, make := range policies {
			p := make(w, capacity, cost)
			stored := func(k uint32) bool { return p.(*beladyPolicy).stored[k] }
			switch p := p.(type) {
			case *lruPolicy:
				stored = func(k uint32) bool { return p.in[k] != queueNone }
			case *s3fifoPolicy:
				stored = func(k uint32) bool { return p.in[k] < s3Ghost }
			case *tinyPolicy:
				stored = func(k uint32) bool { return p.in[k] != queueNone }
			}
			for i, k := range requests {
				before := stored(k)
				if got := p.request(i, k); got != before {
					t.Fatalf("%s: request %d for %d: got hit %t, stored %t", name, i, k, got, before)
				}
				var held uint64
				for k := range cost {
					if stored(uint32(k)) {
						held += uint64(cost[k])
					}
				}
				if held > capacity {
					t.Fatalf("%s: request %d: holds %d of %d", name, i, held, capacity)
				}
			}
		}
	})
}

func TestS3FIFO(t *testing.T) {
	for _, c := range []struct {
		name     string
		capacity uint64
		requests []uint32
		want     string
	}{
		{"what is asked for again survives a scan", 10,
			[]uint32{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0}, "-h-----------h"},
		{"what is not goes first", 10,
			[]uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0}, "------------"},
		// 0 is a ghost, so the second time it comes it goes to main at once.
		{"the ghost remembers", 10,
			[]uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 0}, "------------------------h"},
	} {
		if got := hits("s3fifo", c.capacity, unitCosts(23), c.requests...); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBelady(t *testing.T) {
	for _, c := range []struct {
		name, policy string
		capacity     uint64
		cost         []uint32
		requests     []uint32
		want         string
	}{
		{"a loop keeps all but one", "belady", 2, unitCosts(3), []uint32{0, 1, 2, 0, 1, 2, 0, 1, 2}, "---hh-hh-"},
		{"what comes never again is not stored", "belady", 1, unitCosts(3), []uint32{0, 1, 0, 2, 0}, "--h-h"},
		{"one large and far, or two small and near", "belady", 2, []uint32{2, 1, 1}, []uint32{0, 1, 2, 1, 2, 0}, "---hh-"},
		{"large and a little nearer", "belady", 2, []uint32{2, 1, 1}, []uint32{1, 2, 0, 0, 1, 2}, "---h--"},
		{"large and a little nearer, by size", "beladysize", 2, []uint32{2, 1, 1}, []uint32{1, 2, 0, 2, 1, 0}, "---hh-"},
	} {
		if got := hits(c.policy, c.capacity, c.cost, c.requests...); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// TestBeladyIsBest compares with the best of all choices, and with the others.
func TestBeladyIsBest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		requests := make([]uint32, 12)
		for i := range requests {
			requests[i] = uint32(random.IntN(5))
		}
		capacity := 1 + random.IntN(3)
		got := missPercent("belady", requests, unitCosts(5), uint64(capacity))
		want := 100 * float64(fewestMisses(requests, 0, capacity)) / float64(len(requests))
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("%v with room for %d: got %.1f %% misses, want %.1f", requests, capacity, got, want)
		}
	}
}

// fewestMisses tries all that can be kept, as a set of bits.
func fewestMisses(requests []uint32, kept uint32, capacity int) int {
	if len(requests) == 0 {
		return 0
	}
	k, rest := uint32(1)<<requests[0], requests[1:]
	if kept&k != 0 {
		return fewestMisses(rest, kept, capacity)
	}
	n := 0
	for bits := kept; bits != 0; bits &= bits - 1 {
		n++
	}
	best := fewestMisses(rest, kept, capacity) // not stored
	if n < capacity {
		best = min(best, fewestMisses(rest, kept|k, capacity))
	}
	for bits := kept; n == capacity && bits != 0; bits &= bits - 1 {
		victim := bits & -bits
		best = min(best, fewestMisses(rest, kept&^victim|k, capacity))
	}
	return 1 + best
}

// TestTinyLFUKeepsTheHot lets a scan pass by a hot set.
func TestTinyLFUKeepsTheHot(t *testing.T) {
	var requests []uint32
	for scanned := uint32(50); scanned < 5000; scanned++ {
		requests = append(requests, scanned, scanned%50)
	}
	cost := unitCosts(5000)
	if got := missPercent("lru", requests, cost, 80); got < 99 {
		t.Errorf("lru: got %.1f %% misses, want all", got)
	}
	for _, name := range []string{"wtinylfu", "adaptive"} {
		if got := missPercent(name, requests, cost, 80); got > 53 {
			t.Errorf("%s: got %.1f %% misses, want little more than the scan's 50", name, got)
		}
	}
}

// openShared opens a trace that is not part of the project.
func openShared(t *testing.T, name string) *Trace {
	t.Helper()
	dir := os.Getenv("QUARRY_TRACES")
	if dir == "" {
		dir = "../" + tracesDefault // tests run in their package's folder
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no traces: %v (QUARRY_TRACES says where they are)", err)
	}
	trace, err := OpenTrace(dir, name)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// TestKnownOLTP: published hit ratios of the ARC paper's OLTP trace.
func TestKnownOLTP(t *testing.T) {
	if testing.Short() {
		t.Skip("replays a million requests eight times")
	}
	trace := openShared(t, "arc-oltp")
	cost := unitCosts(len(trace.Keys))
	for _, c := range []struct {
		policy    string
		want      [4]float64
		tolerance float64
	}{
		{"lru", [4]float64{16.5, 23.5, 32.8, 42.5}, 0.06},
		// Another counter and another climber than those published.
		{"adaptive", [4]float64{24.7, 33.7, 40.0, 46.1}, 0.6},
	} {
		for i, entries := range []uint64{250, 500, 1000, 2000} {
			got := 100 - missPercent(c.policy, trace.Requests, cost, entries)
			if math.Abs(got-c.want[i]) > c.tolerance {
				t.Errorf("%s with %d entries: got %.2f %% hits, want %.1f", c.policy, entries, got, c.want[i])
			}
		}
	}
}

// TestKnownCloudphysics: published hit ratios, in bytes without any overhead.
func TestKnownCloudphysics(t *testing.T) {
	trace := openShared(t, "cloudphysics")
	w := &workload{trace: trace}
	for _, c := range []struct {
		policy    string
		want      [4]float64
		tolerance float64
	}{
		{"belady", [4]float64{30.4, 37.9, 45.9, 57.0}, 0.06},
		{"beladysize", [4]float64{34.7, 43.3, 50.4, 57.0}, 0.2},
		{"lru", [4]float64{18.0, 21.2, 28.2, 37.0}, 0.06},
	} {
		for i, mib := range []uint64{128, 256, 512, 1024} {
			p := policies[c.policy](w, mib<<20, trace.Sizes)
			got := 0.0
			for i, k := range trace.Requests {
				if p.request(i, k) {
					got += 100 / float64(len(trace.Requests))
				}
			}
			if math.Abs(got-c.want[i]) > c.tolerance {
				t.Errorf("%s at %d MB: got %.2f %% hits, want %.1f", c.policy, mib, got, c.want[i])
			}
		}
	}
}
