package cluster

import "sync/atomic"

// counters are what the client counts of itself.
type counters struct {
	mapFetches, mapFailures, mapsAdopted atomic.Uint64
	moved, lost                          atomic.Uint64
	copyReads, expired, disagreed        atomic.Uint64

	loads, loadErrors, loadsLate, refreshes atomic.Uint64
	fillsRefused, fillErrors                atomic.Uint64
	directLoads, directDenied               atomic.Uint64
}
