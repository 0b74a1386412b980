package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server"
)

// TestCommands runs every command against a server alone, as a seed and as one
// of the servers of a ring.
func TestCommands(t *testing.T) {
	for name, opt := range map[string]func(addr string) Options{
		"seed":   func(addr string) Options { return Options{Seeds: []string{addr}} },
		"server": func(addr string) Options { return Options{Servers: []string{addr}} },
	} {
		t.Run(name, func(t *testing.T) { commands(t, newClient(t, opt(startServer(t, server.Config{})))) })
	}
}

func commands(t *testing.T, c *Client) {
	is := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	has := func(key, want string) Result {
		t.Helper()
		r := c.Get(bg, key)
		if r.Outcome != Hit || string(r.Value) != want || r.From != FromOwner || r.Err() != nil {
			t.Errorf("get %q: got %v %q from %v, %v; want a hit with %q", key, r.Outcome, r.Value, r.From, r.Err(), want)
		}
		return r
	}
	if r := c.Get(bg, "none"); r.Outcome != Miss || r.Err() != ErrMiss || r.Found() {
		t.Errorf("got %+v, want a miss", r)
	}
	is("set", c.Set(bg, &Item{Key: "a", Value: []byte("1"), Flags: 7, TTL: time.Minute}), nil)
	if r := has("a", "1"); r.Flags != 7 || r.CAS == 0 {
		t.Errorf("got flags %d and CAS %d, want 7 and some", r.Flags, r.CAS)
	}
	is("add", c.Add(bg, &Item{Key: "a"}), ErrNotStored)
	is("add", c.Add(bg, &Item{Key: "b", Value: []byte("2")}), nil)
	is("replace", c.Replace(bg, &Item{Key: "none"}), ErrNotStored)
	is("replace", c.Replace(bg, &Item{Key: "b", Value: []byte("3")}), nil)
	is("append", c.Append(bg, &Item{Key: "b", Value: []byte("4")}), nil)
	is("prepend", c.Prepend(bg, &Item{Key: "b", Value: []byte("2")}), nil)
	is("append", c.Append(bg, &Item{Key: "none", Value: []byte("4")}), ErrNotStored)
	r := has("b", "234")
	is("cas", c.CompareAndSwap(bg, &Item{Key: "b", Value: []byte("5"), CAS: r.CAS}), nil)
	is("cas", c.CompareAndSwap(bg, &Item{Key: "b", Value: []byte("6"), CAS: r.CAS}), ErrCASConflict)
	is("cas", c.CompareAndSwap(bg, &Item{Key: "none", CAS: 1}), ErrMiss)
	n, err := c.Increment(bg, "b", 10)
	if is("incr", err, nil); n != 15 {
		t.Errorf("got %d, want 15", n)
	}
	n, err = c.Decrement(bg, "b", 20)
	if is("decr", err, nil); n != 0 {
		t.Errorf("got %d, want 0", n)
	}
	_, err = c.Increment(bg, "none", 1)
	is("incr", err, ErrMiss)
	is("set", c.Set(bg, &Item{Key: "text", Value: []byte("x")}), nil)
	_, err = c.Increment(bg, "text", 1)
	is("incr", err, ErrNotANumber)
	is("touch", c.Touch(bg, "text", time.Minute), nil)
	is("touch", c.Touch(bg, "none", time.Minute), ErrMiss)
	if r := c.GetAndTouch(bg, "text", time.Hour); string(r.Value) != "x" {
		t.Errorf("got %q, want x", r.Value)
	}
	is("delete", c.Delete(bg, "text"), nil)
	is("delete", c.Delete(bg, "text"), ErrMiss)
	is("ping", c.Ping(bg), nil)

	// Keys that cannot be sent as they are.
	is("set", c.Set(bg, &Item{Key: "a b\r\n\xff", Value: []byte("odd")}), nil)
	has("a b\r\n\xff", "odd")
	is("set", c.Set(bg, &Item{Key: long(251)}), ErrKey)
	if r := c.Get(bg, ""); r.Outcome != Unavailable || !errors.Is(r.Err(), ErrKey) {
		t.Errorf("got %+v, want a bad key", r)
	}
	var refused *ServerError
	if err := c.Set(bg, &Item{Key: "large", Value: make([]byte, 2<<20)}); !errors.As(err, &refused) || refused.Code != meta.CodeServerError {
		t.Errorf("set of 2 MB: got %v, want the server's error", err)
	}
	is("set", c.Set(bg, &Item{Key: "empty"}), nil)
	has("empty", "")
}

