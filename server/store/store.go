package store

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/quarrycache/quarry/slab"
)

// Config of a store. The zero value is a 64 MB cache for one loop.
type Config struct {
	LimitBytes   int64   // -m: bytes of item pages; index and order come on top. 64 MiB
	Loops        int     // -t: threads that will use it; the number of shards follows. 1
	Shards       int     // number of shards, a power of two; 0 by rule, see shardsFor
	ItemMaxBytes int     // -I: largest item, counted as memcached counts it. 1 MiB
	NoEvict      bool    // -M: NoMemory instead of eviction
	NoCAS        bool    // -C: items count as without a CAS in ItemMaxBytes
	GrowthFactor float64 // -f: memcached's class table; 0 is Quarry's own
	ChunkMin     int     // -n: with GrowthFactor, bytes of the smallest item. 48
	ChunkSizes   []int   // -o slab_sizes: bytes of chunks, rising, in place of GrowthFactor
	Policy       Policy  // how an order chooses what goes. TinyLFU
	PageBytes    int     // 0 by rule, see pageBytesFor
	LargePages   bool    // -L: of the system, for items and index
	ReadAlong    bool    // -o optimistic_reads: NewReader has readers
	TrackSizes   bool    // -o track_sizes: Sizes counts

	// CompatSlabs is memcached's geometry: one shard, pages of 1 MiB, its
	// classes, and in them items as large as there. See compat.go.
	CompatSlabs   bool // -o compat_slabs
	ChunkMaxBytes int  // -o slab_chunk_max, with CompatSlabs. 512 KiB

	Tenants TenantConfig // who shares the store
	Fresh   FreshConfig  // versions, deadlines and grants

	FirstCAS uint64 // CAS numbers begin above; those of a file, if that has been further, above its own

	// File is the path of the file that the items are in, so that they can
	// outlive the process: see Save and Restart. "": they do not. The number
	// of shards and the size of pages are then those of the file, if there is
	// one, and the limit does not change.
	File          string // -e
	Recover       bool   // with File: look for items in it after a crash, too
	ItemChecksums bool   // 4 bytes more for each item, by which a recovery knows that its value is whole
	Now           Time   // with File: when it is

	Stalls *Stalls // is told what takes long; nil: nobody is
}

const (
	limitDefaultBytes   = 64 << 20
	itemMaxDefaultBytes = 1 << 20
	chunkMinDefault     = 48

	shardBytesMin = 16 << 20 // shards are not made smaller, see shardsFor
	shardsMax     = 1 << 12  // the bits of a hash that choose one
	pagesPerShard = 1024
	pageBytesMin  = 16 << 10
	pageBytesMax  = 1 << 20

	// reserveFactor is how far the limit can be raised while running.
	reserveFactor = 8

	// itemHeaderMemcached is what memcached's own item header takes: what -I
	// limits is counted with it, so that the same values fit.
	itemHeaderMemcached = 48
)

// shardsFor is min(power of two >= loops, limit / 16 MiB), but at least
// limit / 32 GiB, which is what a Ref reaches. Small shards waste memory: each
// has a page of every class that is not full yet.
func shardsFor(limit int64, loops int) int {
	byLoops := int64(1) << bits.Len(uint(max(loops, 1)-1))
	n := min(byLoops, max(limit/shardBytesMin, 1))
	n = max(n, (limit+slab.ArenaMaxBytes/2-1)/(slab.ArenaMaxBytes/2))
	n = 1 << (bits.Len64(uint64(n)) - 1) // down to a power of two
	for limit/n > slab.ArenaMaxBytes/2 {
		n *= 2
	}
	return int(min(n, shardsMax))
}

// pageBytesFor is a 1024th of a shard, between 16 KiB and 1 MiB, a power of
// two.
func pageBytesFor(shardLimit int64) int {
	n := pageBytesMin
	for n < pageBytesMax && int64(2*n)*pagesPerShard <= shardLimit {
		n *= 2
	}
	return n
}

