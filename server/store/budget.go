package store

import "sync"

// GrantClass is what a grant is for.
type GrantClass uint8

// The classes of grants.
const (
	GrantNone       GrantClass = iota
	GrantForeground            // somebody waits for the value
	GrantBackground            // refresh ahead, warming: the first to be cut
	GrantStrong                // foreground, for a reader with a minimum version
	grantClasses
)

// budget bounds what the grants of all shards together let loose on the
// source: how many are given in any second, for each class, and how many are
// out at once. A grant is a ticket that is never refunded; a fill, a refusal,
// a token given back and one whose time has passed free its place among those
// that are out.
//
// Its lock is taken under a shard's, and nothing is locked under it.
type budget struct {
	mu sync.Mutex // all below

	foreground, background window
	inflightMax            int // 0 no limit
	adapt                  *adapter

	// ends[t % len] is how many tokens end in millisecond t, as far as they
	// are out.
	ends  [endsMillis]int32
	now   Time // the moment until which ended tokens were taken off
	out   int
	fills fillTimes
}

// endsMillis is the longest time that a grant can have, and a bit.
const endsMillis = 1 << 16

// limit makes the rates those of the flags, or lower ones: 0 is no limit.
func (b *budget) limit(c *FreshConfig, foreground, background int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.foreground.max = lower(c.RateForeground, foreground)
	b.background.max = lower(c.RateBackground, background)
}

// lower is the lower of two limits, where 0 is none.
func lower(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// LimitFills bounds the grants in any second further than the configuration
// does: the source behind this store is shared with others. 0 is no bound.
func (s *Store) LimitFills(foreground, background int) {
	s.fresh.budget.limit(&s.fresh.cfg, foreground, background)
}

// FillLimits are the grants that there may be in any second now, 0 no limit.
func (s *Store) FillLimits() (foreground, background int) {
	b := &s.fresh.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.foreground.max, b.background.max
}

// window counts what happened in the last second, by millisecond.
type window struct {
	max   int // in a second, 0 no limit
	sum   int
	at    Time // the millisecond counted last
	count [windowMillis]int32
}

// windowMillis: two moments less than a second apart can be in milliseconds
// that are 1000 apart.
const windowMillis = millisPerSecond + 1

// advance forgets what is older than a second.
func (w *window) advance(now Time) {
	if now-w.at >= windowMillis {
		clear(w.count[:])
		w.sum, w.at = 0, now
		return
	}
	for ; w.at < now; w.at++ {
		i := (w.at + 1) % windowMillis
		w.sum -= int(w.count[i])
		w.count[i] = 0
	}
}

// wait is how many milliseconds there is no room for another, 0 if there is.
func (w *window) wait(now Time) int64 {
	w.advance(now)
	if w.max == 0 || w.sum < w.max {
		return 0
	}
	for t := w.at - windowMillis + 1; t <= w.at; t++ {
		if w.count[t%windowMillis] > 0 {
			return int64(t + windowMillis - w.at)
		}
	}
	return 1
}

func (w *window) take() {
	w.sum++
	w.count[w.at%windowMillis]++
}

// advance takes the tokens off whose time has passed.
func (b *budget) advance(now Time) {
	if now-b.now >= endsMillis {
		clear(b.ends[:])
		b.out, b.now = 0, now
	}
	for ; b.now < now; b.now++ {
		i := (b.now + 1) % endsMillis
		if b.ends[i] == 0 {
			continue
		}
		b.out -= int(b.ends[i])
		b.ends[i] = 0
		if b.adapt != nil {
			b.adapt.cut(b.now + 1) // nothing came back in all its time
		}
	}
}

// take takes a ticket for a grant that ends at ends, or says in how many
// milliseconds it makes sense to ask again.
func (b *budget) take(c GrantClass, now, ends Time) (waitMillis int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// A shard that read its clock before another one goes by that one's.
	now = max(now, b.now)
	b.advance(now)
	w := &b.foreground
	if c == GrantBackground {
		w = &b.background
	}
	if wait := w.wait(now); wait > 0 {
		return wait
	}
	if most := b.outMax(c); most > 0 && b.out >= most {
		return b.waitForPlace()
	}
	w.take()
	b.out++
	if b.adapt != nil && b.out >= b.adapt.limit() {
		b.adapt.fullAt = now
	}
	b.ends[max(ends, b.now+1)%endsMillis]++
	return 0
}

// outMax is how many tokens of class c may be out at once, 0 no limit.
// Background gets the last quarter of them only while nobody waits for more.
func (b *budget) outMax(c GrantClass) int {
	most := b.inflightMax
	if b.adapt != nil {
		if n := b.adapt.limit(); most == 0 || n < most {
			most = n
		}
	}
	if c == GrantBackground && most > 0 {
		most = max(most*3/4, 1)
	}
	return most
}

// waitForPlace is when it makes sense to ask again when too many are out: when
// one of them has been filled, if they take as long as others did.
func (b *budget) waitForPlace() int64 {
	if b.fills.mean == 0 {
		return waitUnknownMillis
	}
	return int64(b.fills.mean)
}

// waitUnknownMillis is the wait that is suggested while no fill has been seen.
const waitUnknownMillis = 10

// free frees the place of a token that would have ended at ends. filled is how
// long its fill took, or 0 if it was none.
func (b *budget) free(now, ends, filled Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(max(now, b.now))
	if ends <= b.now {
		return // its time has passed meanwhile
	}
	b.out--
	b.ends[ends%endsMillis]--
	if filled > 0 {
		b.fills.note(filled)
		if b.adapt != nil {
			b.adapt.filled(filled, b.now)
		}
	}
}

// inflight is how many tokens are out.
func (b *budget) inflight(now Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(max(now, b.now))
	return b.out
}

// typical is how long a fill takes, in milliseconds; 0 is not known.
func (b *budget) typical() Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fills.mean
}