// TestGetMulti reads keys of three nodes, of which one is gone (S3-22).
func TestGetMulti(t *testing.T) {
	list, m := startFakes(t, 3, 0)
	c := newClient(t, Options{Seeds: seeds(list)})
	var keys []string
	for i := range 3000 {
		key := fmt.Sprintf("key%d", i)
		keys = append(keys, key, key)
		if i%3 > 0 {
			list[m.Buckets[bucket.Of([]byte(key))].Owner].put(key, "v"+key)
		}
	}
	check := func(down int) {
		t.Helper()
		got := c.GetMulti(bg, keys)
		if len(got) != 3000 {
			t.Fatalf("got %d results, want 3000", len(got))
		}
		for i := range 3000 {
			key := fmt.Sprintf("key%d", i)
			r := got[key]
			want := Hit
			if i%3 == 0 {
				want = Miss
			}
			if int(m.Buckets[bucket.Of([]byte(key))].Owner) == down {
				want = Unavailable
			}
			if r.Outcome != want || want == Hit && string(r.Value) != "v"+key {
				t.Fatalf("%s: got %v %q, want %v", key, r.Outcome, r.Value, want)
			}
		}
	}
	check(-1)
	list[1].stop()
	check(1)
	if got := c.GetMulti(bg, nil); len(got) != 0 {
		t.Errorf("got %v for no keys", got)
	}
}

// TestOldMap has many goroutines with an old map meet nodes with a new one:
// all are answered, and the map is fetched once (S3-10).
func TestOldMap(t *testing.T) {
	list, m := startFakes(t, 4, 0)
	three := change(t, m, bucket.Change{Remove: []string{"n03"}})
	for _, f := range list {
		f.setMap(three)
	}
	c := newClient(t, Options{Seeds: seeds(list)[:3], Timeout: 2 * time.Second})
	for i := range 1000 {
		key := fmt.Sprintf("key%d", i)
		list[three.Buckets[bucket.Of([]byte(key))].Owner].put(key, "old")
	}
	if r := c.Get(bg, "key1"); r.Outcome != Hit {
		t.Fatalf("got %+v", r)
	}
	four := change(t, three, bucket.Change{Add: []bucket.Node{{ID: "n03", Addr: list[3].addr}}})
	for i := range 1000 {
		key := fmt.Sprintf("key%d", i)
		list[four.Buckets[bucket.Of([]byte(key))].Owner].put(key, "new")
	}
	before := int64(0)
	for _, f := range list {
		f.setMap(four)
		before += f.configs.Load()
	}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := g; i < 1000; i += 8 {
				key := fmt.Sprintf("key%d", i)
				if r := c.Get(bg, key); r.Outcome != Hit || r.Cause != nil {
					t.Errorf("%s: got %v, %v", key, r.Outcome, r.Cause)
				}
			}
		})
	}
	wg.Wait()
	waitFor(t, "the new map", func() bool { return c.view.Load().m.Epoch == four.Epoch })
	after := int64(0)
	for _, f := range list {
		after += f.configs.Load()
	}
	if after-before != 1 {
		t.Errorf("the map was fetched %d times, want once", after-before)
	}
	if list[3].gets.Load() == 0 {
		t.Error("the new node was asked nothing")
	}
	for _, got := range c.GetMulti(bg, []string{"key1", "key2", "key3", "key4"}) {
		if got.Outcome != Hit {
			t.Errorf("got %+v", got)
		}
	}
}

