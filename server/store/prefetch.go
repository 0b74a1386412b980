package store

// PrefetchMax is the most keys that one Prefetch takes. As many loads from
// memory are under way at once as a core has buffers for: 10 to 48.
const PrefetchMax = 32

const (
	cacheLineBytes = 64

	// prefetchItemBytes of an item are prefetched: header, key, and the
	// beginning of the value. The processor sees for itself how a copy of a
	// longer one goes on.
	prefetchItemBytes = 3 * cacheLineBytes
)

// Prefetch begins to bring what is known of keys into the cache: for requests
// that follow at once, so that they wait for memory together instead of one
// after the other. It changes nothing. There are at most PrefetchMax keys.
func (s *Store) Prefetch(keys []Key) {
	for i := range keys {
		if i > 0 && keys[i].Hash == keys[i-1].Hash {
			continue // a hot key
		}
		sh := s.shards[shardBits(keys[i].Hash)&s.mask]
		sh.idx.prefetch(keys[i].Hash)
	}
	for i := range keys {
		if i > 0 && keys[i].Hash == keys[i-1].Hash {
			continue
		}
		s.shards[shardBits(keys[i].Hash)&s.mask].prefetchItem(keys[i].Hash)
	}
}

// prefetchItem prefetches the first item that a lookup of hash h will look at.
// It takes no lock: what it reads is in memory that stays readable, and a wrong
// address is prefetched in vain. The race detector is told nothing of that.
func (sh *shard) prefetchItem(h uint64) {
	if raceEnabled {
		sh.mu.Lock()
		defer sh.mu.Unlock()
	}
	b := sh.idx.bucketAbout(h)
	c, _ := b.match(tagBits(h))
	i := c.next()
	if i < 0 {
		return
	}
	sh.order.Prefetch(h)
	if r := b.ref(i); r != 0 {
		for off := uint64(0); off < prefetchItemBytes; off += cacheLineBytes {
			sh.a.Prefetch(r.Off() + off)
		}
	}
}

// ItemsAbout is about how many items there are: what the index of the first
// shard is made for, times the number of shards; 0 while it is as small as that
// of an empty shard. It needs no lock.
func (s *Store) ItemsAbout() int {
	buckets := int(s.shards[0].idx.bucketsAbout())
	if buckets == 1<<indexLevelMin {
		return 0
	}
	return buckets * loadMax * len(s.shards)
}
