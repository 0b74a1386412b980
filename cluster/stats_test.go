package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server"
)

func TestHistogram(t *testing.T) {
	last := -1
	for us := uint64(0); us < 5_000_000; us += us/64 + 1 {
		s := step(us)
		if s < last || s > last+1 && us > 0 {
			t.Fatalf("%d µs: step %d after %d", us, s, last)
		}
		last = s
		if most := upTo(s); us >= most || us > 8 && float64(most) > 1.26*float64(us) {
			t.Fatalf("%d µs: in a step up to %d", us, most)
		}
	}
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i) * time.Microsecond)
	}
	h.add(-1)
	h.add(24 * time.Hour)
	for _, q := range []struct{ q, least, most float64 }{{0.5, 500, 630}, {0.99, 990, 1280}} {
		if got := float64(h.quantile(q.q).Microseconds()); got < q.least || got > q.most {
			t.Errorf("quantile %v: %v µs", q.q, got)
		}
	}
}

// TestStats: S1-74, S3-21.
func TestStats(t *testing.T) {
	c := newClient(t, Options{Servers: []string{startServer(t, server.Config{})}, Near: NearOptions{Life: time.Hour}})
	s := newSource(1)
	for range 5 {
		c.Fetch(bg, "a:1", s.load)
	}
	c.Fetch(bg, "a:absent", newSource(0).load)
	c.Get(bg, "b:1")
	c.GetMulti(bg, []string{"b:1", "b:2", "a:1", "plain"})
	c.InvalidateSince(bg, "a:1", 2, time.Now().Add(-time.Second))
	got := c.Stats()
	find := func(prefix string) PrefixStats {
		i := slices.IndexFunc(got.Prefixes, func(p PrefixStats) bool { return p.Prefix == prefix })
		if i < 0 {
			t.Fatalf("no prefix %q in %+v", prefix, got.Prefixes)
		}
		return got.Prefixes[i]
	}
	a := find("a")
	if a.Hits != 6 || a.Near != 5 || a.Source != 2 || a.Negative != 1 || a.P99 == 0 || a.LagP99 < time.Second {
		t.Errorf("got %+v", a)
	}
	if r := a.HitRatio(); r < 0.7 || r > 0.72 {
		t.Errorf("hit ratio %v, want 5/7", r)
	}
	if b := find("b"); b.Misses != 3 || b.HitRatio() != 0 {
		t.Errorf("got %+v", b)
	}
	if got.Loads != 2 || len(got.Nodes) != 1 || got.Nodes[0].Requests == 0 || got.Nodes[0].Dials == 0 {
		t.Errorf("got %+v", got)
	}
	for i := range 2 * prefixesMax {
		c.Get(bg, fmt.Sprint("p", i, ":x"))
	}
	got = c.Stats()
	if len(got.Prefixes) > prefixesMax || find(OtherPrefixes).Misses == 0 {
		t.Errorf("%d prefixes", len(got.Prefixes))
	}
}

