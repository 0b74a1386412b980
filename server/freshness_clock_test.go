package server

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// startWall is startFresh with a system clock that is so many ms ahead of the
// server's. Loops and sweepers read it at any time.
func startWall(t testing.TB) (s *Server, c *freshClient, ahead *atomic.Int64) {
	t.Helper()
	clock := newTestClock()
	ahead = new(atomic.Int64)
	wall := func() store.Time { return clock.Now() + store.Time(ahead.Load()) }
	s, addr := startServer(t, Config{Clock: clock.Now, Wall: wall, Threads: 1, Fresh: FreshConfig{EarlyBeta: -1}})
	return s, dialFresh(t, addr, clock), ahead
}

// S1-18: clocks that are 100 ms apart are no trouble.
func TestFreshnessClockWithinSkew(t *testing.T) {
	s, c, ahead := startWall(t)
	for i, ms := range []int64{0, 100, -100, 100} {
		ahead.Store(ms)
		key := fmt.Sprint("k", i)
		c.wantFill(key, c.grant(key), 1, "x", 0)
		c.advance(29_999)
		c.wantValue(key, "x")
		c.advance(1)
		c.wantValue(key, "")
	}
	if f := s.guard.stats(); f.Distrusted || f.Distrusts != 0 {
		t.Errorf("%+v", f)
	}
}

// S1-18: two readings between which the thread had to wait for a processor do not
// make clocks differ.
func TestFreshnessClockReadLate(t *testing.T) {
	clock := newTestClock()
	var late atomic.Int64 // readings of the system's clock to come that are late
	wall := func() store.Time {
		if late.Load() > 0 {
			late.Add(-1)
			return clock.Now() - 157
		}
		return clock.Now()
	}
	s, addr := startServer(t, Config{Clock: clock.Now, Wall: wall, Threads: 1, Fresh: FreshConfig{EarlyBeta: -1}})
	c := dialFresh(t, addr, clock)
	c.wantFill("k", c.grant("k"), 1, "x", 0)
	for range 10 {
		late.Store(readingsMore)
		c.wantValue("k", "x")
	}
	if f := s.guard.stats(); f.Distrusted || f.Distrusts != 0 {
		t.Errorf("%+v", f)
	}
}

// S1-18: a clock that is 500 ms off is not trusted. Values with a deadline are
// misses and nothing is stored with one, but all others go on; when the difference
// is gone, they are there again.
func TestFreshnessClockJumpsAndComesBack(t *testing.T) {
	for _, ms := range []int64{500, -500, 101, -101} {
		s, c, ahead := startWall(t)
		c.advance(30_000) // floors are known
		c.wantFill("k", c.grant("k"), 41, "v41", 0)
		c.want(fmt.Sprintf("ms absent 0 MN G%s Y1 A%d", c.grant("absent"), c.in(30_000)), "HD", "")
		c.want("ms timeless 1 Y5", "HD", "x")
		c.want("set plain 0 0 1", "STORED", "x")
		ahead.Store(ms)
		c.wantValue("k", "")
		c.want("get k", "END")
		c.want("mg absent G500", "EN W g* w500 y1")
		c.wantValue("timeless", "x")
		c.wantValue("plain", "x")
		token := c.grant("k") // grants go on
		c.wantFill("k", token, 42, "v42", 7)
		c.want(fmt.Sprintf("ms k 0 MV G%s Y41 A%d", token, c.in(9000)), "NS r7", "")
		c.want(fmt.Sprintf("ms k 1 Y42 A%d", c.in(9000)), "NS r7", "x")
		c.want("set plain 0 0 1", "STORED", "y")
		c.want("md timeless I Y6", "HD")
		if f := s.guard.stats(); !f.Distrusted || f.Distrusts != 1 {
			t.Errorf("%d ms: %+v", ms, f)
		}
		c.advance(9000)
		ahead.Store(0)
		c.wantValue("k", "v41")
		c.want("mg absent G500", "EN e y1")
		c.wantFill("k2", c.grant("k2"), 1, "x", 0)
		if f := s.guard.stats(); f.Distrusted || f.Distrusts != 1 || f.Resets != 0 || f.OffsetMillis != 0 {
			t.Errorf("%d ms, and back: %+v", ms, f)
		}
	}
}

