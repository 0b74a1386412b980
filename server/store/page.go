package store

import (
	"github.com/quarrycache/quarry/slab"
)

// allocOrRelieve is alloc, but when the shard has nothing left to give, others
// are asked. The shard may be unlocked meanwhile (relieved), so what was looked
// up in it before is worth nothing afterwards; chunks that the caller holds
// stay.
func (sh *shard) allocOrRelieve(c int, now Time) (r slab.Ref, relieved bool) {
	if r = sh.alloc(c, now); r != 0 {
		return r, false
	}
	for range relieveTriesMax {
		if !sh.relieve(now) {
			break
		}
		if r = sh.alloc(c, now); r != 0 {
			break
		}
	}
	return r, true
}

// relieveTriesMax bounds how often a page that another shard gave up may be
// snatched away by a third.
const relieveTriesMax = 16

// relieve makes the shard that holds most memory give a page back to the
// budget. Never are two shards locked at once.
func (sh *shard) relieve(now Time) bool {
	if sh.s.cfg.NoEvict || len(sh.s.shards) == 1 {
		return false
	}
	filling := sh.filling
	sh.filling = 0 // what others do meanwhile is not for this fill
	sh.unlock()
	defer func() { sh.lock(); sh.now, sh.filling = now, filling }()
	rich := sh.s.richest(sh)
	rich.lock()
	defer rich.unlock()
	rich.enter(now)
	if rich.a.IdlePages() == 0 && !rich.stealPage(-1, now) {
		return false
	}
	rich.a.ReturnIdle(rich.a.IdlePages() - 1)
	return true
}

// move is a page on its way out of its slab class. It is emptied a few chunks
// at a time: each item in it moves to a free chunk of the class elsewhere, and
// while there is none, what should go next in the class goes. Meanwhile its
// items are found as ever.
type move struct {
	page uint32 // 0: none is under way
	next int    // the first of its chunks not looked at
	to   int    // slab class that gets it; -1: whoever needs one first
	busy Abort  // a chunk that was passed over in this round, and why
}

// moveChunksAStep bounds the chunks that leave a page in one step: some 10 µs.
const moveChunksAStep = 16

// startMove begins to empty page n of some class, for class to.
func (sh *shard) startMove(n uint32, to int) {
	sh.a.BeginEmptying(n)
	sh.move = move{page: n, to: to}
}

// moveStep lets at most chunks chunks leave the page under way. A page in
// which something is being written or sent stays where it is.
func (sh *shard) moveStep(chunks int, now Time) {
	m := &sh.move
	page := sh.a.Page(m.page)
	for ; m.next < page.N && chunks > 0; chunks-- {
		if why := sh.vacate(page.Class, page.At(m.next), now); why != AbortNone {
			sh.n.movesAborted++
			if sh.s.cfg.CompatSlabs {
				m.busy = max(m.busy, why)
				m.next++
				continue
			}
			sh.s.lastAbort.Store(uint32(why))
			sh.tellMove(page.Class, false, now)
			sh.a.AbortEmptying()
			sh.stuckAt = m.page
			*m = move{}
			return
		}
		m.next++
	}
	if m.next < page.N {
		return
	}
	if m.busy != AbortNone { // it waits
		sh.s.lastAbort.Store(uint32(m.busy))
		m.next, m.busy = 0, AbortNone
		return
	}
	sh.tellMove(page.Class, true, now)
	sh.a.FinishEmptying()
	sh.n.pagesMoved++
	sh.stuckAt = 0
	switch {
	case m.to >= 0:
		sh.a.Assign(m.to)
	case sh.s.cfg.CompatSlabs && sh.s.over():
		sh.a.ReturnIdle(sh.a.IdlePages() - 1)
	}
	*m = move{}
}

// vacate frees chunk r of class c, which is in the page under way, or tells why
// it cannot: r is being written or sent.
func (sh *shard) vacate(c int, r slab.Ref, now Time) Abort {
	for {
		state := sh.a.Tag(r).State()
		if state == slab.StateFree {
			return AbortNone
		}
		head := r
		if state == slab.StatePiece {
			head = sh.a.Prev(r)
		}
		if s := sh.a.Tag(head).State(); s >= slab.StateItem && sh.pins[head] > 0 && sh.isGone(head, now) {
			sh.evict(head, now) // nobody else is to see it
		}
		if why := sh.busy(head); why != AbortNone {
			return why
		}
		switch {
		case sh.isGone(head, now):
			sh.evict(head, now)
		case !sh.a.HasRoom(c):
			sh.n.movesWithoutRoom++
			victim := sh.nextVictim(c)
			if victim == 0 {
				victim = head
			}
			if sh.isFilled(victim) {
				return AbortUploading
			}
			sh.evict(victim, now)
		case state == slab.StatePiece:
			sh.movePiece(r)
		default:
			sh.moveItem(r)
		}
	}
}

