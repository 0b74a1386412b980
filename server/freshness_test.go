package server

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// The ten checks of S1-72, each with real requests to a server whose clock the
// test moves: late old fill, events out of order, expiry of a grant, its takeover,
// restart, route switch, eviction of what is known of a key, inheritance of
// deadlines, single use, isolation of tenants.

// startFresh is a server with a clock that stands, and a connection to it.
func startFresh(t testing.TB, c Config) (*Server, *freshClient) {
	t.Helper()
	clock := newTestClock()
	c.Clock = clock.Now
	if c.Fresh.EarlyBeta == 0 {
		c.Fresh.EarlyBeta = -1
	}
	s, addr := startServer(t, c)
	return s, dialFresh(t, addr, clock)
}

// S1-25, S1-37, S3-38: R misses and reads version 41; then 42 is committed, and
// the key deleted; then R stores what it read. With a plain set that is what
// everybody reads from then on. With a grant it is refused, and R reads again.
func TestFreshnessLateOldFill(t *testing.T) {
	s, c := startFresh(t, Config{})
	source := "v41"
	c.want("get plain", "END")
	read := source
	source = "v42"
	c.want("delete plain", "NOT_FOUND")
	c.want("set plain 0 0 3", "STORED", read)
	if c.wantValue("plain", "v41"); source == "v41" {
		t.Error("the old value should be back: this is what grants are for")
	}

	for key, event := range map[string]string{"a": "md a I Y42", "b": "md b Y42", "c": "delete c"} {
		reply := map[bool]string{true: "NOT_FOUND", false: "HD"}[key == "c"]
		r := c.grant(key)
		c.want(event, reply)
		before := s.snapshot(c.clock.Now()).store.Fresh.Refused[store.ReasonToken]
		c.wantFill(key, r, 41, "v41", 1)
		c.wantValue(key, "")
		if after := s.snapshot(c.clock.Now()).store.Fresh.Refused[store.ReasonToken]; after != before+1 {
			t.Errorf("after %s: %d refusals were counted, want 1", event, after-before)
		}
		r = c.grant(key) // one more lookup, as S1-37 has it
		c.wantFill(key, r, 42, "v42", 0)
		c.wantValue(key, "v42")
	}
}

// The same when R stopped for long, and the key was filled and noticed again.
func TestFreshnessLateOldFillAfterOthers(t *testing.T) {
	_, c := startFresh(t, Config{})
	r := c.grant("k")
	c.want("md k I Y42", "HD")
	c.wantFill("k", c.grant("k"), 42, "v42", 0)
	c.advance(10)
	c.wantFill("k", r, 41, "v41", 1)
	c.want("md k I Y43", "HD")
	c.wantFill("k", r, 43, "v43", 1) // whatever it says
	if f := c.lookup("k G500"); f.value != "v42" || !f.Item.Stale || f.token == "" {
		t.Errorf("%+v, want the stale v42 and a grant", f)
	}
}

