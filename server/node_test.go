package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"go.uber.org/goleak"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// testCluster is some servers that are the nodes of one map.
type testCluster struct {
	nodes []*Server
	addrs []string
	m     *bucket.Map
}

func startCluster(t *testing.T, n, copies int, c Config) *testCluster {
	t.Helper()
	return startClusterOf(t, copies, slices.Repeat([]Config{c}, n))
}

// startClusterOf starts a node for each Config.
func startClusterOf(t *testing.T, copies int, configs []Config) *testCluster {
	t.Helper()
	tc := &testCluster{}
	var nodes []bucket.Node
	for i, c := range configs {
		c.Cluster.NodeID = fmt.Sprint("n", i)
		c.Cluster.HasStore = true
		if c.Cluster.RelayTimeout == 0 {
			c.Cluster.RelayTimeout = testTimeout // the machine may be busy
		}
		s, addr := startServer(t, c)
		tc.nodes, tc.addrs = append(tc.nodes, s), append(tc.addrs, addr)
		nodes = append(nodes, bucket.Node{ID: c.Cluster.NodeID, Addr: addr, Zone: c.Cluster.NodeID})
	}
	m, err := bucket.First("test", nodes, copies, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	tc.publish(t, m)
	return tc
}

// restart ends node i, gracefully, and starts another one in its place.
func (tc *testCluster) restart(t *testing.T, i int, c Config) {
	t.Helper()
	if err := tc.nodes[i].CloseGracefully(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(tc.addrs[i])
	c.Port, _ = strconv.Atoi(port)
	c.Cluster.NodeID = fmt.Sprint("n", i)
	c.Cluster.HasStore = true
	tc.nodes[i], _ = startServer(t, c)
	tc.publish(t, tc.m)
}

func (tc *testCluster) publish(t *testing.T, m *bucket.Map) {
	t.Helper()
	tc.m = m
	for _, s := range tc.nodes {
		if err := s.ApplyMap(m); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all have asked each other", func() bool {
		return !slices.ContainsFunc(tc.nodes, func(s *Server) bool { return !s.node.isConfirmed() })
	})
}

// keyOf is a key that node i owns.
func (tc *testCluster) keyOf(i int) string {
	for n := 0; ; n++ {
		key := fmt.Sprint("key", n)
		if tc.m.OwnerOf(bucket.Of([]byte(key))).ID == fmt.Sprint("n", i) {
			return key
		}
	}
}

// talkTo sends text to addr and returns what comes back, up to the answer to mn.
func talkTo(t *testing.T, addr, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := io.WriteString(c, text+"mn\r\n"); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%q, then %v", got.String(), err)
		}
		if line == "MN\r\n" {
			return got.String()
		}
		got.WriteString(line)
	}
}

