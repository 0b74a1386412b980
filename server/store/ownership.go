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

	highest uint64 // of items: what was stored since needs no look at its bucket
}

// HideBuckets makes all items of the buckets gone that are stored now, touching
// none of them, and ends their tokens: another owner may have stored something
// newer, before or since. Their floors are unknown for as long as floors are
// kept.
func (s *Store) HideBuckets(buckets []int, now Time) {
	for _, sh := range s.shards {
		sh.lock()
		sh.enter(now)
		if sh.owned == nil {
			sh.owned = new(ownership)
		}
		var hidden [Buckets]bool
		for _, b := range buckets {
			hidden[b] = true
			sh.owned.items[b] = sh.casOf(sh.seq)
			sh.owned.highest = sh.casOf(sh.seq)
			sh.keepHidden(b)
			sh.owned.tokens[b] = sh.sequenceOf(sh.tokenSeq)
			sh.owned.unknownUntil[b] = max(sh.owned.unknownUntil[b], now+Time(s.fresh.cfg.RetentionMillis))
		}
		sh.settleMarks()
		sh.sweepAll()
		sh.freeExplicit(func(it item) bool { return hidden[Key{Hash: sh.HashOf(it.r)}.Bucket()] })
		sh.unlock()
	}
}

// IsNew reports whether nothing was ever stored.
func (s *Store) IsNew() bool {
	if s.restart.Found {
		return false
	}
	for _, sh := range s.shards {
		sh.lock()
		used := sh.seq != sh.seqFirst || sh.explicit > 0 || sh.records.n > 0
		sh.unlock()
		if used {
			return false
		}
	}
	return true
}

// isHidden reports whether a mark of the item's bucket hides it.
func (sh *shard) isHidden(it item, cas uint64) bool {
	o := sh.owned
	return o != nil && cas <= o.highest && cas <= o.items[Key{Hash: sh.HashOf(it.r)}.Bucket()]
}

// WithholdPlain says that values without a version which are stored now are not
// shown from now on, or that they are again: after a restart nobody may know yet
// who owns them, and nothing in them tells how old they are. One that is asked
// for meanwhile is gone.
func (s *Store) WithholdPlain(on bool) {
	for _, sh := range s.shards {
		sh.lock()
		sh.withheld = 0
		if on {
			sh.withheld = sh.casOf(sh.seq)
		}
		sh.settleMarks()
		sh.unlock()
	}
}

// isWithheld reports whether it is not to be shown for want of a version. When
// an item with a CAS of its client's was stored is not known.
func (sh *shard) isWithheld(it item) bool {
	if sh.withheld == 0 || it.tag&explicitCAS == 0 && it.cas() > sh.withheld {
		return false
	}
	x := it.extra()
	return x.version == 0 && !x.absent
}
