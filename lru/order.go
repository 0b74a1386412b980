package lru

import "github.com/quarrycache/quarry/slab"

// Segment is one of the lists of a class.
type Segment uint8

// The segments of a class. In memcached's terms the window is HOT, protected
// is WARM, probation is COLD, and what is Temporary is TEMP.
const (
	Window Segment = iota
	Probation
	Protected
	// Temporary items expire soon and are not worth a place in the other
	// segments: they go for room only when there is nothing else.
	Temporary
	nSegments
)

// state is how a segment stands in a chunk's tag.
func (s Segment) state() slab.State { return slab.StateItem + slab.State(s) }

// SegmentOf is the segment in the tag of an item.
func SegmentOf(t slab.Tag) Segment { return Segment(t.State() - slab.StateItem) }

// Marks that the order keeps in an item's tag. The other marks are the
// store's.
const (
	// Fetched: read at least once since it was stored.
	Fetched slab.Tag = 1 << (slab.TagMarkShift + 0)
	// Active: read again, and not moved for it yet.
	Active slab.Tag = 1 << (slab.TagMarkShift + 1)
)

// Policy is how an order chooses.
type Policy uint8

const (
	// TinyLFU: an item leaves the window for probation only if it was asked
	// for at least as often as what would have to go for it.
	TinyLFU Policy = iota
	// Segmented: every item leaves the window for probation. It is what
	// memcached does, and shows what TinyLFU gains.
	Segmented
)

const (
	// The window has at least windowMinPct and at most windowMaxPct of a
	// class's items, and one item at least. It begins with S3-FIFO's 10 %.
	windowStartPct = 10
	windowMinPct   = 2
	windowMaxPct   = 60
	// windowStep is the factor by which the window grows or shrinks at a
	// time, and hitsPerStep how many hits are weighed for it.
	windowStep  = 1.05
	hitsPerStep = 512
	// protectedPct of the items outside the window may be protected. With
	// memcached's 40 a scan washes half of a hot set out.
	protectedPct = 75
	// luckyOneIn of the items that are less in demand than what would have
	// to go is admitted all the same, so that keys made to collide with
	// popular ones cannot lock others out.
	luckyOneIn = 128
	// movesPerInsertMax bounds what one store pays to put the lists in order.
	movesPerInsertMax = 3
	// victimScanMax bounds how many items that were read again are passed
	// over, and so saved, in the search for one victim.
	victimScanMax = 16
)

// list is a segment: its ends and its length.
type list struct {
	head, tail slab.Ref
	n          uint32
}

// Tuning is what an operator may change of an order. The zero value is
// Quarry's own way.
type Tuning struct {
	// Flat makes one list of each class, probation: new items enter at its
	// head, and what was read since then returns there from its tail.
	Flat bool
	// WindowPct of a class's items are in its window, instead of what is
	// weighed. 0 is not said.
	WindowPct float64
	// ProtectedPct of a class's items may be protected, instead of
	// protectedPct of those outside the window. 0 is not said.
	ProtectedPct float64
	// Eager moves what is read in probation to protected at once, and not only
	// when it would have to go.
	Eager bool
}

// Moves counts what happened to the items of a class.
type Moves struct {
	ToProbation uint64 // moves_to_cold
	ToProtected uint64 // moves_to_warm
	Within      uint64 // moves_within_lru: saved at a tail for having been read
	Admitted    uint64 // TinyLFU let in from the window, over a victim
	Rejected    uint64 // and did not
	HitsIn      [nSegments]uint64
}

// Items tells an order what it has to know of the items in it.
type Items interface {
	// HashOf is the hash of the key of item r.
	HashOf(r slab.Ref) uint64
	// AgeOf is how many items were stored since item r was, and r too.
	AgeOf(r slab.Ref) uint64
}

// class is the order of one class.
type class struct {
	seg   [nSegments]list
	stay  float64 // mean age at which items leave the window
	moves Moves
}

// items is their number, those that are temporary left out.
func (k *class) items() uint32 { return k.seg[Window].n + k.seg[Probation].n + k.seg[Protected].n }

// Order is the eviction order of one shard.
type Order struct {
	a       *slab.Arena
	of      Items
	policy  Policy
	sketch  *sketch
	n       int            // items
	inAll   [nSegments]int // of them, in each segment
	calm    int            // stores since somebody looked for a victim
	classes []class
	tuning  Tuning

	window   float64 // the window's part of a class, in percent
	oldHits  int     // hits in the older half of the window, in this step
	lowHits  int     // hits in probation, in this step
	contests int     // for a place outside the window, in this step
	rejected int     // of them, lost by the newcomer
	lucky    uint32  // state of a small random number generator
}

