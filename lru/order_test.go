package lru

import (
	"errors"
	"testing"

	"github.com/quarrycache/quarry/slab"
	"pgregory.net/rapid"
)

// items is what an order is told of its items in these tests: each is its own
// hash, and its age is what was stored since.
type items struct {
	stored map[slab.Ref]uint64
	n      uint64
}

func (i *items) HashOf(r slab.Ref) uint64 { return uint64(r) }
func (i *items) AgeOf(r slab.Ref) uint64  { return i.n - i.stored[r] }

func (i *items) store(r slab.Ref) {
	i.n++
	i.stored[r] = i.n
}

type testOrder struct {
	*Order
	items *items
}

func newTestOrder(t testing.TB, p Policy) testOrder {
	t.Helper()
	a, err := slab.NewArena(slab.OwnClasses(1<<10), slab.NewBudget(1<<20), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	of := &items{stored: map[slab.Ref]uint64{}}
	o, err := New(a, a.Classes().Len(), of, p, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range o.Check(nil) {
			t.Error(err)
		}
		if err := errors.Join(o.Close(), a.Close()); err != nil {
			t.Error(err)
		}
	})
	return testOrder{o, of}
}

func (o testOrder) add(t testing.TB, c int) slab.Ref {
	t.Helper()
	r, ok := o.a.Alloc(c)
	if !ok {
		t.Fatal("the test's arena is full")
	}
	o.items.store(r)
	o.Insert(c, r)
	return r
}

func (o testOrder) hit(c int, r slab.Ref) { o.Hit(c, r, o.a.Tag(r), uint64(r)) }

func (o testOrder) evict(c int) slab.Ref {
	r := o.Victim(c)
	if r != 0 {
		o.Remove(c, r)
		o.a.Free(r)
	}
	return r
}

func TestEvictionOrder(t *testing.T) {
	t.Run("never read: first in, first out", func(t *testing.T) {
		o := newTestOrder(t, Segmented)
		var in []slab.Ref
		for range 20 {
			in = append(in, o.add(t, 5))
		}
		for i, want := range in {
			if got := o.evict(5); got != want {
				t.Fatalf("victim %d is %d, want %d", i, got, want)
			}
		}
		if got := o.Victim(5); got != 0 {
			t.Errorf("victim %d of an empty class", got)
		}
	})
	t.Run("read in probation: saved", func(t *testing.T) {
		o := newTestOrder(t, Segmented)
		r := o.add(t, 5)
		for range 20 {
			o.add(t, 5)
		}
		if got := SegmentOf(o.a.Tag(r)); got != Probation {
			t.Fatalf("item is in segment %d, want probation", got)
		}
		o.hit(5, r)
		for range 15 {
			if got := o.evict(5); got == r {
				t.Fatal("an item read in probation went before those never read")
			}
		}
		if got := SegmentOf(o.a.Tag(r)); got != Protected {
			t.Errorf("item is in segment %d, want protected", got)
		}
	})
	t.Run("one early read: forgiven", func(t *testing.T) {
		o := newTestOrder(t, Segmented)
		r := o.add(t, 5)
		o.hit(5, r)
		for range 20 {
			o.add(t, 5)
		}
		if got := SegmentOf(o.a.Tag(r)); got != Probation {
			t.Errorf("after one read in the window: segment %d, want probation", got)
		}
	})
	t.Run("two early reads: protected", func(t *testing.T) {
		o := newTestOrder(t, Segmented)
		r := o.add(t, 5)
		o.hit(5, r)
		o.hit(5, r)
		for range 20 {
			o.add(t, 5)
		}
		if got := SegmentOf(o.a.Tag(r)); got != Protected {
			t.Errorf("after two reads in the window: segment %d, want protected", got)
		}
	})
}

