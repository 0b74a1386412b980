package store

import (
	"math/bits"

	"github.com/quarrycache/quarry/slab"
)

// An item is a chunk, or a chain of chunks when it is larger than the largest
// chunk. Its header, little endian:
//
//	 0  tag         4  length 20 bits, state 3, marks 9 (slab.Tag)
//	 4  next        4  the order's links
//	 8  prev        4
//	12  expiry      4  Unix second at which it is gone, 0 never
//	16  cas         8
//	24  access      3  Unix second of the last access, modulo 2^24
//	27  key length  1
//	28  client flags 4, only with hasFlags
//	    extra       46, only with hasExtra
//	    chain        8, only with chained: value length 4, first piece 4
//	    key
//	    value
//	    ...
//	 -4 checksum     4, only with Config.ItemChecksums: the end of the chunk
//
// The length in the tag is the value's; a chained item has it in its chain
// header instead, and 0 in the tag. A piece has a header of its own:
//
//	 0  tag    4  StatePiece
//	 4  next   4  the piece behind it, 0 none
//	 8  owner  4  the item's first chunk
//	12  value bytes
const (
	expiryOff   = 12
	casOff      = 16
	accessOff   = 24
	headerBytes = 28

	flagsBytes = 4
	chainBytes = 8

	pieceHeaderBytes = slab.LinksEnd

	accessMask = 1<<24 - 1
)

// The store's marks in an item's tag; the two below them are the order's.
const (
	stale       slab.Tag = 1 << (slab.TagMarkShift + 2) // X
	winSent     slab.Tag = 1 << (slab.TagMarkShift + 3) // Z for the next caller
	keyBinary   slab.Tag = 1 << (slab.TagMarkShift + 4) // the key was sent as base64
	hasFlags    slab.Tag = 1 << (slab.TagMarkShift + 5)
	hasExtra    slab.Tag = 1 << (slab.TagMarkShift + 6) // versions and deadlines, see extra
	chained     slab.Tag = 1 << (slab.TagMarkShift + 7)
	explicitCAS slab.Tag = 1 << (slab.TagMarkShift + 8) // its CAS says nothing of when it was stored
)

// item is a view of an item's bytes: its arena, its chunk, its tag as it was
// read once. It is valid while the shard's lock is held, and until the item
// is freed or its tag is changed by someone else.
type item struct {
	a   *slab.Arena
	r   slab.Ref
	tag slab.Tag
}

func (sh *shard) item(r slab.Ref) item { return item{sh.a, r, sh.a.Tag(r)} }

func (it item) expiry() uint32     { return it.a.U32(it.r.Off() + expiryOff) }
func (it item) setExpiry(e uint32) { it.a.PutU32(it.r.Off()+expiryOff, e) }
func (it item) cas() uint64        { return it.a.U64(it.r.Off() + casOff) }
func (it item) setCAS(c uint64)    { it.a.PutU64(it.r.Off()+casOff, c) }
func (it item) access() uint32     { return it.a.U32(it.r.Off()+accessOff) & accessMask }
func (it item) keyLen() int        { return int(it.a.U8(it.r.Off() + accessOff + 3)) }

// setAccess notes an access, if that changes anything.
func (it item) setAccess(second uint32) {
	off := it.r.Off() + accessOff
	old := it.a.U32(off)
	if now := old&^accessMask | second&accessMask; now != old {
		it.a.PutU32(off, now)
	}
}

// idleSeconds is how long ago the item was accessed.
func (it item) idleSeconds(second uint32) uint32 { return (second - it.access()) & accessMask }

func (it *item) setTag(t slab.Tag) {
	it.tag = t
	it.a.SetTag(it.r, t)
}

// chainOff is where the chain header is, if there is one; keyOff is where the
// key is.
func (it item) chainOff() uint64 { return it.r.Off() + headBytes(it.tag&^chained) }

