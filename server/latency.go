package server

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// sampleBatches is how many batches of a loop there are, in the mean, to one
// that is timed. Which one it is is drawn by lot: connections that take turns
// would else be seen always or never.
const sampleBatches = 64

// commandClass is a kind of command whose latency is counted apart.
type commandClass uint8

const (
	classGet    commandClass = iota // get, gets, gat, gats, mg
	classSet                        // set, add, replace, append, prepend, cas, ms
	classDelete                     // delete, md
	classArith                      // incr, decr, ma
	classTouch                      // touch
	classOther                      // all the rest
	commandClasses
)

var commandClassNames = [commandClasses]string{"get", "set", "delete", "arith", "touch", "other"}

// classOf is the class of r, which was decoded.
func classOf(r *meta.Request) commandClass {
	switch r.Op {
	case meta.OpGet:
		if r.Verb == meta.VerbTouch {
			return classTouch
		}
		return classGet
	case meta.OpSet:
		return classSet
	case meta.OpDelete:
		return classDelete
	case meta.OpArith:
		return classArith
	}
	return classOther
}

// sample is a worker's part in timing batches. The batches that are not timed
// pay for a counter and, at each command, for a branch.
type sample struct {
	wait     uint32 // batches until one is timed
	on       bool   // this one is
	began    time.Time
	commands [commandClasses]uint32 // of the batch that is timed
}

// begin is called when a batch begins, after its bytes have arrived.
func (m *sample) begin() {
	if m.wait > 0 {
		m.wait--
		return
	}
	m.start()
}

// start times this batch.
func (m *sample) start() {
	m.wait = rand.Uint32N(2*sampleBatches - 1)
	m.on = true
	m.began = time.Now() // the injected clock counts milliseconds
}

// end is called when the replies of a batch are written.
func (m *sample) end(l *latencies) {
	if m.on {
		m.record(l, time.Since(m.began))
	}
}

// record adds the commands of a batch that took d to l.
func (m *sample) record(l *latencies, d time.Duration) {
	for c, n := range m.commands {
		if n > 0 {
			l[c].add(d, n)
		}
	}
	m.on, m.commands = false, [commandClasses]uint32{}
}

// latencies are how long commands of each class took, from the moment that
// their batch was read to the one when its replies were written: the time in
// which they were in the server's hands. All commands of a batch take as long
// as the batch. What waits in the socket is not in it, nor are batches of
// connections that are aside.
type latencies [commandClasses]histogram

// Bounds of the buckets of a histogram: latencySteps to a doubling, from
// latencyMin on, which is the upper end of the first bucket; the last bucket
// has all that is longer.
const (
	latencyMinBits = 8 // 256 ns
	latencyMaxBits = 34
	latencyStepLog = 3
	latencySteps   = 1 << latencyStepLog
	latencyBuckets = (latencyMaxBits-latencyMinBits)*latencySteps + 2
)

// histogram counts durations by buckets that are an eighth of a doubling wide.
// It is added to once in sampleBatches batches, so all loops share it.
type histogram struct {
	sumNanos atomic.Uint64
	buckets  [latencyBuckets]atomic.Uint64
}

func (h *histogram) add(d time.Duration, n uint32) {
	nanos := uint64(max(d, 0))
	h.sumNanos.Add(nanos * uint64(n))
	h.buckets[latencyBucket(nanos)].Add(uint64(n))
}

// latencyBucket is the bucket of a duration: the first whose end it is not
// over.
func latencyBucket(nanos uint64) int {
	if nanos <= 1<<latencyMinBits {
		return 0
	}
	if nanos > 1<<latencyMaxBits {
		return latencyBuckets - 1
	}
	nanos-- // ends belong to their bucket
	exponent := bits.Len64(nanos) - 1
	step := int(nanos>>(exponent-latencyStepLog)) & (latencySteps - 1)
	return (exponent-latencyMinBits)*latencySteps + step + 1
}

// latencyEnd is the end of a bucket in nanoseconds. The last one has none.
func latencyEnd(bucket int) uint64 {
	if bucket == 0 {
		return 1 << latencyMinBits
	}
	doublings, step := (bucket-1)/latencySteps, (bucket-1)%latencySteps
	return uint64(latencySteps+step+1) << (doublings + latencyMinBits - latencyStepLog)
}

// latencyCounts is a histogram at one moment.
type latencyCounts struct {
	sumNanos uint64
	buckets  [latencyBuckets]uint64
}

// count is the number of commands in it.
func (c *latencyCounts) count() (n uint64) {
	for _, b := range c.buckets {
		n += b
	}
	return n
}

// counts copies l.
func (l *latencies) counts(dst *[commandClasses]latencyCounts) {
	for c := range l {
		dst[c].sumNanos = l[c].sumNanos.Load()
		for i := range l[c].buckets {
			dst[c].buckets[i] = l[c].buckets[i].Load()
		}
	}
}

// reset forgets all of it.
func (l *latencies) reset() {
	for c := range l {
		l[c].sumNanos.Store(0)
		for i := range l[c].buckets {
			l[c].buckets[i].Store(0)
		}
	}
}
