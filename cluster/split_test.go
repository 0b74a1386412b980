package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/server"
)

// places are where a split key is, in a network that delays, loses and reorders
// writes.
type places struct {
	version []uint64
	late    []lateWrite
	rand    *rand.Rand
}

type lateWrite struct {
	place   int
	version uint64
}

// write writes a version to n places; if versioned, an older one is not stored.
func (p *places) write(n int, version uint64) {
	for len(p.version) < n {
		p.version = append(p.version, 0)
	}
	for i := range n {
		if p.rand.IntN(10) > 0 { // else it is lost
			p.late = append(p.late, lateWrite{i, version})
		}
	}
}

// step has some of the writes arrive, in any order.
func (p *places) step(versioned bool) {
	for len(p.late) > 0 && p.rand.IntN(2) == 0 {
		i := p.rand.IntN(len(p.late))
		w := p.late[i]
		p.late[i] = p.late[len(p.late)-1]
		p.late = p.late[:len(p.late)-1]
		if !versioned || w.version > p.version[w.place] {
			p.version[w.place] = w.version
		}
	}
}

// TestMonotonicReads has readers read a split key a million times while it is
// written and its places grow. With random places a reader sees what is older
// than what it has seen; with its own place, and the memory of versions, never
// (S0-03 … S0-07).
func TestMonotonicReads(t *testing.T) {
	const readers = 20
	reads := 1_000_000
	if testing.Short() {
		reads /= 10
	}
	run := func(t *testing.T, random bool) (violations, repairs int) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		p := &places{rand: rand.New(rand.NewPCG(seed, 0))}
		list := make([]*Client, readers)
		for i := range list {
			list[i] = newClient(t, Options{Servers: []string{"127.0.0.1:1"}, ClientID: fmt.Sprint("client", i), Near: NearOptions{Bytes: -1}})
		}
		n, version := 4, uint64(1)
		seen := make([]uint64, readers)
		splits := make([]*split, readers)
		for i := range splits {
			splits[i] = &split{n: n, seen: new(atomic.Uint64)}
		}
		p.write(n, version)
		for i := range reads {
			p.step(!random)
			switch {
			case i%50 == 0:
				version++
				p.write(n, version)
			case i%200_000 == 199_999:
				n++
				p.write(n, version)
			}
			who := p.rand.IntN(readers)
			c, s := list[who], splits[who]
			s.n = n
			at := 0
			if random {
				at = p.rand.IntN(n)
			} else {
				at = jump(xxhash.Sum64String("post:9")^c.idHash, n)
			}
			got := p.version[at]
			if got == 0 {
				continue
			}
			if !random && got < s.seen.Load() {
				// What behind does, without a server: it is not shown, and
				// the place is told the version.
				p.version[at] = 0
				repairs++
				continue
			}
			if !random {
				s.saw(got)
			}
			if got < seen[who] {
				violations++
			}
			seen[who] = max(seen[who], got)
		}
		return violations, repairs
	}
	violations, _ := run(t, true)
	if violations == 0 {
		t.Error("random places show no violation: the test shows nothing")
	}
	t.Logf("random places: %d violations", violations)
	violations, repairs := run(t, false)
	t.Logf("own place and versions: %d violations, %d repairs", violations, repairs)
	if violations > 0 {
		t.Errorf("%d violations, want none", violations)
	}
}

// splitMap is m with a key split.
func splitMap(t *testing.T, m *bucket.Map, key string, n int) *bucket.Map {
	t.Helper()
	return change(t, m, bucket.Change{Split: []bucket.Split{{Key: bucket.RawKey(key), N: n}}})
}

