package store

import (
	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// What is found in a file need not have been written by us, or may be half of
// what was. It is believed to be an item if all that can be known of an item
// without its index is so.

const (
	keyBytesMax = 250
	// casMax bounds CAS numbers, so that they never overflow. Those of a
	// cluster begin at ms of Unix time times 2^20, which is less until 2109.
	casMax = 1 << 62
)

// seqMax bounds the stores of a shard.
func (sh *shard) seqMax() uint64 { return casMax / uint64(len(sh.s.shards)) }

// sound reports whether chunk it, whose state is that of an item, is an item
// of this shard, and the hash of its key. It reads no chunk that is not
// carved.
func (sh *shard) sound(it item) (hash uint64, ok bool) {
	class, room := sh.a.ClassOf(it.r), sh.a.Room(it.r)
	if it.tag.State() > slab.StateItem+slab.State(lru.Segments-1) {
		return 0, false
	}
	keyLen := it.keyLen()
	head := int(it.valueOff() - it.r.Off())
	switch {
	case keyLen == 0 || keyLen > keyBytesMax || head > room:
		return 0, false
	case it.tag&hasFlags != 0 && it.flags() == 0,
		it.tag&hasExtra != 0 && it.a.U32(it.extraOff()+extraFill)&^extraMarks != 0:
		return 0, false
	case it.tag&chained == 0:
		n := head + it.valueLen()
		if c, whole := sh.s.classFor(n); n > room || !whole || c != class {
			return 0, false
		}
	case class != sh.s.table.Len()-1 || it.tag.Length() != 0 || !sh.chainSound(it, head):
		return 0, false
	}
	if it.tag&explicitCAS == 0 {
		seq := it.cas() / uint64(len(sh.s.shards))
		if seq == 0 || seq > sh.seqMax() || sh.casOf(seq) != it.cas() {
			return 0, false
		}
	}
	hash = xxhash.Sum64(it.key())
	return hash, int(shardBits(hash)&sh.s.mask) == sh.id
}

// chainSound reports whether the chain of a large item, whose value begins
// behind head bytes, is whole: every piece there, of the right size, and its
// own.
func (sh *shard) chainSound(it item, head int) bool {
	n := it.valueLen()
	if _, whole := sh.s.classFor(head - chainBytes + n); whole || n > sh.s.cfg.ItemMaxBytes {
		return false
	}
	left := n - it.inFirst()
	p := it.firstPiece()
	for left > 0 {
		n := min(left, sh.s.table.Largest()-pieceHeaderBytes)
		if p == 0 || !sh.a.IsChunk(p) || sh.a.Tag(p).State() != slab.StatePiece || sh.a.Prev(p) != it.r ||
			sh.a.ClassOf(p) != sh.s.pieceClass(n) {
			return false
		}
		left -= n
		p = sh.a.Next(p)
	}
	return p == 0
}
