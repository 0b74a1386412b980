package store

// Buckets is the number of buckets that keys are divided into by the top bits
// of their hash: what a cluster's map says the owners of.
const (
	Buckets    = 1 << bucketBits
	bucketBits = 12
)

// Bucket is the bucket of k.
func (k Key) Bucket() int { return int(k.Hash >> (64 - bucketBits)) }

// ownership is what a shard remembers of buckets whose owner has changed.
type ownership struct {
	items        [Buckets]uint64 // items with a CAS up to this are gone
	tokens       [Buckets]uint64 // tokens with a sequence up to this are ended
	unknownUntil [Buckets]Time   // floors are unknown until then
}

// HideBuckets makes all items of the buckets gone that are stored now, touching
// none of them, and ends their tokens: another owner may have stored something
// newer, before or since. Their floors are unknown for as long as floors are
// kept.
func (s *Store) HideBuckets(buckets []int, now Time) {
	for _, sh := range s.shards {
		sh.mu.Lock()
		sh.enter(now)
		if sh.owned == nil {
			sh.owned = new(ownership)
		}
		var hidden [Buckets]bool
		for _, b := range buckets {
			hidden[b] = true
			sh.owned.items[b] = sh.casOf(sh.seq)
			sh.keepHidden(b)
			sh.owned.tokens[b] = sh.sequenceOf(sh.tokenSeq)
			sh.owned.unknownUntil[b] = max(sh.owned.unknownUntil[b], now+Time(s.fresh.cfg.RetentionMillis))
		}
		sh.sweepAll()
		sh.freeExplicit(func(it item) bool { return hidden[Key{Hash: sh.HashOf(it.r)}.Bucket()] })
		sh.mu.Unlock()
	}
}

// isHidden reports whether a mark of the item's bucket hides it.
func (o *ownership) isHidden(h, cas uint64) bool { return cas <= o.items[Key{Hash: h}.Bucket()] }
