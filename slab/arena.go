package slab

import "fmt"

// none marks a page or a class as absent.
const none = 0xff

// page is what an arena knows of one page.
type page struct {
	class  uint8  // none: not given to a class
	backed bool   // counted in the budget
	carved uint16 // chunks cut off it so far, in address order
	used   uint16 // of them, not free
}

// class is the chunks of one size in one arena.
type class struct {
	free   Ref    // head of the list of freed chunks
	nFree  int    // its length
	carve  uint32 // the page being carved, 0 none
	nPages int
	nUsed  int
}

// Arena is the memory of one shard. It is not safe for concurrent use.
type Arena struct {
	*Memory
	table   *Classes
	budget  *Budget
	shift   uint // a Ref shifted right by it is the page's number
	pages   []page
	classes []class

	ledger   *Ledger  // of the pages, nil: nothing of the arena outlives it
	keeps    bool     // see KeepPages
	idle     []uint32 // pages of no class, in the budget
	returned []uint32 // pages of no class, given back to the budget
	nEmpty   int      // pages of a class with no chunk in use
	emptying uint32   // page between BeginEmptying and FinishEmptying, else 0
}

// idlePagesMax bounds the pages that an arena keeps for itself while no class
// wants them. More go back to the budget and to the system.
const idlePagesMax = 16

// NewArena reserves address space for at most reserve bytes of pages (at
// most ArenaMaxBytes) and takes nothing of it yet.
func NewArena(t *Classes, b *Budget, reserve int64) (*Arena, error) {
	m, err := Reserve(arenaBytes(t, reserve))
	if err != nil {
		return nil, err
	}
	return newArena(t, b, m), nil
}

// arenaBytes is the address space that an arena needs for reserve bytes of
// pages.
func arenaBytes(t *Classes, reserve int64) int64 {
	pageBytes := int64(t.pageBytes)
	// Page 0 is never used: Ref 0 is no chunk.
	return min(reserve/pageBytes*pageBytes+pageBytes, ArenaMaxBytes)
}

func newArena(t *Classes, b *Budget, m *Memory) *Arena {
	a := &Arena{Memory: m, table: t, budget: b, pages: make([]page, 1, 64)}
	a.pages[0].class = none
	for 1<<(a.shift+3) < t.pageBytes {
		a.shift++
	}
	a.classes = make([]class, t.Len())
	return a
}

// Close gives all memory back. The arena is of no use afterwards.
func (a *Arena) Close() error {
	for i := range a.pages {
		if a.pages[i].backed {
			a.budget.give(int64(a.table.pageBytes))
		}
	}
	return a.Memory.Release()
}

// KeepPages makes the arena keep its pages as memcached does: an empty page
// stays with its class, what BeginEmptying has emptied stays idle until
// ReturnIdle, and a class that has no page takes its first one beyond the
// budget.
func (a *Arena) KeepPages() { a.keeps = true }

// ReadAlong keeps the table of pages in one place from now on, whatever it
// grows to, so that ClassSeen may be asked while another goroutine changes the
// arena.
func (a *Arena) ReadAlong() {
	table := make([]page, len(a.pages), max(a.Reserved()/int64(a.table.pageBytes), 1))
	copy(table, a.pages)
	a.pages = table
}

// Classes is the table of chunk sizes.
func (a *Arena) Classes() *Classes { return a.table }

// Tag is the tag of chunk r.
func (a *Arena) Tag(r Ref) Tag { return Tag(a.U32(r.Off() + TagOff)) }

// SetTag replaces the tag of chunk r.
func (a *Arena) SetTag(r Ref, t Tag) { a.PutU32(r.Off()+TagOff, uint32(t)) }

// Next is the chunk after r in the list it is in.
func (a *Arena) Next(r Ref) Ref { return Ref(a.U32(r.Off() + NextOff)) }

// SetNext links n behind r.
func (a *Arena) SetNext(r, n Ref) { a.PutU32(r.Off()+NextOff, uint32(n)) }

// Prev is the chunk before r in the list it is in.
func (a *Arena) Prev(r Ref) Ref { return Ref(a.U32(r.Off() + PrevOff)) }

// SetPrev links p before r.
func (a *Arena) SetPrev(r, p Ref) { a.PutU32(r.Off()+PrevOff, uint32(p)) }

// PageOf is the number of the page that chunk r is in.
func (a *Arena) PageOf(r Ref) uint32 { return uint32(r) >> a.shift }

// ClassOf is the class of chunk r.
func (a *Arena) ClassOf(r Ref) int { return int(a.pages[a.PageOf(r)].class) }

// ClassSeen is ClassOf after ReadAlong, without the lock over the arena: the
// answer holds if nobody has changed the arena since r was a chunk. False: the
// page of r is of no class now.
func (a *Arena) ClassSeen(r Ref) (c int, ok bool) {
	n := a.PageOf(r)
	if n >= uint32(len(a.pages)) {
		return 0, false
	}
	c = int(a.pages[n].class)
	return c, c < a.table.Len()
}