// Store is the items. It is safe for concurrent use.
type Store struct {
	cfg    Config
	shards []*shard
	mask   uint32
	stalls *Stalls // nil: they are not kept
	table  *slab.Classes
	sizes  []float64 // of items of each order class, see sizesOf
	budget *slab.Budget

	headMore, pieceMore int // by how much items and pieces count as larger than they are

	fresh   freshness
	readers readers

	spareChanges []byte // for Changes, which one goroutine calls

	automove  atomic.Bool   // pages move to where they earn most
	noSweep   atomic.Bool   // Background leaves what has expired alone
	maintains atomic.Bool   // what it frees counts as reclaimed, see SetSweep
	wake      chan struct{} // Background is to move pages now; holds one
	looks     atomic.Uint64 // of Background
	lastAbort atomic.Uint32 // an Abort: why a page did not move

	file    *memFile // nil: memory has none
	restart Restart

	pinnedBytes atomic.Int64 // of values being sent from where they lie
	uploadBytes atomic.Int64 // of values that are not whole yet
}

// Open makes a store: an empty one, unless c.File has items for it.
func Open(c Config) (*Store, error) {
	s := new(Store)
	if err := s.open(c); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) open(c Config) error {
	if c.LimitBytes == 0 {
		c.LimitBytes = limitDefaultBytes
	}
	if c.ItemMaxBytes == 0 {
		c.ItemMaxBytes = itemMaxDefaultBytes
	}
	if c.ChunkMin == 0 {
		c.ChunkMin = chunkMinDefault
	}
	c.ReadAlong = c.ReadAlong && ReadsAlong
	if err := c.Tenants.validate(); err != nil {
		return err
	}
	if err := c.Fresh.Validate(); err != nil {
		return err
	}
	if c.CompatSlabs {
		c.withCompat()
	}
	src := source{empty: true}
	if c.File != "" {
		var err error
		src, err = c.openFile(&s.restart)
		s.file = src.file
		if err != nil {
			return err
		}
	}
	defer func() { _ = src.meta.close() }() // it was only read
	if c.Shards == 0 {
		c.Shards = shardsFor(c.LimitBytes, c.Loops)
	}
	if c.PageBytes == 0 {
		c.PageBytes = pageBytesFor(c.LimitBytes / int64(c.Shards))
	}
	if c.Shards < 1 || c.Shards > shardsMax || bits.OnesCount(uint(c.Shards)) != 1 {
		return fmt.Errorf("store: %d shards: want a power of two, at most %d", c.Shards, shardsMax)
	}
	least := c.pagesMin()
	if c.LimitBytes/int64(c.Shards) < int64(c.PageBytes)*least {
		return fmt.Errorf("store: limit of %d bytes: want at least %d pages of %d bytes for each of %d shards",
			c.LimitBytes, least, c.PageBytes, c.Shards)
	}
	if c.CompatSlabs && c.LimitBytes > slab.ArenaMaxBytes/2 {
		return fmt.Errorf("store: limit of %d bytes: want at most %d with memcached's slabs", c.LimitBytes, slab.ArenaMaxBytes/2)
	}
	s.cfg = c
	s.mask = uint32(c.Shards - 1)
	s.stalls = c.Stalls
	s.budget = slab.NewBudget(c.LimitBytes)
	s.table = c.newTable()
	s.headMore, s.pieceMore = c.headMore(), c.pieceMore()
	s.wake = make(chan struct{}, 1)
	s.automove.Store(true)
	s.fresh.open(&c.Fresh)
	s.sizes = sizesOf(s.table)
	reserve := c.reserveBytes()
	if c.CompatSlabs {
		reserve += int64(s.table.Len() * c.PageBytes) // the first page of each class
	}
	if s.file != nil {
		if err := s.file.open(c.settings(s.table), s.table, reserve, src.empty); err != nil {
			return err
		}
	}
	for i := range c.Shards {
		sh, err := newShard(s, i, reserve)
		if err != nil {
			return err
		}
		s.shards = append(s.shards, sh)
		if c.LargePages {
			if err := sh.useLargePages(); err != nil {
				return err
			}
		}
		if src.empty {
			sh.keepMarks()
		}
	}
	if !src.empty {
		if err := s.adopt(src, c.Now); err != nil {
			return err
		}
	}
	for _, sh := range s.shards {
		sh.seq = max(sh.seq, c.FirstCAS/uint64(c.Shards))
		sh.seqFirst = sh.seq
	}
	return nil
}

