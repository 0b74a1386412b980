package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/server/store"
)

// await waits until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came: %s", what)
		}
	}
}

// give is the map after m in which node to owns bucket b.
func give(m *bucket.Map, b, to int) *bucket.Map {
	next := m.Clone()
	next.Epoch, next.Predecessor = m.Epoch+1, m.Digest()
	next.Buckets[b].Owner, next.Buckets[b].Since = bucket.NodeIndex(to), next.Epoch
	next.Buckets[b].Copies = nil
	return next
}

// S1-59: a bucket leaves and comes back, past a node that missed the map
// between: no value, version, known absence or token of before is good for
// anything.
func TestClusterNothingOldComesBack(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	key := tc.keyOf(0)
	b := bucket.Of([]byte(key))
	hard := time.Now().Add(time.Hour).UnixMilli()
	ask := fmt.Sprintf("mg %s v y G1000\r\n", key)
	token := func(answer string) string {
		for word := range strings.FieldsSeq(answer) {
			if word[0] == 'g' {
				return word[1:]
			}
		}
		t.Fatalf("no grant: %q", answer)
		return ""
	}
	first := token(talkTo(t, tc.addrs[0], ask))
	fill := func(token, value string, version int) string {
		return talkTo(t, tc.addrs[0], fmt.Sprintf("ms %s %d G%s Y%d A%d\r\n%s\r\n", key, len(value), token, version, hard, value))
	}
	if got := fill(first, "old", 7); got != "HD\r\n" {
		t.Fatalf("fill: %q", got)
	}
	talkTo(t, tc.addrs[0], fmt.Sprintf("md %s I Y8\r\n", key))
	second := token(talkTo(t, tc.addrs[0], ask))

	away := give(tc.m, b, 1)
	if err := tc.nodes[1].ApplyMap(away); err != nil {
		t.Fatal(err)
	}
	tc.publish(t, give(away, b, 0))
	if got := talkTo(t, tc.addrs[0], fmt.Sprintf("mg %s v y\r\nget %s\r\n", key, key)); got != "EN\r\nEND\r\n" {
		t.Errorf("a value came back: %q", got)
	}
	if got := fill(second, "late", 8); got != "NF r4\r\n" {
		t.Errorf("an old token: %q, want NF r4", got)
	}
	if got := fill(token(talkTo(t, tc.addrs[0], ask)), "new", 8); got != "HD\r\n" {
		t.Errorf("a new token: %q", got)
	}
}

