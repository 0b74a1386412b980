package store

import "github.com/quarrycache/quarry/slab"

// FlushAll makes all items gone that are stored now, or that are stored when
// the second at comes (0: now). It touches none of them: items know by their
// CAS whether they were stored before the mark. The sweeper takes their
// memory back.
func (s *Store) FlushAll(at uint32, now Time) {
	for _, sh := range s.shards {
		sh.lock()
		step := sh.beginStep("flush")
		sh.enter(now)
		if at > now.Seconds() {
			sh.flushAt = at
			sh.keepMarks()
		} else {
			sh.flush()
		}
		sh.endStep(&step)
		sh.unlock()
	}
}

// enter is called first when something is done with the shard: it lets a flush
// whose time has come happen.
func (sh *shard) enter(now Time) {
	sh.now = now
	if sh.flushAt != 0 && now.Seconds() >= sh.flushAt {
		sh.flush()
	}
}

// flush puts the mark behind everything stored so far.
func (sh *shard) flush() {
	sh.change()
	sh.flushAt = 0
	sh.flushed = sh.casOf(sh.seq)
	sh.settleMarks()
	sh.noteAllChanged()
	sh.keepMarks()
	sh.endTokens()
	sh.sweepAll()
	sh.freeExplicit(func(item) bool { return true })
}

// settleMarks is called when a mark has changed.
func (sh *shard) settleMarks() { sh.marked = sh.highestMark() }

// highestMark is that of the marks with a CAS of their own. Rebased is not
// among them: only items with an extra header are asked for it.
func (sh *shard) highestMark() uint64 {
	m := max(sh.flushed, sh.withheld)
	if sh.owned != nil {
		m = max(m, sh.owned.highest)
	}
	return m
}

// sweepAll makes the sweeper look at every item.
func (sh *shard) sweepAll() {
	sh.earliest = append(sh.earliest[:0], make([]uint32, sh.a.Pages())...)
	sh.dueAt = 0
}

// freeExplicit frees those of the items that gone chooses whose CAS was given
// by a client, and so says nothing of when they were stored. Only caches that
// use E have any.
func (sh *shard) freeExplicit(gone func(it item) bool) {
	for n := uint32(1); n < sh.a.Pages() && sh.explicit > 0; n++ {
		chunks := sh.a.Page(n)
		for i := range chunks.N {
			it := sh.item(chunks.At(i))
			if it.tag.State() >= slab.StateItem && it.tag&explicitCAS != 0 && gone(it) {
				sh.unlink(it, sh.HashOf(it.r))
			}
			// The page may have left its class with its last item.
			if sh.a.Page(n) != chunks {
				break
			}
		}
	}
}