func (it item) keyOff() uint64 { return it.r.Off() + headBytes(it.tag) }

// headBytes is what lies before the key of an item with tag t.
func headBytes(t slab.Tag) uint64 {
	if t>>headShift&headMask == 0 {
		return headerBytes // most items: no load is waited for
	}
	return uint64(headTable[t>>headShift&headMask])
}

// headShift is where hasFlags is in a tag, with hasExtra and chained above it.
const (
	headShift = slab.TagMarkShift + 5
	headMask  = 7
)

// headTable is headBytes by the three marks that decide it.
var headTable = [headMask + 1]uint8{
	0: headerBytes,
	1: headerBytes + flagsBytes,
	2: headerBytes + extraBytes,
	3: headerBytes + flagsBytes + extraBytes,
	4: headerBytes + chainBytes,
	5: headerBytes + flagsBytes + chainBytes,
	6: headerBytes + extraBytes + chainBytes,
	7: headerBytes + flagsBytes + extraBytes + chainBytes,
}

func (it item) flags() uint32 {
	if it.tag&hasFlags == 0 {
		return 0
	}
	return it.a.U32(it.r.Off() + headerBytes)
}

func (it item) key() []byte { return it.a.Bytes(it.keyOff(), it.keyLen()) }

func (it item) valueOff() uint64 { return it.keyOff() + uint64(it.keyLen()) }

// valueLen is the value's length in bytes.
func (it item) valueLen() int {
	if it.tag&chained != 0 {
		return int(it.a.U32(it.chainOff()))
	}
	return it.tag.Length()
}

// firstPiece is the piece behind the first chunk of a chained item.
func (it item) firstPiece() slab.Ref { return slab.Ref(it.a.U32(it.chainOff() + 4)) }

func (it item) setFirstPiece(r slab.Ref) { it.a.PutU32(it.chainOff()+4, uint32(r)) }

// inFirst is how many value bytes the first chunk holds.
func (it item) inFirst() int {
	if it.tag&chained == 0 {
		return it.tag.Length()
	}
	room := it.a.Room(it.r) - int(it.valueOff()-it.r.Off())
	return min(room, it.valueLen())
}

// footprint is what the item takes: header, key and value, without rounding.
func (it item) footprint() int {
	return int(it.valueOff()-it.r.Off()) + it.valueLen()
}

// payload is what of the item is key and value.
func (it item) payload() int { return it.keyLen() + it.valueLen() }

// pieceHeaders is what the headers of a chained item's pieces take.
func (it item) pieceHeaders() int64 {
	room := it.a.Classes().Largest() - pieceHeaderBytes
	return int64((it.valueLen()-it.inFirst()+room-1)/room) * pieceHeaderBytes
}

// chunkBytes is the size of all the item's chunks.
func (it item) chunkBytes() int64 {
	n := int64(it.a.ChunkBytes(it.r))
	if it.tag&chained != 0 {
		for p := it.firstPiece(); p != 0; p = it.a.Next(p) {
			n += int64(it.a.ChunkBytes(p))
		}
	}
	return n
}

// layout is how a new item will lie in its chunks.
type layout struct {
	class int
	marks slab.Tag // hasFlags, chained
	head  int      // bytes before the value
}

// layoutFor plans an item, with an extra header or without.
func (s *Store) layoutFor(keyLen, valueLen int, flags uint32, extra bool) layout {
	l := layout{head: headerBytes + keyLen}
	if flags != 0 {
		l.marks |= hasFlags
		l.head += flagsBytes
	}
	if extra {
		l.marks |= hasExtra
		l.head += extraBytes
	}
	var whole bool
	if l.class, whole = s.classFor(l.head + valueLen); !whole {
		l.marks |= chained
		l.head += chainBytes
	}
	return l
}

// classFor is the class that an item of n bytes belongs to. When it is not
// whole there, it is chained.
func (s *Store) classFor(n int) (class int, whole bool) {
	n += s.headMore
	if n > s.table.Largest() {
		return s.table.Len() - 1, false
	}
	return s.table.For(n), true
}

