package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server"
)

// TestNodes fetches through real nodes with copies, and invalidates: nothing
// older is read as fresh afterwards, from near cache, owner or copy.
func TestNodes(t *testing.T) {
	ns := startNodes(t, 3, 1)
	c := newClient(t, Options{Seeds: ns.addrs[:1]})
	other := newClient(t, Options{Seeds: ns.addrs[1:2]})
	s := newSource(1)
	for i := range 50 {
		key := fmt.Sprint("key", i)
		want(t, c.Fetch(bg, key, s.load), Hit, "v1", FromSource)
		want(t, c.Fetch(bg, key, s.load), Hit, "v1", FromNear)
		want(t, other.Fetch(bg, key, s.load), Hit, "v1", FromOwner)
	}
	s.version.Store(2)
	for i := range 50 {
		key := fmt.Sprint("key", i)
		n := c.Invalidate(bg, key, 2)
		if len(n.Places) != 2 || n.Err() != nil || n.Places[1].Err != nil || n.Places[0].Copy || !n.Places[1].Copy {
			t.Fatalf("got %+v, want the owner and a copy to have heard", n)
		}
		want(t, c.Fetch(bg, key, s.load), Hit, "v2", FromSource)
		if r := other.Get(bg, key); r.Outcome == Hit && r.Version < 2 && r.From != FromNear {
			t.Errorf("%s: got %v of version %d from %v", key, r.Outcome, r.Version, r.From)
		}
	}
	// Told again, and of what is old, nothing changes.
	reads := s.reads.Load()
	c.Invalidate(bg, "key1", 2)
	c.Invalidate(bg, "key1", 1)
	want(t, c.Fetch(bg, "key1", s.load), Hit, "v2", FromNear)
	if n := s.reads.Load(); n != reads {
		t.Errorf("%d loads, want %d", n, reads)
	}
}

// TestInvalidateStock: with memcached a load that is under way does not fill.
func TestInvalidateStock(t *testing.T) {
	c := newClient(t, Options{Servers: []string{startMemcached(t)}})
	s := newSource(1)
	first := true
	r := c.Fetch(bg, "k", func(ctx context.Context, q LoadRequest) (Loaded, error) {
		got, err := s.load(ctx, q)
		if first {
			first = false
			s.version.Store(2)
			if n := c.Invalidate(bg, "k", 2); n.Err() != nil {
				t.Error(n.Err())
			}
		}
		return got, err
	})
	want(t, r, Hit, "v2", FromSource)
	s.version.Store(3)
	if n := c.Invalidate(bg, "k", 3); n.Err() != nil {
		t.Error(n.Err())
	}
	want(t, c.Fetch(bg, "k", s.load), Hit, "v3", FromSource)
	if n := c.Invalidate(bg, "none", 3); n.Err() != nil {
		t.Error(n.Err())
	}
}

// TestWithoutVersions is a source without versions: the moment of the read is
// one, and a read that began before a change does not fill after it.
func TestWithoutVersions(t *testing.T) {
	k := new(clock)
	c := newClient(t, Options{Servers: []string{startServer(t, server.Config{})}, Now: k.now, Fetch: FetchOptions{Skew: 5 * time.Millisecond}})
	value := "old"
	load := func(context.Context, LoadRequest) (Loaded, error) { return Loaded{Value: []byte(value)}, nil }
	want(t, c.Fetch(bg, "k", load), Hit, "old", FromSource)
	value = "new"
	c.Invalidate(bg, "k", 0)
	time.Sleep(10 * time.Millisecond) // the skew
	want(t, c.Fetch(bg, "k", load), Hit, "new", FromSource)
}

// TestNoticeIsRetried: what a node has not heard it is told again, until it has
// (S0-10, S2-07).
func TestNoticeIsRetried(t *testing.T) {
	list, m := startFakes(t, 2, 1)
	var mu sync.Mutex
	var heard []string
	for i, f := range list {
		f.say = func(r *meta.Request) ([]byte, bool) {
			if r.Op == meta.OpDelete && !f.mute.Load() {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, fmt.Sprintf("%d: %s Y%d L%v", i, r.Key, r.Fresh.Version, r.Route.Numbered))
			}
			return nil, false
		}
	}
	c := newClient(t, Options{Seeds: seeds(list), Timeout: 50 * time.Millisecond, BreakerPause: 10 * time.Millisecond})
	key := ownedBy(m, 0, "key")
	list[0].mute.Store(true)
	n := c.Invalidate(bg, key, 7)
	if n.Err() == nil || n.Places[1].Err != nil {
		t.Errorf("got %+v, want that the owner has not heard and the copy has", n)
	}
	c.Invalidate(bg, key, 8)
	list[0].mute.Store(false)
	waitFor(t, "the owner", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(heard, ","), "0: "+key+" Y8 Ltrue")
	})
	waitFor(t, "the queue", func() bool {
		c.retry.mu.Lock()
		defer c.retry.mu.Unlock()
		return !c.retry.running
	})
}