// What was read again is counted once, until it moves.
func TestHitCountsOnce(t *testing.T) {
	o := newTestOrder(t, TinyLFU)
	r := o.add(t, 5)
	for range 10 {
		o.hit(5, r)
	}
	if n := o.sketch.count(uint64(r)); n != 2 {
		t.Errorf("%d counted of ten reads in the window, want the two that mark it", n)
	}
	for range 20 {
		o.add(t, 5)
	}
	if got := SegmentOf(o.a.Tag(r)); got != Protected {
		t.Fatalf("item is in segment %d, want protected", got)
	}
	for range 10 {
		o.hit(5, r)
	}
	if n := o.sketch.count(uint64(r)); n != 3 {
		t.Errorf("%d counted, want one more since it moved", n)
	}
}

// write stores a value over that of r as the store does: its tag is made anew.
func (o testOrder) write(c int, r slab.Ref) {
	t := o.a.Tag(r)
	if o.Stays(t) {
		o.items.store(r)
		o.a.SetTag(r, slab.MakeTag(slab.StatePending, 7))
		o.Stay(r, t)
		return
	}
	o.Remove(c, r)
	o.items.store(r)
	o.a.SetTag(r, slab.MakeTag(slab.StatePending, 7))
	o.Insert(c, r)
}

// What a value stored over another does to its item's place.
func TestWriteOver(t *testing.T) {
	fill := func(t *testing.T) (testOrder, []slab.Ref) {
		o := newTestOrder(t, TinyLFU)
		var in []slab.Ref
		for range 100 {
			in = append(in, o.add(t, 5))
		}
		return o, in
	}
	segment := func(o testOrder, r slab.Ref) Segment { return SegmentOf(o.a.Tag(r)) }

	t.Run("nothing had to go: all stays", func(t *testing.T) {
		o, in := fill(t)
		for _, r := range []slab.Ref{in[0], in[99]} {
			s, prev, next := segment(o, r), o.a.Prev(r), o.a.Next(r)
			o.write(5, r)
			if got := o.a.Tag(r); SegmentOf(got) != s || got.Length() != 7 || o.a.Prev(r) != prev || o.a.Next(r) != next {
				t.Errorf("item %d was moved, or has not the new length: tag %x", r, got)
			}
		}
	})
	t.Run("something had to go: to the window", func(t *testing.T) {
		o, in := fill(t)
		o.Victim(5)
		r := in[10]
		if got := segment(o, r); got != Probation {
			t.Fatalf("item is in segment %d, want probation", got)
		}
		o.write(5, r)
		if got := o.Head(5, Window); got != r {
			t.Errorf("head of the window is %d, want %d, which was written", got, r)
		}
	})
	t.Run("nothing had to go for a while: all stays again", func(t *testing.T) {
		o, in := fill(t)
		o.Victim(5)
		for range 100 {
			o.write(5, in[10])
		}
		r := in[20]
		o.write(5, r)
		if got := segment(o, r); got != Probation {
			t.Errorf("item is in segment %d, want probation, where it was", got)
		}
	})
	t.Run("protected: it stays", func(t *testing.T) {
		o, in := fill(t)
		r := in[10]
		o.hit(5, r)
		for range 20 {
			o.evict(5)
		}
		o.hit(5, r)
		o.write(5, r)
		if got := o.a.Tag(r); SegmentOf(got) != Protected || got&Active == 0 || got&Fetched != 0 {
			t.Errorf("tag %x: want it protected, to be moved for the read, and not read since it was stored", got)
		}
		o.Victim(5)
		for range 10 {
			o.write(5, r)
		}
		if got := segment(o, r); got != Protected {
			t.Errorf("written again: it is in segment %d, want protected", got)
		}
	})
	t.Run("elsewhere: the heir returns to protected", func(t *testing.T) {
		o, in := fill(t)
		o.hit(5, in[10])
		for range 20 {
			o.evict(5)
		}
		old := o.a.Tag(in[10])
		if SegmentOf(old) != Protected {
			t.Fatalf("item is in segment %d, want protected", SegmentOf(old))
		}
		r, _ := o.a.Alloc(6)
		o.items.store(r)
		o.a.SetTag(r, slab.MakeTag(slab.StatePending, 0)|Heir(old))
		o.Remove(5, in[10])
		o.Insert(6, r)
		for range 20 {
			o.add(t, 6)
		}
		if got := segment(o, r); got != Protected {
			t.Errorf("the heir is in segment %d, want protected", got)
		}
	})
}

