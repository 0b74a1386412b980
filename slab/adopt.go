package slab

// PageUse is what a page is used for, as it is written down for a restart.
type PageUse struct {
	Class  int  // -1: of no class
	Held   bool // counted in the budget
	Carved int  // chunks cut off it
}

// PageUse tells what page n is used for. n is below Pages.
func (a *Arena) PageUse(n uint32) PageUse {
	p := &a.pages[n]
	u := PageUse{Class: -1, Held: p.backed}
	if p.class != none {
		u.Class, u.Carved = int(p.class), int(p.carved)
	}
	return u
}

// Ledgered is what the ledger says of the pages, by their number: to be used
// when nobody has written more down. All chunks of a page count as carved.
// damaged is the number of entries that make no sense.
func (a *Arena) Ledgered() (pages []PageUse, damaged int) {
	pages = make([]PageUse, a.ledger.n)
	last := 0
	for n := range pages {
		pages[n].Class = -1
		c, ok := a.ledger.class(uint32(n))
		if !ok || c != none && (n == 0 || int(c) >= a.table.Len()) {
			damaged++
		} else if c != none {
			pages[n] = PageUse{Class: int(c), Held: true, Carved: a.table.PerPage(int(c))}
			last = n
		}
	}
	return pages[:last+1], damaged
}

// Adopt takes pages, by their number, over as they lie in the memory of an
// arena that was just made. Every carved chunk is to be given to Keep or to
// Free by Adopted, which ends it; meanwhile the arena can be looked at, and
// nothing else. A page that the ledger has another class for, or that the
// budget has no room for, belongs to no class afterwards: their number is
// lost.
func (a *Arena) Adopt(pages []PageUse) (lost int) {
	for len(pages) > 1 && !pages[len(pages)-1].Held {
		pages = pages[:len(pages)-1]
	}
	pages = pages[:min(len(pages), int(a.ledger.n))]
	for n := uint32(1); n < uint32(len(pages)); n++ {
		u := pages[n]
		inLedger, ok := a.ledger.class(n)
		switch {
		case !u.Held || !a.adoptFrom(a.budget, u):
			if u.Class >= 0 {
				lost++
			}
			a.pages = append(a.pages, page{class: none})
			a.returned = append(a.returned, n)
			a.ledger.set(n, none)
		case u.Class < 0 || !ok || int(inLedger) != u.Class || u.Class >= a.table.Len() ||
			u.Carved < 0 || u.Carved > a.table.PerPage(u.Class):
			if u.Class >= 0 {
				lost++
			}
			a.pages = append(a.pages, page{class: none, backed: true})
			a.idle = append(a.idle, n)
			a.ledger.set(n, none)
		default:
			a.pages = append(a.pages, page{class: uint8(u.Class), backed: true, carved: uint16(u.Carved)})
			a.classes[u.Class].nPages++
		}
	}
	return lost
}

// adoptFrom takes a page from the budget; where pages are kept, one of a class
// also beyond it, as there may have been some.
func (a *Arena) adoptFrom(b *Budget, u PageUse) bool {
	pageBytes := int64(a.table.pageBytes)
	if b.take(pageBytes) {
		return true
	}
	if !a.keeps || u.Class < 0 {
		return false
	}
	b.force(pageBytes)
	return true
}

// Disown makes page n, which has just been adopted, one of no class.
func (a *Arena) Disown(n uint32) {
	a.classes[a.pages[n].class].nPages--
	a.pages[n] = page{class: none, backed: true}
	a.idle = append(a.idle, n)
	a.ledger.set(n, none)
}

// IsChunk reports whether r is a carved chunk.
func (a *Arena) IsChunk(r Ref) bool {
	n := a.PageOf(r)
	if n >= uint32(len(a.pages)) || a.pages[n].class == none {
		return false
	}
	chunks := a.Page(n)
	i := (r - chunks.First) / chunks.Step
	return chunks.At(int(i)) == r && int(i) < chunks.N
}

// Keep counts chunk r of an adopted page as used.
func (a *Arena) Keep(r Ref) {
	p := &a.pages[a.PageOf(r)]
	p.used++
	a.classes[p.class].nUsed++
}

// Drop makes chunk r of an adopted page a free one.
func (a *Arena) Drop(r Ref) {
	if a.Tag(r).State() != StateFree {
		a.SetTag(r, MakeTag(StateFree, 0))
	}
	a.linkFree(&a.classes[a.ClassOf(r)], r)
}

// Adopted ends what Adopt began.
func (a *Arena) Adopted() {
	for n := uint32(1); n < uint32(len(a.pages)); n++ {
		p := &a.pages[n]
		if p.class == none {
			continue
		}
		k := &a.classes[p.class]
		switch {
		case int(p.carved) == a.table.PerPage(int(p.class)):
		case k.carve == 0:
			k.carve = n
		default:
			a.carveRest(n)
		}
		if p.used == 0 {
			a.nEmpty++
		}
	}
	// What is not held takes no space, whoever had it before.
	pageBytes := int64(a.table.pageBytes)
	for _, n := range a.returned {
		a.Discard(int64(n)*pageBytes, pageBytes)
	}
	if end := int64(len(a.pages)) * pageBytes; end < a.Reserved() {
		a.Discard(end, a.Reserved()-end)
	}
	a.ReturnIdle(idlePagesMax)
}
