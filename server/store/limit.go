package store

import (
	"errors"
	"fmt"
	"runtime"
)

// The limit can be changed while the store is in use, and pages can be moved
// by hand. Both go on in the background, in steps.
const (
	// shrinkStepsATick bounds how much of the background is spent on pages
	// that are over the limit: some ms of each tick.
	shrinkStepsATick = 512
	// moveStepsATick is the same for a page moved by hand.
	moveStepsATick = 64
)

// LimitMax is what SetLimit can raise the limit to: address space was
// reserved for as much.
func (s *Store) LimitMax() int64 {
	return int64(len(s.shards)) * s.cfg.reserveBytes()
}

// SetLimit changes the limit on item pages. A higher one holds at once; for a
// lower one, Background evicts until it is reached. The limit of a store with a
// File is the file's.
func (s *Store) SetLimit(limit int64) error {
	if s.file != nil {
		return errLimitFixed
	}
	least := int64(len(s.shards)*s.cfg.PageBytes) * s.cfg.pagesMin()
	if limit < least || limit > s.LimitMax() {
		return fmt.Errorf("store: limit of %d bytes: want %d to %d", limit, least, s.LimitMax())
	}
	s.budget.SetLimit(limit)
	return nil
}

var errLimitFixed = errors.New("store: the limit of a store in a file does not change")

// SetAutomove says whether pages move to where they earn most (they do from
// the start), or only when a class has nothing to give.
func (s *Store) SetAutomove(on bool) { s.automove.Store(on) }

// over reports whether more is taken than the limit allows.
func (s *Store) over() bool { return s.budget.Taken() > s.budget.Limit() }

// shrink takes pages back while more are taken than the limit allows: idle
// ones first. A store that may not evict gives no others, nor does one with
// memcached's slabs.
func (s *Store) shrink(now Time) {
	for _, sh := range s.shards {
		sh.lock()
		for s.over() && sh.a.IdlePages() > 0 {
			sh.a.ReturnIdle(sh.a.IdlePages() - 1)
		}
		sh.unlock()
	}
	for range shrinkStepsATick {
		if !s.over() || s.cfg.NoEvict || s.cfg.CompatSlabs {
			return
		}
		sh := s.richest(nil)
		sh.lock()
		sh.enter(now)
		st := sh.beginStep("shrink")
		ok := sh.giveBack(now)
		sh.endStep(&st)
		sh.unlock()
		if !ok {
			return
		}
		runtime.Gosched()
	}
}

// giveBack does a step towards giving a page back to the budget.
func (sh *shard) giveBack(now Time) bool {
	switch {
	case sh.a.IdlePages() > 0:
		sh.a.ReturnIdle(sh.a.IdlePages() - 1)
		return true
	case sh.move.page != 0:
		sh.move.to = -1
		sh.moveStep(moveChunksAStep, now)
		return true
	}
	donor := sh.donor(make([]bool, sh.s.table.Len()))
	if donor < 0 {
		return false
	}
	n := sh.pageOf(donor)
	if n == 0 {
		return false
	}
	sh.startMove(n, -1)
	return true
}

// richest is the shard that holds most memory, other than not.
func (s *Store) richest(not *shard) *shard {
	var rich *shard
	most := int64(-1)
	for _, sh := range s.shards {
		if sh == not {
			continue
		}
		sh.lock()
		if held := sh.a.HeldBytes(); held > most {
			rich, most = sh, held
		}
		sh.unlock()
	}
	return rich
}

// goOnMoving lets the page that is under way in a shard get on, also when
// nobody needs room.
func (s *Store) goOnMoving(sh *shard, now Time) {
	for range moveStepsATick {
		sh.lock()
		sh.enter(now)
		under := sh.move.page != 0
		if under {
			st := sh.beginStep("page_move")
			sh.moveStep(moveChunksAStep, now)
			sh.endStep(&st)
		}
		sh.unlock()
		if !under {
			return
		}
		runtime.Gosched()
	}
}

// Reassigned is the outcome of Reassign.
type Reassigned uint8

// What Reassign answers.
const (
	ReassignOK       Reassigned = iota // the page is on its way
	ReassignBusy                       // another page is, in every shard that could give one
	ReassignBadClass                   // no such class
	ReassignNoSpare                    // the class has no page to spare
	ReassignSame                       // from and to are the same
)

// Reassign begins to move a page from class from to class to, as they are
// numbered in Stats, from 1. From -1 is the class that can spare one best. 0
// is the idle pages: one of them goes to a class at once, or one more is made.
func (s *Store) Reassign(from, to int) Reassigned {
	if from == to {
		return ReassignSame
	}
	n := s.table.Len()
	if from < -1 || from > n || to < 0 || to > n {
		return ReassignBadClass
	}
	res := ReassignNoSpare
	for _, sh := range s.shards {
		sh.lock()
		switch got := sh.reassign(from, to); {
		case got == ReassignOK:
			sh.unlock()
			select {
			case s.wake <- struct{}{}:
			default: // it is awake
			}
			return got
		case got == ReassignBusy:
			res = got
		}
		sh.unlock()
	}
	return res
}

// sparePagesMin is how many pages a class must have to spare one. Source:
// memcached's slab_rebalance_start.
const sparePagesMin = 2

func (sh *shard) reassign(from, to int) Reassigned {
	if from == 0 {
		if sh.a.IdlePages() >= sparePagesMin && sh.a.Assign(to-1) {
			return ReassignOK
		}
		return ReassignNoSpare
	}
	if sh.move.page != 0 {
		return ReassignBusy
	}
	not := make([]bool, sh.s.table.Len())
	for d := range not {
		not[d] = d == to-1 || sh.a.Use(d).Pages < sparePagesMin || from > 0 && d != from-1
	}
	donor := sh.donor(not)
	if donor < 0 {
		return ReassignNoSpare
	}
	n := sh.pageOf(donor)
	if n == 0 {
		return ReassignNoSpare
	}
	sh.startMove(n, to-1)
	return ReassignOK
}