// ChunkBytes is the size of chunk r.
func (a *Arena) ChunkBytes(r Ref) int { return a.table.Bytes(a.ClassOf(r)) }

// Room is what chunk r holds beside its tail.
func (a *Arena) Room(r Ref) int { return a.table.Room(a.ClassOf(r)) }

// Alloc takes a chunk of class c: a freed one, one not carved yet, or one of
// a new page. False means that the arena has no room for it. The links and
// the state of the chunk are the caller's to set, before it calls the arena
// again; everything beyond the tag is as it was left.
func (a *Arena) Alloc(c int) (Ref, bool) {
	k := &a.classes[c]
	r := k.free
	if r != 0 {
		k.free = a.Next(r)
		if k.free != 0 {
			a.SetPrev(k.free, 0)
		}
		k.nFree--
	} else {
		if k.carve == 0 && !a.addPage(c) {
			return 0, false
		}
		p := &a.pages[k.carve]
		off := uint64(k.carve)<<(a.shift+3) + uint64(p.carved)*uint64(a.table.bytes[c])
		r = Ref(off >> 3)
		p.carved++
		if int(p.carved) == a.table.PerPage(c) {
			k.carve = 0
		}
	}
	p := &a.pages[a.PageOf(r)]
	if p.used == 0 {
		a.nEmpty--
	}
	p.used++
	k.nUsed++
	a.SetTag(r, MakeTag(StatePending, 0))
	return r, true
}

// Free gives chunk r back. A page whose last chunk it was leaves its class
// when the class has another page's worth of free chunks.
func (a *Arena) Free(r Ref) {
	n := a.PageOf(r)
	p := &a.pages[n]
	if p.used == 0 || a.Tag(r).State() == StateFree {
		panic(fmt.Sprintf("slab: free %d: state %d, class %d, page %d has %d in use",
			r, a.Tag(r).State(), p.class, n, p.used))
	}
	c := int(p.class)
	k := &a.classes[c]
	if checked {
		a.poison(r, c)
	}
	a.SetTag(r, MakeTag(StateFree, 0))
	k.nUsed--
	p.used--
	if n == a.emptying {
		return
	}
	a.linkFree(k, r)
	if p.used > 0 {
		return
	}
	a.nEmpty++
	if !a.keeps && k.nFree-int(p.carved) >= a.table.PerPage(c) {
		a.dropPage(n)
	}
}

// poison makes the bytes of a freed chunk useless, so that a use after free
// shows.
func (a *Arena) poison(r Ref, c int) {
	b := a.Bytes(r.Off(), a.table.Bytes(c))
	for i := range b {
		b[i] = 0xdd
	}
}

// addPage gives class c a page to carve: an idle one, a new one if the budget
// has room, or one that another class has emptied.
func (a *Arena) addPage(c int) bool {
	n, ok := a.takePage(a.keeps && a.classes[c].nPages == 0)
	if !ok && a.nEmpty > 0 && !a.keeps {
		if e := a.emptyPage(); e != 0 {
			a.dropPage(e)
			n, ok = a.takePage(false)
		}
	}
	if !ok {
		return false
	}
	a.pages[n] = page{class: uint8(c), backed: true}
	if a.ledger != nil {
		a.enter(n, c)
	}
	a.nEmpty++
	k := &a.classes[c]
	k.carve = n
	k.nPages++
	return true
}

// takePage takes a page of no class; with force also beyond the budget.
func (a *Arena) takePage(force bool) (uint32, bool) {
	if i := len(a.idle) - 1; i >= 0 {
		n := a.idle[i]
		a.idle = a.idle[:i]
		return n, true
	}
	pageBytes := int64(a.table.pageBytes)
	switch {
	case a.budget.take(pageBytes):
	case force:
		a.budget.force(pageBytes)
	default:
		return 0, false
	}
	n := uint32(len(a.pages))
	if i := len(a.returned) - 1; i >= 0 {
		n = a.returned[i]
	}
	if a.Commit(int64(n+1)*pageBytes) != nil || a.Back(int64(n)*pageBytes, pageBytes) != nil {
		a.budget.give(pageBytes)
		return 0, false
	}
	if n < uint32(len(a.pages)) {
		a.returned = a.returned[:len(a.returned)-1]
	} else {
		a.pages = append(a.pages, page{class: none, backed: true})
	}
	return n, true
}

// emptyPage finds a page of a class that has no chunk in use.
func (a *Arena) emptyPage() uint32 {
	for i := range a.pages {
		if p := &a.pages[i]; p.class != none && p.used == 0 && uint32(i) != a.emptying {
			return uint32(i)
		}
	}
	return 0
}

