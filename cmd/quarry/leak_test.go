package main

import (
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// leakless fails a test that leaves a goroutine behind. Helpers that start
// something say it first, so that it is looked at last.
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