// New is the order of the items in arena a, divided into classes, which need
// not be the arena's. itemsMax bounds the address space of its sketch.
func New(a *slab.Arena, classes int, of Items, p Policy, itemsMax int64) (*Order, error) {
	o := &Order{a: a, of: of, policy: p, classes: make([]class, classes), window: windowStartPct, lucky: 1}
	var err error
	o.sketch, err = newSketch(itemsMax)
	return o, err
}

// Close gives the memory of the sketch back.
func (o *Order) Close() error { return o.sketch.mem.Release() }

// Insert puts item r at the head of the window of class c. Its tag becomes
// that of an item in the window; its marks stay.
func (o *Order) Insert(c int, r slab.Ref) {
	s := Window
	if o.tuning.Flat {
		s = Probation
	}
	o.insert(c, r, s)
}

// Stays reports whether an item with tag t keeps its place when a value is
// stored over its own, or goes to the head of the window as what is new does.
// It stays in protected: what readers have earned it is not lost by a write.
// And it stays anywhere while nothing had to go for as many stores as there are
// items: nobody asks then which is next.
func (o *Order) Stays(t slab.Tag) bool {
	s := SegmentOf(t)
	if s == Temporary || o.tuning.Flat {
		return false
	}
	if s != Protected && o.calm < o.n {
		return false
	}
	o.calm++
	return true
}

// Stay gives item r, which had tag t before a value was stored over its own,
// the place back that it had. Its links are as they were.
func (o *Order) Stay(r slab.Ref, t slab.Tag) {
	o.a.SetTag(r, o.a.Tag(r).WithState(t.State())|t&Active)
}

// Heir is what an item gets of the tag t of one with the same key that it takes
// the place of, in another chunk: the way back to protected.
func Heir(t slab.Tag) slab.Tag {
	if SegmentOf(t) != Protected {
		return 0
	}
	return Active
}

// InsertTemporary is Insert for an item that expires soon: it stays beside the
// others.
func (o *Order) InsertTemporary(c int, r slab.Ref) { o.insert(c, r, Temporary) }

func (o *Order) insert(c int, r slab.Ref, s Segment) {
	o.n++
	o.calm++
	o.sketch.grow(o.n)
	o.push(&o.classes[c], s, r)
	o.settle(&o.classes[c])
}

// Tune makes t hold from now on. The lists follow with what is stored.
func (o *Order) Tune(t Tuning) {
	o.tuning = t
	o.window = min(max(o.window, windowMinPct), windowMaxPct)
	if t.WindowPct != 0 {
		o.window = t.WindowPct
	}
}

// Hit notes that item r of class c, whose key hashes to h, was read. It
// returns the tag with the marks of the hit, which it has stored if it
// differs from t.
//
// What was read again since it last moved is not counted: it is or will be
// protected for that anyway, one count a turn of the list is enough, and that
// saves the sketch's cache line.
func (o *Order) Hit(c int, r slab.Ref, t slab.Tag, h uint64) slab.Tag {
	k := &o.classes[c]
	s := SegmentOf(t)
	k.moves.HitsIn[s]++
	hit := t | Fetched
	if t&Fetched != 0 || s != Window && !(o.tuning.Flat && o.isNew(r)) {
		hit |= Active
	}
	if t&(Fetched|Active) == Fetched|Active {
		return t
	}
	if hit != t {
		o.a.SetTag(r, hit)
	}
	o.sketch.add(h, o.n)
	switch {
	case s == Probation && hit != t:
		o.lowHits++
		o.weigh()
		if o.tuning.Eager && hit&Active != 0 {
			hit &^= Active
			o.move(k, r, hit, Protected)
			hit = hit.WithState(Protected.state())
		}
	case s == Window && t&Fetched == 0 && float64(o.of.AgeOf(r)) > k.stay/2:
		o.oldHits++
		o.weigh()
	}
	return hit
}

// Prefetch brings what Hit and Miss look at for hash h into the cache.
func (o *Order) Prefetch(h uint64) { o.sketch.mem.Prefetch(o.sketch.block(spread(h))) }