// A scan of ten times the class through a hot set of half of it: all of the
// hot set is there afterwards (S3-23, S1-44).
func TestScanLeavesHotSet(t *testing.T) {
	t.Run("segmented", func(t *testing.T) { scanLeavesHotSet(t, newTestOrder(t, Segmented)) })
	t.Run("tinylfu", func(t *testing.T) { scanLeavesHotSet(t, newTestOrder(t, TinyLFU)) })
}

func scanLeavesHotSet(t *testing.T, o testOrder) {
	const room = 400
	hot := make(map[slab.Ref]bool)
	for range room / 2 {
		hot[o.add(t, 3)] = true
	}
	for range 3 {
		for r := range hot {
			o.hit(3, r)
		}
	}
	for i := range 10 * room {
		for o.Items(3) >= room {
			if r := o.evict(3); hot[r] {
				delete(hot, r)
			}
		}
		o.add(t, 3)
		if i%room == room-1 {
			for r := range hot {
				o.hit(3, r)
			}
		}
	}
	if got := len(hot); got < room/2*98/100 {
		t.Errorf("%d of %d hot items are left after the scan", got, room/2)
	}
}

// Random operations: the lists stay whole, and hold what a set holds.
func TestOrderModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, err := slab.NewArena(slab.OwnClasses(1<<10), slab.NewBudget(64<<10), 64<<10)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		of := &items{stored: map[slab.Ref]uint64{}}
		p := rapid.SampledFrom([]Policy{TinyLFU, Segmented}).Draw(t, "policy")
		o, err := New(a, a.Classes().Len(), of, p, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		in := map[slab.Ref]int{}
		pick := func(t *rapid.T) slab.Ref {
			var refs []slab.Ref
			for r := range a.Pages() {
				chunks := a.Page(r)
				for i := range chunks.N {
					if _, ok := in[chunks.At(i)]; ok {
						refs = append(refs, chunks.At(i))
					}
				}
			}
			if len(refs) == 0 {
				t.Skip("nothing stored")
			}
			return rapid.SampledFrom(refs).Draw(t, "ref")
		}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				c := rapid.IntRange(0, 3).Draw(t, "class")
				if r, ok := a.Alloc(c); ok {
					of.store(r)
					o.Insert(c, r)
					in[r] = c
				}
			},
			"hit": func(t *rapid.T) {
				r := pick(t)
				o.Hit(in[r], r, a.Tag(r), uint64(r))
			},
			"write": func(t *rapid.T) {
				r := pick(t)
				testOrder{o, of}.write(in[r], r)
			},
			"remove": func(t *rapid.T) {
				r := pick(t)
				o.Remove(in[r], r)
				a.Free(r)
				delete(in, r)
			},
			"evict": func(t *rapid.T) {
				c := rapid.IntRange(0, 3).Draw(t, "class")
				r := o.Victim(c)
				if r == 0 {
					if n := o.Items(c); n != 0 {
						t.Fatalf("no victim among %d items", n)
					}
					return
				}
				o.Remove(c, r)
				a.Free(r)
				delete(in, r)
			},
			"move": func(t *rapid.T) {
				r := pick(t)
				c := in[r]
				to, ok := a.Alloc(c)
				if !ok {
					return
				}
				n := a.ChunkBytes(r)
				copy(a.Bytes(to.Off(), n), a.Bytes(r.Off(), n))
				o.Moved(c, r, to)
				of.stored[to] = of.stored[r]
				a.Free(r)
				delete(in, r)
				in[to] = c
			},
			"": func(t *rapid.T) {
				n := 0
				for _, err := range o.Check(func(c int, r slab.Ref) {
					n++
					if got, ok := in[r]; !ok || got != c {
						t.Errorf("item %d of class %d is in the order; inserted: %t, as class %d", r, c, ok, got)
					}
				}) {
					t.Error(err)
				}
				if n != len(in) {
					t.Errorf("%d items in the order, want %d", n, len(in))
				}
			},
		})
	})
}