// TestWriteThrough: the source has a change, and the cache could not be told. The
// old value is shown until the notice, which is tried again, is heard; and a key
// with a version in it stays what it is, while its pointer leads on (S1-70).
func TestWriteThrough(t *testing.T) {
	addr := startServer(t, patient())
	var cut atomic.Bool
	cut.Store(true)
	writer := newClient(t, Options{Servers: []string{addr}, Timeout: 200 * time.Millisecond, BreakerPause: 10 * time.Millisecond,
		DialFunc: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if cut.Load() {
				return nil, errors.New("the way is cut")
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}})
	reader := newClient(t, Options{Servers: []string{addr}, Near: NearOptions{Bytes: -1}, Fetch: FetchOptions{Grant: 20 * time.Second, Wait: 20 * time.Second}})
	s := newSource(7)
	read := func(options ...FetchOption) Result {
		pointer := reader.Fetch(bg, "item:42", s.load, options...) // v7
		return reader.Fetch(bg, "item:42:"+string(pointer.Value), s.load)
	}
	want(t, read(), Hit, "v7", FromSource)

	s.version.Store(8) // the commit
	hard := uint64(time.Now().Add(time.Minute).UnixMilli())
	if err := writer.Store(bg, "item:42:v8", Versioned{Value: []byte("v8"), Version: 8, Deadlines: Deadlines{Hard: hard}}); err == nil {
		t.Error("a store over a way that is cut has no error")
	}
	if n := writer.Invalidate(bg, "item:42", 8); n.Err() == nil {
		t.Error("a notice over a way that is cut has no error")
	}
	want(t, read(), Hit, "v7", FromOwner) // source ok, cache failed
	cut.Store(false)
	waitFor(t, "the notice", func() bool { return reader.Get(bg, "item:42").Outcome == Stale })
	want(t, read(MinVersion(8)), Hit, "v8", FromSource)
	want(t, read(), Hit, "v8", FromOwner)
	want(t, reader.Get(bg, "item:42:v7"), Hit, "v7", FromOwner)
}

// TestOwnerBeforeHears: after a change of the map the owner before hears, too,
// and it is enough that one of the two ways holds (S1-58).
func TestOwnerBeforeHears(t *testing.T) {
	list, m := startFakes(t, 2, 0)
	next := change(t, m, bucket.Change{Weights: map[string]int{"n01": 3}})
	key := ""
	for i := 0; key == ""; i++ {
		k := fmt.Sprint("key", i)
		if b := bucket.Of([]byte(k)); m.Buckets[b].Owner == 0 && next.Buckets[b].Owner == 1 {
			key = k
		}
	}
	c := newClient(t, Options{Seeds: seeds(list)})
	c.Get(bg, key)
	if err := c.adopt(next); err != nil {
		t.Fatal(err)
	}
	n := c.Invalidate(bg, key, 5)
	if len(n.Places) != 2 || n.Places[0].Addr != list[1].addr || n.Places[1].Addr != list[0].addr {
		t.Errorf("got %+v, want the owner and the one before", n.Places)
	}
	list[1].stop()
	if n := c.Invalidate(bg, key, 6); n.Err() == nil || n.Places[1].Err != nil {
		t.Errorf("got %+v, want that the one before has heard", n.Places)
	}
}

// TestFloors: what this process has invalidated it does not use any more, and
// when the table is too small nothing that was under way is kept.
func TestFloors(t *testing.T) {
	k := new(clock)
	overflows := 0
	f := newFloors(time.Minute, k.now, func() { overflows++ })
	m := f.mark()
	f.raise("k", 5)
	f.raise("k", 3)
	if f.of("k") != 5 || f.allow("k", 4, m) || !f.allow("k", 5, m) || !f.allow("j", 0, m) {
		t.Errorf("floor of k is %d", f.of("k"))
	}
	m = f.mark()
	f.forbid("p")
	if f.allow("p", 9, m) || !f.allow("p", 0, f.mark()) {
		t.Error("a read from before a plain write is allowed, or one behind it is not")
	}
	for i := range floorsMax {
		f.raise(fmt.Sprint("x", i), 1)
	}
	if overflows == 0 || f.allow("other", 1, m) || !f.allow("other", 1, f.mark()) {
		t.Errorf("%d overflows", overflows)
	}
	k.forward(2 * time.Minute)
	overflows = 0
	for i := range 3 * floorsMax {
		if f.raise("y", uint64(i)); i%100 == 0 {
			k.forward(time.Minute)
		}
	}
	if overflows != 0 || len(f.table) > 2 || f.n > floorsMax {
		t.Errorf("%d overflows, %d floors in %d places", overflows, len(f.table), f.n)
	}
}

