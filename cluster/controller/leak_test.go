package controller

import (
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// ofEtcdPeers are goroutines of an etcd that had peers. When it closes, it leaves
// the connections over which it had streams to them, and they to it, open: both
// ends wait for the other process to end. Nothing of ours speaks HTTP here.
var ofEtcdPeers = []goleak.Option{
	goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),                         // who asked for the stream
	goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),                        // the same
	goleak.IgnoreAnyFunction("net/http.(*connReader).abortPendingRead"),                  // who answered
	goleak.IgnoreAnyFunction("go.etcd.io/etcd/client/pkg/v3/transport.timeoutConn.Read"), // the same, reading
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, ofEtcdPeers...) }

// leakless fails a test that leaves a goroutine behind, but for these. Helpers that start
// something say it first, so that it is looked at last.
func leakless(t testing.TB, but ...goleak.Option) {
	if _, twice := leaklessTests.LoadOrStore(t.Name(), true); !twice {
		but = append(slices.Clone(but), goleak.IgnoreCurrent())
		t.Cleanup(func() {
			leaklessTests.Delete(t.Name())
			goleak.VerifyNone(t, but...)
		})
	}
}

var leaklessTests sync.Map
