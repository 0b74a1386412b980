package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"regexp"
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

func TestTopRates(t *testing.T) {
	before := serverStats{"pid": "1", "uptime": "10", "cmd_get": "100", "get_hits": "50", "cmd_set": "7", "rusage_user": "1.5", "rusage_system": "0.5"}
	now := serverStats{"pid": "1", "uptime": "12", "cmd_get": "300", "get_hits": "200", "cmd_set": "9", "rusage_user": "2.5", "rusage_system": "1.5", "curr_items": "12", "bytes": "1024", "limit_maxbytes": "2048"}
	var n topNode
	n.compare(before, now, 2)
	if want := (topNode{Gets: 100, Hits: 75, Sets: 1, CPU: 1, Items: 12, Bytes: 1024, Limit: 2048}); n != want {
		t.Errorf("got %+v, want %+v", n, want)
	}
	n.ID = "a"
	r := &topReport{Nodes: []topNode{n, {ID: "b", Error: "no answer"}}, Keys: []topHot{{"user\x1b[1m", 12345, "a"}}}
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