// TestNodeIsBehind has a node that does not know yet that a key is its own.
func TestNodeIsBehind(t *testing.T) {
	list, m := startFakes(t, 2, 0)
	next := change(t, m, bucket.Change{Weights: map[string]int{"n01": 3}})
	key := ""
	for i := 0; key == ""; i++ {
		k := fmt.Sprint("key", i)
		if b := bucket.Of([]byte(k)); m.Buckets[b].Owner == 0 && next.Buckets[b].Owner == 1 {
			key = k
		}
	}
	list[0].setMap(next)
	list[1].put(key, "v")
	c := newClient(t, Options{Seeds: seeds(list)[:1]})
	begin := time.Now()
	if r := c.Get(bg, key); r.Outcome != Unavailable || !errors.Is(r.Cause, ErrMoved) {
		t.Errorf("got %v, %v; want that nobody owns the key", r.Outcome, r.Cause)
	}
	if took := time.Since(begin); took > 2*hopsTimeMax {
		t.Errorf("took %v", took)
	}
	if got := c.GetMulti(bg, []string{key})[key]; got.Outcome != Unavailable {
		t.Errorf("got %+v", got)
	}
	list[1].setMap(next)
	if r := c.Get(bg, key); r.Outcome != Hit {
		t.Errorf("got %v, %v; want a hit", r.Outcome, r.Cause)
	}
}

// TestHintOfEpoch takes the new map that an answer speaks of.
func TestHintOfEpoch(t *testing.T) {
	list, m := startFakes(t, 2, 0)
	c := newClient(t, Options{Seeds: seeds(list), MapGap: 10 * time.Millisecond})
	key := ownedBy(m, 0, "key")
	list[0].put(key, "v")
	if r := c.Get(bg, key); r.Outcome != Hit {
		t.Fatalf("got %+v", r)
	}
	copies := 1
	next := change(t, m, bucket.Change{Copies: &copies})
	list[0].setMap(next)
	list[1].setMap(next)
	c.Get(bg, key)
	waitFor(t, "the map", func() bool { return c.view.Load().m.Epoch == next.Epoch })
}

// TestDeadOwner reads from the copy when the owner does not answer, within two
// timeouts; the breaker opens, nobody waits while it is open, and it closes when
// the node is back (S3-12, S3-14, S3-17, S3-18).
func TestDeadOwner(t *testing.T) {
	list, m := startFakes(t, 3, 1)
	const timeout = 100 * time.Millisecond
	c := newClient(t, Options{Seeds: seeds(list), Timeout: timeout, BreakerPause: 50 * time.Millisecond})
	key := ownedBy(m, 0, "key")
	b := bucket.Of([]byte(key))
	list[0].put(key, "v")
	list[m.Buckets[b].Copies[0]].put(key, "copied")
	if r := c.Get(bg, key); r.Outcome != Hit || string(r.Value) != "v" {
		t.Fatalf("got %+v", r)
	}
	list[0].mute.Store(true)
	var waited int
	for range 20 {
		begin := time.Now()
		r := c.Get(bg, key)
		took := time.Since(begin)
		if r.Outcome != Stale || string(r.Value) != "copied" || r.From != FromCopy || r.Cause == nil || r.CAS != 0 {
			t.Fatalf("got %v %q from %v, %v; want the copy's", r.Outcome, r.Value, r.From, r.Cause)
		}
		if took > 2*timeout {
			t.Errorf("took %v, want at most %v", took, 2*timeout)
		}
		if took > timeout/2 {
			waited++
		}
	}
	if waited > defaultBreakerFailures+1 {
		t.Errorf("%d of 20 waited for the node", waited)
	}
	if got := c.GetMulti(bg, []string{key})[key]; got.Outcome != Stale || string(got.Value) != "copied" {
		t.Errorf("got %+v", got)
	}
	absent := ownedBy(m, 0, "other")
	if r := c.Get(bg, absent); r.Outcome != Unavailable || !errors.Is(r.Cause, ErrBreaker) {
		t.Errorf("got %v, %v: a copy does not say what is not there", r.Outcome, r.Cause)
	}
	if err := c.Set(bg, &Item{Key: key}); !errors.Is(err, ErrBreaker) {
		t.Errorf("got %v, want ErrBreaker", err)
	}
	list[0].mute.Store(false)
	waitFor(t, "the owner", func() bool { return c.Get(bg, key).Outcome == Hit })
}

