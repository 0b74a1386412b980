package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
	"github.com/quarrycache/quarry/server"
)

// startServer starts a real server. tune may change its configuration.
func startServer(t testing.TB, tune func(c *server.Config)) (*server.Server, string) {
	t.Helper()
	leakless(t)
	c := server.Config{Port: -1, MaxConns: 64, Threads: 1, MemoryMB: 64, ItemMaxBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)}
	if tune != nil {
		tune(&c)
	}
	s, err := server.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, s.Addrs()[0].String()
}

// young is what is left of 100 seconds after at most half a minute.
var young = regexp.MustCompile(`\bt[789]\d\b`)

func TestKeys(t *testing.T) {
	_, addr := startServer(t, nil)
	t.Setenv("QUARRY_SERVER", addr)
	must(t, "set", "greeting", "hello", "--ttl", "100", "--flags", "7")
	for _, tt := range []struct {
		args string
		want string // "" and err is an error with those words
		err  string
	}{
		{"get greeting", "hello", ""},
		{"mg greeting v t f s", "VA 5 t100 f7 s5\nhello\n", ""},
		{"ms other xyz T30 F3 c", "HD c*\n", ""},
		{"get other", "xyz", ""},
		{"ma counter N0 J5 v", "VA 1\n5\n", ""},
		{"ma counter D2 v", "VA 1\n7\n", ""},
		{"md counter", "HD\n", ""},
		{"md counter", "NF\n", ""},
		{"ms YSBi 1 b", "HD\n", ""},
		{"mg YSBi k b v", "VA 1 kYSBi b\n1\n", ""},
		{"mg greeting v X", "CLIENT_ERROR invalid flag\n", ""},
		{"delete greeting", "", ""},
		{"get greeting", "", "not found"},
		{"delete greeting", "", "not found"},
		{"mg greeting v", "EN\n", ""},
		{"mg greeting v q", "", "flag q"},
		{"mg ? b v", "", "base64"},
		{"where greeting", "", "has no map"},
		{"get " + strings.Repeat("k", 251), "", "want 1 to 250 bytes"},
		{"get greeting --server 127.0.0.1:1", "", "refused"},
		{"mg greeting v --server 127.0.0.1:1", "", "refused"},
	} {
		out, err := try(t, strings.Fields(tt.args)...)
		out = young.ReplaceAllString(out, "t100")
		if before, _, ok := strings.Cut(tt.want, "*"); ok && strings.HasPrefix(out, before) {
			out = tt.want
		}
		if out != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("quarry %s: got %q, %v, want %q, %q", tt.args, out, err, tt.want, tt.err)
		}
	}
	if _, err := try(t, "get", "a b"); !errors.Is(err, errKey) {
		t.Errorf("a key with a space: %v", err)
	}
}

