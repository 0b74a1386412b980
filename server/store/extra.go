package store

import "github.com/quarrycache/quarry/slab"

// extra is the header that items have beyond the plain one when their key has
// a version, deadlines or a floor. Behind the client flags, little endian:
//
//	 0  version     8  0: the value has none
//	 8  floor       8  0 none
//	16  hard        6  ms of Unix time, 0 none
//	22  soft        6
//	28  read        6
//	34  raised      4  Unix second, rounded up, at which the floor was raised
//	38  TTL         4  the client's; the plain header has the earlier of it and hard
//	42  fill        3  ms from grant to fill
//	45  marks       1
type extra struct {
	version uint64
	floor   uint64
	Deadlines
	raised Time // to the second
	ttl    uint32
	fill   Time // how long the fill took, 0 not known
	absent bool // the source has no such row: plain commands see nothing
	stub   bool // an empty value that md x left behind: lookups for a grant see nothing
}

const (
	extraBytes = 46

	extraFloor  = 8
	extraHard   = 16
	extraSoft   = 22
	extraRead   = 28
	extraRaised = 34
	extraTTL    = 38
	extraFill   = 42 // with the marks in the top byte

	extraFillMax = 1<<24 - 1
	extraAbsent  = 1 << 24
	extraStub    = 1 << 25
	extraMarks   = extraFillMax | extraAbsent | extraStub

	deadlineMask = 1<<48 - 1
)

// extraOff is where the extra header is.
func (it item) extraOff() uint64 {
	off := it.r.Off() + headerBytes
	if it.tag&hasFlags != 0 {
		off += flagsBytes
	}
	return off
}

// extra reads the extra header; the zero extra when there is none.
func (it item) extra() extra {
	if it.tag&hasExtra == 0 {
		return extra{}
	}
	a, off := it.a, it.extraOff()
	marks := a.U32(off + extraFill)
	return extra{
		version: a.U64(off),
		floor:   a.U64(off + extraFloor),
		Deadlines: Deadlines{
			// Each is read with what follows it: there is always something.
			Hard: Time(a.U64(off+extraHard) & deadlineMask),
			Soft: Time(a.U64(off+extraSoft) & deadlineMask),
			Read: Time(a.U64(off+extraRead) & deadlineMask),
		},
		raised: Time(a.U32(off+extraRaised)) * millisPerSecond,
		ttl:    a.U32(off + extraTTL),
		fill:   Time(marks & extraFillMax),
		absent: marks&extraAbsent != 0,
		stub:   marks&extraStub != 0,
	}
}

// setExtra writes the extra header, which must be there, and the expiry that
// follows from it: that of the TTL, or the second after the hard deadline, if
// that is earlier. offset is from Time to the clock of the deadlines.
func (it item) setExtra(x *extra, offset Time) {
	a, off := it.a, it.extraOff()
	// Where a file could be all that is left, half of this must not look like
	// an item.
	tag := a.Tag(it.r)
	a.SetTag(it.r, tag.WithState(slab.StatePending))
	defer a.SetTag(it.r, tag)
	a.PutU64(off, x.version)
	a.PutU64(off+extraFloor, x.floor)
	putDeadline(a, off+extraHard, x.Hard)
	putDeadline(a, off+extraSoft, x.Soft)
	putDeadline(a, off+extraRead, x.Read)
	a.PutU32(off+extraRaised, uint32((x.raised+millisPerSecond-1)/millisPerSecond))
	a.PutU32(off+extraTTL, x.ttl)
	marks := uint32(min(x.fill, extraFillMax))
	if x.absent {
		marks |= extraAbsent
	}
	if x.stub {
		marks |= extraStub
	}
	a.PutU32(off+extraFill, marks)
	it.setExpiry(x.expiry(offset))
}

func putDeadline(a *slab.Arena, off uint64, t Time) {
	a.PutU32(off, uint32(t))
	a.PutU8(off+4, uint8(t>>32))
	a.PutU8(off+5, uint8(t>>40))
}

// expiry is the second at which nothing of the item can be served any more.
func (x *extra) expiry(offset Time) uint32 {
	if x.Hard == 0 {
		return x.ttl
	}
	// Hard is in the future, or the item is not stored; a far one is none.
	second := max((x.Hard-offset+millisPerSecond-1)/millisPerSecond, expiredAtOnce)
	if second > 1<<32-1 {
		return x.ttl
	}
	if x.ttl == 0 {
		return uint32(second)
	}
	return min(x.ttl, uint32(second))
}
