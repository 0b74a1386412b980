package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/server"
)

// lossyWriter writes versions of a key to its places, over a network that loses
// writes, delays them, and lets later ones overtake.
type lossyWriter struct {
	c         *Client
	key       string
	n         int  // places
	versioned bool // else what comes last is stored, whatever it is

	mu      sync.Mutex // all below
	rand    *rand.Rand
	version uint64
	late    []lateWrite
}

type lateWrite struct {
	place   int
	version uint64
}

// step makes a new version, and has some of the writes arrive that are under way.
func (w *lossyWriter) step(t *testing.T) {
	w.version++
	for i := range w.n {
		if w.rand.IntN(10) > 0 { // else it is lost
			w.late = append(w.late, lateWrite{i, w.version})
		}
	}
	for len(w.late) > 0 && w.rand.IntN(2*w.n) > 0 {
		i := w.rand.IntN(len(w.late))
		x := w.late[i]
		w.late[i] = w.late[len(w.late)-1]
		w.late = w.late[:len(w.late)-1]
		w.arrive(t, x)
	}
}

// arrive writes to one place.
func (w *lossyWriter) arrive(t *testing.T, x lateWrite) {
	key, value := splitKey(w.key, x.place), strconv.AppendUint(nil, x.version, 10)
	if !w.versioned {
		if err := w.c.Set(bg, &Item{Key: key, Value: value}); err != nil {
			t.Errorf("write: %v", err)
		}
		return
	}
	err := w.c.storeAt(bg, key, Versioned{Value: value, Version: x.version, Deadlines: Deadlines{Hard: uint64(time.Now().Add(time.Hour).UnixMilli())}})
	var no *RefusedError
	if err != nil && !(errors.As(err, &no) && no.Reason == ReasonVersion) {
		t.Errorf("write: %v", err)
	}
}

// load is what the source has.
func (w *lossyWriter) load(context.Context, LoadRequest) (Loaded, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Loaded{Value: strconv.AppendUint(nil, w.version, 10), Version: w.version}, nil
}

// monotonicReads has clients read a split key of real nodes while it is written
// and its places become more. It counts reads of something older than what the
// same client had been given before the read began.
func monotonicReads(t *testing.T, reads int64, versioned bool, o Options, read func(c *Client, w *lossyWriter, i int64) Result) (violations, found, repairs int64) {
	const key, clients, perClient, grow = "post:9", 4, 40, 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ns := startNodes(t, 3, 0)
	w := &lossyWriter{c: newClient(t, Options{Seeds: ns.addrs}), key: key, n: 3, versioned: versioned, rand: rand.New(rand.NewPCG(seed, 0))}
	ns.publish(t, splitMap(t, ns.m, key, w.n))
	list := make([]*Client, clients)
	given := make([]atomic.Uint64, clients) // the highest version that a read has returned
	for i := range list {
		o := o
		o.Seeds, o.ClientID, o.MapGap = ns.addrs, fmt.Sprint("client", i), time.Millisecond
		list[i] = newClient(t, o)
	}
	for i := range w.n {
		w.version = 1
		w.arrive(t, lateWrite{i, 1})
	}
	var count, old, hits atomic.Int64
	var wg sync.WaitGroup
	for g := range clients * perClient {
		c, given := list[g%clients], &given[g%clients]
		wg.Go(func() {
			for {
				i := count.Add(1)
				if i > reads {
					return
				}
				if i%(reads/grow) == 0 { // there are more places from now on
					w.mu.Lock()
					if _, err := w.c.FillSplit(bg, key, w.n+1); err != nil && versioned && !errors.Is(err, ErrMiss) {
						t.Errorf("fill: %v", err)
					}
					w.n++
					ns.publish(t, splitMap(t, ns.m, key, w.n))
					w.mu.Unlock()
				}
				if i%50 == 0 && w.mu.TryLock() {
					w.step(t)
					w.mu.Unlock()
				}
				before := given.Load()
				r := read(c, w, i)
				if !r.Found() {
					if r.Outcome == Unavailable {
						t.Errorf("read: %v", r.Cause)
					}
					continue
				}
				hits.Add(1)
				v, err := strconv.ParseUint(string(r.Value), 10, 64)
				if err != nil || versioned && v != r.Version {
					t.Errorf("got %q of version %d", r.Value, r.Version)
				}
				if v < before {
					old.Add(1)
				}
				for high := given.Load(); v > high && !given.CompareAndSwap(high, v); high = given.Load() {
				}
			}
		})
	}
	wg.Wait()
	for _, c := range list {
		repairs += int64(c.counters.disagreed.Load())
	}
	t.Logf("%d reads, %d of them found one of %d versions, %d places at the end: %d violations, %d repairs", reads, hits.Load(), w.version, w.n, old.Load(), repairs)
	return old.Load(), hits.Load(), repairs
}