// In a cluster keys go to their owners, and where says who that is.
func TestKeysOfCluster(t *testing.T) {
	store := "file:" + filepath.Join(t.TempDir(), "map.json")
	node := func(id string) (*server.Server, string) {
		return startServer(t, func(c *server.Config) { c.Cluster.NodeID = id })
	}
	a, addrA := node("a")
	b, addrB := node("b")
	must(t, "cluster", "init", "--cluster", store, "--node", "a="+addrA, "--node", "b="+addrB, "-y")
	t.Setenv("QUARRY_CLUSTER", store)
	must(t, "cluster", "split", "hot", "3", "-y")
	s, err := control.Open(store, control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m, err := s.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*server.Server{a, b} {
		if err := n.ApplyMap(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"k1", "k2", "k3", "k4", "k5"} {
		must(t, "set", key, "value of "+key)
		for _, at := range [][]string{nil, {"--server", addrA}, {"--server", addrB}} {
			if got := must(t, append([]string{"get", key}, at...)...); got != "value of "+key {
				t.Errorf("%s at %v is %q", key, at, got)
			}
		}
		owner := m.OwnerOf(bucket.Of([]byte(key)))
		for _, at := range [][]string{nil, {"--server", addrA}} {
			var r whereReport
			if err := json.Unmarshal([]byte(must(t, append([]string{"where", key, "--json"}, at...)...)), &r); err != nil {
				t.Fatal(err)
			}
			if r.Owner != *owner || r.Bucket != bucket.Of([]byte(key)) || r.Map != m.Epoch || len(r.Copies) != 1 {
				t.Errorf("%s at %v is at %+v, want %s", key, at, r, owner.ID)
			}
		}
	}
	out := must(t, "where", "hot")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 5 || !strings.HasPrefix(lines[4], "hot#2 ") {
		t.Errorf("got\n%s", out)
	}

	// What top shows of them is what their stats say; a node that is away is
	// shown as well.
	var r topReport
	if err := json.Unmarshal([]byte(must(t, "top", "--once", "--json", "--interval", "100ms")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Map != m.Epoch.String() || len(r.Nodes) != 2 || r.Nodes[0].Items+r.Nodes[1].Items != 5 || r.Nodes[0].Buckets != 2048 || r.Nodes[0].Map != r.Map {
		t.Errorf("got %+v", r)
	}
	next, err := m.Plan(bucket.Change{Add: []bucket.Node{{ID: "c", Addr: deadAddr(t)}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.ApplyMap(next); err != nil {
		t.Fatal(err)
	}
	c := topCommand{serverFlags: serverFlags{Cluster: store, wireFlags: wireFlags{Timeout: 30 * time.Second}}, Keys: 10}
	w, err := c.watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	w.look(t.Context())
	if got := w.look(t.Context()); got.Map != next.Epoch.String() || len(got.Nodes) != 3 || !strings.Contains(got.Nodes[2].Error, "refused") {
		t.Errorf("after a newer map: %+v", got)
	}
}

// recorded is a node that answers as one did when it was listened to: each
// command in turn, and then again from the first answer on.
func recorded(t testing.TB, path string) (addr string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replies := make(map[string][]string)
	for part := range strings.SplitSeq(string(text), "> ") {
		if command, reply, ok := strings.Cut(part, "\n"); ok {
			replies[command] = append(replies[command], strings.ReplaceAll(reply, "\n", "\r\n"))
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		said := make(map[string]int)
		for s := bufio.NewScanner(c); s.Scan(); {
			list := replies[s.Text()]
			if len(list) == 0 {
				_, _ = io.WriteString(c, "ERROR\r\n")
				continue
			}
			_, _ = io.WriteString(c, list[said[s.Text()]%len(list)])
			said[s.Text()]++
		}
	}()
	return l.Addr().String()
}

// What three nodes said under load, twice, 400 ms apart: the hottest keys and
// buckets stand beside the nodes and their hit ratios. Keys come URI-encoded;
// what nodes say of one key is put together.
func TestTopOfRecordedReplies(t *testing.T) {
	var nodes []bucket.Node
	for _, id := range []string{"a", "b", "c"} {
		nodes = append(nodes, bucket.Node{ID: id, Addr: recorded(t, "testdata/top/"+id+".txt"), Zone: id})
	}
	m, err := bucket.First("demo", nodes, 1, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	w := &topWatch{c: &topCommand{Keys: 4, serverFlags: serverFlags{wireFlags: wireFlags{Timeout: 30 * time.Second}}}}
	w.follow(m)
	defer w.close()
	w.look(t.Context())
	for _, s := range w.nodes {
		s.at = time.Now().Add(-400 * time.Millisecond)
	}
	r := w.look(t.Context())
	if want := []topHot{
		{Name: "front-page", Node: "c", Reads: 11448, Near: 3362, Copies: 1},
		{Name: "user:1", Node: "b", Reads: 4074, Writes: 800},
		{Name: "✓ key", Node: "c", Reads: 2100, Copies: 1},
		{Name: "nothing", Node: "a", Reads: 775},
	}; !slices.Equal(r.Keys, want) {
		t.Errorf("keys are\n%+v, want\n%+v", r.Keys, want)
	}
	if b := r.Buckets; len(b) != 4 || b[0].Name != "407" || b[0].Node != "c" || b[0].Reads != 11448 || b[0].Near != 3362 || b[1].Name != "3484" {
		t.Errorf("buckets are %+v", r.Buckets)
	}
	for i, n := range r.Nodes {
		if n.Map != "0.1" || n.Error != "" || n.Buckets == 0 || n.Gets == 0 || n.Conns == 0 {
			t.Errorf("node %d is %+v", i, n)
		}
	}
	text := string(r.frame(0, 0, 4))
	contains(t, text, "HIT %", "HOT KEY", "HOT BUCKET", "NEAR/S", "\nuser:1", `\u2713 key`, "11.4k")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "front-page") && strings.Join(strings.Fields(line), " ") != "front-page 11.4k 0 3362 - c 407 11.4k 0 3362 c" {
			t.Errorf("got %q", line)
		}
	}
}

func TestTopRates(t *testing.T) {
	before := serverStats{"pid": "1", "uptime": "10", "cmd_get": "100", "get_hits": "50", "cmd_set": "7", "rusage_user": "1.5", "rusage_system": "0.5"}
	now := serverStats{"pid": "1", "uptime": "12", "cmd_get": "300", "get_hits": "200", "cmd_set": "9", "rusage_user": "2.5", "rusage_system": "1.5", "curr_items": "12", "bytes": "1024", "limit_maxbytes": "2048"}
	var n topNode
	n.compare(before, now, 2)
	if want := (topNode{Gets: 100, Hits: 75, Sets: 1, CPU: 1, Items: 12, Bytes: 1024, Limit: 2048}); n != want {
		t.Errorf("got %+v, want %+v", n, want)
	}
	n.ID = "a"
	r := &topReport{Nodes: []topNode{n, {ID: "b", Error: "no answer"}}, Keys: []topHot{{Name: "user\x1b[1m", Reads: 12345, Node: "a"}}}
	text := string(r.frame(0, 0, 10))
	contains(t, text, "75.0", "1.0 KiB (50 %)", "no answer", `user\x1b[1m`, "12.3k")
	for line := range strings.Lines(string(r.frame(20, 3, 10))) {
		if len([]rune(line)) > 21 {
			t.Errorf("line %q is longer than the terminal", line)
		}
	}
	if n := strings.Count(string(r.frame(20, 3, 10)), "\n"); n != 3 {
		t.Errorf("%d lines on a terminal of 3", n)
	}
	// A server that was restarted has no rates yet.
	var again topNode
	now["pid"] = "2"
	again.compare(before, now, 2)
	if again.Gets != 0 || again.Items != 12 {
		t.Errorf("after a restart: %+v", again)
	}
}