// A client that knows no map may talk to any node, in any protocol.
func TestClusterPlainClients(t *testing.T) {
	tc := startCluster(t, 3, 0, Config{Cluster: ClusterConfig{RelayTimeout: 10 * time.Second}}) // the machine may be busy
	const keys = 500
	for i := range keys {
		c := memcache.New(tc.addrs[i%3])
		c.Timeout = testTimeout
		it := &memcache.Item{Key: fmt.Sprint("k", i), Value: []byte(fmt.Sprint("v", i)), Flags: uint32(i)}
		err := c.Set(it)
		for try := 0; err != nil && try < 20; try++ {
			err = c.Set(it) // a busy machine may take longer than a relay waits
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for n, addr := range tc.addrs {
		c := memcache.New(addr)
		c.Timeout = testTimeout
		var names []string
		for i := range keys {
			names = append(names, fmt.Sprint("k", i))
		}
		got, err := c.GetMulti(names)
		if err != nil || len(got) != keys {
			t.Fatalf("through node %d: %d keys, %v", n, len(got), err)
		}
		for i, name := range names {
			if it := got[name]; string(it.Value) != fmt.Sprint("v", i) || it.Flags != uint32(i) {
				t.Errorf("through node %d: %s is %q, flags %d", n, name, it.Value, it.Flags)
			}
		}
		c.Close()
	}
	total := uint64(0)
	for i, s := range tc.nodes {
		n := s.snapshot(s.clock()).store.Total.Items
		if n == 0 || n == keys {
			t.Errorf("node %d has %d of %d keys", i, n, keys)
		}
		total += n
	}
	if total != keys {
		t.Errorf("all nodes have %d items, want %d", total, keys)
	}
}

// The same transcript through the owner and through another node.
func TestClusterRelaysEveryCommand(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	key := tc.keyOf(1)
	long := strings.Repeat("x", 300_000)
	script := strings.NewReplacer("KEY", key, "LONG", long, "SIZE", fmt.Sprint(len(long))).Replace(
		"set KEY 7 0 5\r\nhello\r\nget KEY\r\nadd KEY 0 0 1\r\nx\r\nreplace KEY 7 0 3\r\nabc\r\nappend KEY 0 0 1\r\nd\r\nprepend KEY 0 0 1\r\nz\r\n" +
			"get KEY\r\nget KEY KEY\r\ntouch KEY 100\r\nmg KEY t v\r\ngat 200 KEY\r\nmg KEY t f s\r\n" +
			"set KEY 0 0 2\r\n10\r\nincr KEY 5\r\ndecr KEY 100\r\nincr KEY x\r\nma KEY D7 v t\r\nma KEY q\r\nmg KEY v k O9\r\nmg KEY s v q\r\n" +
			"delete KEY\r\ndelete KEY\r\nget KEY\r\nmg KEY v\r\nmg KEY v q\r\nincr KEY 1\r\nmd KEY q\r\n" +
			"ms KEY 2 F3 T0\r\nok\r\nmg KEY v f k\r\nms KEY 2 q\r\nab\r\nmg KEY v\r\nmd KEY\r\n" +
			"set KEY 0 0 3 noreply\r\nnnn\r\nget KEY\r\nset KEY 0 0 1\r\nxx\r\ncas KEY 0 0 1 1\r\nx\r\n" +
			"set KEY 0 0 SIZE\r\nLONG\r\nget KEY\r\nms KEY SIZE\r\nLONG\r\nmg KEY s\r\nflush_all\r\n")
	want := talkTo(t, tc.addrs[1], script)
	tc.nodes[1].store.FlushAll(0, tc.nodes[1].clock())
	got := talkTo(t, tc.addrs[0], strings.Replace(script, "flush_all\r\n", "mn\r\n", 1))
	got, want = strings.ReplaceAll(got, "\r\n", "\n"), strings.ReplaceAll(want, "OK\r\n", "")
	want = strings.ReplaceAll(want, "\r\n", "\n")
	if got != want {
		a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Fatalf("line %d: got %.60q, want %.60q", i, a[max(i-4, 0):min(i+3, len(a))], b[max(i-4, 0):min(i+3, len(b))])
			}
		}
		t.Fatalf("got %d lines, want %d", len(a), len(b))
	}
}

// Clients that know a map are told where keys are, and what to know anew.
func TestClusterMoved(t *testing.T) {
	tc := startCluster(t, 2, 1, Config{})
	mine, other := tc.keyOf(0), tc.keyOf(1)
	e := uint64(tc.m.Epoch)
	moved := func(key string) string {
		return fmt.Sprintf("SERVER_ERROR MOVED %d %d %s", e, bucket.Of([]byte(key)), tc.addrs[1])
	}
	told := fmt.Sprintf("SERVER_ERROR MOVED %d %d %s\r\n", e, bucket.Of([]byte(mine)), tc.addrs[0])
	for _, tt := range []struct{ send, want string }{
		{fmt.Sprintf("mg %s v P%d\r\n", other, e), moved(other) + "\r\n"},
		{fmt.Sprintf("mg %s v O7 k P%d\r\n", other, e), moved(other) + " O7 k" + other + "\r\n"},
		{fmt.Sprintf("ms %s 2 P%d\r\nab\r\n", other, e), moved(other) + "\r\n"},
		{fmt.Sprintf("md %s P%d\r\n", other, e), moved(other) + "\r\n"},
		{fmt.Sprintf("mg %s v P%d,c\r\n", other, e), "EN\r\n"}, // a copy
		{fmt.Sprintf("ms %s 2 P%d\r\nab\r\n", mine, e), "HD\r\n"},
		{fmt.Sprintf("ms %s 2 P%d\r\nab\r\n", mine, e-1), fmt.Sprintf("HD p%d\r\n", e)},
		{fmt.Sprintf("mg %s v P%d\r\n", mine, e-1), fmt.Sprintf("VA 2 p%d\r\nab\r\n", e)},
		{fmt.Sprintf("mg %s v P\r\n", mine), "VA 2\r\nab\r\n"},
		{fmt.Sprintf("ms %s 2 Y5 P%d,c L7.1\r\nxx\r\n", mine, e), told}, // as a copy
		{fmt.Sprintf("md %s P%d,c L7.2\r\n", mine, e), told},
		{fmt.Sprintf("mg %s v P%d\r\n", mine, e), "VA 2\r\nab\r\n"},
	} {
		if got := talkTo(t, tc.addrs[0], tt.send); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.send, got, tt.want)
		}
	}
}

