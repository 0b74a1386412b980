package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// try is what quarry prints for a command line, and its error.
func try(t testing.TB, args ...string) (string, error) {
	t.Helper()
	leakless(t)
	var out bytes.Buffer
	k, err := kong.New(new(cli), append(options(), kong.Writers(&out, &out), kong.Exit(func(int) {}), kong.Resolvers(patience))...)
	if err != nil {
		t.Fatal(err)
	}
	command, err := k.Parse(args)
	if err != nil {
		return out.String(), err
	}
	command.BindTo(t.Context(), (*context.Context)(nil))
	err = command.Run()
	return out.String(), err
}

// patience gives servers more time than a second where a test does not say how
// much: the machine may be busy.
var patience kong.ResolverFunc = func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
	if f.Name == "timeout" {
		return "30s", nil
	}
	return nil, nil
}

// must is try of what has to work.
func must(t testing.TB, args ...string) string {
	t.Helper()
	out, err := try(t, args...)
	if err != nil {
		t.Fatalf("quarry %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// fakeNode answers config get quarry and stats, as a node does.
type fakeNode struct {
	addr string
	text func() []byte          // of its map; nil is none
	hot  atomic.Pointer[string] // lines of stats hotkeys; nil: it does not know that
}

func newFakeNode(t testing.TB, text func() []byte) *fakeNode {
	t.Helper()
	leakless(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	n := &fakeNode{addr: l.Addr().String(), text: text}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.serve(c)
		}
	}()
	return n
}

func (n *fakeNode) serve(c net.Conn) {
	defer c.Close()
	for s := bufio.NewScanner(c); s.Scan(); {
		switch line := strings.TrimSpace(s.Text()); {
		case line == "config get quarry" && n.text() != nil:
			text := n.text()
			fmt.Fprintf(c, "CONFIG quarry 0 %d\r\n%s\r\nEND\r\n", len(text), text)
		case line == "stats":
			fmt.Fprintf(c, "STAT curr_items 4096000\r\nSTAT bytes 409600000\r\nEND\r\n")
		case line == "stats hotkeys" && n.hot.Load() != nil:
			fmt.Fprintf(c, "%sEND\r\n", *n.hot.Load())
		default:
			fmt.Fprintf(c, "ERROR\r\n")
		}
	}
}

// fileMap is the map in a file, as nodes on the same machine have it.
func fileMap(path string) func() []byte {
	return func() []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		m, err := bucket.Decode(text)
		if err != nil {
			return nil
		}
		return m.Compact()
	}
}

func contains(t testing.TB, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestClusterLife(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map.json")
	t.Setenv("QUARRY_CLUSTER", "file:"+path)
	a, b, c := newFakeNode(t, fileMap(path)), newFakeNode(t, fileMap(path)), newFakeNode(t, fileMap(path))

	if _, err := try(t, "cluster", "show"); err == nil || !strings.Contains(err.Error(), "no map") {
		t.Errorf("show of nothing: %v", err)
	}
	if _, err := try(t, "cluster", "add", "--node", "a="+a.addr, "-y"); err == nil || !strings.Contains(err.Error(), "cluster init") {
		t.Errorf("add to nothing: %v", err)
	}
	out := must(t, "cluster", "init", "--name", "test", "--node", "a="+a.addr, "--node", "b="+b.addr+"@zone2", "-y")
	contains(t, out, "first map of cluster test, 0.1", "zone2", "2048", "Published map 0.1.")
	if _, err := try(t, "cluster", "init", "--node", "c="+c.addr, "-y"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second first map: %v", err)
	}

	// Without --yes nobody is there to be asked, and a dry run leaves all as it is.
	before := fileMap(path)()
	if out, err := try(t, "cluster", "add", "--node", "c="+c.addr); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("published unasked: %v\n%s", err, out)
	}
	for _, args := range [][]string{
		{"cluster", "add", "--node", "c=" + c.addr, "--dry-run"},
		{"cluster", "plan", "--add", "c=" + c.addr},
	} {
		// A third of each node's 4096000 items is in the buckets that it gives.
		contains(t, must(t, args...), "0.2 after 0.1", "1366 of 4096 buckets (33.3 %) change their owner", "cold switch", "about 2732000 items")
	}
	if !bytes.Equal(before, fileMap(path)()) {
		t.Error("a dry run changes the map")
	}
	contains(t, must(t, "cluster", "add", "--node", "c="+c.addr+"@zone3*2", "-y"), "2048 of 4096", "Published map 0.2.")
	contains(t, must(t, "cluster", "show"), "Cluster test, map 0.2, node set 2", "zone3  2 ", "0.2  up")

	var report planReport
	text := must(t, "cluster", "set-weight", "c=1", "--json", "--yes")
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	if !report.Published || report.Moved != 2048-1366 || !report.Known || len(report.Nodes) != 3 || report.Items != 4096000*(2048-1366)/2048 {
		t.Errorf("got %+v", report)
	}
	contains(t, must(t, "cluster", "set", "--copies", "2", "--foreground", "12000", "-y"), "Copies of each bucket: 1 → 2", "foreground 12000/s")
	if _, err := try(t, "cluster", "set", "--copies", "2", "-y"); err == nil || !strings.Contains(err.Error(), "so already") {
		t.Errorf("a change of nothing: %v", err)
	}

	// The copies of a hot key are a matter of arithmetic.
	contains(t, must(t, "cluster", "split", "hot", "--rate", "400000", "--node-rate", "100000", "-y"), "Key hot is split into 5.")
	contains(t, must(t, "cluster", "unsplit", "hot", "-y"), "split into 1; the 5 places")
	contains(t, must(t, "cluster", "show"), "Key hot is split into 1")
	contains(t, must(t, "cluster", "settle", "-y"), "not split any more")
	if _, err := try(t, "cluster", "split", "hot", "-y"); err == nil || !strings.Contains(err.Error(), "--rate") {
		t.Errorf("a split into nobody knows how many: %v", err)
	}

	// A node that has moved is asked where it is now; nothing goes with it.
	moved := newFakeNode(t, fileMap(path))
	contains(t, must(t, "cluster", "set-address", "c="+moved.addr, "-y"), "Node c: "+c.addr+" → "+moved.addr+".", "No bucket changes its owner.", "Published map 0.8.")
	if _, err := try(t, "cluster", "set-address", "c="+moved.addr, "-y"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("an address that it has: %v", err)
	}
	contains(t, must(t, "cluster", "remove", "--node", "c", "-y"), "1366 → 0", "1366 of 4096")
	contains(t, must(t, "cluster", "rollback", "0.1", "-y"), "Published map 0.10.", "Copies of each bucket: 2 → 1")
	if _, err := try(t, "cluster", "rollback", "0.77", "-y"); err == nil || !strings.Contains(err.Error(), "no map 0.77") {
		t.Errorf("a rollback to nothing: %v", err)
	}
	out = must(t, "cluster", "history")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 11 || !strings.HasPrefix(lines[1], "0.10 ") || !strings.HasPrefix(lines[10], "0.1 ") {
		t.Errorf("the history is\n%s", out)
	}
	var history historyReport
	if err := json.Unmarshal([]byte(must(t, "cluster", "history", "--json")), &history); err != nil || len(history) != 10 || !history[9].Oldest {
		t.Errorf("the history is %+v, %v", history, err)
	}
	var show showReport
	if err := json.Unmarshal([]byte(must(t, "cluster", "show", "--json")), &show); err != nil || show.Epoch != 10 || show.Nodes[1].Answers != "up" || show.Leases {
		t.Errorf("show is %+v, %v", show, err)
	}
}

// The store was restored from a backup: the tool says so, and publishes above
// what the nodes know.
func TestClusterRestoredBackup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map.json")
	t.Setenv("QUARRY_CLUSTER", "file:"+path)
	var text []byte
	n := newFakeNode(t, func() []byte { return text })
	must(t, "cluster", "init", "--node", "a="+n.addr, "-y")
	backup, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	must(t, "cluster", "set", "--copies", "2", "-y")
	must(t, "cluster", "set", "--copies", "3", "-y")
	text = fileMap(path)()
	if err := os.WriteFile(path, backup, 0o644); err != nil {
		t.Fatal(err)
	}
	contains(t, must(t, "cluster", "show"), "warning: the store has map 0.1 and is behind its nodes, which know 0.3", "ahead")
	contains(t, must(t, "cluster", "rebalance", "-y"), "warning: the store has map 0.1", "map 0.4 after 0.3", "No bucket changes its owner", "Published map 0.4.")

	// Two maps of one epoch: buckets about which they differ begin empty.
	m, err := bucket.Decode(fileMap(path)())
	if err != nil {
		t.Fatal(err)
	}
	other := m.Clone()
	for b := range 7 {
		other.Buckets[b].Since = 2
	}
	text = other.Compact()
	contains(t, must(t, "cluster", "set", "--copies", "1", "-y"), "warning: node a at "+n.addr+" has another map 0.4", "7 buckets (0.2 %) stay and begin empty")

	// A store that has lost everything gets it from the nodes.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := try(t, "cluster", "init", "--node", "a="+n.addr, "-y"); err == nil || !strings.Contains(err.Error(), "cluster restore") {
		t.Errorf("a first map over what nodes know: %v", err)
	}
	if _, err := try(t, "cluster", "restore", "-y"); err == nil || !strings.Contains(err.Error(), "--map or --node") {
		t.Errorf("a restore of nothing: %v", err)
	}
	contains(t, must(t, "cluster", "restore", "--node", n.addr, "-y"), "map 0.5 after 0.4", "Published map 0.5.")
	if err := os.Rename(path, path+".saved"); err != nil {
		t.Fatal(err)
	}
	text = nil
	contains(t, must(t, "cluster", "restore", "--map", path+".saved", "-y"), "map 0.6 after 0.5", "Published map 0.6.")
	if _, err := try(t, "cluster", "restore", "--map", path+".saved", "-y"); err == nil || !strings.Contains(err.Error(), "the store has map") {
		t.Errorf("a restore over a map: %v", err)
	}
	if saved := must(t, "cluster", "show", "--map"); saved != string(readFile(t, path)) {
		t.Error("show --map is not the map")
	}
}

