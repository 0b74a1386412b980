package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// seen counts how often a Visitor was shown each key.
type seen map[string]int

func (n seen) VisitItem(it *Item) { n[string(it.Key)]++ }

// The walks of lru_crawler: what is there all the time is shown exactly once,
// while the index grows, values change their class, pages move, and other keys
// come and go.
func TestWalkShowsEachOnce(t *testing.T) {
	const stable, steps = 20_000, 16
	s := newTestStore(t, Config{LimitBytes: 64 << 20, Shards: 2, PageBytes: 16 << 10})
	for i := range stable {
		s.mustSet(t, fmt.Sprint("k", i), mixed(i%5), SetOptions{}, noon)
	}
	var st Stats
	s.Snapshot(noon, &st)
	level := st.IndexBuckets

	stop := make(chan struct{})
	var churn sync.WaitGroup
	t.Cleanup(func() {
		close(stop)
		churn.Wait()
	})
	for g := range 3 {
		churn.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				switch g {
				case 0: // the index grows
					s.Set(key(fmt.Sprint("new", n)), []byte("v"), &SetOptions{}, noon)
				case 1: // keys come and go, and stable ones change their class
					k := fmt.Sprint("x", rng.IntN(5000))
					s.Set(key(k), []byte(mixed(n%5)), &SetOptions{}, noon)
					s.Delete(key(fmt.Sprint("x", rng.IntN(5000))), &DeleteOptions{}, noon)
					s.Set(key(fmt.Sprint("k", rng.IntN(stable))), []byte(mixed(n%5)), &SetOptions{Mode: ModeReplace}, noon)
				case 2: // pages move
					s.Reassign(-1, 1+rng.IntN(s.Classes()))
					for _, sh := range s.shards {
						s.goOnMoving(sh, noon)
					}
				}
			}
		})
	}
	walks, grown := 0, uint64(0)
	for moved := uint64(0); walks < 5 || moved == 0 || grown == 0; walks++ {
		n := seen{}
		for w := (Walk{}); s.Walk(&w, steps, nil, noon, n); {
		}
		for k, times := range n {
			if times > 1 && k[0] != 'x' {
				t.Fatalf("%s was shown %d times", k, times)
			}
		}
		missing := 0
		for i := range stable {
			k := fmt.Sprint("k", i)
			if n[k] == 0 && s.Peek(key(k), noon, nil) == OK {
				missing++
			}
		}
		if missing > 0 {
			t.Fatalf("%d items were not shown", missing)
		}
		s.Snapshot(noon, &st)
		moved, grown = st.ItemsMoved, st.IndexBuckets-level
		if walks == 500 {
			t.Fatalf("%d items moved, the index grew by %d buckets: want some of both", moved, grown)
		}
	}
	t.Logf("%d walks, the index grew by %d buckets, %d items moved, %d evicted",
		walks, grown, st.ItemsMoved, st.Total.Evicted)
}

// A walk shows what is asked for, and a step of it is bounded.
func TestWalkOfClasses(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 16 << 20, Shards: 2})
	class := map[string]int{}
	for i := range 3000 {
		k := fmt.Sprint("k", i)
		s.mustSet(t, k, mixed(i%3), SetOptions{Expiry: uint32(i%2) * later(10).Seconds()}, noon)
		var g grab
		s.Peek(key(k), noon, &g)
		class[k] = g.Class
	}
	only := make(ClassSet, s.Classes()+1)
	only.Add(class["k0"])
	count := func(walk func(n seen) bool) seen {
		n := seen{}
		for before, more := 0, true; more; before = len(n) {
			more = walk(n)
			if got := len(n) - before; got > 100+chainEntriesMax {
				t.Fatalf("a step has shown %d items, want at most 100 and a chain", got)
			}
		}
		return n
	}
	for name, walk := range map[string]func(now Time) func(n seen) bool{
		"Walk": func(now Time) func(n seen) bool {
			w := new(Walk)
			return func(n seen) bool { return s.Walk(w, 100, only, now, n) }
		},
		"ShowStep": func(now Time) func(n seen) bool {
			w := s.NewPageWalk(only, 0)
			return func(n seen) bool { return s.ShowStep(w, 100, now, n) }
		},
	} {
		for _, now := range []Time{noon, later(10)} {
			n := count(walk(now))
			for k, c := range class {
				var i int
				fmt.Sscanf(k, "k%d", &i)
				want := 0
				if c == class["k0"] && (now == noon || i%2 == 0) {
					want = 1
				}
				if n[k] != want {
					t.Errorf("%s at %d: %s was shown %d times, want %d", name, now, k, n[k], want)
				}
			}
		}
	}
}

// A crawl frees what has expired in its classes, and looks at no more items of
// each than it may.
func TestCrawl(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 16 << 20, Shards: 1})
	for i := range 1000 {
		s.mustSet(t, fmt.Sprint("k", i), "v", SetOptions{Expiry: later(5).Seconds()}, noon)
		s.mustSet(t, fmt.Sprint("big", i), mixed(2), SetOptions{Expiry: later(5).Seconds()}, noon)
	}
	var g grab
	s.Peek(key("k0"), noon, &g)
	only := make(ClassSet, s.Classes()+1)
	only.Add(g.Class)
	crawl := func(itemsMax int) (looked int) {
		w := s.NewPageWalk(only, itemsMax)
		for more := true; more; {
			var n int
			n, more = s.CrawlStep(w, later(5))
			looked += n
		}
		return looked
	}
	if looked := crawl(100); looked != 100 {
		t.Errorf("looked at %d items, want 100", looked)
	}
	if looked := crawl(0); looked != 900 {
		t.Errorf("looked at %d items, want 900", looked)
	}
	var st Stats
	s.Snapshot(later(5), &st)
	if c := &st.Classes[g.Class-1]; c.SweepReclaimed != 1000 || c.SweepChecked != 1000 || c.Items != 0 {
		t.Errorf("%d items freed, %d looked at, %d left: want 1000, 1000, 0", c.SweepReclaimed, c.SweepChecked, c.Items)
	}
	if st.Total.Items != 1000 {
		t.Errorf("%d items left, want the 1000 of the other class", st.Total.Items)
	}
}

// Sizes tells how many items there are of each size, whatever was done to
// them; Check, at the end, counts again.
func TestSizes(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 16 << 20, Shards: 2, TrackSizes: true})
	for i := range 2000 {
		s.mustSet(t, fmt.Sprint("k", i%700), mixed(i), SetOptions{}, noon)
		if i%3 == 0 {
			s.Delete(key(fmt.Sprint("k", i%500)), &DeleteOptions{}, noon)
		}
	}
	var st Stats
	s.Snapshot(noon, &st)
	total := uint64(0)
	for _, n := range s.Sizes() {
		total += n
	}
	if total != st.Total.Items {
		t.Errorf("%d items by size, %d in all", total, st.Total.Items)
	}
	var g grab
	s.Peek(key("k699"), noon, &g)
	if i := sizeStep(g.Footprint); s.Sizes()[i] == 0 || i*SizeStepBytes < g.Footprint || (i-1)*SizeStepBytes >= g.Footprint {
		t.Errorf("an item of %d bytes is in step %d", g.Footprint, i)
	}
	if off := newTestStore(t, tiny); off.Sizes() != nil {
		t.Errorf("sizes that are not counted: got %v", off.Sizes())
	}
}