// A change of owner hides what was stored under the former one, also when the
// bucket comes back, past a node that missed the map between (S1-59).
func TestClusterChangeOfOwner(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	key := tc.keyOf(0)
	b := bucket.Of([]byte(key))
	first := tc.m
	give := func(m *bucket.Map, to int) *bucket.Map {
		next := m.Clone()
		next.Epoch, next.Predecessor = m.Epoch+1, m.Digest()
		next.Buckets[b].Owner, next.Buckets[b].Since = bucket.NodeIndex(to), next.Epoch
		return next
	}
	if got := talkTo(t, tc.addrs[0], fmt.Sprintf("set %s 0 0 3\r\nold\r\n", key)); got != "STORED\r\n" {
		t.Fatal(got)
	}
	away := give(first, 1)
	back := give(away, 0)
	if err := tc.nodes[1].ApplyMap(away); err != nil {
		t.Fatal(err)
	}
	if got := talkTo(t, tc.addrs[1], fmt.Sprintf("set %s 0 0 3\r\nnew\r\nget %s\r\n", key, key)); got != "STORED\r\nVALUE "+key+" 0 3\r\nnew\r\nEND\r\n" {
		t.Errorf("at the new owner: %q", got)
	}
	// Node 0 has missed that it had lost the bucket.
	tc.publish(t, back)
	for i, addr := range tc.addrs {
		if got := talkTo(t, addr, fmt.Sprintf("get %s\r\n", key)); got != "END\r\n" {
			t.Errorf("through node %d, after the bucket came back: %q", i, got)
		}
	}
}

// Two maps of one epoch: no grants for what differs, until there is a higher
// one.
func TestClusterConflict(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	key := tc.keyOf(0)
	b := bucket.Of([]byte(key))
	ask := fmt.Sprintf("mg %s v G1000\r\n", key)
	if got := talkTo(t, tc.addrs[0], ask); !strings.HasPrefix(got, "EN W g") {
		t.Fatalf("before: %q", got)
	}
	other := tc.m.Clone()
	other.Buckets[b].Owner = 1
	if err := tc.nodes[0].ApplyMap(other); err == nil {
		t.Error("another map of the same epoch is taken")
	}
	talkTo(t, tc.addrs[0], fmt.Sprintf("delete %s\r\n", key))
	if got := talkTo(t, tc.addrs[0], ask); !strings.HasPrefix(got, "EN d") {
		t.Errorf("in conflict: %q", got)
	}
	next, err := tc.m.Plan(bucket.Change{})
	if err != nil {
		t.Fatal(err)
	}
	tc.publish(t, next)
	if got := talkTo(t, tc.addrs[0], ask); !strings.HasPrefix(got, "EN W g") {
		t.Errorf("after: %q", got)
	}
}

