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
//
// In a cluster the clocks of the other nodes are heard, too. Where there are
// three or more, their median decides: a node that differs from it distrusts its
// clock although its own two agree, and is set by it in the same way.
type clockGuard struct {
	store *store.Store
	log   *slog.Logger
	wall  Clock      // the system's; nil: own and wall are one reading
	skew  store.Time // that is no reason for distrust

	offset     atomic.Int64 // from the server's Time to the deadlines' clock
	known      atomic.Int64 // from the server's Time to the wall clock, as it should be: offset and bias
	distrusted atomic.Bool
	outvoted   atomic.Bool // the median says something else

	mu         sync.Mutex
	since      store.Time // the difference has been about what it is since then
	difference store.Time
	bias       store.Time // of the wall clock from the deadlines', which no wall clock set
	hears      bool       // there is a median
	median     store.Time // from the server's Time
	apart      store.Time // as difference, of the median

	distrusts, rebases atomic.Uint64
}

const (
	steadyMillis = 10_000

	// clocksMin is how many clocks have a median that means something.
	clocksMin = 3
)

// hear says that the median of all clocks was ahead of the deadlines' clock at
// own.
func (g *clockGuard) hear(own, ahead store.Time) {
	g.mu.Lock()
	g.hears, g.median = true, store.Time(g.offset.Load())+ahead
	g.mu.Unlock()
	g.outvoted.Store(!g.near(ahead))
}

// alone says that there are not enough other clocks to be heard.
func (g *clockGuard) alone() {
	g.mu.Lock()
	g.hears = false
	g.mu.Unlock()
	g.outvoted.Store(false)
}

// near reports whether a difference is no reason for distrust.
func (g *clockGuard) near(d store.Time) bool { return -g.skew <= d && d <= g.skew }

// check is called with each reading of the clock, before anything is done at
// that time.
func (g *clockGuard) check(own, wall store.Time) {
	d := wall - own - store.Time(g.known.Load())
	if g.near(d) && !g.distrusted.Load() && !g.outvoted.Load() {
		return
	}
	g.judge(own, wall)
}

// judge is check where something is wrong, or was.
func (g *clockGuard) judge(own, wall store.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	offset := store.Time(g.offset.Load())
	d := wall - own - offset - g.bias
	step, m := d, store.Time(0)
	if g.hears {
		m = g.median - offset
		step = m
	}
	difference := d
	if g.near(d) {
		difference = m
	}
	switch {
	case g.near(d) && g.near(m):
		if g.distrusted.Load() {
			g.store.SetDeadlineClock(offset, true)
			g.distrusted.Store(false)
			g.log.Info("the clock is trusted again")
		}
	case !g.distrusted.Load():
		g.store.SetDeadlineClock(offset, false)
		g.distrusted.Store(true)
		g.distrusts.Add(1)
		g.since, g.difference, g.apart = own, d, m
		g.log.Warn("the clock is not trusted: nothing with a deadline is served or stored",
			"difference", time.Duration(difference)*time.Millisecond)
	case !g.near(d-g.difference) || !g.near(m-g.apart):
		g.since, g.difference, g.apart = own, d, m
	case own-g.since >= steadyMillis:
		offset += step
		g.offset.Store(int64(offset))
		g.bias = wall - own - offset
		g.known.Store(int64(wall - own))
		g.median = offset
		g.outvoted.Store(false)
		g.store.Rebase(offset, own)
		g.distrusted.Store(false)
		g.rebases.Add(1)
		g.log.Warn("the clock was set: values with a deadline are dropped",
			"difference", time.Duration(difference)*time.Millisecond)
	}
}

// now is the time of a batch, whose bytes have arrived.
func (s *Server) now() store.Time {
	own, wall := s.readClocks()
	for range readingsMore {
		if s.guard.near(wall - own - store.Time(s.guard.known.Load())) {
			break
		}
		own, wall = s.readClocks()
	}
	s.guard.check(own, wall)
	return own
}

// readingsMore is how often clocks that differ are read again at once: on a busy
// machine a thread can lose its processor between the two readings, for longer
// than any skew. That is no difference of the clocks.
const readingsMore = 3

// readClocks reads the server's clock and the system's, as nearly at once as can
// be.
func (s *Server) readClocks() (own, wall store.Time) {
	if s.guard.wall != nil {
		own = s.clock()
		return own, s.guard.wall()
	}
	t := time.Now()
	return s.epoch.at(t), store.Time(t.UnixMilli())
}

// deadlineClock is the moment by which deadlines are judged now.
func (s *Server) deadlineClock() store.Time { return s.clock() + store.Time(s.guard.offset.Load()) }

// wallClock is what the system's clock says.
func (s *Server) wallClock() store.Time {
	if s.guard.wall != nil {
		return s.guard.wall()
	}
	return store.Time(time.Now().UnixMilli())
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