// TestRollout: S1-75, S1-76.
func TestRollout(t *testing.T) {
	addr := startServer(t, server.Config{})
	t.Run("percent", func(t *testing.T) {
		c := newClient(t, Options{Servers: []string{addr}, Near: NearOptions{Bytes: -1}, Fetch: FetchOptions{DirectLoads: 1e6},
			Rollout: Rollout{Percent: 30, Tenants: map[string]int{"all": 100, "none": 0}}})
		k := NewKeySpace("shop", 1)
		s := newSource(1)
		through := map[string]int{}
		for i := range 300 {
			for _, tenant := range []string{"all", "none", "other"} {
				key := k.Key(tenant, fmt.Sprint(i))
				c.Fetch(bg, key, s.load)
				if c.Get(bg, key).Outcome == Hit {
					through[tenant]++
				}
			}
		}
		if through["all"] != 300 || through["none"] != 0 || through["other"] < 50 || through["other"] > 130 {
			t.Errorf("through the cache: %v of 300 each", through)
		}
	})
	t.Run("none", func(t *testing.T) {
		budget := NewBudget(20)
		s := newSource(1)
		// Two namespaces of the same source, one budget.
		a := newClient(t, Options{Servers: []string{addr}, Rollout: Rollout{Percent: -1}, Fetch: FetchOptions{Budget: budget}})
		b := newClient(t, Options{Servers: []string{addr}, Rollout: Rollout{Percent: -1}, Fetch: FetchOptions{Budget: budget}})
		begin := time.Now()
		for i := range 500 {
			for _, c := range []*Client{a, b} {
				if r := c.Fetch(bg, fmt.Sprint("n", i), s.load); r.Outcome != Hit && !errors.Is(r.Cause, ErrDenied) {
					t.Fatalf("got %v, %v", r.Outcome, r.Cause)
				}
			}
		}
		if n, most := s.reads.Load(), int64(time.Since(begin).Seconds()*20)+1; n == 0 || n > most {
			t.Errorf("%d loads, want 1 to %d", n, most)
		}
	})
	t.Run("shadow", func(t *testing.T) {
		c := newClient(t, Options{Servers: []string{addr}, Fetch: FetchOptions{DirectLoads: 1e6}, Rollout: Rollout{Shadow: true}})
		s := newSource(5)
		for range 3 {
			want(t, c.Fetch(bg, "shadow", s.load), Hit, "v5", FromSource)
			time.Sleep(time.Millisecond) // the budget
		}
		s.version.Store(6)
		want(t, c.Fetch(bg, "shadow", s.load), Hit, "v6", FromSource)
		got := c.Stats()
		if got.ShadowSame != 2 || got.ShadowOlder != 1 || got.ShadowDiffers != 0 || s.reads.Load() != 4 {
			t.Errorf("got %+v, %d loads", got, s.reads.Load())
		}
	})
	for _, r := range []Rollout{{Percent: 101}, {Percent: -2}, {Tenants: map[string]int{"a": -1}}} {
		if c, err := New(Options{Servers: []string{addr}, Rollout: r}); err == nil {
			t.Errorf("%+v: accepted", r)
			_ = c.Close()
		}
	}
}

// TestHotKeys: what the near cache hides is counted and told to the owner, and a
// key that servers call hot is kept near, or read from copies where that is
// allowed (S3-28).
func TestHotKeys(t *testing.T) {
	list, m := startFakes(t, 2, 1)
	var told string
	hot := ownedBy(m, 0, "hot:")
	for i, f := range list {
		f.put(hot, "v")
		f.say = func(r *meta.Request) ([]byte, bool) {
			if r.Op == meta.OpConfig && r.NArgs == 4 {
				told = fmt.Sprintf("%d: %s", i, bytes.Join(r.Args[1:4], []byte{' '}))
				return []byte("OK\r\n"), true
			}
			if r.Op == meta.OpGet && i == 0 {
				f.gets.Add(1)
				r.Route.Copies = 4
				return meta.AppendBlock(r.AppendMetaReply(nil, meta.CodeVA, &meta.Item{Size: 1}), []byte("v")), true
			}
			return nil, false
		}
	}
	// The clock stands, so that the near cache keeps what it has.
	at := time.Now()
	c := newClient(t, Options{Seeds: seeds(list), Now: func() time.Time { return at }})
	want(t, c.Get(bg, hot), Hit, "v", FromOwner)
	want(t, c.Get(bg, hot), Hit, "v", FromOwner) // told by the first, kept by the second
	for range 100 {
		want(t, c.Get(bg, hot), Hit, "v", FromNear)
	}
	at = at.Add(time.Second)
	c.Get(bg, hot) // the entry is replaced, and its reads counted
	keys := c.HotKeys()
	if len(keys) == 0 || keys[0].Key != hot || keys[0].Reads != 100 || keys[0].Places != 4 {
		t.Errorf("got %+v", keys)
	}
	c.report()
	list[0].mu.Lock()
	list[1].mu.Lock()
	if told != "0: report "+hot+" 100" {
		t.Errorf("the node was told %q", told)
	}
	list[1].mu.Unlock()
	list[0].mu.Unlock()
	if left := c.hot.unreported(); len(left) != 0 {
		t.Errorf("%+v is still to be told", left)
	}

	c = newClient(t, Options{Seeds: seeds(list), Near: NearOptions{Bytes: -1}, Policies: []Policy{{Prefix: "hot:", Copies: true}}})
	from := map[Origin]int{}
	for range 200 {
		r := c.Get(bg, hot)
		if string(r.Value) != "v" || (r.From == FromCopy) != (r.Outcome == Stale) {
			t.Fatalf("got %v %q from %v", r.Outcome, r.Value, r.From)
		}
		from[r.From]++
	}
	if from[FromCopy] < 50 || from[FromOwner] < 50 {
		t.Errorf("read from %v, want half of each", from)
	}
}

