package store

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// compat is memcached's geometry in so little memory that it is felt.
var compat = Config{LimitBytes: 3 << 20, Policy: Segmented, CompatSlabs: true}

// classOf is the statistics of the class that has items.
func (s *Store) classOf(t testing.TB, class int) *ClassStats {
	t.Helper()
	var st Stats
	s.Snapshot(noon, &st)
	return &st.Classes[class-1]
}

// The numbers are those of memcached 1.6.45 with -m 3: as in its own tests
// evictions.t, issue_22.t and issue_42.t.
func TestCompatSlabs(t *testing.T) {
	s := newTestStore(t, compat)
	value := strings.Repeat("B", 66560)
	set := func(from, to int) {
		for i := from; i < to; i++ {
			s.mustSet(t, fmt.Sprint("key", i), value, SetOptions{}, noon)
		}
	}
	set(0, 40)
	c := s.classOf(t, 31)
	if c.ChunkBytes != 82792 || c.ChunksPerPage != 12 || c.Pages != 3 || c.Items != 36 || c.Evicted != 4 {
		t.Errorf("40 items: got %+v", c)
	}
	for i := range 4 {
		if s.Peek(key(fmt.Sprint("key", i)), noon, nil) == OK {
			t.Errorf("key%d is still there", i)
		}
	}
	s.ResetStats()
	set(40, 80)
	if c := s.classOf(t, 31); c.Evicted != 40 {
		t.Errorf("40 more: %d evicted, want 40", c.Evicted)
	}

	// The first page of a class is beyond the limit; no more are.
	for i := range 20_000 {
		s.mustSet(t, fmt.Sprint("k", i), "0123456789", SetOptions{}, noon)
	}
	c = s.classOf(t, 1)
	if c.ChunkBytes != 96 || c.Pages != 1 || c.Items != 10922 || c.MemRequested != 10922*(48+8+6+1+10+2)-922 { // 922 keys are shorter
		t.Errorf("class 1: got %+v", c)
	}
	if got := s.budget.Taken(); got != 4<<20 {
		t.Errorf("%d bytes taken, want the limit and a page", got)
	}
}

// A page moves by hand, and by itself once its class has room to spare; it
// stays with whom it was given to, and what is over the limit is given back.
func TestCompatPages(t *testing.T) {
	s := newTestStore(t, compat)
	value := strings.Repeat("B", 66560)
	for i := range 36 {
		s.mustSet(t, fmt.Sprint("key", i), value, SetOptions{}, noon)
	}
	s.SetAutomove(false)
	if got := s.Reassign(31, 25); got != ReassignOK {
		t.Fatalf("got %d, want it to begin", got)
	}
	s.tick(noon)
	if from, to := s.classOf(t, 31), s.classOf(t, 25); from.Pages != 2 || from.Items != 24 || to.Pages != 1 {
		t.Errorf("%d pages and %d items left, %d pages there: want 2, 24, 1", from.Pages, from.Items, to.Pages)
	}

	// What is being sent holds the page up, and nothing else is lost for it.
	var pin Pin
	s.Peek(key("key35"), noon, &pinner{p: &pin})
	for i := 12; i < 35; i++ {
		s.Delete(key(fmt.Sprint("key", i)), &DeleteOptions{}, noon)
	}
	s.Reassign(31, 0)
	var st Stats
	for range 50 {
		s.tick(noon)
		s.Snapshot(noon, &st)
	}
	if st.MovesUnderWay != 1 || st.LastAbort != AbortSending || st.PagesMoved != 1 || st.MovesAborted < 50 {
		t.Errorf("%d under way, abort %d, %d moved, %d aborted", st.MovesUnderWay, st.LastAbort, st.PagesMoved, st.MovesAborted)
	}
	s.Delete(key("key35"), &DeleteOptions{}, noon)
	s.tick(noon)
	if s.Snapshot(noon, &st); st.LastAbort != AbortGone {
		t.Errorf("abort %d, want that it is gone but being sent", st.LastAbort)
	}
	pin.Release()
	s.tick(noon)
	if s.Snapshot(noon, &st); st.MovesUnderWay != 0 || st.PagesMoved != 2 || st.IdlePages != 1 {
		t.Errorf("%d under way, %d moved, %d idle: want 0, 2, 1", st.MovesUnderWay, st.PagesMoved, st.IdlePages)
	}
	if err := s.SetLimit(2 << 20); err != nil {
		t.Fatal(err)
	}
	s.tick(noon)
	if s.Snapshot(noon, &st); st.HeldBytes != 2<<20 || st.IdlePages != 0 {
		t.Errorf("%d bytes held, %d pages idle, want the limit and none", st.HeldBytes, st.IdlePages)
	}

	// By itself: two and a half pages of free chunks are one too many.
	s = newTestStore(t, Config{LimitBytes: 6 << 20, Policy: Segmented, CompatSlabs: true})
	for i := range 72 {
		s.mustSet(t, fmt.Sprint("key", i), value, SetOptions{}, noon)
	}
	for i := range 60 {
		s.Delete(key(fmt.Sprint("key", i)), &DeleteOptions{}, noon)
	}
	for range 20 {
		s.tick(noon)
		s.shedPages(s.shards[0], noon)
	}
	if c := s.classOf(t, 31); c.Pages != 3 || c.Items != 12 {
		t.Errorf("%d pages with %d items, want 3 with 12", c.Pages, c.Items)
	}
}

