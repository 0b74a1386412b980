package slab

// Ledger is where an arena in a file writes down which class each page is of,
// so that the chunks can be found again when nothing but the file is left: a
// number of 4 bytes a page.
//
//	bits  0-7   class and one, 0: the page belongs to none
//	bits  8-15  the same bits, inverted
//	bits 16-31  the low bits of the page's number
type Ledger struct {
	m   *Memory
	off uint64
	n   uint32 // pages
}

const (
	ledgerEntryBytes = 4
	ledgerClassBits  = 8
	ledgerPageShift  = 16
)

// LedgerBytes is what the ledger of an arena for reserve bytes of pages takes.
func LedgerBytes(t *Classes, reserve int64) int64 {
	return ArenaBytes(t, reserve) / int64(t.pageBytes) * ledgerEntryBytes
}

func ledgerEntry(n uint32, class uint8) uint32 {
	c := uint32(class + 1) // none is 0
	return n<<ledgerPageShift | (c^0xff)<<ledgerClassBits | c
}

func (l *Ledger) set(n uint32, class uint8) {
	l.m.PutU32(l.off+uint64(n)*ledgerEntryBytes, ledgerEntry(n, class))
}

// class is the class of page n, none if it has none or the entry makes no
// sense.
func (l *Ledger) class(n uint32) (class uint8, ok bool) {
	v := l.m.U32(l.off + uint64(n)*ledgerEntryBytes)
	if v == 0 {
		return none, true // never written to
	}
	class = uint8(v) - 1
	if v != ledgerEntry(n, class) {
		return none, false
	}
	return class, true
}

// NewArenaIn is an arena in memory m, which is mapped from a file and as large
// as ArenaBytes says. Its ledger is in header at off. What the pages hold is
// as it was left: see Adopt.
func NewArenaIn(t *Classes, b *Budget, m, header *Memory, off uint64) *Arena {
	a := newArena(t, b, m)
	a.ledger = &Ledger{m: header, off: off, n: uint32(m.Reserved() / int64(t.pageBytes))}
	return a
}

// ArenaBytes is the memory that an arena for reserve bytes of pages wants, a
// multiple of FileAlignBytes.
func ArenaBytes(t *Classes, reserve int64) int64 {
	return (arenaBytes(t, reserve) + FileAlignBytes - 1) / FileAlignBytes * FileAlignBytes
}

// enter makes page n one of class c in the ledger. Whoever finds the page there
// takes what is in it for chunks of that class, so it must hold nothing else.
func (a *Arena) enter(n uint32, c int) {
	pageBytes := a.table.pageBytes
	clear(a.Bytes(uint64(n)*uint64(pageBytes), pageBytes))
	a.ledger.set(n, uint8(c))
}