// TestReadsOfCopiesAreMerged: callers who want the same hot key at the same time
// ask for it once, whether a copy is asked or the owner.
func TestReadsOfCopiesAreMerged(t *testing.T) {
	list, m := startFakes(t, 2, 1)
	hot := ownedBy(m, 0, "hot:")
	for _, f := range list {
		f.put(hot, "v")
	}
	c := newClient(t, Options{Seeds: seeds(list), Near: NearOptions{Bytes: -1}, Policies: []Policy{{Prefix: "hot:", Copies: true}}})
	c.Get(bg, hot) // connects
	c.hot.hint(hot, 1, time.Now())
	for _, f := range list {
		f.delay.Store(int64(20 * time.Millisecond))
	}
	const rounds, callers = 20, 50
	before := list[0].gets.Load() + list[1].gets.Load()
	var fromCopy atomic.Int64
	for range rounds {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				r := c.Fetch(bg, hot, newSource(1).load)
				if string(r.Value) != "v" {
					t.Errorf("got %v %q from %v: %v", r.Outcome, r.Value, r.From, r.Cause)
				}
				if r.From == FromCopy {
					fromCopy.Add(1)
				}
			})
		}
		all.Wait()
	}
	if n := fromCopy.Load(); n == 0 || n == rounds*callers {
		t.Errorf("%d of %d reads came from a copy, want some", n, rounds*callers)
	}
	if n := list[0].gets.Load() + list[1].gets.Load() - before; n > rounds*callers/10 {
		t.Errorf("%d reads reach the nodes for %d callers in %d rounds", n, callers, rounds)
	}
}

// TestReportToNode: a real node takes a report, and shows it.
func TestReportToNode(t *testing.T) {
	ns := startNodes(t, 2, 0)
	c := newClient(t, Options{Seeds: ns.addrs})
	c.Get(bg, "connect")
	c.hot.hid("hidden", 5000)
	c.report()
	if left := c.hot.unreported(); len(left) != 0 {
		t.Errorf("%+v is still to be told", left)
	}
}

// TestPlantedHotKey finds a hot key among many within two windows.
func TestPlantedHotKey(t *testing.T) {
	var h hot
	for range 2 {
		for i := range 5000 {
			h.hid(fmt.Sprint("key", i%1000), 1)
			if i%10 == 0 {
				h.hid("planted", 1)
			}
		}
	}
	if list := h.list(time.Now()); list[0].Key != "planted" || len(list) > hotKeysMax {
		t.Errorf("the first of %d is %+v", len(list), list[0])
	}
	for range 20 {
		h.decay()
	}
	if list := h.list(time.Now()); len(list) != 0 {
		t.Errorf("after a long time: %v", list)
	}
}

func TestWhere(t *testing.T) {
	list, m := startFakes(t, 3, 1)
	c := newClient(t, Options{Seeds: seeds(list)})
	key := ownedBy(m, 2, "key")
	w, err := c.Where(bg, key)
	if err != nil || w.Owner != list[2].addr || len(w.Copies) != 1 || w.Epoch != m.Epoch || w.Split != 0 {
		t.Errorf("got %+v, %v", w, err)
	}
	if got, err := c.Map(bg); err != nil || got.Epoch != m.Epoch {
		t.Errorf("got %v, %v", got, err)
	}
}