// newTable is the table of chunk sizes.
func (c *Config) newTable() *slab.Classes {
	t := slab.OwnClasses(c.PageBytes)
	switch {
	case c.CompatSlabs:
		t = c.compatTable()
	case len(c.ChunkSizes) > 0:
		t = slab.ListClasses(c.PageBytes, c.ChunkSizes)
	case c.GrowthFactor != 0:
		t = slab.FactorClasses(c.PageBytes, itemHeaderMemcached+c.ChunkMin, c.GrowthFactor)
	}
	if c.ItemChecksums {
		t = t.WithTail(checksumBytes)
	}
	return t
}

// slabPagesMin is the least a shard can work with, where a class has no page
// for certain.
const slabPagesMin = 4

// pagesMin is how many pages each shard must have.
func (c *Config) pagesMin() int64 {
	if c.CompatSlabs {
		return 1
	}
	return slabPagesMin
}

// reserveBytes is the address space for one shard's items.
func (c *Config) reserveBytes() int64 {
	if c.File != "" || raceEnabled { // with race it comes from the Go heap
		return min(c.LimitBytes, slab.ArenaMaxBytes)
	}
	return min(c.LimitBytes*reserveFactor, slab.ArenaMaxBytes)
}

// pinnedMax bounds the bytes of values that are being sent: a quarter of the
// limit, so that slow readers cannot take the cache away from the rest. One
// item of the largest size always fits.
func (s *Store) pinnedMax() int64 { return max(s.budget.Limit()/4, s.largestBytes()) }

// uploadMax bounds the bytes of values that are not whole yet: three quarters
// of the limit.
func (s *Store) uploadMax() int64 { return max(s.budget.Limit()/4*3, s.largestBytes()) }

// largestBytes is what an item of the largest size takes, with its rounding.
func (s *Store) largestBytes() int64 {
	return int64(s.cfg.ItemMaxBytes + s.cfg.ItemMaxBytes/8 + 2*s.cfg.PageBytes)
}

// Close gives all memory back. No other call may be under way or follow.
func (s *Store) Close() error {
	var errs []error
	for _, sh := range s.shards {
		errs = append(errs, sh.close())
	}
	s.shards = nil
	if s.file != nil {
		errs = append(errs, s.file.close())
		s.file = nil
	}
	return errors.Join(errs...)
}

// Shards is the number of shards.
func (s *Store) Shards() int { return len(s.shards) }

// PageBytes is the size of the pages that shards take from the limit.
func (s *Store) PageBytes() int { return s.cfg.PageBytes }

// GrowthFactor is that of the classes, 0 where they are Quarry's own.
func (s *Store) GrowthFactor() float64 { return s.cfg.GrowthFactor }

// LimitBytes is the limit on item pages.
func (s *Store) LimitBytes() int64 { return s.budget.Limit() }

// tooLarge reports whether an item is over the limit, counted as memcached
// counts it, with its own header, so that what fits there fits here.
func (s *Store) tooLarge(keyLen, valueLen int, flags uint32) bool {
	n := itemHeaderMemcached + keyLen + 1 + valueLen + 2
	if !s.cfg.NoCAS {
		n += 8
	}
	if flags != 0 {
		n += flagsBytes
	}
	return n > s.cfg.ItemMaxBytes
}

// shardOf is the shard of k.
func (s *Store) shardOf(k Key) *shard { return s.shards[shardBits(k.Hash)&s.mask] }

// lock takes the shard of k to change it, and lets a flush whose time has come
// happen.
func (s *Store) lock(k Key, now Time) *shard {
	sh := s.lockToRead(k, now)
	sh.change()
	return sh
}

// lockToRead is lock for one who says so before it changes something.
func (s *Store) lockToRead(k Key, now Time) *shard {
	sh := s.shardOf(k)
	if s.stalls == nil {
		sh.lockToRead()
	} else {
		sh.lockTimed()
	}
	sh.enter(now)
	return sh
}