// TestNearCache: never past hard (S1-50), policies by prefix (S3-27), own writes.
func TestNearCache(t *testing.T) {
	k := new(clock)
	// The client's clock goes ahead of the server's, which is not what is tried.
	srv := startServer(t, server.Config{Fresh: server.FreshConfig{SkewMaxMillis: 60_000}})
	c := newClient(t, Options{Servers: []string{srv}, Now: k.now,
		Near:     NearOptions{Gets: true},
		Policies: []Policy{{Prefix: "perm:", Near: -1}, {Prefix: "slow:", Near: 10 * time.Second}}})
	s := newSource(1)
	short := func(ctx context.Context, q LoadRequest) (Loaded, error) {
		got, err := s.load(ctx, q)
		got.Life = 200 * time.Millisecond
		return got, err
	}
	r := c.Fetch(bg, "short", short)
	for i := 0; ; i++ {
		now := uint64(k.now().UnixMilli())
		got := c.Fetch(bg, "short", func(context.Context, LoadRequest) (Loaded, error) { return Loaded{}, errSource })
		if now = uint64(k.now().UnixMilli()); got.From == FromNear && now >= got.Hard+20 {
			t.Fatalf("served %d ms past its deadline", now-got.Hard)
		}
		if got.From != FromNear {
			if now+1 < r.Hard {
				t.Errorf("it left the near cache %d ms before its deadline", r.Hard-now)
			}
			break
		}
		k.forward(5 * time.Millisecond)
	}
	want(t, c.Fetch(bg, "perm:a", s.load), Hit, "v1", FromSource)
	want(t, c.Fetch(bg, "perm:a", s.load), Hit, "v1", FromOwner)
	want(t, c.Fetch(bg, "slow:a", s.load), Hit, "v1", FromSource)
	k.forward(5 * time.Second)
	want(t, c.Fetch(bg, "slow:a", s.load), Hit, "v1", FromNear)

	for i := range 20 {
		v := fmt.Sprint(i)
		if err := c.Set(bg, &Item{Key: "own", Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
		want(t, c.Get(bg, "own"), Hit, v, FromOwner)
		want(t, c.Get(bg, "own"), Hit, v, FromNear)
	}
	if err := c.Delete(bg, "own"); err != nil {
		t.Fatal(err)
	}
	want(t, c.Get(bg, "own"), Miss, "", FromNowhere)
}

// TestHotKeyNear offers 90,000 reads a second of one key to 32 clients, each
// with a near cache of 0.5 s: what reaches the servers is 64 a second
// (S1-49, S3-26).
func TestHotKeyNear(t *testing.T) {
	f := startFake(t)
	k := new(clock)
	hard := uint64(k.now().Add(time.Hour).UnixMilli())
	f.mu.Lock()
	f.items["hot"] = fakeItem{value: "v", version: 1, Deadlines: Deadlines{Hard: hard}}
	f.mu.Unlock()
	const clients, perSecond, seconds = 32, 90_000, 5
	now := time.Now()
	at := now
	list := make([]*Client, clients)
	for i := range list {
		list[i] = newClient(t, Options{Servers: []string{f.addr}, Connections: 1, Timeout: 5 * time.Second, Now: func() time.Time { return at }})
		list[i].Fetch(bg, "other", nil)
	}
	before := f.gets.Load()
	for i := range perSecond * seconds {
		at = now.Add(time.Duration(i) * time.Second / perSecond)
		if r := list[i%clients].Fetch(bg, "hot", nil); r.Outcome != Hit || r.Hard != hard {
			t.Fatalf("got %v, %+v, %v", r.Outcome, r.Deadlines, r.Cause)
		}
	}
	got := f.gets.Load() - before
	t.Logf("%d reads a second, %.1f a second reach the server", perSecond, float64(got)/seconds)
	if most := int64(64 * seconds * 11 / 10); got > most {
		t.Errorf("%d reads in %d s reach the server, want at most %d", got, seconds, most)
	}
}

// TestDeadlinesAlongTheWay: source, owner, copy and near cache have the same
// deadlines, to the millisecond (S1-09).
func TestDeadlinesAlongTheWay(t *testing.T) {
	ns := startNodes(t, 3, 1)
	c := newClient(t, Options{Seeds: ns.addrs, Near: NearOptions{Life: time.Hour}})
	other := newClient(t, Options{Seeds: ns.addrs, Near: NearOptions{Bytes: -1}, Policies: []Policy{{Prefix: "k", Copies: true}}})
	s := newSource(7)
	first := c.Fetch(bg, "k", s.load)
	want(t, first, Hit, "v7", FromSource)
	near := c.Fetch(bg, "k", s.load)
	want(t, near, Hit, "v7", FromNear)
	owner := other.Get(bg, "k")
	want(t, owner, Hit, "v7", FromOwner)
	var fromCopy Result
	other.hot.hint("k", 1, time.Now()) // as a server does
	waitFor(t, "the copy", func() bool {
		r, ok := other.readCopy(bg, "k", "k", 0)
		fromCopy = r
		return ok
	})
	want(t, fromCopy, Stale, "v7", FromCopy)
	for name, r := range map[string]Result{"near": near, "owner": owner, "copy": fromCopy} {
		if r.Hard == 0 || r.Deadlines != first.Deadlines || r.Version != first.Version {
			t.Errorf("%s: got %+v of version %d, want %+v of %d", name, r.Deadlines, r.Version, first.Deadlines, first.Version)
		}
	}
}
