package lru

import "github.com/quarrycache/quarry/slab"

// Segment is one of the lists of a class.
type Segment uint8

// The segments of a class. In memcached's terms the window is HOT, protected
// is WARM and probation is COLD.
const (
	Window Segment = iota
	Probation
	Protected
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

const (
	// windowPercent of a class's items may be in the window, one item at
	// least. S3-FIFO's small queue is as long.
	windowPercent = 10
	// protectedPercent may be protected. memcached's warm_lru_pct is 40; with
	// 75 a hot set of half the cache stays whole through a scan.
	protectedPercent = 75
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

// Moves counts what happened to the items of a class.
type Moves struct {
	ToProbation uint64 // moves_to_cold
	ToProtected uint64 // moves_to_warm
	Within      uint64 // moves_within_lru: saved at a tail for having been read
	HitsIn      [3]uint64
}

// Order is the eviction order of one shard.
type Order struct {
	a     *slab.Arena
	lists [][nSegments]list
	moves []Moves
}

// New is the order of the items in arena a.
func New(a *slab.Arena) *Order {
	n := a.Classes().Len()
	return &Order{a: a, lists: make([][nSegments]list, n), moves: make([]Moves, n)}
}

// Insert puts item r, whose key hashes to h, at the head of the window of
// class c. Its tag becomes that of an item in the window; its marks stay.
func (o *Order) Insert(c int, r slab.Ref, h uint64) {
	o.push(c, Window, r)
	o.settle(c)
}

// Hit notes that item r of class c was read. It returns the tag with the
// marks of the hit, which it has stored if it differs from t.
func (o *Order) Hit(c int, r slab.Ref, t slab.Tag, h uint64) slab.Tag {
	s := SegmentOf(t)
	o.moves[c].HitsIn[s]++
	hit := t | Fetched
	if s != Window || t&Fetched != 0 {
		hit |= Active
	}
	if hit != t {
		o.a.SetTag(r, hit)
	}
	return hit
}

// Miss notes that a key that hashes to h was asked for and is not there.
func (o *Order) Miss(h uint64) {}

// Remove takes item r of class c out of the order.
func (o *Order) Remove(c int, r slab.Ref) {
	o.unlink(&o.lists[c][SegmentOf(o.a.Tag(r))], r)
}

// Victim is the item of class c that should go next, or 0 when the class has
// none. It stays in the order until Remove. The search moves items that were
// read again out of its way, a bounded number of them.
func (o *Order) Victim(c int) slab.Ref {
	k := &o.lists[c]
	for range victimScanMax {
		r := k[Probation].tail
		if r == 0 {
			break
		}
		t := o.a.Tag(r)
		if t&Active == 0 {
			return r
		}
		o.move(c, r, t&^Active, Protected)
	}
	if r := k[Window].tail; r != 0 && o.a.Tag(r)&Active == 0 {
		return r
	}
	for _, s := range [...]Segment{Probation, Window, Protected} {
		if r := k[s].tail; r != 0 {
			return r
		}
	}
	return 0
}

// Moved tells the order that the item at from now is at to, with all its
// bytes copied, links and tag included.
func (o *Order) Moved(c int, from, to slab.Ref) {
	l := &o.lists[c][SegmentOf(o.a.Tag(to))]
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
func (o *Order) Len(c int, s Segment) int { return int(o.lists[c][s].n) }

// Items is the number of items of class c.
func (o *Order) Items(c int) int {
	k := &o.lists[c]
	return int(k[Window].n + k[Probation].n + k[Protected].n)
}

// Tail is the last item of class c in segment s, 0 when there is none.
func (o *Order) Tail(c int, s Segment) slab.Ref { return o.lists[c][s].tail }

// Head is the first item of class c in segment s, 0 when there is none. The
// others follow by the arena's Next.
func (o *Order) Head(c int, s Segment) slab.Ref { return o.lists[c][s].head }

// Moves are the counts of class c.
func (o *Order) Moves(c int) *Moves { return &o.moves[c] }

// ResetMoves sets all counts to zero.
func (o *Order) ResetMoves() { clear(o.moves) }

// settle takes what is too much out of the window and out of protected.
func (o *Order) settle(c int) {
	k := &o.lists[c]
	n := k[Window].n + k[Probation].n + k[Protected].n
	windowMax := max(1, n*windowPercent/100)
	protectedMax := n * protectedPercent / 100
	for range movesPerInsertMax {
		switch {
		case k[Window].n > windowMax:
			r := k[Window].tail
			t := o.a.Tag(r)
			if t&Active != 0 {
				o.move(c, r, t&^Active, Protected)
			} else {
				o.move(c, r, t, Probation)
			}
		case k[Protected].n > protectedMax:
			r := k[Protected].tail
			t := o.a.Tag(r)
			if t&Active != 0 {
				o.move(c, r, t&^Active, Protected)
			} else {
				o.move(c, r, t, Probation)
			}
		default:
			return
		}
	}
}

// move takes r, which has tag t from now on, to the head of segment to.
func (o *Order) move(c int, r slab.Ref, t slab.Tag, to Segment) {
	from := SegmentOf(t)
	m := &o.moves[c]
	switch {
	case from == to:
		m.Within++
	case to == Probation:
		m.ToProbation++
	default:
		m.ToProtected++
	}
	o.unlink(&o.lists[c][from], r)
	o.a.SetTag(r, t)
	o.push(c, to, r)
}

func (o *Order) push(c int, s Segment, r slab.Ref) {
	l := &o.lists[c][s]
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
}

func (o *Order) unlink(l *list, r slab.Ref) {
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
}
