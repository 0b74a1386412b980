package lru

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/quarrycache/quarry/slab"
)

// ClassState is what of a class is not in its items: it is written down for a
// restart, by segment.
type ClassState struct {
	Head, Tail [nSegments]slab.Ref
	N          [nSegments]uint32
	Stay       float64
}

// Segments is how many lists a class has.
const Segments = int(nSegments)

// State is the state of class c.
func (o *Order) State(c int) ClassState {
	k := &o.classes[c]
	st := ClassState{Stay: k.stay}
	for s := range nSegments {
		l := &k.seg[s]
		st.Head[s], st.Tail[s], st.N[s] = l.head, l.tail, l.n
	}
	return st
}

// Adoption puts the items that an arena was found with into an order that was
// just made: each is given to Add, and then the lists are taken over as they
// are linked in the items, if that makes lists (Take), or linked anew (Link).
type Adoption struct {
	o     *Order
	lists [][nSegments]sums // by class
}

// sums say, without walking it, whether items are one list with the ends that
// are written down: if the links that lead out of the items are those that
// lead into them, seen from the other side, every item has its two neighbours.
// A ring apart from the list would go unnoticed, but its bytes would have to
// be made for it.
type sums struct {
	n       uint32
	out, in uint64 // sums over the links, scrambled
}

// scramble makes a number of a link that differs from others' in all bits.
func scramble(from, to slab.Ref) uint64 {
	x := uint64(from)<<32 | uint64(to)
	x = (x ^ x>>31) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return x ^ x>>32
}

// BeginAdoption begins to fill an order in which nothing is.
func (o *Order) BeginAdoption() *Adoption {
	return &Adoption{o: o, lists: make([][nSegments]sums, len(o.classes))}
}

// Add counts item r of class c.
func (ad *Adoption) Add(c int, r slab.Ref) {
	a := ad.o.a
	l := &ad.lists[c][SegmentOf(a.Tag(r))]
	l.n++
	l.out += scramble(r, a.Next(r))
	l.in += scramble(a.Prev(r), r)
}

// Take takes the lists over as they are linked, with the ends in states, by
// class. False: they are not lists with such ends; nothing was taken.
func (ad *Adoption) Take(states []ClassState) bool {
	if len(states) != len(ad.lists) {
		return false
	}
	for c := range states {
		st := &states[c]
		for s := range nSegments {
			l, head, tail := ad.lists[c][s], st.Head[s], st.Tail[s]
			if l.n != st.N[s] || (l.n == 0) != (head == 0) || (l.n == 0) != (tail == 0) {
				return false
			}
			if l.n > 0 && l.out-scramble(tail, 0) != l.in-scramble(0, head) {
				return false
			}
		}
	}
	for c := range states {
		k := &ad.o.classes[c]
		for s := range nSegments {
			k.seg[s] = list{states[c].Head[s], states[c].Tail[s], states[c].N[s]}
		}
	}
	ad.finish()
	return true
}

// Link links the items of class c in segment s anew, in the order of refs,
// from the head. It is called for all lists that have items, and then Linked.
func (ad *Adoption) Link(c int, s Segment, refs []slab.Ref) {
	a, l := ad.o.a, &ad.o.classes[c].seg[s]
	var prev slab.Ref
	for _, r := range refs {
		a.SetPrev(r, prev)
		if prev != 0 {
			a.SetNext(prev, r)
		} else {
			l.head = r
		}
		prev = r
	}
	if prev != 0 {
		a.SetNext(prev, 0)
	}
	l.tail, l.n = prev, uint32(len(refs))
}

// Linked ends what Link began.
func (ad *Adoption) Linked() { ad.finish() }

// finish counts what is in the lists.
func (ad *Adoption) finish() {
	o := ad.o
	for c := range o.classes {
		for s := range nSegments {
			n := int(o.classes[c].seg[s].n)
			o.inAll[s] += n
			o.n += n
		}
	}
	for n := 0; int(o.sketch.blocks())*itemsPerBlock < o.n && n != int(o.sketch.blocks()); {
		n = int(o.sketch.blocks())
		o.sketch.grow(o.n)
	}
}

// SetStay sets the mean age at which items leave the window of class c, and
// SetWindowPct the window's part of each class: what an order has learned.
func (o *Order) SetStay(c int, stay float64) {
	if stay >= 0 && stay <= 1<<62 {
		o.classes[c].stay = stay
	}
}

// SetWindowPct is described at SetStay.
func (o *Order) SetWindowPct(pct float64) {
	if pct >= windowMinPct && pct <= windowMaxPct {
		o.window = pct
	}
}

// sketchHeadBytes is what stands before the blocks of a sketch.
const sketchHeadBytes = 32

// SketchSize is how many bytes WriteSketch writes.
func (o *Order) SketchSize() int64 { return sketchHeadBytes + o.sketch.bytes() }

// WriteSketch writes down how often keys were asked for.
func (o *Order) WriteSketch(w io.Writer) error {
	s := o.sketch
	var head [sketchHeadBytes]byte
	binary.LittleEndian.PutUint64(head[0:], uint64(s.level))
	binary.LittleEndian.PutUint64(head[8:], uint64(s.split)|uint64(s.sweep)<<32)
	binary.LittleEndian.PutUint64(head[16:], uint64(s.period))
	binary.LittleEndian.PutUint64(head[24:], uint64(s.adds))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(s.mem.Bytes(0, int(s.bytes())))
	return err
}

// ReadSketch reads what WriteSketch has written, n bytes, into an order in
// which nothing is. Any bytes are counts; only sizes can be wrong.
func (o *Order) ReadSketch(r io.Reader, n int64) error {
	var head [sketchHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("lru: sketch: %w", err)
	}
	level := binary.LittleEndian.Uint64(head[0:])
	ends := binary.LittleEndian.Uint64(head[8:])
	next := sketch{
		mem: o.sketch.mem, split: uint32(ends), sweep: uint32(ends >> 32),
		period: int(binary.LittleEndian.Uint64(head[16:]) & (1<<62 - 1)),
		adds:   int(binary.LittleEndian.Uint64(head[24:]) & (1<<62 - 1)),
	}
	if level < sketchLevelMin || level > 31 || next.split >= 1<<level {
		return fmt.Errorf("lru: sketch: level %d, split %d", level, next.split)
	}
	next.level = uint(level)
	if next.bytes()+sketchHeadBytes != n {
		return fmt.Errorf("lru: sketch: %d bytes for level %d, split %d", n, level, next.split)
	}
	if err := next.mem.Commit(next.bytes()); err != nil {
		return err
	}
	if _, err := io.ReadFull(r, next.mem.Bytes(0, int(next.bytes()))); err != nil {
		return fmt.Errorf("lru: sketch: %w", err)
	}
	next.sweep %= next.blocks()
	*o.sketch = next
	return nil
}