// S1-33: whatever order notices come in, and however often, the end is the same.
func TestFreshnessEventsOutOfOrder(t *testing.T) {
	_, c := startFresh(t, Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	var want string
	for round := range 50 {
		events := []uint64{42, 43, 44, 44, 42, 41, 43}
		rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		key := fmt.Sprintf("k%02d", round)
		c.wantFill(key, c.grant(key), 42, "v42", 0)
		high := uint64(42)
		for _, v := range events {
			c.want(fmt.Sprintf("md %s I Y%d", key, v), "HD")
			high = max(high, v)
			f := c.lookup(key)
			if f.value != "v42" || f.Fresh.Version != 42 || f.Item.Stale != (high > 42) {
				t.Fatalf("after %v up to %d: %q %+v", events, v, f.value, f.Item)
			}
		}
		state := strings.Fields(string(c.do("me " + key).Text))
		got := ""
		for _, field := range state {
			if name, _, _ := strings.Cut(field, "="); name != "cas" {
				got += " " + field
			}
		}
		if round == 0 {
			want = got
		}
		if got != want || !strings.Contains(got, "version=42 floor=44") {
			t.Errorf("after %v: %s, want %s", events, got, want)
		}
	}
}

// A grant ends when its time is over, to the millisecond.
func TestFreshnessGrantExpires(t *testing.T) {
	_, c := startFresh(t, Config{})
	token := c.grant("k")
	c.advance(999)
	c.want("mg k G1000", "EN Z w1")
	c.advance(1)
	c.wantFill("k", token, 1, "late", 2)
	c.wantValue("k", "")

	token = c.grant("k")
	c.advance(999)
	c.wantFill("k", token, 1, "in time", 0)
	c.wantValue("k", "in time")
}

// S1-66: the holder is gone. The next caller gets the grant when its second is
// over, and the first one, who comes back, changes nothing before or after.
func TestFreshnessTakeover(t *testing.T) {
	_, c := startFresh(t, Config{})
	for i, lateFirst := range []bool{true, false} {
		key := "k" + strconv.Itoa(i)
		first := c.grant(key)
		c.advance(1000)
		second := c.grant(key)
		if first == second {
			t.Fatal("the same token twice")
		}
		if lateFirst {
			c.wantFill(key, first, 7, "first", 1)
			c.wantFill(key, second, 7, "second", 0)
		} else {
			c.wantFill(key, second, 7, "second", 0)
			c.wantFill(key, first, 9, "first", 1)
		}
		c.want("md "+key+" G"+first, "NF r1")
		c.wantValue(key, "second")
	}
}

// S1-38: a token of before a restart is of no use, and what is not known any more
// is not taken for fresh.
func TestFreshnessRestart(t *testing.T) {
	clock := newTestClock()
	run := func(do func(c *freshClient)) {
		s, err := New(Config{Port: -1, Clock: clock.Now, Logger: slog.New(slog.DiscardHandler), Fresh: FreshConfig{EarlyBeta: -1}})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
		do(dialFresh(t, s.Addrs()[0].String(), clock))
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	var old string
	run(func(c *freshClient) {
		old = c.grant("k")
		c.want("md other I Y42", "HD")
	})
	run(func(c *freshClient) {
		c.wantFill("k", old, 41, "v41", 3)
		c.want("md k G"+old, "NF r3")
		token := c.grant("k")
		if token[:6] == old[:6] {
			t.Errorf("tokens %s and %s have one incarnation", token, old)
		}
		c.wantFill("k", old, 41, "v41", 3)
		// The floor under other is forgotten: a late write is not fresh.
		c.want("ms other 3 Y41", "HD", "v41")
		if f := c.lookup("other"); !f.Item.Stale {
			t.Errorf("%+v: fresh, though nothing is known of floors", f.Item)
		}
		c.wantFill("k", token, 42, "v42", 0)
		c.wantValue("k", "v42")
	})
}

// A bucket goes to another owner and comes back: tokens and items of before are
// gone (r4), and floors are unknown for a while.
func TestFreshnessRouteSwitch(t *testing.T) {
	s, c := startFresh(t, Config{})
	c.advance(30_000)
	c.wantFill("stored", c.grant("stored"), 41, "v41", 0)
	token := c.grant("k")
	bucketOf := func(key string) int { return int(store.KeyOf([]byte(key)).Hash >> 52) }
	s.store.HideBuckets([]int{bucketOf("k"), bucketOf("stored")}, c.clock.Now())
	c.wantFill("k", token, 41, "v41", 4)
	c.want("md k G"+token, "NF r4")
	c.wantValue("stored", "")
	c.want("ms stored 3 Y40", "NS r5", "v40") // its own floor is not forgotten
	c.want("ms stored 3 Y42", "HD", "v42")
	if f := c.lookup("stored"); !f.Item.Stale {
		t.Error("a write is fresh, though the other owner may know of a newer one")
	}
	next := c.grant("k")
	c.wantFill("k", token, 41, "v41", 4)
	c.wantFill("k", next, 42, "v42", 0)
	c.wantValue("k", "v42")
}

// S1-39: the value is evicted between the grant and the fill. Its token is void,
// the next one has a higher sequence, and the floor outlives the value.
func TestFreshnessEviction(t *testing.T) {
	s, c := startFresh(t, Config{MemoryMB: 2})
	c.wantFill("k", c.grant("k"), 41, "v41", 0)
	c.advance(20_000)
	c.want("md k I Y42", "HD")
	token := c.grant("k") // to refresh what is there
	for i := 0; s.store.Peek(store.KeyOf([]byte("k")), c.clock.Now(), nil) == store.OK; i++ {
		if i == 200_000 {
			t.Fatal("k is still there")
		}
		k := store.KeyOf(fmt.Appendf(nil, "other%d", i))
		s.store.Set(k, []byte("v41"), &store.SetOptions{}, c.clock.Now())
		s.store.Get(k, &store.GetOptions{}, c.clock.Now(), nil)
	}
	c.wantFill("k", token, 43, "v43", 1)
	c.wantValue("k", "")
	f := c.lookup("k G500")
	if f.Fresh.Version != 42 {
		t.Errorf("the floor is %d, want 42", f.Fresh.Version)
	}
	sequence := func(token string) uint64 {
		n, err := strconv.ParseUint(strings.Split(token, ".")[1], 36, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if sequence(f.token) <= sequence(token) {
		t.Errorf("after token %s comes %s", token, f.token)
	}
	c.wantFill("k", token, 43, "v43", 1)
	c.wantFill("k", f.token, 42, "v42", 0)
}

// S1-09: what is copied from node to node has the deadlines that it had at the
// first, to the byte, and none of them serves it after hard.
func TestFreshnessDeadlinesAreInherited(t *testing.T) {
	clock := newTestClock()
	var nodes []*freshClient
	for range 4 {
		_, addr := startServer(t, Config{Clock: clock.Now, Fresh: FreshConfig{EarlyBeta: -1}})
		nodes = append(nodes, dialFresh(t, addr, clock))
	}
	clock.Advance(30 * time.Second) // floors are known
	c := nodes[0]
	began := c.now()
	token := c.grant("k")
	clock.Advance(150 * time.Millisecond) // the source takes its time
	c.want(fmt.Sprintf("ms k 3 G%s Y41 A%d,%d,%d", token, began+29_800, began+4000, began), "HD", "v41")
	for i, from := range nodes[:3] {
		clock.Advance(2500 * time.Millisecond)
		rep := from.do("mg k v y a")
		d := rep.Fresh.Deadlines
		if d != (meta.Deadlines{Hard: uint64(began + 29_800), Soft: uint64(began + 4000), Read: uint64(began)}) {
			t.Errorf("node %d has the deadlines %+v, which began at %d", i, d, began)
		}
		nodes[i+1].want(fmt.Sprintf("ms k 3 Y%d A%d,%d,%d", rep.Fresh.Version, d.Hard, d.Soft, d.Read), "HD", string(rep.Value))
	}
	clock.Advance(time.Duration(began+29_800-1-c.now()) * time.Millisecond)
	for _, c := range nodes {
		c.wantValue("k", "v41")
	}
	clock.Advance(time.Millisecond)
	for _, c := range nodes {
		c.wantValue("k", "")
		c.want("get k", "END")
	}
}

// S1-31: a token works once. A fill whose reply was lost is sent again, and
// changes nothing, whatever it says and whatever came between.
func TestFreshnessSingleUse(t *testing.T) {
	_, c := startFresh(t, Config{})
	token := c.grant("k")
	c.wantFill("k", token, 41, "v41", 0)
	before := string(c.do("me k").Text)
	for range 3 {
		c.wantFill("k", token, 41, "v41", 1)
		c.wantFill("k", token, 99, "other", 1)
		c.want(fmt.Sprintf("ms k 0 MV G%s Y41 A%d", token, c.in(60_000)), "NF r1", "")
		c.want(fmt.Sprintf("ms k 0 MN G%s Y42 A%d", token, c.in(60_000)), "NF r1", "")
		c.want("md k G"+token, "NF r1")
	}
	if after := string(c.do("me k").Text); after != before {
		t.Errorf("before: %s, after: %s", before, after)
	}
}

// S1-07, S1-77: tenants have each their keys, their tokens and their grants.
func TestFreshnessTenants(t *testing.T) {
	_, c := startFresh(t, Config{MemoryMB: 8, Threads: 1, TenantDelimiter: ':', TenantQuotas: []TenantQuota{
		{Name: "a", Quota: Quota{GrantsInFlight: 2, ValueMaxBytes: 100}}, {Name: "b", Quota: Quota{}}}})
	a, b := c.grant("a:item"), c.grant("b:item")
	c.wantFill("b:item", a, 1, "of a", 1)
	c.wantFill("a:item", b, 1, "of b", 1)
	c.wantFill("a:item", a, 1, "of a", 0)
	c.wantFill("b:item", b, 1, "of b", 0)
	c.wantValue("a:item", "of a")
	c.wantValue("b:item", "of b")
	c.want("md a:item I Y2", "HD")
	if f := c.lookup("b:item"); f.Item.Stale {
		t.Error("a notice for a has changed what b has")
	}
	c.want("md a:item Y2", "HD")
	c.grant("a:1")
	second := c.grant("a:2")
	c.want("mg a:3 G500", "EN d*")
	c.grant("b:3")
	c.wantFill("a:2", second, 1, strings.Repeat("x", 101), 8)
	c.grant("a:3")
}
