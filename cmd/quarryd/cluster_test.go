package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
)

// freePort is a port that nobody has now.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// converse sends a command and returns all of the reply.
func converse(t testing.TB, addr, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, command+"\r\nmn\r\n"); err != nil {
		t.Fatal(err)
	}
	var reply strings.Builder
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			t.Fatalf("%s: %v", command, err)
		case line == "MN\r\n":
			return reply.String()
		}
		reply.WriteString(line)
	}
}

// Three processes and a map in a file: any client at any node; a new map is
// taken; without the store a node starts from its disk, and serves.
func TestCluster(t *testing.T) {
	dir := t.TempDir()
	name := "file:" + filepath.Join(dir, "map.json")
	var nodes []bucket.Node
	for i := range 3 {
		nodes = append(nodes, bucket.Node{ID: fmt.Sprint("n", i), Addr: "127.0.0.1:" + freePort(t)})
	}
	maps, err := control.Open(name, control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	first, err := bucket.First("test", nodes, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.CompareAndSwap(context.Background(), nil, first); err != nil {
		t.Fatal(err)
	}
	run := func(i int) *process {
		_, port, _ := net.SplitHostPort(nodes[i].Addr)
		return start(t, "-p", port, "-l", "127.0.0.1", "--cluster", name, "--node-id", nodes[i].ID, "--data", filepath.Join(dir, nodes[i].ID))
	}
	var all []*process
	for i := range nodes {
		all = append(all, run(i))
	}
	epochAt := func(i int, e bucket.Epoch) func() bool {
		return func() bool {
			stats := converse(t, nodes[i].Addr, "stats cluster")
			return strings.Contains(stats, "STAT epoch "+e.String()+"\r\n") && strings.Contains(stats, "STAT confirmed yes")
		}
	}
	for i := range nodes {
		all[i].tcp(t)
		await(t, "the map", epochAt(i, first.Epoch))
	}
	const keys = 60
	for k := range keys {
		if got := converse(t, nodes[k%3].Addr, fmt.Sprintf("set k%d 0 0 2\r\n%02d", k, k)); got != "STORED\r\n" {
			t.Fatalf("set k%d: %q", k, got)
		}
	}
	found := func(i int) (n int) {
		for k := range keys {
			if converse(t, nodes[i].Addr, fmt.Sprintf("mg k%d v", k)) == fmt.Sprintf("VA 2\r\n%02d\r\n", k) {
				n++
			}
		}
		return n
	}
	for i := range nodes {
		if n := found(i); n != keys {
			t.Errorf("through node %d: %d of %d keys", i, n, keys)
		}
	}

	next, err := first.Plan(bucket.Change{Weights: map[string]int{"n0": 2}})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.CompareAndSwap(context.Background(), first, next); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		await(t, "the new map", epochAt(i, next.Epoch))
	}
	moved := 0
	for k := range keys {
		b := bucket.Of(fmt.Appendf(nil, "k%d", k))
		if first.OwnerOf(b).ID != next.OwnerOf(b).ID {
			moved++
		}
	}
	if n := found(1); n != keys-moved {
		t.Errorf("%d keys after %d have moved, want the other %d", n, moved, keys-moved)
	}

	// No store any more, and a node that starts.
	if err := os.Rename(filepath.Join(dir, "map.json"), filepath.Join(dir, "gone.json")); err != nil {
		t.Fatal(err)
	}
	all[0].end(t, unix.SIGTERM)
	all[0] = run(0)
	all[0].tcp(t)
	await(t, "the map from disk, confirmed by the others", epochAt(0, next.Epoch))
	if got := converse(t, nodes[0].Addr, "set again 0 0 1\r\nx"); got != "STORED\r\n" {
		t.Errorf("without the store: %q", got)
	}
	for _, p := range all {
		p.end(t, unix.SIGTERM)
	}
}

func TestClusterRefusals(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--cluster file:map.json", "quarryd: --cluster, --data and --advertise: want --node-id, too\n"},
		{"--node-id a", "quarryd: --node-id a: want --cluster, or --data with a map in it\n"},
		{"--node-id a --cluster nothing:x", "quarryd: --cluster nothing:x: "},
		{"--node-id a --cluster file:m.json --misrouted away", "quarryd: --misrouted away: want forward, local or refuse\n"},
		{"--node-id a --cluster file:m.json --peer-auth-file /dev/null", "quarryd: --peer-auth-file /dev/null: want one line USER:PASSWORD\n"},
		{"--node-id a --cluster file:m.json --peer-ca /dev/null", "quarryd: --peer-ca /dev/null: no certificates in it\n"},
	} {
		if got := finish(t, quarryd, "", strings.Fields(tt.args)...); got.code == 0 || !strings.HasPrefix(got.stderr, tt.want) {
			t.Errorf("%s: got %+v, want %q", tt.args, got, tt.want)
		}
	}
}