// Anything at all, in memcached's geometry: Check finds nothing.
func TestCompatChurn(t *testing.T) {
	c := compat
	c.LimitBytes, c.ChunkMaxBytes, c.TrackSizes = 10<<20, 16<<10, true
	s := newTestStore(t, c)
	s.Tune(Tuning{WindowPct: 20, ProtectedPct: 40, Eager: true, TemporarySeconds: 5})
	rng := rand.New(rand.NewPCG(7, 7))
	now := noon
	for n := range 30_000 {
		k := key(fmt.Sprint("k", rng.IntN(3000)))
		switch rng.IntN(10) {
		case 0, 1, 2, 3:
			o := SetOptions{Flags: uint32(rng.IntN(2)), Expiry: uint32(rng.IntN(2)) * (now.Seconds() + uint32(rng.IntN(20)))}
			if st := s.Set(k, []byte(mixed(rng.IntN(6))), &o, now).Status; st != OK {
				t.Fatalf("set %d: status %d", n, st)
			}
		case 4:
			s.Delete(k, &DeleteOptions{}, now)
		case 5:
			s.Reassign(-1, rng.IntN(s.Classes()+1))
		case 6:
			s.tick(now)
			s.shedPages(s.shards[0], now)
		case 7:
			now += Time(rng.IntN(300))
		default:
			var g grab
			s.Get(k, &GetOptions{}, now, &g)
		}
		if n%3000 == 0 {
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var st Stats
	if s.Snapshot(now, &st); st.PagesMoved == 0 || st.Total.Evicted == 0 || st.Total.Reclaimed+st.Total.SweepReclaimed == 0 {
		t.Errorf("%d pages moved, %d evicted: want some of all", st.PagesMoved, st.Total.Evicted)
	}
}

// Memory in a file: the same items again, those in pages beyond the limit too;
// and the file is of no use to a store with Quarry's own geometry, or the other
// way round.
func TestCompatRestart(t *testing.T) {
	c := compat
	c.LimitBytes, c.File, c.Now = 4<<20, filepath.Join(t.TempDir(), "memory"), noon
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		s.mustSet(t, fmt.Sprint("big", i), strings.Repeat("B", 66560), SetOptions{}, noon)
	}
	for i := range 60 {
		s.mustSet(t, fmt.Sprint("small", i), "v", SetOptions{}, noon)
		s.mustSet(t, fmt.Sprint("chained", i), strings.Repeat("C", 800_000), SetOptions{}, noon)
	}
	if s.budget.Taken() <= c.LimitBytes {
		t.Fatalf("%d bytes taken: want some beyond the limit", s.budget.Taken())
	}
	s = reopen(t, s, false, later(1))
	s.cfg.Recover = true
	s = reopen(t, s, true, later(2))
	leave(t, s, false)

	for _, compat := range []bool{false, true} {
		c.CompatSlabs = compat
		if s, err = Open(c); err != nil {
			t.Fatal(err)
		}
		if rs := s.Restart(); rs.Refused == "" {
			t.Errorf("compat %t: a file of the other geometry was not refused: %+v", compat, rs)
		}
		leave(t, s, false)
	}
}
