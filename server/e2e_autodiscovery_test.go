package server

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAutoDiscovery: clients that ask a node for all nodes, as they do with
// managed clusters, find them: two of Node.js.
func TestAutoDiscovery(t *testing.T) {
	npm := needProgram(t, "npm", "npm")
	node := needProgram(t, "nodejs", "node")
	t.Setenv("NODE_PATH", strings.TrimSpace(mustRun(t, npm, "root", "-g")))
	if _, err := runProgram(t, node, "-e", "require('ecad'); require('memcached-elasticache')"); err != nil {
		t.Skip("skipped: node has no auto-discovery clients (npm install -g ecad memcached-elasticache)")
	}
	c := Config{}
	c.Cluster.RelayTimeout = 10 * time.Second // the machine may be busy
	tc := startCluster(t, 3, 0, c)
	want := slices.Sorted(slices.Values(tc.addrs))
	got := mustRun(t, node, "testdata/autodiscovery_e2e.js", tc.addrs[1])
	for _, client := range []string{"ecad", "memcached-elasticache"} {
		if line := client + " " + strings.Join(want, " ") + "\n"; !strings.Contains(got, line) {
			t.Errorf("got %q, want %q in it", got, line)
		}
	}
}
