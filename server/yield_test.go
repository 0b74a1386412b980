package server

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestYields: with one thread for all of Go, a loop lets others have their turn
// after so many requests, and not before.
func TestYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	y := newYields()
	var had atomic.Bool
	go had.Store(true)
	turns := 0
	for before := uint64(0); y.requests >= before; turns++ {
		before = y.requests
		y.requests += 1 + turnRequests
		y.yield()
	}
	if want := (yieldRequests + turnRequests) / (1 + turnRequests); turns != want {
		t.Errorf("the loop yielded after %d turns, want %d", turns, want)
	}
	if !had.Load() {
		t.Error("another goroutine had no turn")
	}
}

// TestYieldsNot: where others have a processor, a loop does not yield.
func TestYieldsNot(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	y := newYields()
	y.requests = 10 * yieldRequests
	if y.yield(); y.requests == 0 {
		t.Error("a loop yielded that had better not")
	}
}
