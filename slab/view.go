package slab

import "fmt"

// ClassUse is how one class of an arena is used.
type ClassUse struct {
	Pages, Used, Free int // Free counts chunks not carved yet too
	Uncarved          int // of the free chunks, those
}

// Use tells how class c is used.
func (a *Arena) Use(c int) ClassUse {
	k := &a.classes[c]
	u := ClassUse{Pages: k.nPages, Used: k.nUsed, Free: k.nPages*a.table.PerPage(c) - k.nUsed}
	for _, n := range [...]uint32{k.carve, a.emptying} {
		if n != 0 && int(a.pages[n].class) == c {
			u.Uncarved += a.table.PerPage(c) - int(a.pages[n].carved)
		}
	}
	return u
}

// Pages is the number of the highest page taken so far, and one: pages are
// numbered from 1.
func (a *Arena) Pages() uint32 { return uint32(len(a.pages)) }

// IdlePages is the number of pages that are held but belong to no class.
func (a *Arena) IdlePages() int { return len(a.idle) }

// HeldBytes is what the arena has of the budget.
func (a *Arena) HeldBytes() int64 {
	return int64(len(a.pages)-1-len(a.returned)) * int64(a.table.pageBytes)
}

// HasRoom reports whether Alloc(c) would find a chunk without taking a page.
func (a *Arena) HasRoom(c int) bool { return a.classes[c].free != 0 || a.classes[c].carve != 0 }

// Chunks are the carved chunks of a page, in address order.
type Chunks struct {
	Class int // -1: the page belongs to no class, and N is 0
	First Ref
	Step  Ref // from a chunk to the next
	N     int
}

// At is the i-th chunk.
func (c Chunks) At(i int) Ref { return c.First + Ref(i)*c.Step }

// Page tells what page n is cut into. n is below Pages.
func (a *Arena) Page(n uint32) Chunks {
	p := &a.pages[n]
	if p.class == none {
		return Chunks{Class: -1}
	}
	return Chunks{
		Class: int(p.class),
		First: Ref(n << a.shift),
		Step:  Ref(a.table.bytes[p.class] >> 3),
		N:     int(p.carved),
	}
}

// UsedIn is the number of chunks of page n that are not free.
func (a *Arena) UsedIn(n uint32) int { return int(a.pages[n].used) }

// Check recounts the arena from its pages and free lists, and returns every
// difference to what the arena believes.
func (a *Arena) Check() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("slab: "+format, args...)) }

	inList := make(map[Ref]bool)
	for c := range a.classes {
		k := &a.classes[c]
		n, prev := 0, Ref(0)
		for r := k.free; r != 0; prev, r = r, a.Next(r) {
			if inList[r] {
				bad("class %d: chunk %d is in the free list twice", c, r)
				break
			}
			inList[r] = true
			n++
			if a.Tag(r).State() != StateFree {
				bad("class %d: chunk %d in the free list has state %d", c, r, a.Tag(r).State())
			}
			if a.Prev(r) != prev {
				bad("class %d: chunk %d has prev %d, want %d", c, r, a.Prev(r), prev)
			}
			if a.ClassOf(r) != c {
				bad("class %d: chunk %d in the free list is of class %d", c, r, a.ClassOf(r))
			}
		}
		if n != k.nFree {
			bad("class %d: %d free chunks counted, list has %d", c, k.nFree, n)
		}
	}

	nPages := make([]int, len(a.classes))
	nUsed := make([]int, len(a.classes))
	nEmpty, held := 0, 0
	for i := 1; i < len(a.pages); i++ {
		p := &a.pages[i]
		if p.backed {
			held++
		}
		chunks := a.Page(uint32(i))
		if chunks.Class < 0 {
			continue
		}
		if !p.backed {
			bad("page %d of class %d is not in the budget", i, p.class)
		}
		used := 0
		for j := range chunks.N {
			r := chunks.At(j)
			free := a.Tag(r).State() == StateFree
			if listed := free && uint32(i) != a.emptying; listed != inList[r] {
				bad("page %d: chunk %d: free %t, in the free list %t", i, r, free, inList[r])
			} else if !free {
				used++
			}
		}
		if used != int(p.used) {
			bad("page %d of class %d: %d used counted, %d found", i, p.class, p.used, used)
		}
		if int(p.carved) < a.table.PerPage(chunks.Class) && uint32(i) != a.emptying && a.classes[p.class].carve != uint32(i) {
			bad("page %d of class %d: carved %d of %d, and nobody goes on", i, p.class, p.carved, a.table.PerPage(chunks.Class))
		}
		if used == 0 && uint32(i) != a.emptying {
			nEmpty++
		}
		nPages[chunks.Class]++
		nUsed[chunks.Class] += used
	}
	for c := range a.classes {
		if k := &a.classes[c]; k.nPages != nPages[c] || k.nUsed != nUsed[c] {
			bad("class %d: %d pages and %d used counted, %d and %d found", c, k.nPages, k.nUsed, nPages[c], nUsed[c])
		}
	}
	if nEmpty != a.nEmpty {
		bad("%d empty pages counted, %d found", a.nEmpty, nEmpty)
	}
	if got := len(a.pages) - 1 - len(a.returned); got != held {
		bad("%d pages held, %d found", got, held)
	}
	for _, n := range a.idle {
		if p := a.pages[n]; p.class != none || !p.backed {
			bad("idle page %d: class %d, backed %t", n, p.class, p.backed)
		}
	}
	return errs
}
