package store

import (
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// A tenant that stores more than its memory quota allows loses items of its
// own, right after the store, until it is within the quota again. The order
// of eviction is shared by all tenants, and has no list of a tenant's items;
// so they are looked for, in three places:
//
//  1. at the end of probation, in the class of what was stored: the items of
//     a tenant that scans are there;
//  2. in the pages of that class, then of any, from where the last search
//     ended: of the first few that are found, the one that has been of least
//     use goes. The same class comes first because the next store of the
//     tenant finds the chunk there, and takes none of its neighbours';
//  3. among the keys that the tenant stored last.
//
// A search has a bound. What it does not find the tenant is over, and the
// following stores work it off; one that is over by more than a part of its
// quota stores nothing.
const (
	ownTailSteps   = 8   // items looked at in 1
	ownLooksMax    = 64  // chunks and pages looked at in 2, in the class and in all
	ownSamples     = 8   // items found in 2 that are enough to choose from
	ownLooksTotal  = 512 // chunks and pages looked at for one store
	ownVictimsMax  = 256 // items evicted for one store
	ownOverdraft   = 8   // a tenant is over by an eighth at most
	creditSeconds  = 1   // of new keys that a tenant can save up
	creditKeyUnits = millisPerSecond
)

// hand is where a search in the pages goes on.
type hand struct {
	page  uint32
	chunk int
}

// admit decides whether the quota of the tenant of k lets an item be stored,
// and takes what it costs.
func (sh *shard) admit(k Key, valueLen, footprint int, o *SetOptions, now Time) Status {
	r := sh.claim(k.Bytes, footprint)
	switch {
	case r.valueMax > 0 && valueLen > r.valueMax:
		r.n.refusedValue++
		return TooLarge
	case r.memoryMax > 0 && !sh.withinMemory(r, k, footprint, o, now):
		r.n.refusedMemory++
		return NoMemory
	case r.rate > 0 && o.creates() && !sh.present(k, now) && !r.takeCredit(sh.tenants.shards, now):
		r.n.refusedRate++
		return NoMemory
	}
	r.n.sets++
	return OK
}

// admitJoined is admit for the n bytes that append or prepend come to.
func (sh *shard) admitJoined(key []byte, n int) bool {
	r := sh.tenants.findOrOther(key)
	switch {
	case r.valueMax > 0 && n > r.valueMax:
		r.n.refusedValue++
	case r.memoryMax > 0 && int64(headerBytes+len(key)+n) > r.memoryMax:
		r.n.refusedMemory++
	default:
		return true
	}
	return false
}

// creates reports whether the store makes an item where there is none.
func (o *SetOptions) creates() bool {
	switch o.Mode {
	case ModeAdd:
		return true
	case ModeSet:
		return !o.Compare
	case ModeAppend, ModePrepend:
		return o.Vivify
	}
	return false
}

func (sh *shard) present(k Key, now Time) bool {
	r := sh.find(k)
	return r != 0 && !sh.isGone(r, now)
}

// withinMemory reports whether an item of that size may be stored by r. What
// r is over then goes when the item has been linked.
func (sh *shard) withinMemory(r *tenant, k Key, footprint int, o *SetOptions, now Time) bool {
	over := r.bytes + int64(footprint) - r.memoryMax
	switch {
	case over <= 0:
		return true
	case int64(footprint) > r.memoryMax:
		return false
	case !sh.s.cfg.NoEvict:
		keep := slab.Ref(0)
		if o.Fill != nil {
			keep = sh.find(k) // it stays until the fill takes its place
		}
		sh.evictOwn(r, keep, r.memoryMax+r.memoryMax/ownOverdraft, now)
		return r.bytes <= r.memoryMax+r.memoryMax/ownOverdraft
	}
	// Nothing is evicted: an item can only take the place of its predecessor.
	old := sh.find(k)
	if old == 0 || o.Mode == ModeAppend || o.Mode == ModePrepend {
		return false
	}
	it := sh.item(old)
	return sh.tenants.owns(r, it) && over <= int64(it.footprint())
}

// creditMax is the most that a tenant with a rate saves up in a shard, of a
// second, but one key at least.
func (r *tenant) creditMax(shards int64) int64 {
	return max(r.rate*millisPerSecond*creditSeconds, creditKeyUnits*shards)
}

// takeCredit takes a new key off the credit, if there is one. In a
// millisecond, all shards together gain rate thousandths of a key.
func (r *tenant) takeCredit(shards int64, now Time) bool {
	cost := creditKeyUnits * shards
	// A clock that was set back gives nothing, and takes nothing.
	if gone := int64(now - r.creditAt); gone >= cost {
		r.credit = r.creditMax(shards)
	} else if gone > 0 {
		r.credit = min(r.credit+gone*r.rate, r.creditMax(shards))
	}
	r.creditAt = now
	if r.credit < cost {
		return false
	}
	r.credit -= cost
	return true
}

// linked charges an item that was just linked to its tenant, which may lose
// others for it.
func (sh *shard) linked(it item, h uint64, now Time) {
	r := sh.tenants.charged(it)
	r.items++
	r.bytes += int64(it.footprint())
	if r.memoryMax == 0 {
		return
	}
	if r.nRecent-r.gRecent == tenantRecentMax {
		r.gRecent++
	}
	r.recent[r.nRecent%tenantRecentMax] = h
	r.nRecent++
	if r.bytes > r.memoryMax && !sh.s.cfg.NoEvict {
		sh.evictOwn(r, it.r, r.memoryMax, now)
	}
}

// atQuota reports whether item it, which is not linked yet, will make its
// tenant lose another.
func (sh *shard) atQuota(it item) bool {
	r := sh.tenants.findOrOther(it.key())
	return r.memoryMax > 0 && r.bytes+int64(it.footprint()) > r.memoryMax
}

// evictOwn evicts items of r until at most limit bytes are left, without
// item keep, in whose class it looks first; 0 is none.
func (sh *shard) evictOwn(r *tenant, keep slab.Ref, limit int64, now Time) {
	looks := ownLooksTotal
	for range ownVictimsMax {
		if r.bytes <= limit {
			return
		}
		victim := sh.ownVictim(r, keep, &looks, now)
		if victim == 0 {
			return
		}
		if !sh.isGone(victim, now) {
			r.n.evictedOwn++
		}
		sh.remove(victim, now)
	}
}

// ownVictim is the item of r that goes next, or 0 if none was found.
func (sh *shard) ownVictim(r *tenant, keep slab.Ref, looks *int, now Time) slab.Ref {
	t := sh.tenants
	if keep != 0 {
		c := sh.a.ClassOf(keep)
		if v := sh.ownAtTail(r, sh.orderClass(sh.item(keep)), keep); v != 0 {
			return v
		}
		if v := sh.ownInPages(r, &t.hands[c], c, keep, looks, now); v != 0 {
			return v
		}
	}
	if v := sh.ownInPages(r, &t.hands[len(t.hands)-1], -1, keep, looks, now); v != 0 {
		return v
	}
	return sh.ownRecent(r, keep)
}

// ownAtTail looks at the end of probation in order class oc.
func (sh *shard) ownAtTail(r *tenant, oc int, keep slab.Ref) slab.Ref {
	v := sh.order.Tail(oc, lru.Probation)
	for range ownTailSteps {
		if v == 0 {
			break
		}
		if it := sh.item(v); v != keep && it.tag&lru.Active == 0 && sh.tenants.owns(r, it) {
			return v
		}
		v = sh.a.Prev(v)
	}
	return 0
}

// ownInPages looks in the pages of class c (-1: any) from h on.
func (sh *shard) ownInPages(r *tenant, h *hand, c int, keep slab.Ref, looks *int, now Time) slab.Ref {
	var best slab.Ref
	var bestWorth worth
	found := 0
	left := min(*looks, ownLooksMax)
	*looks -= left
	for ; left > 0 && found < ownSamples; left-- {
		if h.page >= sh.a.Pages() {
			*h = hand{page: 1} // there is no page 0
			if sh.a.Pages() <= 1 {
				break
			}
		}
		chunks := sh.a.Page(h.page)
		if h.chunk >= chunks.N || c >= 0 && chunks.Class != c {
			*h = hand{page: h.page + 1}
			continue
		}
		v := chunks.At(h.chunk)
		h.chunk++
		it := sh.item(v)
		if v == keep || it.tag.State() < slab.StateItem || !sh.tenants.owns(r, it) {
			continue
		}
		if sh.isGone(v, now) {
			best = v
			break
		}
		found++
		if w := worthOf(it, now); best == 0 || w.less(bestWorth) {
			best, bestWorth = v, w
		}
	}
	*looks += left
	return best
}

// worth is what a tenant would lose with one of its items.
type worth struct {
	idle uint32 // since the last access; what the order thinks little of has been idle longer
	use  uint32
	cas  uint64
}

const (
	worthStepSeconds = 4 // of idle. Accesses that are closer are as good as one: the order of stores decides
	worthUseFactor   = 4 // of idle, for each step of use
	worthUseMax      = 2
)

func worthOf(it item, now Time) worth {
	w := worth{cas: it.cas(), idle: it.idleSeconds(now.Seconds()) / worthStepSeconds}
	switch s := lru.SegmentOf(it.tag); {
	case s == lru.Protected || it.tag&lru.Active != 0:
		w.use = worthUseMax
	case s == lru.Window:
		w.use = 1
	}
	for range worthUseMax - w.use {
		w.idle *= worthUseFactor
	}
	return w
}

// less reports whether w goes before o.
func (w worth) less(o worth) bool {
	switch {
	case w.idle != o.idle:
		return w.idle > o.idle
	case w.use != o.use:
		return w.use < o.use
	}
	return w.cas < o.cas
}

// ownRecent takes the key that was stored longest ago out of those that r
// stored last, one that was not read if there is one.
func (sh *shard) ownRecent(r *tenant, keep slab.Ref) slab.Ref {
	read, end := slab.Ref(0), r.nRecent
	if keep != 0 {
		end-- // the last one is keep
	}
	for r.gRecent != end {
		v := sh.ownWithHash(r, r.recent[r.gRecent%tenantRecentMax])
		r.gRecent++
		if v == 0 || v == keep {
			continue
		}
		if sh.a.Tag(v)&lru.Fetched == 0 {
			return v
		}
		if read == 0 {
			read = v
		}
	}
	return read
}

// ownWithHash is the item of r whose key has hash h, or 0.
func (sh *shard) ownWithHash(r *tenant, h uint64) slab.Ref {
	b := sh.idx.bucketOf(h)
	for {
		c, overflow := b.match(tagBits(h))
		for i := c.next(); i >= 0; i = c.next() {
			if v := b.ref(i); v != 0 && sh.HashOf(v) == h && sh.tenants.owns(r, sh.item(v)) {
				return v
			}
		}
		if overflow == 0 {
			return 0
		}
		b = bucket{sh.idx.over, uint64(overflow-1) * bucketBytes}
	}
}