// dropPage takes page n, which has no chunk in use, from its class.
func (a *Arena) dropPage(n uint32) {
	p := &a.pages[n]
	k := &a.classes[p.class]
	size := uint64(a.table.bytes[p.class])
	off := uint64(n) << (a.shift + 3)
	for i := 0; i < int(p.carved); i++ {
		a.unlinkFree(k, Ref((off+uint64(i)*size)>>3))
	}
	a.nEmpty--
	if k.carve == n {
		k.carve = 0
	}
	k.nPages--
	a.idlePage(n)
}

func (a *Arena) linkFree(k *class, r Ref) {
	a.SetPrev(r, 0)
	a.SetNext(r, k.free)
	if k.free != 0 {
		a.SetPrev(k.free, r)
	}
	k.free = r
	k.nFree++
}

func (a *Arena) unlinkFree(k *class, r Ref) {
	next, prev := a.Next(r), a.Prev(r)
	if prev == 0 {
		k.free = next
	} else {
		a.SetNext(prev, next)
	}
	if next != 0 {
		a.SetPrev(next, prev)
	}
	k.nFree--
}

// ReturnIdle gives idle pages back to the budget, and their memory to the
// system, until at most keep are left.
func (a *Arena) ReturnIdle(keep int) {
	pageBytes := int64(a.table.pageBytes)
	for len(a.idle) > keep {
		n := a.idle[len(a.idle)-1]
		a.idle = a.idle[:len(a.idle)-1]
		a.Discard(int64(n)*pageBytes, pageBytes)
		a.pages[n].backed = false
		a.budget.give(pageBytes)
		a.returned = append(a.returned, n)
	}
}

// BeginEmptying prepares page n for losing its items: its free chunks leave
// the free list, it is carved no further, and chunks freed in it stay where
// they are, so that Alloc cannot hand out what is being emptied. The caller
// frees every chunk in use, at its leisure, and calls FinishEmptying; or
// AbortEmptying. One page is emptied at a time.
func (a *Arena) BeginEmptying(n uint32) {
	p := &a.pages[n]
	k := &a.classes[p.class]
	chunks := a.Page(n)
	for i := range chunks.N {
		if r := chunks.At(i); a.Tag(r).State() == StateFree {
			a.unlinkFree(k, r)
		}
	}
	if k.carve == n {
		k.carve = 0
	}
	if p.used == 0 {
		a.nEmpty--
	}
	a.emptying = n
}

// AbortEmptying leaves the page being emptied to its class: what was freed in
// it can be handed out again.
func (a *Arena) AbortEmptying() {
	n := a.emptying
	p := &a.pages[n]
	k := &a.classes[p.class]
	chunks := a.Page(n)
	a.emptying = 0
	for i := range chunks.N {
		if r := chunks.At(i); a.Tag(r).State() == StateFree {
			a.linkFree(k, r)
		}
	}
	switch {
	case int(p.carved) == a.table.PerPage(chunks.Class):
	case k.carve == 0:
		k.carve = n
	default: // its class carves another page now
		a.carveRest(n)
	}
	if p.used == 0 {
		a.nEmpty++
	}
}

// carveRest carves all that is left of page n.
func (a *Arena) carveRest(n uint32) {
	p := &a.pages[n]
	k := &a.classes[p.class]
	for int(p.carved) < a.table.PerPage(int(p.class)) {
		r := Ref(n<<a.shift) + Ref(uint32(p.carved)*a.table.bytes[p.class]>>3)
		p.carved++
		a.SetTag(r, MakeTag(StateFree, 0))
		a.linkFree(k, r)
	}
}

// Emptying is the page being emptied, 0 if none is.
func (a *Arena) Emptying() uint32 { return a.emptying }

// Assign gives an idle page to class c, if there is one and c can carve it
// now; an arena that keeps its pages sees to that.
func (a *Arena) Assign(c int) bool {
	k := &a.classes[c]
	if len(a.idle) == 0 || k.carve != 0 && !a.keeps {
		return false
	}
	if k.carve != 0 {
		a.carveRest(k.carve)
		k.carve = 0
	}
	return a.addPage(c)
}

// FinishEmptying takes the emptied page from its class, so that any class can
// have it.
func (a *Arena) FinishEmptying() {
	n := a.emptying
	p := &a.pages[n]
	if p.used != 0 {
		panic(fmt.Sprintf("slab: page %d emptied, but %d chunks are in use", n, p.used))
	}
	a.emptying = 0
	a.classes[p.class].nPages--
	a.idlePage(n)
}

func (a *Arena) idlePage(n uint32) {
	a.pages[n] = page{class: none, backed: true}
	if a.ledger != nil {
		a.ledger.set(n, none)
	}
	a.idle = append(a.idle, n)
	if len(a.idle) > idlePagesMax && !a.keeps {
		a.ReturnIdle(idlePagesMax / 2)
	}
}