// A node that starts from its disk serves, and gives grants once the others
// have confirmed its map.
func TestClusterWithoutStore(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	tc := &testCluster{}
	var nodes []bucket.Node
	for i := range dirs {
		s, addr := startServer(t, Config{Cluster: ClusterConfig{NodeID: fmt.Sprint("n", i), DataDir: dirs[i]}})
		tc.nodes, tc.addrs = append(tc.nodes, s), append(tc.addrs, addr)
		nodes = append(nodes, bucket.Node{ID: fmt.Sprint("n", i), Addr: addr})
	}
	m, err := bucket.First("test", nodes, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	tc.publish(t, m)

	// Node 0 again, from its disk, while there is no store.
	_, port, _ := net.SplitHostPort(tc.addrs[0])
	if err := tc.nodes[0].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	var p int
	fmt.Sscan(port, &p)
	again, addr := startServer(t, Config{Port: p, Listen: []string{"127.0.0.1"}, Cluster: ClusterConfig{NodeID: "n0", DataDir: dirs[0], HasStore: true}})
	if e, d := again.MapEpoch(); e != m.Epoch || d != m.Digest() {
		t.Fatalf("map %s from disk, want %s", e, m.Epoch)
	}
	key := tc.keyOf(0)
	if got := talkTo(t, addr, fmt.Sprintf("set %s 0 0 1\r\nx\r\nget %s\r\n", key, key)); !strings.Contains(got, "VALUE") {
		t.Errorf("from disk: %q", got)
	}
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		if got := talkTo(t, addr, fmt.Sprintf("delete %s\r\nmg %s v G1000\r\n", key, key)); strings.Contains(got, "W g") {
			break
		} else if time.Now().After(end) {
			t.Fatalf("no grants: %q, %s", got, talkTo(t, addr, "stats cluster\r\n"))
		}
	}
	if again, err := filepath.Glob(filepath.Join(dirs[0], "*")); err != nil || len(again) != 1 {
		t.Errorf("files in --data: %v, %v", again, err)
	}
}

// A newer map that another node has is found, and taken.
func TestClusterMapFromPeers(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	next, err := tc.m.Plan(bucket.Change{Weights: map[string]int{"n0": 2}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tc.nodes[1].ApplyMap(next); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		if e, _ := tc.nodes[0].MapEpoch(); e == next.Epoch {
			break
		} else if time.Now().After(end) {
			t.Fatalf("epoch %s, want %s", e, next.Epoch)
		}
	}
}

// A write that is relayed by an old map follows MOVED to the new owner, also when
// that is the very node that relays.
func TestClusterRelayFollowsMoved(t *testing.T) {
	for to := range 2 {
		tc := startCluster(t, 3, 0, Config{Cluster: ClusterConfig{RelayTimeout: 10 * time.Second}})
		key := tc.keyOf(2)
		b := bucket.Of([]byte(key))
		next := tc.m.Clone()
		next.Epoch, next.Predecessor = tc.m.Epoch+1, tc.m.Digest()
		next.Buckets[b].Owner, next.Buckets[b].Since = bucket.NodeIndex(to), next.Epoch
		for _, s := range tc.nodes[1:] {
			if err := s.ApplyMap(next); err != nil {
				t.Fatal(err)
			}
		}
		got := talkTo(t, tc.addrs[0], fmt.Sprintf("set %s 0 0 1\r\n1\r\nincr %s 4\r\nget %s\r\n", key, key, key))
		if want := "STORED\r\n5\r\nVALUE " + key + " 0 1\r\n5\r\nEND\r\n"; got != want {
			t.Errorf("to node %d: got %q, want %q", to, got, want)
		}
		if n := tc.nodes[to].snapshot(0).store.Total.Items; n != 1 {
			t.Errorf("node %d has %d items, want 1", to, n)
		}
	}
}

// A node that is reached elsewhere from now on keeps what it has, and its
// clients and the other nodes find it there.
func TestClusterReaddress(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{Listen: []string{"127.0.0.1", "127.0.0.2"}})
	key := tc.keyOf(1)
	other := tc.nodes[1].Addrs()[1].String()
	if got := talkTo(t, tc.addrs[0], fmt.Sprintf("set %s 0 0 1\r\nx\r\n", key)); got != "STORED\r\n" {
		t.Fatal(got)
	}
	next, err := tc.m.Readdress(map[string]string{"n1": other})
	if err != nil {
		t.Fatal(err)
	}
	tc.publish(t, next)
	if got := talkTo(t, tc.addrs[0], fmt.Sprintf("get %s\r\n", key)); got != "VALUE "+key+" 0 1\r\nx\r\nEND\r\n" {
		t.Errorf("through the other node: %q", got)
	}
	if got := talkTo(t, tc.addrs[0], fmt.Sprintf("mg %s P1\r\n", key)); !strings.HasSuffix(got, " "+other+"\r\n") {
		t.Errorf("a client is told %q, want %s", got, other)
	}
	for i, s := range tc.nodes {
		if n := s.node.hidden.Load(); n != 0 {
			t.Errorf("node %d has hidden %d buckets", i, n)
		}
	}
}