// Where most nodes are silent the operator has to say what holds.
func TestClusterSilentNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map.json")
	t.Setenv("QUARRY_CLUSTER", "file:"+path)
	must(t, "cluster", "init", "--node", "a="+deadAddr(t), "-y")
	if _, err := try(t, "cluster", "set", "--copies", "0", "-y"); err == nil || !strings.Contains(err.Error(), "--takeover") || !strings.Contains(err.Error(), "node a does not answer") {
		t.Errorf("published into the dark: %v", err)
	}
	contains(t, must(t, "cluster", "set", "--copies", "0", "--dry-run"), "warning: node a does not answer")
	contains(t, must(t, "cluster", "set", "--copies", "0", "-y", "--trust-store"), "Published map 0.2.")
	contains(t, must(t, "cluster", "set", "--copies", "1", "-y", "--takeover"), "Published map 1.", "4096 buckets (100.0 %) stay and begin empty", "some nodes did not say")
}

func TestNodeSpec(t *testing.T) {
	for _, tt := range []struct {
		text string
		want bucket.Node
	}{
		{"a=h:1", bucket.Node{ID: "a", Addr: "h:1", Weight: 1, State: bucket.Active}},
		{"a=[::1]:1@z*3", bucket.Node{ID: "a", Addr: "[::1]:1", Zone: "z", Weight: 3, State: bucket.Active}},
		{"a=h:1*2", bucket.Node{ID: "a", Addr: "h:1", Weight: 2, State: bucket.Active}},
		{"a", bucket.Node{}}, {"a=h:1@", bucket.Node{}}, {"a=h:1*", bucket.Node{}}, {"a=h:1*0", bucket.Node{}}, {"a=h:1*x", bucket.Node{}},
	} {
		var n nodeSpec
		if err := n.UnmarshalText([]byte(tt.text)); (err == nil) != (tt.want.ID != "") || err == nil && bucket.Node(n) != tt.want {
			t.Errorf("%q is %+v, %v", tt.text, n, err)
		}
	}
}