// Abort is why a page could not move.
type Abort uint8

const (
	AbortNone      Abort = iota
	AbortSending         // something in it was being sent
	AbortUploading       // something in it was being written
	AbortGone            // something in it was being sent that is gone for everyone else
)

// busy tells why the item or the upload whose first chunk is r must stay where
// it is.
func (sh *shard) busy(r slab.Ref) Abort {
	switch state := sh.a.Tag(r).State(); {
	case state == slab.StatePinned:
		return AbortGone
	case len(sh.pins) > 0 && sh.pins[r] > 0:
		return AbortSending
	case state < slab.StateItem:
		return AbortUploading
	}
	return AbortNone
}

// stealPage gets a page for slab class c (-1: for whoever needs one) from
// another, at once: from the one in which a page earns least. False: no page
// can be had.
func (sh *shard) stealPage(c int, now Time) bool {
	step := sh.beginStep("page_taken")
	defer sh.endStep(&step)
	tries := make([]uint8, sh.s.table.Len())
	not := make([]bool, sh.s.table.Len())
	if c >= 0 {
		not[c] = true
	}
	for {
		moved := sh.n.pagesMoved
		sh.move.to = c // whoever it was for: the need is here
		for sh.move.page != 0 {
			sh.moveStep(moveChunksAStep, now)
		}
		if sh.n.pagesMoved > moved {
			return true
		}
		donor := sh.donor(not)
		if donor < 0 {
			return false
		}
		tries[donor]++
		not[donor] = tries[donor] == stealTriesMax
		if n := sh.pageOf(donor); n != 0 {
			sh.startMove(n, c)
		}
	}
}

// stealTriesMax bounds how many pages of a class are tried when something in
// them is being sent or written.
const stealTriesMax = 8

// donor is the slab class in which a page earns least, of those that have a
// page and are not in not; -1 when there is none.
func (sh *shard) donor(not []bool) int {
	donor, most := -1, -1.0
	for d := range sh.s.table.Len() {
		if not[d] || sh.a.Use(d).Pages == 0 {
			continue
		}
		if _, cost := sh.dearest(d); cost > most {
			donor, most = d, cost
		}
	}
	return donor
}

// pageOf chooses a page of slab class d to be emptied: the one of the item
// that goes next. If the last move was given up, it is the page behind that
// one, so that a page in which something is sent for long does not hold up
// all others. 0: the class has none.
func (sh *shard) pageOf(d int) uint32 {
	if r := sh.victim(d); r != 0 && sh.stuckAt == 0 {
		return sh.a.PageOf(r)
	}
	for i := range sh.a.Pages() - 1 {
		n := 1 + (sh.stuckAt+i)%(sh.a.Pages()-1)
		if sh.a.Page(n).Class == d {
			return n
		}
	}
	return 0
}

// copyChunk moves all bytes of chunk r to a new chunk of its class, for which
// there is room.
func (sh *shard) copyChunk(r slab.Ref) slab.Ref {
	to, ok := sh.a.Alloc(sh.a.ClassOf(r))
	if !ok {
		panic("store: no chunk in a class that has room")
	}
	// The tag last: until then nobody who finds both takes the copy for whole.
	n := sh.a.ChunkBytes(r) - slab.NextOff
	copy(sh.a.Bytes(to.Off()+slab.NextOff, n), sh.a.Bytes(r.Off()+slab.NextOff, n))
	sh.a.SetTag(to, sh.a.Tag(r))
	return to
}

// moveItem moves the first chunk of an item.
func (sh *shard) moveItem(r slab.Ref) {
	h := sh.HashOf(r)
	to := sh.copyChunk(r)
	it := sh.item(to)
	sh.order.Moved(sh.orderClass(it), r, to)
	sh.idx.replace(h, r, to)
	if it.tag&chained != 0 {
		for p := it.firstPiece(); p != 0; p = sh.a.Next(p) {
			sh.a.SetPrev(p, to)
		}
		sh.n.piecesMoved++ // a part of an item, not all of it
	} else {
		sh.n.itemsMoved++
	}
	sh.noteExpiry(it)
	sh.a.Free(r)
}

// movePiece moves a piece of a large item.
func (sh *shard) movePiece(r slab.Ref) {
	it := sh.item(sh.a.Prev(r))
	to := sh.copyChunk(r)
	if it.firstPiece() == r {
		it.setFirstPiece(to)
	} else {
		p := it.firstPiece()
		for sh.a.Next(p) != r {
			p = sh.a.Next(p)
		}
		sh.a.SetNext(p, to)
	}
	sh.a.Free(r)
	sh.n.piecesMoved++
}
