package cluster

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies lists what an application imports with the client: this
// module's own client side, four libraries and what they need, and no server,
// event loop or store of maps.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	allowed := []string{
		"github.com/quarrycache/quarry/cluster", "github.com/quarrycache/quarry/cluster/bucket",
		"github.com/quarrycache/quarry/cluster/link", "github.com/quarrycache/quarry/meta",
		"github.com/cespare/xxhash/v2", "github.com/maypok86/otter/v2/...", "github.com/sony/gobreaker/v2", "golang.org/x/time/rate",
	}
	for _, p := range strings.Fields(string(out)) {
		ok := false
		for _, a := range allowed {
			tree, isTree := strings.CutSuffix(a, "...")
			ok = ok || p == a || isTree && strings.HasPrefix(p+"/", tree)
		}
		if !ok {
			t.Errorf("the client brings %s along", p)
		}
	}
}
