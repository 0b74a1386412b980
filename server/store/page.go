package store

import (
	"github.com/quarrycache/quarry/slab"
)

// allocOrRelieve is alloc, but when the shard has nothing left to give, others
// are asked. The shard may be unlocked meanwhile, so what was looked up in it
// before is worth nothing afterwards; chunks that the caller holds stay.
func (sh *shard) allocOrRelieve(c int, now Time) slab.Ref {
	for range relieveTriesMax {
		if r := sh.alloc(c, now); r != 0 {
			return r
		}
		if !sh.relieve(now) {
			return 0
		}
	}
	return 0
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
	sh.mu.Unlock()
	defer sh.mu.Lock()
	var rich *shard
	most := int64(0)
	for _, o := range sh.s.shards {
		o.mu.Lock()
		if held := o.a.HeldBytes(); o != sh && held > most {
			rich, most = o, held
		}
		o.mu.Unlock()
	}
	if rich == nil {
		return false
	}
	rich.mu.Lock()
	defer rich.mu.Unlock()
	if rich.a.IdlePages() == 0 && !rich.stealPage(-1, now) {
		return false
	}
	rich.a.ReturnIdle(rich.a.IdlePages() - 1)
	return true
}

// stealPage takes a page from another slab class than c (-1: any): the one in
// which a page earns least. What lived there is moved to the room that the
// items which should go next make. False: no page can be had.
func (sh *shard) stealPage(c int, now Time) bool {
	tried := make([]bool, sh.s.table.Len())
	if c >= 0 {
		tried[c] = true
	}
	for {
		donor, most := -1, -1.0
		for d := range tried {
			if tried[d] || sh.a.Use(d).Pages == 0 {
				continue
			}
			if _, score := sh.longest(d); score > most {
				donor, most = d, score
			}
		}
		if donor < 0 {
			return false
		}
		if n, ok := sh.pageToEmpty(donor); ok {
			sh.emptyPage(n, now)
			sh.n.pagesMoved++
			return true
		}
		tried[donor] = true
	}
}

// pageToEmpty chooses a page of class d all of whose chunks can leave: the
// one of the item that goes next, or else any.
func (sh *shard) pageToEmpty(d int) (uint32, bool) {
	if r := sh.victim(d); r != 0 {
		if n := sh.a.PageOf(r); sh.canEmpty(n) {
			return n, true
		}
	}
	for n := uint32(1); n < sh.a.Pages(); n++ {
		if sh.a.Page(n).Class == d && sh.canEmpty(n) {
			return n, true
		}
	}
	return 0, false
}

// canEmpty reports whether nothing in page n is being written or sent.
func (sh *shard) canEmpty(n uint32) bool {
	chunks := sh.a.Page(n)
	for i := range chunks.N {
		r := chunks.At(i)
		switch sh.a.Tag(r).State() {
		case slab.StateFree:
			continue
		case slab.StatePending, slab.StatePinned:
			return false
		case slab.StatePiece:
			r = sh.a.Prev(r) // its item
			if s := sh.a.Tag(r).State(); s == slab.StatePending || s == slab.StatePinned {
				return false
			}
		}
		if len(sh.pins) > 0 && sh.pins[r] > 0 {
			return false
		}
	}
	return true
}

// emptyPage takes page n, for which canEmpty holds, from its class. Each item
// in it moves to a free chunk of the class elsewhere; while there is none,
// the coldest of the class goes.
func (sh *shard) emptyPage(n uint32, now Time) {
	chunks := sh.a.Page(n)
	sh.a.BeginEmptying(n)
	for i := range chunks.N {
		r := chunks.At(i)
		for {
			state := sh.a.Tag(r).State()
			if state == slab.StateFree {
				break
			}
			if state >= slab.StateItem && sh.isGone(r, now) {
				sh.evict(r, now)
				break
			}
			if sh.a.HasRoom(chunks.Class) {
				if state == slab.StatePiece {
					sh.movePiece(r)
				} else {
					sh.moveItem(r)
				}
				break
			}
			victim := sh.victim(chunks.Class)
			if victim == 0 {
				victim = r
				if state == slab.StatePiece {
					victim = sh.a.Prev(r)
				}
			}
			sh.evict(victim, now)
		}
	}
	sh.a.FinishEmptying()
}

// copyChunk moves all bytes of chunk r to a new chunk of its class, for which
// there is room.
func (sh *shard) copyChunk(r slab.Ref) slab.Ref {
	to, ok := sh.a.Alloc(sh.a.ClassOf(r))
	if !ok {
		panic("store: no chunk in a class that has room")
	}
	n := sh.a.ChunkBytes(r)
	copy(sh.a.Bytes(to.Off(), n), sh.a.Bytes(r.Off(), n))
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
}