// TestMonotonicReads has clients read a split key a million times while it is
// written, and while its places become more. With random places and plain writes
// a client is given what is older than what it had; with a place of its own, and
// the memory of versions, never; nor with random places, if there are versions,
// in whatever way it is read (S0-03 … S0-07).
func TestMonotonicReads(t *testing.T) {
	reads := int64(1_000_000)
	if testing.Short() {
		reads = 40_000
	}
	get := func(c *Client, _ *lossyWriter, _ int64) Result { return c.Get(bg, "post:9") }
	t.Run("random, plain", func(t *testing.T) {
		if old, _, _ := monotonicReads(t, reads/20, false, Options{SplitChoice: SplitRandom, Near: NearOptions{Bytes: -1}}, get); old == 0 {
			t.Error("no violation: the test shows nothing")
		}
	})
	t.Run("own place, versions", func(t *testing.T) {
		old, found, _ := monotonicReads(t, reads, true, Options{Near: NearOptions{Bytes: -1}}, get)
		if old > 0 || found < reads/2 {
			t.Errorf("%d violations in %d reads, want none", old, found)
		}
	})
	t.Run("random, versions", func(t *testing.T) {
		o := Options{SplitChoice: SplitRandom, Near: NearOptions{Life: time.Millisecond, Gets: true}}
		old, found, repairs := monotonicReads(t, reads/10, true, o, func(c *Client, w *lossyWriter, i int64) Result {
			switch i % 3 {
			case 0:
				return c.GetMulti(bg, []string{"other", "post:9"})["post:9"]
			case 1:
				return c.Fetch(bg, "post:9", w.load)
			}
			return c.Get(bg, "post:9")
		})
		if old > 0 || found < reads/100 || repairs == 0 {
			t.Errorf("%d violations in %d reads, %d repairs; want none, and repairs", old, found, repairs)
		}
	})
}

// splitMap is m with a key split.
func splitMap(t *testing.T, m *bucket.Map, key string, n int) *bucket.Map {
	t.Helper()
	return change(t, m, bucket.Change{Split: []bucket.Split{{Key: bucket.RawKey(key), N: n}}})
}

// TestSplit reads a split key through real nodes: one load fills all places, a
// notice reaches all of them, plain writes are refused (S0-01, S0-02, S0-04,
// S2-01, S2-06, S2-09, S2-11).
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

