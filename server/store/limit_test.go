package store

import (
	"fmt"
	"strings"
	"testing"
)

// tick is what Background does at each of its ticks.
func (s *Store) tick(now Time) {
	for _, sh := range s.shards {
		s.sweepPart(sh, now)
		s.goOnMoving(sh, now)
	}
	s.shrink(now)
}

// present counts the keys k0 to kn-1 that are there, and checks their values.
func (s *Store) present(t testing.TB, n int, value func(i int) string, now Time) (found int) {
	t.Helper()
	for i := range n {
		var g grab
		if s.Peek(key(fmt.Sprint("k", i)), now, &g) != OK {
			continue
		}
		found++
		if g.value != value(i) {
			t.Fatalf("k%d: %d bytes that were not stored, want %d", i, len(g.value), len(value(i)))
		}
	}
	return found
}

// mixed is a value of one of many sizes.
func mixed(i int) string {
	return strings.Repeat(string(rune('a'+i%26)), []int{20, 100, 260, 1500, 9000, 60000}[i*7%6])
}

// TestLimit halves the limit of a full store, and raises it again.
func TestLimit(t *testing.T) {
	const n = 4000
	s := newTestStore(t, Config{LimitBytes: 8 << 20, Shards: 2})
	fill := func() {
		for i := range n {
			s.mustSet(t, fmt.Sprint("k", i), mixed(i), SetOptions{}, noon)
		}
	}
	fill()
	full := s.present(t, n, mixed, noon)
	if err := s.SetLimit(4 << 20); err != nil {
		t.Fatal(err)
	}
	ticks := 0
	for ; s.over(); ticks++ {
		if ticks == 1000 {
			t.Fatalf("%d bytes are taken after %d ticks, the limit is %d", s.budget.Taken(), ticks, s.budget.Limit())
		}
		s.tick(noon)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	half := s.present(t, n, mixed, noon)
	if half >= full || half == 0 {
		t.Errorf("%d items in half the memory, %d in all of it", half, full)
	}
	fill()
	if again := s.present(t, n, mixed, noon); again == 0 || s.over() {
		t.Errorf("%d items after the limit was halved; %d bytes of %d", again, s.budget.Taken(), s.budget.Limit())
	}
	if err := s.SetLimit(min(16<<20, s.LimitMax())); err != nil {
		t.Fatal(err)
	}
	fill()
	more := s.present(t, n, mixed, noon)
	t.Logf("%d items in 8 MB, %d in 4 after %d ticks, %d in %d", full, half, ticks, more, s.LimitBytes()>>20)
	if more <= full {
		t.Errorf("%d items in %d MB, %d in 8", more, s.LimitBytes()>>20, full)
	}
}

func TestLimitBounds(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 8 << 20, Shards: 2})
	least := int64(2 * slabPagesMin * s.PageBytes())
	for limit, ok := range map[int64]bool{
		0: false, least - 1: false, least: true, s.LimitMax(): true, s.LimitMax() + 1: false,
	} {
		if err := s.SetLimit(limit); (err == nil) != ok {
			t.Errorf("limit of %d bytes: %v", limit, err)
		}
	}
}

// TestLimitOfNoEvict shrinks a store that may not evict: nothing that is
// stored goes for it, and what becomes free does.
func TestLimitOfNoEvict(t *testing.T) {
	const n = 2000
	s := newTestStore(t, Config{LimitBytes: 2 << 20, Shards: 1, NoEvict: true})
	value := func(i int) string { return strings.Repeat("v", 1000) }
	stored := 0
	for ; stored < n; stored++ {
		if s.Set(key(fmt.Sprint("k", stored)), []byte(value(0)), &SetOptions{}, noon).Status != OK {
			break
		}
	}
	if err := s.SetLimit(1 << 20); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		s.tick(noon)
	}
	if got := s.present(t, stored, value, noon); got != stored {
		t.Fatalf("%d of %d items are left", got, stored)
	}
	for i := range stored {
		s.Delete(key(fmt.Sprint("k", i)), &DeleteOptions{}, noon)
	}
	s.tick(noon)
	if s.over() {
		t.Errorf("an empty store has taken %d bytes of %d", s.budget.Taken(), s.budget.Limit())
	}
}

