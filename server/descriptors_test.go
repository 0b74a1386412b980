package server

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// descriptors counts what this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("what is open is counted where there is /proc: ", err)
	}
	return len(open)
}

// Nodes that relayed and told copies, and that clients are connected to, give back
// every descriptor: sockets, those of the loops, and files.
func TestCloseGivesBackDescriptors(t *testing.T) {
	run := func(t *testing.T) {
		dir := t.TempDir()
		c := Config{AdminListen: "127.0.0.1:0", MemoryMB: 8, Cluster: ClusterConfig{RelayTimeout: testTimeout}}
		first := c
		first.Cluster.DataDir, first.MemoryFile = dir, filepath.Join(dir, "memory")
		tc := startClusterOf(t, 1, []Config{first, c, c})
		for i, addr := range tc.addrs {
			key := tc.keyOf((i + 1) % 3)
			if got := talkTo(t, addr, fmt.Sprintf("set %s 0 0 1\r\nx\r\nms %s 1 Y5\r\ny\r\n", key, key)); got != "STORED\r\nHD\r\n" {
				t.Errorf("node %d: %q", i, got)
			}
		}
		for _, s := range tc.nodes {
			await(t, "copies are told", func() bool { return s.node.copies.sent.Load() > 0 })
			n, err := net.Dial("tcp", s.Addrs()[0].String()) // one that is open still when the server closes
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			if err := version(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("before", run) // what the program opens once
	before := descriptors(t)
	t.Run("counted", run)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, and were %d before", after, before)
	}
}