// fillTimes is a mean that follows the last few fills.
type fillTimes struct{ mean Time }

const fillTimesWeight = 8

func (f *fillTimes) note(took Time) {
	if f.mean == 0 {
		f.mean = took
		return
	}
	f.mean += (took - f.mean) / fillTimesWeight
}

// adapter finds how many tokens may be out by the times that fills take, as
// TCP finds its window (additive increase, multiplicative decrease): while
// fills are about as fast as they have been, and as many are out as may be, one
// more for each round of them; when they take twice as long, a part less, once a
// round. So a source that becomes slow sees no more questions at once than it did,
// and then fewer.
type adapter struct {
	limitNow float64
	base     float64 // ms of a fill when the source is well
	recent   float64 // ms of the last fills
	cutAt    Time
	fullAt   Time // as many were out as may be
}

const (
	adaptStart    = 16   // tokens out at the start
	adaptMin      = 4    // and at least, so that it is seen when the source is well again
	adaptMax      = 4096 // and at most
	adaptSlow     = 2    // times the base is slow
	adaptCut      = 0.7  // of the limit is left then, as CUBIC does
	adaptRecent   = 0.1  // weight of a fill in recent
	adaptBaseUp   = 0.001
	adaptBaseDown = 0.1
)

func newAdapter() *adapter { return &adapter{limitNow: adaptStart} }

func (a *adapter) limit() int { return int(a.limitNow) }

func (a *adapter) filled(took, now Time) {
	ms := float64(took)
	if a.base == 0 {
		a.base, a.recent = ms, ms
	}
	a.recent += (ms - a.recent) * adaptRecent
	// The base follows what is faster soon, and what is slower only in a
	// thousand fills: a source that is slow for good is well again then.
	weight := adaptBaseUp
	if ms < a.base {
		weight = adaptBaseDown
	}
	a.base += (ms - a.base) * weight
	switch {
	case a.recent <= a.base*adaptSlow:
		if now-a.fullAt <= Time(a.recent) {
			a.limitNow = min(a.limitNow+1/a.limitNow, adaptMax)
		}
	default:
		a.cut(now)
	}
}

// cut takes a part off the limit, once a round.
func (a *adapter) cut(now Time) {
	if now-a.cutAt >= Time(a.recent) {
		a.limitNow = max(a.limitNow*adaptCut, adaptMin)
		a.cutAt = now
	}
}