// pieceClass is the class of a piece that holds n bytes of a value.
func (s *Store) pieceClass(n int) int {
	return s.table.For(min(pieceHeaderBytes+n+s.pieceMore, s.table.Largest()))
}

// init writes the header and key of a new item into chunk r, which Alloc has
// just given.
func (sh *shard) init(r slab.Ref, l layout, key []byte, valueLen int, flags, expiry, second uint32) item {
	it := item{sh.a, r, 0}
	length := valueLen
	if l.marks&chained != 0 {
		length = 0
	}
	it.setTag(slab.MakeTag(slab.StatePending, length) | l.marks)
	it.setExpiry(expiry)
	it.setCAS(0)
	sh.a.PutU32(r.Off()+accessOff, second&accessMask|uint32(len(key))<<24)
	if flags != 0 {
		sh.a.PutU32(r.Off()+headerBytes, flags)
	}
	if l.marks&hasExtra != 0 {
		it.setExtra(&extra{ttl: expiry}, 0)
	}
	if l.marks&chained != 0 {
		sh.a.PutU32(it.chainOff(), uint32(valueLen))
		it.setFirstPiece(0)
	}
	copy(sh.a.Bytes(it.keyOff(), len(key)), key)
	return it
}

// pieces walks the bytes of a value, chunk by chunk.
//
// It reads nothing but the chunks: the reader of a pinned item needs no lock.
type pieces struct {
	a    *slab.Arena
	off  uint64 // of the bytes of this chunk not yet taken
	n    int    // their number
	next slab.Ref
	left int // bytes of the value behind this chunk
}

func (it item) pieces() pieces {
	n := it.inFirst()
	p := pieces{a: it.a, off: it.valueOff(), n: n, left: it.valueLen() - n}
	if it.tag&chained != 0 {
		p.next = it.firstPiece()
	}
	return p
}

// len is the number of bytes not taken yet.
func (p *pieces) len() int { return p.n + p.left }

// bytes is a view of what is left in this chunk, nil at the end.
func (p *pieces) bytes() []byte {
	for p.n == 0 {
		if p.left == 0 {
			return nil
		}
		// Every piece but the last is of the largest class, and full.
		p.n = min(p.a.Classes().Largest()-pieceHeaderBytes, p.left)
		p.off = p.next.Off() + pieceHeaderBytes
		p.left -= p.n
		p.next = p.a.Next(p.next)
	}
	return p.a.Bytes(p.off, p.n)
}

// advance takes n bytes, at most what bytes showed.
func (p *pieces) advance(n int) {
	p.off += uint64(n)
	p.n -= n
}

// appendTo copies all that is left behind dst.
func (p *pieces) appendTo(dst []byte) []byte {
	for b := p.bytes(); b != nil; b = p.bytes() {
		dst = append(dst, b...)
		p.advance(len(b))
	}
	return dst
}

// Chained items of one slab class differ in size by orders of magnitude, so
// each half of a doubling of their size is a class of its own in the order.
const chainedClasses = 40

func (s *Store) orderClasses() int { return s.table.Len() + chainedClasses }

// orderClass is the class of an item in the order: its slab class, or beyond
// those the one for its size when it is chained.
func (sh *shard) orderClass(it item) int {
	if it.tag&chained == 0 {
		return sh.a.ClassOf(it.r)
	}
	return sh.s.chainedClass(it.valueLen())
}

func (s *Store) chainedClass(valueLen int) int {
	n := uint(valueLen) / uint(s.table.Largest()/2)
	b := bits.Len(n) // 2 or more, nearly always
	half := 0
	if b > 1 {
		half = int(n>>(b-2)) & 1
	}
	return s.table.Len() + min(max(2*(b-1)+half, 0), chainedClasses-1)
}
