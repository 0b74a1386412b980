package store

import (
	"hash/crc32"
	"math/bits"
)

// checksumBytes is what an item's checksum takes at the end of its first
// chunk, with Config.ItemChecksums. It is the CRC of key, client flags and
// value; nobody looks at it before a recovery.
const checksumBytes = 4

// seal writes the checksum of a whole item, if the store has checksums. Nobody
// else may know the item yet, or the shard is locked.
func (sh *shard) seal(it item) {
	if sh.s.cfg.ItemChecksums {
		it.putChecksum()
	}
}

func (it item) putChecksum() { it.a.PutU32(it.checksumOff(), it.checksum()) }

// sealed reports whether the checksum of an item is right, if there is one.
func (sh *shard) sealed(it item) bool {
	return !sh.s.cfg.ItemChecksums || it.a.U32(it.checksumOff()) == it.checksum()
}

func (it item) checksumOff() uint64 {
	return it.r.Off() + uint64(it.a.ChunkBytes(it.r)-checksumBytes)
}

func (it item) checksum() uint32 {
	// Where the key ends does not show in its bytes and the value's.
	sum := it.flags() ^ bits.ReverseBytes32(uint32(it.keyLen()))
	p := it.pieces()
	p.off -= uint64(it.keyLen())
	p.n += it.keyLen()
	for b := p.bytes(); b != nil; b = p.bytes() {
		sum = crc32.Update(sum, castagnoli, b)
		p.advance(len(b))
	}
	return sum
}
