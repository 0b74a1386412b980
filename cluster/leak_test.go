package cluster

import (
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// gnet's pool of workers, which the servers of tests bring, runs from the start
// of the program.
var fromTheStart = goleak.IgnoreCurrent()

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, fromTheStart) }

// leakless fails a test that leaves a goroutine behind.
func leakless(t testing.TB) {
	if _, twice := leaklessTests.LoadOrStore(t.Name(), true); !twice {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() {
			leaklessTests.Delete(t.Name())
			goleak.VerifyNone(t, before)
		})
	}
}

var leaklessTests sync.Map