// S1-18: a difference that stays for 10 s is a clock that was set. Deadlines are
// judged by the new one then; tokens and values of the old one are gone.
func TestFreshnessClockIsSet(t *testing.T) {
	for _, ms := range []int64{500, -500, 3_600_000, -3_600_000} {
		s, c, ahead := startWall(t)
		c.advance(30_000)
		c.wantFill("k", c.grant("k"), 41, "v41", 0)
		c.want("ms timeless 1 Y5", "HD", "x")
		c.want("md floor I Y9", "HD")
		ahead.Store(ms)
		c.wantValue("k", "")
		c.advance(5000)
		ahead.Store(ms + 150) // it goes on moving: the 10 s begin again
		c.wantValue("k", "")
		c.advance(5000)
		token := c.grant("token")
		c.advance(4999)
		c.wantValue("k", "")
		if f := s.guard.stats(); !f.Distrusted || f.Resets != 0 {
			t.Fatalf("%d ms, after 9.999 s: %+v", ms, f)
		}
		old := c.grant("old")
		c.advance(1)
		c.wantValue("k", "") // dropped
		if f := s.guard.stats(); f.Distrusted || f.Resets != 1 || f.OffsetMillis != ms+150 {
			t.Fatalf("%d ms, after 10 s: %+v", ms, f)
		}
		c.wantFill("old", old, 1, "x", 1)
		c.wantFill("token", token, 1, "x", 1)
		c.wantValue("timeless", "x")
		if f := c.lookup("floor G500"); f.Fresh.Version != 9 {
			t.Errorf("the floor is %d, want 9", f.Fresh.Version)
		}
		// The client's clock is the right one now.
		hard := c.now() + ms + 150 + 2000
		fill := func(key string, hard int64, want string) {
			t.Helper()
			c.want(fmt.Sprintf("ms %s 1 G%s Y50 A%d,0,%d", key, c.grant(key), hard, c.now()+ms+150), want, "x")
		}
		fill("k", hard, "HD")
		fill("past", c.now()+ms+150, "NS r6")
		c.advance(1999)
		c.wantValue("k", "x")
		c.want("mg k t", "HD t0")
		c.advance(1)
		c.wantValue("k", "")
	}
}

// A client whose clock is 5 s wrong is found out by the time of its read, and
// cannot make anything live longer.
func TestFreshnessClientClockIsWrong(t *testing.T) {
	_, c := startFresh(t, Config{})
	for _, wrong := range []int64{5000, -5000, 201, -201} {
		now := c.now() + wrong
		c.want(fmt.Sprintf("ms k 1 G%s Y1 A%d,0,%d", c.grant("k"), now+29_800, now), "NS r7", "x")
		c.want(fmt.Sprintf("ms k 1 Y1 A%d,0,%d", now+29_800, now), map[bool]string{true: "NS r7", false: "HD"}[wrong > 0], "x")
		c.want("md k", map[bool]string{true: "NF", false: "HD"}[wrong > 0])
		c.advance(1000)
	}
	now := c.now() + 200 // twice what clocks may differ
	c.want(fmt.Sprintf("ms k 1 G%s Y1 A%d,0,%d", c.grant("k"), now+29_800, now), "HD", "x")
}

// Loops that find the clock wrong at the same time distrust it once, and a clock
// that is set while they look is not distrusted again.
func TestClockGuardFromManyLoops(t *testing.T) {
	s, c, ahead := startWall(t)
	g := &s.guard
	ahead.Store(700)
	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for ms := range store.Time(12_000) {
				own := c.clock.Now() + ms
				g.check(own, own+700)
			}
		}()
	}
	for range 8 {
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("a loop does not end")
		}
	}
	if f := g.stats(); f.Distrusts != 1 || f.Resets != 1 || f.Distrusted || f.OffsetMillis != 700 {
		t.Errorf("%+v, want one distrust and one reset", f)
	}
}