// TestLimitWhileSending shrinks while the item that should go next cannot, for
// it is being sent: others go.
func TestLimitWhileSending(t *testing.T) {
	const n = 2000
	s := newTestStore(t, Config{LimitBytes: 2 << 20, Shards: 1})
	value := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 1000) }
	for i := range n {
		s.mustSet(t, fmt.Sprint("k", i), value(i), SetOptions{}, noon)
	}
	sh := s.shards[0]
	var pins []Pin
	for c := range s.table.Len() {
		if r := sh.victim(c); r != 0 {
			// That item and the next pages' first ones.
			for p := sh.a.PageOf(r); p < min(sh.a.PageOf(r)+8, sh.a.Pages()); p++ {
				if page := sh.a.Page(p); page.Class == c {
					var pin Pin
					v := pinner{p: &pin}
					if s.Get(KeyOf([]byte(string(sh.item(page.At(0)).key()))), &GetOptions{NoBump: true}, noon, &v); v.ok {
						pins = append(pins, pin)
					}
				}
			}
		}
	}
	if len(pins) == 0 {
		t.Fatal("nothing is pinned")
	}
	if err := s.SetLimit(1 << 20); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s.tick(noon)
	}
	if s.over() {
		t.Errorf("with %d pins %d bytes are taken, the limit is %d", len(pins), s.budget.Taken(), s.budget.Limit())
	}
	var st Stats
	s.Snapshot(noon, &st)
	if st.MovesAborted == 0 || st.LastAbort != AbortSending && st.LastAbort != AbortGone {
		t.Errorf("%d moves aborted, the last one for %d", st.MovesAborted, st.LastAbort)
	}
	for i := range pins {
		if got := string(pins[i].p.appendTo(nil)); strings.Trim(got, got[:1]) != "" || len(got) != 1000 {
			t.Errorf("a pinned value changed: %.20q", got)
		}
		pins[i].Release()
	}
}

// TestReassign moves pages by hand.
func TestReassign(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 2 << 20, Shards: 1})
	n := s.table.Len()
	for _, tt := range []struct {
		from, to int
		want     Reassigned
	}{
		{1, 1, ReassignSame}, {-1, -1, ReassignSame}, {0, 0, ReassignSame}, {n + 1, n + 1, ReassignSame},
		{-2, 1, ReassignBadClass}, {n + 1, 1, ReassignBadClass}, {1, n + 1, ReassignBadClass}, {1, -1, ReassignBadClass},
		{1, 2, ReassignNoSpare}, {-1, 2, ReassignNoSpare}, {0, 2, ReassignNoSpare}, {1, 0, ReassignNoSpare},
	} {
		if got := s.Reassign(tt.from, tt.to); got != tt.want {
			t.Errorf("of an empty store %d to %d: got %d, want %d", tt.from, tt.to, got, tt.want)
		}
	}
	value := func(int) string { return strings.Repeat("v", 800) }
	for i := range 4000 {
		s.mustSet(t, fmt.Sprint("k", i), value(i), SetOptions{}, noon)
	}
	var st Stats
	pages := func(class int) uint64 {
		s.Snapshot(noon, &st)
		return st.Classes[class-1].Pages
	}
	from := s.table.For(headerBytes+len("k1000")+800) + 1
	before := pages(from)
	if got := s.Reassign(from, 1); got != ReassignOK {
		t.Fatalf("reassign: got %d", got)
	}
	if got := s.Reassign(from, 1); got != ReassignBusy || pages(from) != before || st.MovesUnderWay != 1 {
		t.Errorf("a second reassign: got %d, %d moves under way", got, st.MovesUnderWay)
	}
	s.tick(noon)
	if pages(from) != before-1 || st.Classes[0].Pages != 1 || st.PagesMoved != 1 || st.MovesUnderWay != 0 {
		t.Errorf("after it %d pages of %d, %d of class 1, %d moved", pages(from), before, st.Classes[0].Pages, st.PagesMoved)
	}
	for range 3 {
		if got := s.Reassign(-1, 0); got != ReassignOK {
			t.Fatalf("reassign to nobody: got %d", got)
		}
		s.tick(noon)
	}
	if pages(from) != before-4 || st.IdlePages != 3 {
		t.Errorf("%d pages of %d, %d idle", pages(from), before, st.IdlePages)
	}
	if got := s.Reassign(0, 2); got != ReassignOK || pages(2) != 1 || st.IdlePages != 2 {
		t.Errorf("an idle page to class 2: got %d, it has %d", got, pages(2))
	}
	if s.present(t, 4000, value, noon) == 0 {
		t.Error("nothing is left")
	}
}
