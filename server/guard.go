package server

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// clockGuard watches the clock by which deadlines are judged. That is wall time
// as it was at the start, carried on by the monotonic clock; when the system's
// wall clock says something else, one of them is wrong, and nothing with a
// deadline is served or stored. When the difference has gone, all is as it was.
// When it stays what it is for steadyMillis, the wall clock was set: the
// guard's clock is set by it, and what was judged by the old one is dropped.
type clockGuard struct {
	store *store.Store
	log   *slog.Logger
	wall  Clock      // the system's; nil: own and wall are one reading
	skew  store.Time // that is no reason for distrust

	offset     atomic.Int64 // from the server's Time to the deadlines' clock
	distrusted atomic.Bool

	mu         sync.Mutex
	since      store.Time // the difference has been about what it is since then
	difference store.Time

	distrusts, rebases atomic.Uint64
}

const steadyMillis = 10_000

// check is called with each reading of the clock, before anything is done at
// that time.
func (g *clockGuard) check(own, wall store.Time) {
	d := wall - own - store.Time(g.offset.Load())
	if !g.distrusted.Load() && -g.skew <= d && d <= g.skew {
		return
	}
	g.judge(own, wall)
}

// judge is check where something is wrong, or was.
func (g *clockGuard) judge(own, wall store.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	offset := store.Time(g.offset.Load())
	d := wall - own - offset
	switch {
	case -g.skew <= d && d <= g.skew:
		if g.distrusted.Load() {
			g.store.SetDeadlineClock(offset, true)
			g.distrusted.Store(false)
			g.log.Info("the clock is trusted again")
		}
	case !g.distrusted.Load():
		g.store.SetDeadlineClock(offset, false)
		g.distrusted.Store(true)
		g.distrusts.Add(1)
		g.since, g.difference = own, d
		g.log.Warn("the clock is not trusted: nothing with a deadline is served or stored",
			"difference", time.Duration(d)*time.Millisecond)
	case d-g.difference > g.skew || g.difference-d > g.skew:
		g.since, g.difference = own, d
	case own-g.since >= steadyMillis:
		g.offset.Store(int64(offset + d))
		g.store.Rebase(offset+d, own)
		g.distrusted.Store(false)
		g.rebases.Add(1)
		g.log.Warn("the clock was set: values with a deadline are dropped",
			"difference", time.Duration(d)*time.Millisecond)
	}
}

// now is the time of a batch, whose bytes have arrived.
func (s *Server) now() store.Time {
	if s.guard.wall != nil {
		own := s.clock()
		s.guard.check(own, s.guard.wall())
		return own
	}
	t := time.Now()
	own := s.epoch.at(t)
	s.guard.check(own, store.Time(t.UnixMilli()))
	return own
}

// epoch is a moment of the wall clock that the monotonic clock carries on.
type epoch struct {
	start time.Time
	base  store.Time
}

func newEpoch() epoch {
	start := time.Now()
	return epoch{start, store.Time(start.UnixMilli())}
}

// at is t, a reading of the system's clocks, in Time.
func (e epoch) at(t time.Time) store.Time { return e.base + store.Time(t.Sub(e.start).Milliseconds()) }