// What Tune changes.
func TestTune(t *testing.T) {
	t.Run("flat: least recently read first", func(t *testing.T) {
		o := newTestOrder(t, TinyLFU)
		old := o.add(t, 5)
		o.Tune(Tuning{Flat: true})
		var in []slab.Ref
		for range 20 {
			in = append(in, o.add(t, 5))
		}
		o.hit(5, in[0])
		o.hit(5, in[19]) // just stored: forgiven
		if n := o.Len(5, Probation); n != 21 {
			t.Errorf("%d of 21 items are in probation", n)
		}
		for i, want := range append(append([]slab.Ref{}, in[1:]...), in[0]) {
			if i == 0 {
				if got := o.evict(5); got != old {
					t.Fatalf("the first victim is %d, want %d", got, old)
				}
			}
			if got := o.evict(5); got != want {
				t.Fatalf("victim %d is %d, want %d", i, got, want)
			}
		}
		o.Tune(Tuning{})
		o.add(t, 5)
		if n := o.Len(5, Window); n != 1 {
			t.Errorf("segmented again: %d items in the window, want 1", n)
		}
	})
	t.Run("shares", func(t *testing.T) {
		o := newTestOrder(t, Segmented)
		o.Tune(Tuning{WindowPct: 30, ProtectedPct: 20})
		var in []slab.Ref
		for range 100 {
			in = append(in, o.add(t, 5))
		}
		for _, r := range in {
			o.hit(5, r)
			o.hit(5, r)
		}
		for range hitsPerStep * 4 {
			o.hit(5, in[50]) // nothing is weighed any more
		}
		for range 200 {
			o.add(t, 5)
			o.evict(5)
		}
		if n := o.Len(5, Window); n < 28 || n > 32 {
			t.Errorf("%d of 100 items are in the window, want 30", n)
		}
		if n := o.Len(5, Protected); n > 22 {
			t.Errorf("%d of 100 items are protected, want at most 20", n)
		}
	})
	t.Run("temporary: beside the others", func(t *testing.T) {
		o := newTestOrder(t, TinyLFU)
		r, _ := o.a.Alloc(5)
		o.items.store(r)
		o.InsertTemporary(5, r)
		for range 20 {
			o.add(t, 5)
		}
		for range 20 {
			if got := o.evict(5); got == r || got == 0 {
				t.Fatalf("victim is %d, the temporary item is %d", got, r)
			}
		}
		if n := o.Items(5); n != 1 {
			t.Errorf("%d items, want the temporary one", n)
		}
		if got := o.evict(5); got != r {
			t.Errorf("victim is %d, want the temporary item %d: there is nothing else", got, r)
		}
	})
	t.Run("eager: what is read in probation is protected at once", func(t *testing.T) {
		o := newTestOrder(t, Segmented)
		o.Tune(Tuning{Eager: true})
		r := o.add(t, 5)
		for range 20 {
			o.add(t, 5)
		}
		o.hit(5, r)
		if got := SegmentOf(o.a.Tag(r)); got != Protected || o.a.Tag(r)&Active != 0 {
			t.Errorf("segment %d, tag %x: want protected, and not to be moved for it again", got, o.a.Tag(r))
		}
		if m := o.Moves(5); m.ToProtected != 1 {
			t.Errorf("%d moves to protected, want 1", m.ToProtected)
		}
		o.hit(5, r)
		if got := SegmentOf(o.a.Tag(r)); got != Protected {
			t.Errorf("read again: segment %d", got)
		}
	})
}