// TestSplitPlaces: places of a key are in buckets of their own, whatever braces
// are in it: there are no hash tags (S2-02).
func TestSplitPlaces(t *testing.T) {
	for _, key := range []string{"hot", "{tag}hot", "hot{tag}"} {
		buckets := map[int]bool{bucket.Of([]byte(key)): true}
		for i := range 8 {
			buckets[bucket.Of([]byte(splitKey(key, i)))] = true
		}
		if len(buckets) < 8 {
			t.Errorf("%s and 8 places of it are in %d buckets", key, len(buckets))
		}
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

// TestSplitLoad: 64 clients without near cache read one hot key; split into 8
// over 4 nodes, the busiest node has about its share of the places instead of
// everything (S0-01, S2-04, S3-25).
func TestSplitLoad(t *testing.T) {
	list, m := startFakes(t, 4, 0)
	const clients, reads, places = 64, 50, 8
	load := func(m *bucket.Map) (busiest float64) {
		for _, f := range list {
			f.setMap(m)
			f.put("hot", "v")
			for i := range places {
				f.put(splitKey("hot", i), "v")
			}
		}
		before := make([]int64, len(list))
		for i, f := range list {
			before[i] = f.gets.Load()
		}
		for i := range clients {
			c := newClient(t, Options{Seeds: seeds(list), ClientID: fmt.Sprint("client", i), Near: NearOptions{Bytes: -1}, Connections: 1})
			for range reads {
				want(t, c.Get(bg, "hot"), Hit, "v", FromOwner)
			}
			_ = c.Close()
		}
		for i, f := range list {
			busiest = max(busiest, float64(f.gets.Load()-before[i])/(clients*reads))
		}
		return busiest
	}
	if got := load(m); got != 1 {
		t.Errorf("whole: the busiest node has %.2f of the reads, want all", got)
	}
	next := splitMap(t, m, "hot", places)
	of := make([]int, len(list)) // places of each node
	for i := range places {
		of[next.Buckets[bucket.Of([]byte(splitKey("hot", i)))].Owner]++
	}
	most := slices.Max(of)
	got := load(next)
	share := float64(most) / places
	t.Logf("split into %d, %d of them on one node: the busiest node has %.2f of the reads", places, most, got)
	if got > share+0.15 {
		t.Errorf("the busiest node has %.2f of the reads, want about %.2f", got, share)
	}
}

// placeReaders are clients of which each reads another place of a split key, in
// the order of the places.
func placeReaders(t *testing.T, ns *nodes, key string, n int, o Options) []*Client {
	t.Helper()
	o.Seeds, o.Connections, o.MapGap, o.Near.Bytes = ns.addrs, 1, time.Millisecond, -1
	list := make([]*Client, n)
	for id, found := 0, 0; found < n; id++ {
		o.ClientID = fmt.Sprint("client", id)
		c := newClient(t, o)
		for i := range list {
			if place, _ := c.place(bg, key); place == splitKey(key, i) && list[i] == nil {
				list[i] = c
				found++
			}
		}
	}
	return list
}

// TestDeleteAll: an edit that deletes all places of a split key, one after the
// other, makes the time shorter in which the old value is shown, and not nothing.
// Each place is loaded once then, under a grant, and where the budget has fewer
// grants there are no more loads than that (S0-09).
func TestDeleteAll(t *testing.T) {
	const key, places, grants = "hot", 4, 2
	ns := startNodes(t, 2, 0)
	ns.publish(t, splitMap(t, ns.m, key, places))
	k := new(clock)
	readers := placeReaders(t, ns, key, places, Options{Now: k.now, Fetch: FetchOptions{Grant: 20 * time.Second, Wait: 20 * time.Second, DirectLoads: -1}})
	s := newSource(1)
	settle := func() {
		t.Helper()
		for _, c := range readers {
			waitFor(t, "the offers", func() bool { return c.offers.Load() == 0 })
		}
	}
	want(t, readers[0].Fetch(bg, key, s.load), Hit, "v1", FromSource)
	settle()

	// edit makes a version, deletes all places, and has all of them read.
	edit := func(version uint64) (loads, denied int64, took time.Duration) {
		t.Helper()
		before, after := fmt.Sprint("v", version-1), fmt.Sprint("v", version)
		s.version.Store(version)
		for i := range readers {
			for j, c := range readers {
				r := c.Get(bg, key)
				if gone := j < i; gone && r.Outcome != Miss || !gone && (r.Outcome != Hit || string(r.Value) != before) {
					t.Errorf("%d places deleted: place %d has %v %q, want it gone: %v", i, j, r.Outcome, r.Value, gone)
				}
			}
			if err := readers[0].Delete(bg, splitKey(key, i)); err != nil {
				t.Errorf("delete place %d: %v", i, err)
			}
		}
		s.reads.Store(0)
		var begun, none atomic.Int64
		load := func(ctx context.Context, q LoadRequest) (Loaded, error) {
			// No load ends before all places have been asked for.
			for begun.Add(1); begun.Load()+none.Load() < places && ctx.Err() == nil; {
				time.Sleep(time.Millisecond)
			}
			return s.load(ctx, q)
		}
		begin := time.Now()
		var wg sync.WaitGroup
		for i, c := range readers {
			wg.Go(func() {
				switch r := c.Fetch(bg, key, load); {
				case r.Outcome == Unavailable && errors.Is(r.Cause, ErrDenied):
					none.Add(1)
				case r.Outcome != Hit || string(r.Value) != after:
					t.Errorf("place %d: got %v %q, %v", i, r.Outcome, r.Value, r.Cause)
				}
			})
		}
		wg.Wait()
		took = time.Since(begin)
		settle()
		return s.reads.Load(), none.Load(), took
	}
	if loads, denied, _ := edit(2); loads != places || denied != 0 {
		t.Errorf("%d loads and %d denied, want one load for each of %d places", loads, denied, places)
	}

	// The budget of the cluster has room for fewer: one grant a second of each node.
	ns.publish(t, change(t, ns.m, bucket.Change{Budget: &bucket.Budget{Foreground: grants}}))
	ns.forward(k, 2*time.Second) // what was granted before is not of this second
	loads, denied, took := edit(3)
	t.Logf("%d places, %d grants a second: %d loads, %d denied, in %v", places, grants, loads, denied, took)
	if most := grants * (1 + int64(took/time.Second)); loads < 1 || loads > most || loads+denied != places {
		t.Errorf("%d loads and %d denied in %v, want 1 to %d loads", loads, denied, took, most)
	}
	for _, c := range readers {
		if n := c.Stats().DirectLoads; n != 0 {
			t.Errorf("%d loads past the grants", n)
		}
	}
}

// TestMissedWriteEnds: a place that has missed a write, which nobody repairs and
// nobody tells again, has the old value no longer than its life: the hard deadline,
// or without versions the TTL (S0-10).
func TestMissedWriteEnds(t *testing.T) {
	const key, life = "hot", time.Minute
	for name, write := range map[string]func(c *Client, k *clock, place int, version uint64) error{
		"hard": func(c *Client, k *clock, place int, version uint64) error {
			return c.storeAt(bg, splitKey(key, place), Versioned{Value: fmt.Append(nil, "v", version), Version: version,
				Deadlines: Deadlines{Hard: uint64(k.now().Add(life).UnixMilli())}})
		},
		"TTL": func(c *Client, _ *clock, place int, version uint64) error {
			return c.Set(bg, &Item{Key: splitKey(key, place), Value: fmt.Append(nil, "v", version), TTL: life})
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := startNodes(t, 2, 0)
			ns.publish(t, splitMap(t, ns.m, key, 2))
			k := new(clock)
			readers := placeReaders(t, ns, key, 2, Options{Now: k.now})
			other := newClient(t, Options{Seeds: ns.addrs, Near: NearOptions{Bytes: -1}}) // its clock stays
			for place := range 2 {
				if err := write(readers[0], k, place, 1); err != nil {
					t.Fatal(err)
				}
			}
			ns.forward(k, life/4)
			if err := write(readers[0], k, 0, 2); err != nil { // place 1 misses it
				t.Fatal(err)
			}
			want(t, readers[0].Get(bg, key), Hit, "v2", FromOwner)
			want(t, readers[1].Get(bg, key), Hit, "v1", FromOwner)
			ns.forward(k, life/4)
			want(t, readers[1].Get(bg, key), Hit, "v1", FromOwner)
			ns.forward(k, life/2+2*time.Second)
			want(t, readers[0].Get(bg, key), Hit, "v2", FromOwner)
			for _, c := range []*Client{readers[1], other} {
				if r := c.Get(bg, splitKey(key, 1)); r.Outcome != Miss {
					t.Errorf("after its life place 1 has %v %q", r.Outcome, r.Value)
				}
			}
			s := newSource(2)
			want(t, readers[1].Fetch(bg, key, s.load), Hit, "v2", FromSource)
		})
	}
}
