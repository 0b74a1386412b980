package store

import "math/bits"

// keyChanges are the keys of a shard whose version, deadlines or floor have changed
// of late, in their order, for whoever keeps copies of them elsewhere. What
// matters is the state that a key has when it is read: a key that changed twice
// may be read once.
type keyChanges struct {
	keys []byte               // of each, its length and bytes
	lost [Buckets / 64]uint64 // buckets of which a change found no room
}

// changesMaxBytes bounds the keys of a shard that nobody has taken yet.
const changesMaxBytes = 256 << 10

// TrackChanges says whether changes are kept for Changes to take.
func (s *Store) TrackChanges(on bool) {
	for _, sh := range s.shards {
		sh.lock()
		switch {
		case !on:
			sh.changes = nil
		case sh.changes == nil:
			sh.changes = new(keyChanges)
		}
		sh.unlock()
	}
}

// Changes shows changed each key whose version, deadlines or floor have changed
// since it was called last, and lost each bucket of which there may be others:
// there were too many. The keys are views that end with the call. Only one
// goroutine may take changes.
func (s *Store) Changes(changed func(key []byte), lost func(bucket int)) {
	var taken keyChanges
	for _, sh := range s.shards {
		sh.lock()
		if c := sh.changes; c != nil && (len(c.keys) > 0 || c.lost != [Buckets / 64]uint64{}) {
			taken, *c = *c, keyChanges{keys: s.spareChanges[:0]}
			s.spareChanges = nil
		}
		sh.unlock()
		for p := taken.keys; len(p) > 0; {
			n := int(p[0])
			changed(p[1 : 1+n])
			p = p[1+n:]
		}
		for i, w := range taken.lost {
			for ; w != 0; w &= w - 1 {
				lost(i*64 + bits.TrailingZeros64(w))
			}
		}
		if taken.keys != nil {
			s.spareChanges = taken.keys
		}
		taken = keyChanges{}
	}
}

// noteChange notes that the state of k has changed.
func (sh *shard) noteChange(k Key) {
	c := sh.changes
	if c == nil {
		return
	}
	if len(c.keys)+1+len(k.Bytes) > changesMaxBytes {
		b := k.Bucket()
		c.lost[b/64] |= 1 << (b % 64)
		return
	}
	c.keys = append(append(c.keys, byte(len(k.Bytes))), k.Bytes...)
}

// noteIfVersioned is noteChange for a key that may never have had a version.
func (sh *shard) noteIfVersioned(k Key) {
	if sh.changes == nil {
		return
	}
	if r := sh.find(k); r != 0 && sh.a.Tag(r)&hasExtra != 0 {
		sh.noteChange(k)
	} else if rec := sh.records.find(k); rec != nil && rec.floor != 0 {
		sh.noteChange(k)
	}
}

// noteAllChanged notes that all buckets have changed.
func (sh *shard) noteAllChanged() {
	if c := sh.changes; c != nil {
		for i := range c.lost {
			c.lost[i] = 1<<64 - 1
		}
	}
}

// State shows v, unless nil, what is stored under k, a known absence too, and
// tells the floor, 0 for none. It counts nothing, and changes nothing.
func (s *Store) State(k Key, now Time, v Visitor) (floor uint64, st Status) {
	sh := s.lock(k, now)
	defer sh.unlock()
	floor, _ = sh.floorOf(k)
	r := sh.find(k)
	if r == 0 || sh.isGone(r, now) {
		return floor, Miss
	}
	it := sh.item(r)
	if x := it.extra(); x.Hard != 0 && x.Hard <= sh.deadlineTime(now) {
		return floor, Miss
	}
	if v != nil {
		v.VisitItem(sh.show(it, now))
	}
	return floor, OK
}