// isNew reports whether item r is among the half of all that was stored last:
// in a flat order a first read is forgiven then, as in the window.
func (o *Order) isNew(r slab.Ref) bool { return 2*o.of.AgeOf(r) <= uint64(o.n) }

// weigh compares what a place at the end of the window earns with what one
// in probation earns, and gives the window more or less.
func (o *Order) weigh() {
	if o.oldHits+o.lowHits < hitsPerStep {
		return
	}
	if o.tuning.Flat || o.tuning.WindowPct != 0 {
		o.startStep()
		return
	}
	old := float64(o.oldHits) / float64(o.inAll[Window]/2+1) * float64(o.rejected) / float64(o.contests+1)
	low := float64(o.lowHits) / float64(o.inAll[Probation]+1)
	if old > low {
		o.window = min(o.window*windowStep, windowMaxPct)
	} else {
		o.window = max(o.window/windowStep, windowMinPct)
	}
	o.startStep()
}

// startStep begins to weigh anew.
func (o *Order) startStep() {
	o.oldHits, o.lowHits = 0, 0
	o.rejected, o.contests = 0, 0
}

// Miss notes that a key that hashes to h was asked for and is not there.
func (o *Order) Miss(h uint64) { o.sketch.add(h, o.n) }

// Remove takes item r of class c out of the order.
func (o *Order) Remove(c int, r slab.Ref) {
	o.n--
	o.unlink(&o.classes[c], SegmentOf(o.a.Tag(r)), r)
}

// Victim is the item of class c that should go next, or 0 when the class has
// none. It stays in the order until Remove. The search moves items out of its
// way, a bounded number of them: those that were read again, and one that is
// admitted from the window.
func (o *Order) Victim(c int) slab.Ref {
	k := &o.classes[c]
	o.calm = 0
	windowMax := o.windowMax(k)
	for range victimScanMax {
		if o.policy != TinyLFU || o.tuning.Flat || k.seg[Window].n <= windowMax {
			break
		}
		r := k.seg[Window].tail
		t := o.a.Tag(r)
		if t&Active != 0 {
			o.leaveWindow(k, r, t)
			continue
		}
		v := o.mainVictim(k)
		if v == 0 {
			return r
		}
		o.contests++
		if !o.admits(r, v) {
			o.rejected++
			k.moves.Rejected++
			o.noteStay(k, r)
			return r
		}
		k.moves.Admitted++
		o.leaveWindow(k, r, t)
		return v
	}
	v, w := o.mainVictim(k), k.seg[Window].tail
	if w != 0 && (v == 0 || o.a.Tag(v)&Active != 0 && o.a.Tag(w)&Active == 0) {
		return w // the search has given up among items that were read again
	}
	if v == 0 {
		return k.seg[Temporary].tail
	}
	return v
}

// mainVictim is the item that should go next of those that are not in the
// window.
func (o *Order) mainVictim(k *class) slab.Ref {
	for range victimScanMax {
		r := k.seg[Probation].tail
		if r == 0 {
			break
		}
		t := o.a.Tag(r)
		if t&Active == 0 {
			return r
		}
		if o.tuning.Flat {
			o.move(k, r, t&^Active, Probation)
			continue
		}
		o.move(k, r, t&^Active, Protected)
	}
	if r := k.seg[Probation].tail; r != 0 {
		return r
	}
	return k.seg[Protected].tail
}

// admits decides whether item r, at the end of the window, is worth more than
// v. Of two that were asked for equally often the newer one stays.
func (o *Order) admits(r, v slab.Ref) bool {
	if o.sketch.count(o.of.HashOf(r)) >= o.sketch.count(o.of.HashOf(v)) {
		return true
	}
	o.lucky = o.lucky*1664525 + 1013904223 // Knuth's and Lewis's generator
	return o.lucky>>16%luckyOneIn == 0
}

// windowMax is how many items of a class its window may have.
func (o *Order) windowMax(k *class) uint32 {
	if o.tuning.Flat {
		return 0
	}
	return max(1, uint32(float64(k.items())*o.window/100))
}

// leaveWindow moves the last item of the window, with tag t, on.
func (o *Order) leaveWindow(k *class, r slab.Ref, t slab.Tag) {
	o.noteStay(k, r)
	if t&Active != 0 && !o.tuning.Flat {
		o.move(k, r, t&^Active, Protected)
	} else {
		o.move(k, r, t, Probation)
	}
}