// TestSplit reads a split key through real nodes: one load fills all places, a
// notice reaches all of them, plain writes are refused (S0-01, S0-02, S0-04,
// S2-01, S2-06, S2-11).
func TestSplit(t *testing.T) {
	ns := startNodes(t, 4, 0)
	const n = 8
	ns.publish(t, splitMap(t, ns.m, "hot", n))
	s := newSource(1)
	list := make([]*Client, 16)
	used := map[string]bool{}
	for i := range list {
		list[i] = newClient(t, Options{Seeds: ns.addrs, ClientID: fmt.Sprint("client", i), Near: NearOptions{Bytes: -1}, Connections: 1})
		r := list[i].Fetch(bg, "hot", s.load)
		if r.Outcome != Hit || r.Version != 1 {
			t.Fatalf("got %v, %v", r.Outcome, r.Cause)
		}
		place, _ := list[i].place(bg, "hot")
		if again, _ := list[i].place(bg, "hot"); again != place {
			t.Errorf("client %d reads %s, then %s", i, place, again)
		}
		used[place] = true
		waitFor(t, "the offers", func() bool { return list[i].offers.Load() == 0 })
	}
	if len(used) < n/2 {
		t.Errorf("16 clients read %d of %d places", len(used), n)
	}
	if reads := s.reads.Load(); reads != 1 {
		t.Errorf("%d loads, want one for all places", reads)
	}
	c := list[0]
	softs := map[uint64]bool{}
	for i := range n {
		l := c.lookup(bg, splitKey("hot", i), LookupOptions{})
		if l.Outcome != Hit || l.Version != 1 {
			t.Errorf("place %d: got %v of version %d", i, l.Outcome, l.Version)
		}
		softs[l.Soft] = true
	}
	if len(softs) < n/2 {
		t.Errorf("%d places have %d soft deadlines: want them apart", n, len(softs))
	}
	for what, err := range map[string]error{
		"set":    c.Set(bg, &Item{Key: "hot"}),
		"delete": c.Delete(bg, "hot"),
	} {
		if !errors.Is(err, ErrSplit) {
			t.Errorf("%s: got %v, want ErrSplit", what, err)
		}
	}
	s.version.Store(2)
	note := c.Invalidate(bg, "hot", 2)
	if len(note.Places) != n+1 || note.Err() != nil {
		t.Errorf("got %+v, want the key and all places to have heard", note)
	}
	for i, c := range list {
		if r := c.Fetch(bg, "hot", s.load); r.Outcome != Hit || r.Version != 2 {
			t.Errorf("client %d: got %v of version %d, %v", i, r.Outcome, r.Version, r.Cause)
		}
	}
	if err := c.Store(bg, "hot", Versioned{Value: []byte("v3"), Version: 3, Deadlines: Deadlines{Hard: uint64(time.Now().Add(time.Minute).UnixMilli())}}); err != nil {
		t.Error(err)
	}
	for i := range list {
		want(t, list[i].Fetch(bg, "hot", s.load), Hit, "v3", FromOwner)
	}
}

// TestSplitRepair: a place that is behind is not believed, and is repaired
// (S0-07, S0-08, S2-12).
func TestSplitRepair(t *testing.T) {
	ns := startNodes(t, 2, 0)
	ns.publish(t, splitMap(t, ns.m, "hot", 2))
	c := newClient(t, Options{Seeds: ns.addrs, Near: NearOptions{Bytes: -1}})
	s := newSource(1)
	want(t, c.Fetch(bg, "hot", s.load), Hit, "v1", FromSource)
	_, sp := c.place(bg, "hot")
	sp.saw(2) // as if it had come from elsewhere
	s.version.Store(2)
	want(t, c.Fetch(bg, "hot", s.load), Hit, "v2", FromSource)
	if n := c.counters.disagreed.Load(); n != 1 {
		t.Errorf("%d disagreements, want 1", n)
	}
	sp.saw(3)
	if r := c.Get(bg, "hot"); r.Outcome != Miss {
		t.Errorf("got %v of version %d, want nothing older than what was seen", r.Outcome, r.Version)
	}
}

// TestFillSplit fills new places before they are published.
func TestFillSplit(t *testing.T) {
	ns := startNodes(t, 2, 0)
	c := newClient(t, Options{Seeds: ns.addrs, Near: NearOptions{Bytes: -1}, MapGap: time.Millisecond})
	s := newSource(1)
	if n, err := c.FillSplit(bg, "hot", 4); n != 0 || !errors.Is(err, ErrMiss) {
		t.Errorf("got %d, %v", n, err)
	}
	want(t, c.Fetch(bg, "hot", s.load), Hit, "v1", FromSource)
	if n, err := c.FillSplit(bg, "hot", 4); n != 4 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := c.FillSplit(bg, long(248), 4); !errors.Is(err, ErrSplitKey) {
		t.Errorf("got %v", err)
	}
	next := splitMap(t, ns.m, "hot", 4)
	ns.publish(t, next)
	waitFor(t, "the map", func() bool { c.Get(bg, "other"); return c.view.Load().m.Epoch == next.Epoch })
	want(t, c.Fetch(bg, "hot", s.load), Hit, "v1", FromOwner)
	if n := s.reads.Load(); n != 1 {
		t.Errorf("%d loads, want 1", n)
	}
}

// TestCounter: S2-10.
func TestCounter(t *testing.T) {
	c := newClient(t, Options{Servers: []string{startServer(t, server.Config{})}})
	k, err := c.Counter("views", 10, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := k.Sum(bg); n != 0 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	for range 100 {
		if err := k.Add(bg, 3); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := k.Sum(bg); n != 300 || err != nil {
		t.Errorf("got %d, %v; want 300", n, err)
	}
	if _, err := c.Counter("views", 0, 0); err == nil {
		t.Error("0 shards are accepted")
	}
}