// The owner is gone: reads miss, writes are told, in time.
func TestClusterOwnerUnreachable(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	key := tc.keyOf(1)
	if err := tc.nodes[1].Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	got := talkTo(t, tc.addrs[0], fmt.Sprintf("get %s\r\nmg %s v\r\nset %s 0 0 1\r\nx\r\ndelete %s\r\nincr %s 1\r\ntouch %s 0\r\n", key, key, key, key, key, key))
	want := "END\r\nEN\r\n" + strings.Repeat("SERVER_ERROR owner unreachable\r\n", 3) + "NOT_FOUND\r\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestClusterConfigGet(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	got := talkTo(t, tc.addrs[0], "config get cluster\r\n")
	body := "1\n"
	for i, addr := range tc.addrs {
		host, port, _ := net.SplitHostPort(addr)
		if i > 0 {
			body += " "
		}
		body += host + "|" + host + "|" + port
	}
	body += "\n"
	if want := fmt.Sprintf("CONFIG cluster 0 %d\r\n%s\r\nEND\r\n", len(body), body); got != want {
		t.Errorf("config get cluster: got %q, want %q", got, want)
	}
	if got := talkTo(t, tc.addrs[0], "get AmazonElastiCache:cluster\r\n"); got != fmt.Sprintf("VALUE AmazonElastiCache:cluster 0 %d\r\n%s\r\nEND\r\n", len(body), body) {
		t.Errorf("the older form: %q", got)
	}
	if got := talkTo(t, tc.addrs[0], "config get other\r\n"); got != "ERROR\r\n" {
		t.Errorf("config get other: %q", got)
	}
	single, addr := startServer(t, Config{})
	_ = single
	if got := talkTo(t, addr, "config get cluster\r\n"); got != "ERROR\r\n" {
		t.Errorf("without a cluster: %q", got)
	}
	var _ = bytes.Equal
}

// A client tells the nodes with copies of a newer version itself, and need not
// wait for what the owner tells them.
func TestClusterNoticeToCopy(t *testing.T) {
	tc := startCluster(t, 3, 1, Config{})
	key := tc.keyOf(0)
	c := tc.m.Buckets[bucket.Of([]byte(key))].Copies[0]
	for i, addr := range tc.addrs {
		got := talkTo(t, addr, fmt.Sprintf("md %s I Y7 P%d,c\r\nme %s\r\n", key, tc.m.Epoch, key))
		switch is := strings.HasPrefix(got, "HD\r\n"); {
		case (i == 0 || i == int(c)) != is:
			t.Errorf("node %d: got %q", i, got)
		}
	}
	// A plain delete is the owner's alone.
	if got := talkTo(t, tc.addrs[c], fmt.Sprintf("md %s P%d,c\r\n", key, tc.m.Epoch)); !strings.Contains(got, "MOVED") {
		t.Errorf("got %q, want MOVED", got)
	}
}

// Nodes that have relayed, kept copies and compared maps leave nothing behind.
func TestClusterClose(t *testing.T) {
	before := goleak.IgnoreCurrent()
	tc := startCluster(t, 3, 1, Config{})
	for i, addr := range tc.addrs {
		key := tc.keyOf((i + 1) % 3)
		talkTo(t, addr, fmt.Sprintf("set %s 0 0 1\r\nx\r\nget %s\r\nms %s 1 Y5\r\ny\r\n", key, key, key))
	}
	await(t, "copies are told", func() bool {
		return !slices.ContainsFunc(tc.nodes, func(s *Server) bool { return s.node.copies.sent.Load() == 0 })
	})
	for _, s := range tc.nodes {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	goleak.VerifyNone(t, before)
}
