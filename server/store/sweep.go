package store

import (
	"context"
	"runtime"
	"time"

	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// The sweeper takes the memory of expired and flushed items back without
// anybody reading them: it walks the pages in address order, and of those
// only the ones in which something has expired.
const (
	// sweepCycle is how long a walk over all pages may take. With the pause
	// below, memory is back within 10 s of expiry.
	sweepCycle = 8 * time.Second
	// sweepTick is how often a part of the cycle is done.
	sweepTick = 50 * time.Millisecond
	// sweepChunksMax bounds the chunks looked at, and sweepFreesMax the items
	// freed, while a shard's lock is held: some 10 µs.
	sweepChunksMax = 512
	sweepFreesMax  = 64
	// sweepPagesForRoom and sweepChunksForRoom bound the step that a store
	// does for itself when it needs room and something has expired.
	sweepPagesForRoom  = 64
	sweepChunksForRoom = 32
)

// sweep is where the sweeper is in a shard.
type sweep struct {
	page  uint32
	chunk int
	first uint32 // earliest expiry seen so far in the page
}

// Background does what has to be done in the background, a bounded step at a
// time, until ctx ends. clock tells the time.
func (s *Store) Background(ctx context.Context, clock func() Time) {
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.wake:
			for _, sh := range s.shards {
				s.goOnMoving(sh, clock())
			}
			continue
		}
		s.looks.Add(1)
		for _, sh := range s.shards {
			now := clock()
			if !s.noSweep.Load() {
				s.sweepPart(sh, now)
			}
			s.goOnMoving(sh, now)
			if s.cfg.CompatSlabs {
				s.shedPages(sh, now)
			}
		}
		s.shrink(clock())
	}
}

// SetSweep says whether Background frees what has expired (it does from the
// start), and whether that counts as reclaimed, and not as the sweeper's.
// Without, that memory comes back when someone asks for the item, or needs the
// room.
func (s *Store) SetSweep(on, asReclaimed bool) {
	s.noSweep.Store(!on)
	s.maintains.Store(asReclaimed)
}

// sweepPart walks the part of a shard that is due in one tick.
func (s *Store) sweepPart(sh *shard, now Time) {
	sh.lock()
	pages := int(sh.a.Pages())
	sh.unlock()
	ticks := int(sweepCycle / sweepTick)
	for left := (pages + ticks - 1) / ticks; left > 0; {
		sh.lock()
		st := sh.beginStep("sweep")
		left -= sh.sweepStep(left, sweepChunksMax, now)
		sh.endStep(&st)
		sh.unlock()
		runtime.Gosched() // a busy goroutine must not own the loop's P
	}
}

// Sweep walks all pages once, as Background does in a cycle. Tests and
// embedders without Background call it.
func (s *Store) Sweep(now Time) {
	for _, sh := range s.shards {
		sh.lock()
		sh.enter(now)
		for left := int(sh.a.Pages()); left > 0; {
			left -= sh.sweepStep(left, sweepChunksMax, now)
		}
		sh.unlock()
	}
}

// sweepStep does a bounded step, over at most pages pages and chunks chunks,
// and returns how many pages it has finished.
func (sh *shard) sweepStep(pages, chunks int, now Time) int {
	sh.enter(now)
	w := &sh.sweep
	done, looked, freed := 0, 0, 0
	for done < pages {
		if w.chunk == 0 && (w.page >= uint32(len(sh.earliest)) || sh.earliest[w.page] > now.Seconds()) {
			sh.nextPage(now)
			done++
			continue
		}
		if w.chunk == 0 {
			w.first = never
			sh.earliest[w.page] = never // those stored meanwhile note themselves
		}
		page := sh.a.Page(w.page)
		for w.chunk < page.N && looked < chunks && freed < sweepFreesMax {
			r := page.At(w.chunk)
			w.chunk++
			looked++
			it := sh.item(r)
			if it.tag.State() < slab.StateItem {
				continue
			}
			sh.classes[page.Class].sweepChecked++
			e := it.expiry()
			gone := isExpired(it, now.Seconds()) || sh.isFlushed(it)
			if sh.observer != nil {
				sh.tally.note(sh, it, gone, now)
			}
			if !gone {
				if e != 0 {
					w.first = min(w.first, e)
				}
				continue
			}
			sh.reclaim(it, sh.s.maintains.Load())
			freed++
			if now := sh.a.Page(w.page); now.Class != page.Class {
				w.chunk = now.N // the page left its class with its last item
				page = now
			}
		}
		if w.chunk < page.N {
			break // not through this page yet
		}
		sh.earliest[w.page] = min(sh.earliest[w.page], w.first)
		sh.nextPage(now)
		done++
		if looked >= chunks || freed >= sweepFreesMax {
			break
		}
	}
	return done
}

// nextPage goes on to the next page, or to the first one again.
func (sh *shard) nextPage(now Time) {
	sh.sweep.chunk = 0
	if sh.sweep.page++; sh.sweep.page >= sh.a.Pages() {
		sh.sweep.page = 0
		if sh.observer != nil {
			sh.tellSwept(now)
		}
		sh.dueAt = never
		for _, e := range sh.earliest {
			sh.dueAt = min(sh.dueAt, e)
		}
	}
}

// reclaim frees an expired or flushed item, which counts as reclaimed or as the
// sweeper's.
func (sh *shard) reclaim(it item, asReclaimed bool) {
	n := &sh.classes[sh.orderClass(it)]
	if asReclaimed {
		n.reclaimed++
	} else {
		n.sweepReclaimed++
	}
	if it.tag&lru.Fetched == 0 {
		n.expiredUnfetched++
	}
	sh.unlink(it, sh.HashOf(it.r))
}
