package server

import (
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// Clock tells the time. A server reads it once a batch, after the bytes of
// that batch have arrived, and never from a ticker: after a pause of the
// process nothing that is past its time may go out.
type Clock func() store.Time

// SystemClock is the wall time of the moment it is called, carried on by the
// monotonic clock. A step of the wall clock afterwards neither expires items
// nor keeps them.
func SystemClock() Clock {
	e := newEpoch()
	return func() store.Time { return e.at(time.Now()) }
}

// What memcached's own clock and its uptime show right after the start. Source:
// memcached's clock_handler, which puts the start into the past, so that an
// item of the first second has a time other than 0.
const (
	clockStart  = 62
	uptimeStart = 2
)
