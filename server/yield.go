package server

import "runtime"

// Where Go runs one thread at once, what is to be done beside the loop is done
// when the loop has nothing to do. Under load that can take 20 ms; and the
// collector, which is to have a quarter of the time, has all that it is behind
// in one piece then: over a millisecond. So the loop yields now and then, which
// costs little when there is nothing else, and all others are in time.
//
// Where more threads run Go there is another one for that, and a loop that
// yields may be taken up by it, with its caches cold.

// A loop yields after yieldRequests, some 200 µs of them, between two rounds or
// turns: what is in a round has the time of its beginning. A turn counts as
// turnRequests, for its system calls.
const (
	yieldRequests = 512
	turnRequests  = 16
)

// yields is a loop's part in letting others have its processor.
type yields struct {
	on       bool
	requests uint64 // since the last time, and turnRequests for each turn
}

func newYields() yields { return yields{on: runtime.GOMAXPROCS(0) == 1} }

// yield gives others the processor if it is their turn.
func (y *yields) yield() {
	if y.on && y.requests >= yieldRequests {
		y.requests = 0
		runtime.Gosched()
	}
}