// noteStay notes how old item r is, which is about to leave the window.
func (o *Order) noteStay(k *class, r slab.Ref) {
	const weight = 1.0 / 16
	k.stay += (float64(o.of.AgeOf(r)) - k.stay) * weight
}

// Moved tells the order that the item of class c at from is at to, with all
// its bytes copied, links and tag included.
func (o *Order) Moved(c int, from, to slab.Ref) {
	l := &o.classes[c].seg[SegmentOf(o.a.Tag(to))]
	if p := o.a.Prev(to); p != 0 {
		o.a.SetNext(p, to)
	} else {
		l.head = to
	}
	if n := o.a.Next(to); n != 0 {
		o.a.SetPrev(n, to)
	} else {
		l.tail = to
	}
}

// Len is the number of items of class c in segment s.
func (o *Order) Len(c int, s Segment) int { return int(o.classes[c].seg[s].n) }

// Items is the number of items of class c.
func (o *Order) Items(c int) int {
	k := &o.classes[c]
	return int(k.items() + k.seg[Temporary].n)
}

// Tail is the last item of class c in segment s, 0 when there is none.
func (o *Order) Tail(c int, s Segment) slab.Ref { return o.classes[c].seg[s].tail }

// Head is the first item of class c in segment s, 0 when there is none. The
// others follow by the arena's Next.
func (o *Order) Head(c int, s Segment) slab.Ref { return o.classes[c].seg[s].head }

// Moves are the counts of class c.
func (o *Order) Moves(c int) *Moves { return &o.classes[c].moves }

// ResetMoves sets all counts to zero.
func (o *Order) ResetMoves() {
	for c := range o.classes {
		o.classes[c].moves = Moves{}
	}
}

// WindowPct is the window's part of each class at present, in percent.
func (o *Order) WindowPct() float64 { return o.window }

// SketchBytes is the memory that the sketch takes.
func (o *Order) SketchBytes() int64 { return o.sketch.bytes() }

// windowSlack is how many items more than its part the window may have before
// they leave it without a contest: their class has room then, for nobody has
// looked for a victim.
const windowSlack = 2

// settle takes what is too much out of protected, and of the window what no
// search for a victim has taken.
func (o *Order) settle(k *class) {
	windowMax := o.windowMax(k)
	if o.policy == TinyLFU && !o.tuning.Flat {
		windowMax += windowSlack
	}
	n := k.items()
	protectedMax := ((n-min(n, windowMax))*protectedPct + 99) / 100
	if t := &o.tuning; t.Flat {
		protectedMax = 0
	} else if t.ProtectedPct != 0 {
		protectedMax = uint32(float64(n) * t.ProtectedPct / 100)
	}
	for range movesPerInsertMax {
		switch {
		case k.seg[Window].n > windowMax:
			r := k.seg[Window].tail
			o.leaveWindow(k, r, o.a.Tag(r))
		case k.seg[Protected].n > protectedMax:
			r := k.seg[Protected].tail
			if t := o.a.Tag(r); t&Active != 0 && !o.tuning.Flat {
				o.move(k, r, t&^Active, Protected)
			} else {
				o.move(k, r, t, Probation)
			}
		default:
			return
		}
	}
}

// move takes r, which has tag t from now on, to the head of segment to.
func (o *Order) move(k *class, r slab.Ref, t slab.Tag, to Segment) {
	from := SegmentOf(t)
	switch {
	case from == to:
		k.moves.Within++
	case to == Probation:
		k.moves.ToProbation++
	default:
		k.moves.ToProtected++
	}
	o.unlink(k, from, r)
	o.a.SetTag(r, t)
	o.push(k, to, r)
}

func (o *Order) push(k *class, s Segment, r slab.Ref) {
	l := &k.seg[s]
	o.a.SetTag(r, o.a.Tag(r).WithState(s.state()))
	o.a.SetPrev(r, 0)
	o.a.SetNext(r, l.head)
	if l.head != 0 {
		o.a.SetPrev(l.head, r)
	} else {
		l.tail = r
	}
	l.head = r
	l.n++
	o.inAll[s]++
}

func (o *Order) unlink(k *class, s Segment, r slab.Ref) {
	l := &k.seg[s]
	next, prev := o.a.Next(r), o.a.Prev(r)
	if prev != 0 {
		o.a.SetNext(prev, next)
	} else {
		l.head = next
	}
	if next != 0 {
		o.a.SetPrev(next, prev)
	} else {
		l.tail = prev
	}
	l.n--
	o.inAll[s]--
}
