package store

import (
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// With Config.CompatSlabs memory is divided as memcached divides it, so that
// the same items are in the same classes, as many fit, and as many have to go:
//
//   - Pages of 1 MiB stay with their classes. They move when someone says so,
//     or as soon as a class has more free chunks than it needs; free ones wait
//     for whoever needs one. A class without a page gets one beyond the limit.
//   - An item counts as large as memcached's with the same key and value, and
//     takes a chunk that would hold that.
//   - Each class evicts its own items. A page that is to move waits for what is
//     in use.
//
// It costs what Quarry's own way saves, and is there for those who depend on
// the numbers.
const (
	compatPageBytes = 1 << 20
	// compatChunkMaxDefault and compatFactorDefault are memcached's.
	compatChunkMaxDefault = 512 << 10
	compatFactorDefault   = 1.25

	// compatCASBytes and compatEndBytes are what an item has there beside its
	// header, flags, key and value: the CAS, the key's NUL and the value's \r\n.
	compatCASBytes = 8
	compatEndBytes = 3
	// compatPieceHeader is the header of a piece there. Source: item_chunk.
	compatPieceHeader = 48

	// compatSparePages is the free chunks, in pages, from which a class gives
	// one away. Source: MIN_PAGES_FOR_RECLAIM in slab_automove.c.
	compatSparePages = 2.5
	// compatMovesATick bounds the pages that move in a tick by themselves.
	compatMovesATick = 4
)

// withCompat fills in what CompatSlabs decides.
func (c *Config) withCompat() {
	c.Shards, c.PageBytes = 1, compatPageBytes
	if c.ChunkMaxBytes == 0 {
		c.ChunkMaxBytes = compatChunkMaxDefault
	}
	if c.GrowthFactor == 0 {
		c.GrowthFactor = compatFactorDefault
	}
}

// compatTable is memcached's table of classes.
func (c *Config) compatTable() *slab.Classes {
	return slab.MemcachedClasses(c.PageBytes, itemHeaderMemcached+c.ChunkMin, c.GrowthFactor, c.ChunkSizes, c.ChunkMaxBytes)
}

// headMore is by how much memcached's items are larger than ours.
func (c *Config) headMore() int {
	if !c.CompatSlabs {
		return 0
	}
	n := itemHeaderMemcached + compatEndBytes - headerBytes
	if !c.NoCAS {
		n += compatCASBytes
	}
	return n
}

// pieceMore is the same for pieces.
func (c *Config) pieceMore() int {
	if !c.CompatSlabs {
		return 0
	}
	return compatPieceHeader - pieceHeaderBytes
}

// footprint is what an item counts for.
func (sh *shard) footprint(it item) int { return it.footprint() + sh.s.headMore }

// shedPages gives pages away that classes have to spare.
func (s *Store) shedPages(sh *shard, now Time) {
	for range compatMovesATick {
		sh.lock()
		begun := s.automove.Load() && sh.move.page == 0 && sh.shedPage()
		sh.unlock()
		if !begun {
			return
		}
		s.goOnMoving(sh, now)
	}
}

// shedPage begins to give a page of a class away that has more free chunks
// than it needs.
func (sh *shard) shedPage() bool {
	for c := range sh.s.table.Len() {
		u := sh.a.Use(c)
		if u.Pages < sparePagesMin || float64(u.Free) < compatSparePages*float64(sh.s.table.PerPage(c)) {
			continue
		}
		if n := sh.pageOf(c); n != 0 {
			sh.startMove(n, -1)
			return true
		}
	}
	return false
}

// oldest is the order class of slab class c whose end was stored first: to
// memcached they are one.
func (sh *shard) oldest(c int) int {
	if c < sh.s.table.Len()-1 {
		return c
	}
	oc, most := c, uint64(0)
	for x := c; x < sh.s.orderClasses(); x++ {
		for _, seg := range [...]lru.Segment{lru.Probation, lru.Window, lru.Protected} {
			if r := sh.order.Tail(x, seg); r != 0 {
				if age := sh.AgeOf(r) + 1; age > most {
					oc, most = x, age
				}
				break
			}
		}
	}
	return oc
}