// S2-05: N from arithmetic.
func TestSplitInto(t *testing.T) {
	for _, tt := range []struct {
		rate, perNode, headroom float64
		want                    int
	}{{400_000, 100_000, 1.2, 5}, {400_000, 100_000, 1.5, 6}, {90_000, 100_000, 1, 1}, {1, 0, 1, 0}, {0, 1, 1, 0}, {1, 1, 0.5, 0}} {
		if got, err := splitInto(tt.rate, tt.perNode, tt.headroom); got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%g/s with %g/s a node is %d, %v, want %d", tt.rate, tt.perNode, got, err, tt.want)
		}
	}
}

// S2-05, S2-08: each place of a split key has all the writes, so a key that nodes
// see written much is not split, and one that is written at all into not too many.
// A node that says nothing hinders nobody.
func TestSplitOfWrittenKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "map.json")
	t.Setenv("QUARRY_CLUSTER", "file:"+path)
	a, b, c := newFakeNode(t, fileMap(path)), newFakeNode(t, fileMap(path)), newFakeNode(t, fileMap(path))
	must(t, "cluster", "init", "--node", "a="+a.addr, "--node", "b="+b.addr, "--node", "c="+c.addr, "-y")
	say := func(n *fakeNode, lines string) { n.hot.Store(&lines) }
	for _, tt := range []struct {
		name    string
		a, b    string // of stats hotkeys; c does not know the word
		args    string
		refused string // "" is not
	}{
		{"unknown", "", "STAT other 90000 90000 1 0 0\r\n", "k 4", ""},
		{"read", "STAT k 90000 0 1 0 2\r\n", "", "k 4", ""},
		{"written", "STAT k 90000 20000 1 0 0\r\n", "", "k 4", "not worth a split"},
		{"written only", "", "STAT k 0 5000 1 0 0\r\n", "k 2", "read 0 and written 5000 times a second"},
		{"written some", "STAT k 90000 3000 1 0 2\r\n", "", "k 4", "worth 3 places at most"},
		{"within the limit", "STAT k 90000 3000 1 0 2\r\n", "", "k 3", ""},
		{"copies are read", "STAT k 90000 3000 1 0 2\r\n", "STAT k 90000 0 1 0 2\r\n", "k 4", ""},
		{"hardly used", "STAT k 100 100 1 0 0\r\n", "", "k 4", ""},
		{"to be read more", "STAT k 90000 3000 1 0 2\r\n", "", "k --rate 400000 --node-rate 100000", ""},
		{"not so much more", "STAT k 90000 20000 1 0 0\r\n", "", "k --rate 400000 --node-rate 100000", "worth 2 places at most"},
		{"odd name", "STAT a%23b 9000 9000 1 0 0\r\n", "", "a#b 4", "not worth a split"},
		{"forced", "STAT k 90000 20000 1 0 0\r\n", "", "k 4 --force", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			say(a, tt.a)
			say(b, tt.b)
			out, err := try(t, append([]string{"cluster", "split", "--dry-run"}, strings.Fields(tt.args)...)...)
			if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("got %v, want %q\n%s", err, tt.refused, out)
			}
		})
	}

	// Places share the reads, and each has the writes. Fewer of them are always better.
	must(t, "cluster", "split", "k", "4", "--force", "-y")
	say(a, "STAT k#0 20000 2500 1 0 1\r\nSTAT k%231 20000 2600 2 0 1\r\nSTAT k#x 9 90000 3 0 1\r\nSTAT kk#0 9 90000 3 0 1\r\n")
	say(b, "STAT k#2 20000 2500 1 0 1\r\n")
	if _, err := try(t, "cluster", "split", "k", "5", "-y"); err == nil || !strings.Contains(err.Error(), "read 60000 and written 2600 times a second") {
		t.Errorf("more places: %v", err)
	}
	must(t, "cluster", "split", "k", "3", "-y")
}

func deadAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