// What was stored before the first map was any server's, and is gone with it.
func TestClusterFirstMap(t *testing.T) {
	s, addr := startServer(t, Config{Cluster: ClusterConfig{NodeID: "n0", HasStore: true}})
	talkTo(t, addr, "set before 0 0 1\r\nx\r\n")
	m, err := bucket.First("test", []bucket.Node{{ID: "n0", Addr: addr}}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ApplyMap(m); err != nil {
		t.Fatal(err)
	}
	if got := talkTo(t, addr, "get before\r\nset after 0 0 1\r\ny\r\nget after\r\n"); got != "END\r\nSTORED\r\nVALUE after 0 1\r\ny\r\nEND\r\n" {
		t.Errorf("got %q", got)
	}
}

// A map store that was set back confirms nothing, and raises the alarm; no epoch
// falls.
func TestClusterStoreSetBack(t *testing.T) {
	dir := t.TempDir()
	s, addr := startServer(t, Config{Cluster: ClusterConfig{NodeID: "n0", HasStore: true, DataDir: dir}})
	old, err := bucket.First("test", []bucket.Node{{ID: "n0", Addr: addr}, {ID: "n1", Addr: "127.0.0.1:1"}}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	newer, err := old.Plan(bucket.Change{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.node.apply(newer); err != nil { // as from another node
		t.Fatal(err)
	}
	if err := s.ApplyMap(old); err != nil {
		t.Fatal(err)
	}
	stats := talkTo(t, addr, "stats cluster\r\n")
	for _, want := range []string{"STAT epoch " + newer.Epoch.String(), "STAT confirmed no", "STAT store_behind 1"} {
		if !strings.Contains(stats, want+"\r\n") {
			t.Errorf("want %s in %s", want, stats)
		}
	}
	if err := s.ApplyMap(newer); err != nil {
		t.Fatal(err)
	}
	if !s.node.confirmed.Load() {
		t.Error("the map is not confirmed by a store that has it")
	}
}

// After a warm restart nothing without a version is shown until the map is
// confirmed.
func TestClusterWarmRestart(t *testing.T) {
	dir := t.TempDir()
	c := Config{MemoryMB: 8, MemoryFile: filepath.Join(dir, "memory"),
		Cluster: ClusterConfig{NodeID: "n0", HasStore: true, DataDir: filepath.Join(dir, "data")}}
	s, addr := startServer(t, c)
	m, err := bucket.First("test", []bucket.Node{{ID: "n0", Addr: addr}, {ID: "n1", Addr: "127.0.0.1:1"}}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ApplyMap(m); err != nil {
		t.Fatal(err)
	}
	tc := &testCluster{m: m}
	key := tc.keyOf(0)
	var mine []string
	for i := 0; len(mine) < 3; i++ {
		if k := fmt.Sprint(key, "-", i); m.OwnerOf(bucket.Of([]byte(k))).ID == "n0" {
			mine = append(mine, k)
		}
	}
	talkTo(t, addr, fmt.Sprintf("set %s 0 0 1\r\na\r\nset %s 0 0 1\r\nb\r\nms %s 1 Y5\r\nc\r\n", mine[0], mine[1], mine[2]))
	if err := s.CloseGracefully(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(addr)
	fmt.Sscan(port, &c.Port)
	again, addr := startServer(t, c)
	if got := talkTo(t, addr, fmt.Sprintf("get %s\r\nmg %s v y\r\nmg %s v G100\r\n", mine[0], mine[2], key)); !strings.HasPrefix(got, "END\r\nVA 1 y5 Z X\r\nc\r\nEN d") {
		t.Errorf("before the map is confirmed: %q", got)
	}
	if stats := talkTo(t, addr, "stats cluster\r\n"); !strings.Contains(stats, "STAT plain_values_withheld yes") {
		t.Error(stats)
	}
	if err := again.ApplyMap(m); err != nil {
		t.Fatal(err)
	}
	if got := talkTo(t, addr, fmt.Sprintf("get %s\r\n", mine[1])); !strings.Contains(got, "\r\nb\r\n") {
		t.Errorf("after it: %q", got)
	}
}

// Shares of the budget: what falls falls at once, what rises waits until all
// others have the map.
func TestClusterShares(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	budget := bucket.Budget{Foreground: 1000}
	next, err := tc.m.Plan(bucket.Change{Budget: &budget})
	if err != nil {
		t.Fatal(err)
	}
	tc.publish(t, next)
	limit := func(i int) int { n, _ := tc.nodes[i].store.FillLimits(); return n }
	await(t, "half of it for each", func() bool { return limit(0) == 500 && limit(1) == 500 })

	heavy, err := next.Plan(bucket.Change{Weights: map[string]int{"n0": 3}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tc.nodes[0].ApplyMap(heavy); err != nil {
		t.Fatal(err)
	}
	if got := limit(0); got != 500 {
		t.Errorf("node 0 may give %d before node 1 has the map, want 500", got)
	}
	if err := tc.nodes[1].ApplyMap(heavy); err != nil {
		t.Fatal(err)
	}
	if got := limit(1); got != 250 {
		t.Errorf("node 1 may give %d, want 250 at once", got)
	}
	await(t, "node 0 has three quarters", func() bool { return limit(0) == 750 })
}

// A node that starts with the map from its disk keeps to its part of the budget at
// once.
func TestClusterShareFromDisk(t *testing.T) {
	c := Config{Cluster: ClusterConfig{DataDir: t.TempDir()}}
	tc := startClusterOf(t, 0, []Config{c, {}})
	budget := bucket.Budget{Foreground: 1000, Background: 100}
	next, err := tc.m.Plan(bucket.Change{Budget: &budget})
	if err != nil {
		t.Fatal(err)
	}
	tc.publish(t, next)
	tc.restart(t, 0, c)
	if f, b := tc.nodes[0].store.FillLimits(); f != 500 || b != 50 {
		t.Errorf("it gives %d and %d grants/s, want 500 and 50", f, b)
	}
}

// A node whose clock differs from the median of three does not trust it.
func TestClusterClocks(t *testing.T) {
	var ahead [3]time.Duration
	ahead[0] = 700 * time.Millisecond
	tc := &testCluster{}
	var nodes []bucket.Node
	for i := range ahead {
		system := SystemClock()
		clock := func() store.Time { return system() + store.Time(ahead[i].Milliseconds()) }
		s, addr := startServer(t, Config{Clock: clock, Cluster: ClusterConfig{NodeID: fmt.Sprint("n", i), HasStore: true}})
		tc.nodes, tc.addrs = append(tc.nodes, s), append(tc.addrs, addr)
		nodes = append(nodes, bucket.Node{ID: fmt.Sprint("n", i), Addr: addr})
	}
	m, err := bucket.First("test", nodes, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	tc.publish(t, m)
	trusts := func(i int) bool {
		talkTo(t, tc.addrs[i], "") // a batch, at whose time the clock is judged
		return !tc.nodes[i].guard.stats().Distrusted
	}
	await(t, "node 0 distrusts its clock", func() bool { return !trusts(0) })
	if !trusts(1) || !trusts(2) {
		t.Error("the others distrust theirs")
	}
	key := tc.keyOf(0)
	hard := time.Now().Add(time.Hour).UnixMilli()
	if got := talkTo(t, tc.addrs[0], fmt.Sprintf("ms %s 1 Y1 A%d\r\nx\r\n", key, hard)); got != "NS r7\r\n" {
		t.Errorf("a deadline at a clock that is not trusted: %q, want NS r7", got)
	}
}

// The guard is set by the median when that has been steady, and goes by its wall
// clock as it is from then on.
func TestClockMedian(t *testing.T) {
	s, _ := startServer(t, Config{Clock: newTestClock().Now})
	g := &s.guard
	own := s.clock()
	check := func(ms store.Time) clockFigures {
		g.check(own+ms, own+ms) // wall and own agree
		return g.stats()
	}
	g.hear(own, 400)
	if f := check(1); !f.Distrusted {
		t.Fatalf("outvoted by 400 ms: %+v", f)
	}
	g.hear(own+5000, 420)
	if f := check(5000); !f.Distrusted || f.Resets != 0 {
		t.Fatalf("after 5 s: %+v", f)
	}
	if f := check(10_001); f.Distrusted || f.Resets != 1 || f.OffsetMillis != 420 {
		t.Fatalf("steady for 10 s: %+v", f)
	}
	g.hear(own+11_000, 3)
	if f := check(11_000); f.Distrusted {
		t.Fatalf("set by the median: %+v", f)
	}
	// A wall clock that jumps is found before the others are heard.
	g.check(own+12_000, own+12_300)
	if f := g.stats(); !f.Distrusted {
		t.Fatalf("the wall clock jumps by 300 ms: %+v", f)
	}
	g.check(own+12_001, own+12_001)
	if f := g.stats(); f.Distrusted {
		t.Fatalf("and back: %+v", f)
	}
	g.hear(own+13_000, 400)
	check(13_000)
	g.alone()
	if f := check(13_001); f.Distrusted {
		t.Fatalf("nobody to be outvoted by: %+v", f)
	}
}

// An owner that takes requests and never answers holds up what is behind it for
// about as long as one request may wait, however many they are.
func TestClusterSlowOwner(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
	}()
	s, addr := startServer(t, Config{Cluster: ClusterConfig{NodeID: "n0", HasStore: true}})
	m, err := bucket.First("test", []bucket.Node{{ID: "n0", Addr: addr}, {ID: "n1", Addr: l.Addr().String()}}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ApplyMap(m); err != nil {
		t.Fatal(err)
	}
	tc := &testCluster{m: m}
	here, there := tc.keyOf(0), tc.keyOf(1)
	const n = 3000
	begin := time.Now()
	got := talkTo(t, addr, strings.Repeat(fmt.Sprintf("get %s\r\nset %s 0 0 1\r\nx\r\nget %s\r\n", there, there, here), n))
	took := time.Since(begin)
	if want := strings.Repeat("END\r\nSERVER_ERROR owner unreachable\r\nEND\r\n", n); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	// 6000 requests one batch after another would be 9 s and more.
	if took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
	t.Logf("%d requests in %s", 3*n, took)
}
