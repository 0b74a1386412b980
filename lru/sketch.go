package lru

import "github.com/quarrycache/quarry/slab"

// sketch estimates how often a key was asked for lately, by its hash: a
// count-min sketch of 4-bit counters, off the Go heap. A key's four counters
// lie in one block of a cache line, one in each of four rows:
//
//	 0  row 0  32 counters of 4 bits
//	16  row 1
//	32  row 2
//	48  row 3  31 counters, and in the last 4 bits the block's age
//
// All counters are halved when a period ends, which is after periodPerItem
// additions for each item. A block is halved when it is next touched: its age
// says how many periods it has missed. So ageing has no pause, and all blocks
// are as old as each other for whoever compares two counts.
//
// The sketch grows with the number of items, by one block at a time: a new
// block begins as a copy of the one that it takes half the keys from.
type sketch struct {
	mem   *slab.Memory
	level uint   // blocks there were when this round of growing began, log2
	split uint32 // blocks copied in this round

	period int    // periods that have ended; its low 4 bits are the age
	adds   int    // in this period
	sweep  uint32 // the next block to be aged whether it is touched or not
}

const (
	blockBytes = 64
	// itemsPerBlock makes the sketch 2 bytes an item.
	itemsPerBlock = 32
	// periodPerItem additions for each item are a period. Source: the sample
	// of 10 times the cache of the TinyLFU paper.
	periodPerItem  = 10
	sketchLevelMin = 6
	ageShift       = 60 // of the last word of a block
	ageMask        = 0xf << ageShift
	halfMask       = 0x7777777777777777
	countMax       = 15
)

func newSketch(itemsMax int64) (*sketch, error) {
	m, err := slab.Reserve(max(itemsMax/itemsPerBlock, 1<<sketchLevelMin) * blockBytes)
	if err != nil {
		return nil, err
	}
	s := &sketch{mem: m, level: sketchLevelMin}
	return s, m.Commit(blockBytes << sketchLevelMin)
}

func (s *sketch) blocks() uint32 { return 1<<s.level + s.split }

// spread makes the bits of a hash that choose block and counters independent
// of those that index and shard use.
func spread(h uint64) uint64 {
	h *= 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// block is the offset of the block for the spread hash x.
func (s *sketch) block(x uint64) uint64 {
	p := uint32(x>>20) & (1<<s.level - 1)
	if p < s.split {
		p = uint32(x>>20) & (1<<(s.level+1) - 1)
	}
	return uint64(p) * blockBytes
}

// A key's counters, for the spread hash x in block off: the word that each is
// in, and how far up. Spelled out, row by row, since every read comes here.
func row0(off, x uint64) (word, shift uint64) { return slot(off, x&31) }
func row1(off, x uint64) (word, shift uint64) { return slot(off+16, x>>5&31) }
func row2(off, x uint64) (word, shift uint64) { return slot(off+32, x>>10&31) }
func row3(off, x uint64) (word, shift uint64) { return slot(off+48, min(x>>15&31, 30)) } // 31 is the age

func slot(row, i uint64) (word, shift uint64) { return row + i>>4<<3, i & 15 << 2 }

// add counts a request for the key with hash h. items is the number of items
// in the shard.
func (s *sketch) add(h uint64, items int) {
	x := spread(h)
	off := s.block(x)
	s.age(off)
	w0, s0 := row0(off, x)
	w1, s1 := row1(off, x)
	w2, s2 := row2(off, x)
	w3, s3 := row3(off, x)
	v0, v1, v2, v3 := s.mem.U64(w0), s.mem.U64(w1), s.mem.U64(w2), s.mem.U64(w3)
	c0, c1, c2, c3 := v0>>s0&0xf, v1>>s1&0xf, v2>>s2&0xf, v3>>s3&0xf
	least := min(c0, c1, c2, c3)
	if least == countMax {
		return
	}
	if c0 == least {
		s.mem.PutU64(w0, v0+1<<s0)
	}
	if c1 == least {
		s.mem.PutU64(w1, v1+1<<s1)
	}
	if c2 == least {
		s.mem.PutU64(w2, v2+1<<s2)
	}
	if c3 == least {
		s.mem.PutU64(w3, v3+1<<s3)
	}
	if s.adds++; s.adds >= items*periodPerItem && s.adds >= 1<<sketchLevelMin*itemsPerBlock {
		s.adds = 0
		s.period++
	}
	// Every block is aged before its age could be taken for another one.
	if s.adds&7 == 0 {
		if s.sweep++; s.sweep >= s.blocks() {
			s.sweep = 0
		}
		s.age(uint64(s.sweep) * blockBytes)
	}
}

// count is the estimate for the key with hash h.
func (s *sketch) count(h uint64) uint64 {
	x := spread(h)
	off := s.block(x)
	s.age(off)
	w0, s0 := row0(off, x)
	w1, s1 := row1(off, x)
	w2, s2 := row2(off, x)
	w3, s3 := row3(off, x)
	return min(s.mem.U64(w0)>>s0&0xf, s.mem.U64(w1)>>s1&0xf, s.mem.U64(w2)>>s2&0xf, s.mem.U64(w3)>>s3&0xf)
}

// age halves a block as often as periods have ended since it was last aged.
func (s *sketch) age(off uint64) {
	last := s.mem.U64(off + blockBytes - 8)
	missed := (uint64(s.period) - last>>ageShift) & 0xf
	if missed == 0 {
		return
	}
	for w := off; w < off+blockBytes; w += 8 {
		v := s.mem.U64(w)
		if w == off+blockBytes-8 {
			v &^= ageMask
		}
		for range min(missed, 4) {
			v = v >> 1 & halfMask
		}
		s.mem.PutU64(w, v)
	}
	last = s.mem.U64(off + blockBytes - 8)
	s.mem.PutU64(off+blockBytes-8, last|uint64(s.period)<<ageShift)
}

// grow adds a block when there are more items than the sketch is for.
func (s *sketch) grow(items int) {
	n := s.blocks()
	if items <= int(n)*itemsPerBlock {
		return
	}
	if s.mem.Commit(int64(n+1)*blockBytes) != nil {
		return // counts are less exact, no more
	}
	copy(s.mem.Bytes(uint64(n)*blockBytes, blockBytes), s.mem.Bytes(uint64(s.split)*blockBytes, blockBytes))
	if s.split++; s.split == 1<<s.level {
		s.level++
		s.split = 0
	}
}

// bytes is the memory that the sketch takes.
func (s *sketch) bytes() int64 { return int64(s.blocks()) * blockBytes }