// TestCallersContext ends when the caller's context does, and does not hold it
// against the node.
func TestCallersContext(t *testing.T) {
	f := startFake(t)
	c := newClient(t, Options{Servers: []string{f.addr}, Timeout: 5 * time.Second})
	c.Get(bg, "k")
	f.mute.Store(true)
	for range 20 {
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		if r := c.Get(ctx, "k"); !errors.Is(r.Cause, context.DeadlineExceeded) {
			t.Fatalf("got %v, %v", r.Outcome, r.Cause)
		}
		cancel()
	}
	if c.view.Load().nodes[0].shut.Load() {
		t.Error("the node is left alone because callers had no time")
	}
}

// TestNoMap fails quickly when no seed has a map, and works when there is one.
func TestNoMap(t *testing.T) {
	f, g := startFake(t), startFake(t)
	f.stop()
	g.stop()
	c := newClient(t, Options{Seeds: []string{f.addr, g.addr}, MapGap: 20 * time.Millisecond, BreakerPause: 10 * time.Millisecond})
	if r := c.Get(bg, "k"); r.Outcome != Unavailable || r.Cause == nil {
		t.Errorf("got %+v", r)
	}
	f.listen(t, f.addr)
	m, err := bucket.First("test", []bucket.Node{{ID: "a", Addr: f.addr}}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	f.setMap(m)
	waitFor(t, "the map", func() bool { return c.Get(bg, "k").Outcome == Miss })
	f.stop()
}

// TestClose leaves no connection, and what is asked afterwards fails.
func TestClose(t *testing.T) {
	list, _ := startFakes(t, 3, 0)
	c := newClient(t, Options{Seeds: seeds(list)})
	for i := range 100 {
		c.Get(bg, fmt.Sprint("key", i))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if r := c.Get(bg, "key"); !errors.Is(r.Cause, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", r.Cause)
	}
	for _, f := range list {
		waitFor(t, "the connections", func() bool { return f.open.Load() == 0 })
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{},
		{Seeds: []string{"a:1"}, Servers: []string{"a:1"}},
		{Seeds: []string{"a"}},
		{Seeds: []string{"a:1", "a:1"}},
		{Servers: []string{"a:1"}, Ring: 9},
		{Servers: []string{"a:1"}, Connections: -1},
		{Servers: []string{"a:1"}, Connections: 65},
		{Servers: []string{"a:1"}, Timeout: -1},
		{Servers: []string{"a:1"}, Timeout: time.Hour},
		{Servers: []string{"a:1"}, MapGap: time.Nanosecond},
		{Servers: []string{"a:1"}, BreakerFailures: -1},
		{Servers: []string{"a:1"}, User: "a\nb"},
	} {
		if c, err := New(o); err == nil {
			t.Errorf("%+v: accepted", o)
			_ = c.Close()
		} else if !strings.HasPrefix(err.Error(), "cluster: ") {
			t.Errorf("%v: want the package first", err)
		}
	}
}

// TestKnowsVersions asks each kind of server once.
func TestKnowsVersions(t *testing.T) {
	f := startFake(t)
	c := newClient(t, Options{Servers: []string{f.addr}})
	n := c.view.Load().nodes[0]
	if ok, err := n.knowsVersions(bg); !ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
	g := startFake(t)
	g.say = func(r *meta.Request) ([]byte, bool) { return []byte("ERROR\r\n"), r.Op == meta.OpStats }
	c = newClient(t, Options{Servers: []string{g.addr}})
	n = c.view.Load().nodes[0]
	if ok, err := n.knowsVersions(bg); ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
}
