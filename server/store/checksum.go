package store

import (
	"encoding/binary"
	"hash/crc32"
)

// checksumBytes is what an item's checksum takes at the end of its first
// chunk, with Config.ItemChecksums. It is the CRC of key, client flags and
// value; nobody looks at it before a recovery.
const checksumBytes = 4

// seal writes the checksum of a whole item, if the store has checksums. Nobody
// else may know the item yet, or the shard is locked.
func (sh *shard) seal(it item) {
	if sh.s.cfg.ItemChecksums {
		it.a.PutU32(it.checksumOff(), it.checksum())
	}
}

// sealed reports whether the checksum of an item is right, if there is one.
func (sh *shard) sealed(it item) bool {
	return !sh.s.cfg.ItemChecksums || it.a.U32(it.checksumOff()) == it.checksum()
}

func (it item) checksumOff() uint64 {
	return it.r.Off() + uint64(it.a.ChunkBytes(it.r)-checksumBytes)
}

func (it item) checksum() uint32 {
	var flags [flagsBytes]byte
	binary.LittleEndian.PutUint32(flags[:], it.flags())
	sum := crc32.Update(crc32.Update(0, castagnoli, it.key()), castagnoli, flags[:])
	p := it.pieces()
	for b := p.bytes(); b != nil; b = p.bytes() {
		sum = crc32.Update(sum, castagnoli, b)
		p.advance(len(b))
	}
	return sum
}
