package store

// The model of freshness: what docs/freshness.md promises of one key, with no
// memory to manage, no lock and no clock. It is the meaning that the store has
// to have, and short enough to be read in one go.
//
//	world ─── what all keys of a node share: the clock, the start, the ownership
//	  └─ cell ─── one key: value or absence, version, deadlines, stale · floor · grant
//
// Each method of a world is one request, or one thing that happens to a node,
// and one step. Two tests use it:
//
//   - freshexplore_test.go takes every road through it, with two readers, a
//     writer and whatever can go wrong, and looks at each step for something
//     that must never happen. A rule can be left out of a world: the explorer
//     has to notice.
//   - freshstore_test.go lets the real store do what the model does, and
//     compares every answer, and all that is kept.

// rule is a part of the contract that a world can do without.
type rule uint32

const (
	ruleHard           rule = 1 << iota // nothing is served from its hard deadline on
	ruleOnce                            // a fill uses its token up
	ruleFillFloor                       // a fill below the floor is refused
	ruleNoticeToken                     // a newer notice ends the token
	ruleNoticeStale                     // and marks what is older
	ruleEvictToken                      // eviction ends the token
	ruleDeleteToken                     // so does a plain delete,
	ruleRestartToken                    // a restart,
	ruleOwnershipToken                  // and a change of owner
	ruleCopyDeadlines                   // a copy of what is there renews nothing
	ruleWarmStale                       // after a warm restart every version is in doubt
	ruleUnknownStale                    // while floors are unknown a write without a grant is, too
	ruleOldRead                         // a write without a grant whose read is older than floors are kept is refused
	ruleClock                           // nothing with a deadline is served by a clock that is not trusted
	ruleRebase                          // nor what such a clock has stored, afterwards
	ruleAbsenceMin                      // a known absence ends by a reader who knows of something newer
	ruleTokenTime                       // a token ends after its time
)

// world is what all keys of a node have in common.
type world struct {
	now     Time
	offset  Time // from now to the clock of deadlines
	trusted bool // that clock

	incarnation  uint32
	owned        uint64 // tokens up to this are of an earlier ownership
	ended        uint64 // tokens up to this have ended all at once
	unknownUntil Time   // floors

	grantMax, retention, skew Time // as configured

	without rule // left out
}

func (w *world) has(r rule) bool { return w.without&r == 0 }

// deadlineTime is the moment at which deadlines are judged.
func (w *world) deadlineTime() Time { return w.now + w.offset }

// contents is what a cell has.
type contents uint8

const (
	isNothing contents = iota
	isValue
	isAbsence // known: the source has no such row
)

// cell is all that is kept of one key.
type cell struct {
	what    contents
	bytes   string // the value
	stub    bool   // nobody stored it: N or md x left it behind
	version uint64 // 0 none: a plain value
	Deadlines
	expiry  uint32 // second of the TTL, 0 none
	stale   bool   // X
	winSent bool   // without a grant nobody is told W

	floor  uint64 // 0 none
	raised Time

	grant modelGrant
}

// modelGrant is the last grant of a key.
type modelGrant struct {
	token         Token // zero: none, or it was used or ended
	granted, ends Time
	next          Time // no grant before
	pause         Time // that the next loader to fail costs
}

// drop takes the value or the absence. The floor stays.
func (c *cell) drop() {
	*c = cell{floor: c.floor, raised: c.raised, grant: c.grant}
}

// endToken ends the token.
func (c *cell) endToken() { c.grant.token = Token{} }

// raise raises the floor, and reports whether version is above it.
func (w *world) raise(c *cell, version uint64) bool {
	if version <= c.floor {
		return false
	}
	c.floor, c.raised = version, w.now
	return true
}

// isOut reports whether the token of c can still fill.
func (w *world) isOut(c *cell) bool {
	t := c.grant.token
	return t != Token{} && w.redeem(c, t) == ReasonNone
}

// expire takes what is past its time. It ends no token.
func (w *world) expire(c *cell) {
	switch {
	case c.what == isNothing:
	case c.expiry != 0 && c.expiry <= w.now.Seconds(),
		c.Hard != 0 && c.Hard <= w.deadlineTime() && w.has(ruleHard):
		c.drop()
	}
}

// hidden reports whether c has something that cannot be judged now.
func (w *world) hidden(c *cell) bool {
	return c.Hard != 0 && !w.trusted && w.has(ruleClock)
}

// shown reports whether plain commands see a value.
func (w *world) shown(c *cell) bool {
	w.expire(c)
	return c.what == isValue && !w.hidden(c)
}

// answer is what a lookup is told.
type answer struct {
	hit     bool
	bytes   string
	version uint64 // of the value or the absence
	stale   bool   // X
	granted bool   // W with a token
	waits   bool   // Z
	won     bool   // memcached's own W
	absent  bool   // e
	floor   uint64
}

// lookup is mg with G: t is the token that it gets if one is due.
func (w *world) lookup(c *cell, least uint64, t Token, life Time) (a answer) {
	w.expire(c)
	a.floor = c.floor
	known := c.what != isNothing && !w.hidden(c)
	if known && c.what == isAbsence {
		if least <= c.version || !w.has(ruleAbsenceMin) {
			return answer{absent: true, version: c.version, floor: c.floor}
		}
		c.drop()
		known = false
	}
	a.hit = known && c.version >= least && !c.stub
	if a.hit {
		a.bytes, a.version, a.stale = c.bytes, c.version, c.stale || c.version == 0
	}
	if due := !a.hit || a.stale || c.Soft != 0 && w.deadlineTime() >= c.Soft; due {
		w.ask(c, &a, t, life)
	}
	return a
}

// ask gives the grant that is due, unless somebody has it.
func (w *world) ask(c *cell, a *answer, t Token, life Time) {
	g := &c.grant
	if w.isOut(c) || g.next > w.now {
		a.waits = true
		return
	}
	a.granted = true
	*g = modelGrant{token: t, granted: w.now, ends: w.now + min(life, w.grantMax), pause: g.pause}
}

// get is a read without a grant. noWin: a mark of staleness gives no right to
// refresh, as with get.
func (w *world) get(c *cell, least uint64, noWin bool) (a answer) {
	if w.expire(c); c.what == isAbsence && !w.hidden(c) && least > c.version {
		c.drop()
	}
	if !w.shown(c) || c.version < least {
		return answer{}
	}
	a = answer{hit: true, bytes: c.bytes, version: c.version, stale: c.stale, waits: c.winSent, floor: c.floor}
	if c.stale && !c.winSent && !noWin {
		a.won, c.winSent = true, true
	}
	return a
}

// redeem says why t is not the right to fill c now.
func (w *world) redeem(c *cell, t Token) Reason {
	switch {
	case t.incarnation != w.incarnation && w.has(ruleRestartToken):
		return ReasonIncarnation
	case t.sequence <= w.owned && w.has(ruleOwnershipToken):
		return ReasonOwnership
	case t != c.grant.token || t.sequence <= w.ended:
		return ReasonToken
	case c.grant.ends <= w.now && w.has(ruleTokenTime):
		return ReasonExpired
	}
	return ReasonNone
}

// judge says why f must not be stored.
func (w *world) judge(c *cell, f *Fill) Reason {
	if f.HasToken {
		if why := w.redeem(c, f.Token); why != ReasonNone {
			return why
		}
	}
	at, slack := w.deadlineTime(), 2*w.skew
	stored := c.what != isNothing
	switch {
	case !w.trusted && f.Deadlines != Deadlines{} && w.has(ruleClock),
		f.Read != 0 && f.Read > at+slack,
		f.Read != 0 && f.HasToken && f.Read < c.grant.granted+w.offset-slack:
		return ReasonClock
	case f.Hard != 0 && f.Hard <= at,
		f.Read != 0 && !f.HasToken && f.Read-slack+w.retention <= at && w.has(ruleOldRead):
		return ReasonPast
	case f.Version < c.floor && (!f.HasToken || w.has(ruleFillFloor)),
		stored && f.Version == c.version && c.version != 0 && !f.HasToken && w.has(ruleCopyDeadlines):
		return ReasonFloor
	case f.Kind == FillRevalidate && (c.what != isValue || c.version != f.Version || f.Version == 0):
		return ReasonUnequal
	}
	return ReasonNone
}

// fill is ms with G or Y, with its TTL in seconds of Unix time.
func (w *world) fill(c *cell, f *Fill, bytes string, expiry uint32) Reason {
	w.expire(c)
	why := w.judge(c, f)
	switch why {
	case ReasonNone:
	case ReasonPast, ReasonFloor:
		if f.HasToken {
			c.endToken()
		}
		return why
	default:
		return why
	}
	if f.HasToken {
		c.grant.pause = 0
		if w.has(ruleOnce) {
			c.endToken()
		}
	}
	if f.Kind == FillRevalidate {
		c.Deadlines, c.stale, c.winSent = f.Deadlines, false, false
		return ReasonNone
	}
	doubt := !f.HasToken && w.now < w.unknownUntil && w.has(ruleUnknownStale)
	if w.raise(c, f.Version) && !f.HasToken {
		c.endToken() // it is a notice of its version
	}
	n := cell{what: isValue, bytes: bytes, version: f.Version, Deadlines: f.Deadlines, expiry: expiry,
		stale: doubt, winSent: doubt, floor: c.floor, raised: c.raised, grant: c.grant}
	if f.Kind == FillAbsent {
		n.what, n.bytes = isAbsence, ""
	}
	*c = n
	return ReasonNone
}

// unstorable is a fill for which there is no room: it ends the token.
func (w *world) unstorable(c *cell, f *Fill) {
	if f.HasToken && w.redeem(c, f.Token) == ReasonNone {
		c.endToken()
	}
}

// notice is md with Y, and I unless it is a takedown.
func (w *world) notice(c *cell, version uint64, takedown bool) {
	w.expire(c)
	newer := w.raise(c, version)
	if newer && w.has(ruleNoticeToken) {
		c.endToken()
	}
	switch {
	case c.what == isNothing || c.version >= version:
	case takedown || c.what == isAbsence:
		c.drop()
	case newer && w.has(ruleNoticeStale):
		c.stale, c.winSent = true, true
	}
}

// giveBack is md with G.
func (w *world) giveBack(c *cell, t Token) Reason {
	if why := w.redeem(c, t); why != ReasonNone {
		return why
	}
	g := &c.grant
	g.next = w.now + g.pause
	g.pause = min(max(2*g.pause, givenBackPause), w.grantMax)
	c.endToken()
	return ReasonNone
}

// set is a plain write: of a new value, or in the place of what is there.
func (w *world) set(c *cell, bytes string, expiry uint32) {
	c.endToken()
	c.drop()
	c.what, c.bytes, c.expiry = isValue, bytes, expiry
}

// alter is a plain write that makes a value of the one that is there: append,
// prepend, incr. What it was made of was read when it was read.
// In place, its marks stay.
func (w *world) alter(c *cell, bytes string, inPlace bool) {
	n := *c
	w.set(c, bytes, n.expiry)
	if c.Deadlines = n.Deadlines; inPlace {
		c.stale, c.winSent = n.stale, n.winSent
	}
}

// vivify is what N leaves behind where there is nothing to be seen.
func (w *world) vivify(c *cell, expiry uint32) {
	w.set(c, "", expiry)
	c.stub, c.winSent = true, true
}

// remove is a plain delete, which also takes what plain commands do not see.
func (w *world) remove(c *cell) {
	if w.has(ruleDeleteToken) {
		c.endToken()
	}
	c.drop()
}

// invalidate is a plain md I.
func (w *world) invalidate(c *cell) {
	c.endToken()
	if !w.shown(c) {
		c.drop()
		return
	}
	c.stale, c.winSent = true, false
}

// empty is a plain md x.
func (w *world) empty(c *cell, expiry uint32) {
	w.set(c, "", expiry)
	c.stub = true
}

// evict takes the value for want of room.
func (w *world) evict(c *cell) {
	if w.has(ruleEvictToken) {
		c.endToken()
	}
	c.drop()
}

// canForget reports whether the floor of c need not be kept.
func (w *world) canForget(c *cell) bool {
	return c.what == isNothing && c.raised+w.retention <= w.now
}

// forget is a floor that goes from a full table: until the time for which it
// would have been kept, floors are unknown.
func (w *world) forget(c *cell) {
	w.unknownUntil = max(w.unknownUntil, c.raised+w.retention)
	c.floor, c.raised = 0, 0
}

// restart is a new start, warm or cold.
func (w *world) restart(c *cell, warm bool) {
	w.incarnation++
	switch {
	case !warm:
		w.unknownUntil = w.now + w.retention
		g := c.grant
		if *c = (cell{}); !w.has(ruleRestartToken) {
			c.grant = g
		}
		return
	case c.what == isValue && c.version != 0 && w.has(ruleWarmStale):
		c.stale, c.winSent = true, true
	}
	if w.has(ruleRestartToken) {
		c.grant = modelGrant{}
	}
}

// hide is a change of the owner of the key's bucket, after the sequence-th
// token.
func (w *world) hide(c *cell, sequence uint64) {
	w.owned = sequence
	w.unknownUntil = max(w.unknownUntil, w.now+w.retention)
	c.drop()
}

// rebase sets the clock of deadlines, after the sequence-th token.
func (w *world) rebase(c *cell, offset Time, sequence uint64) {
	w.offset, w.trusted = offset, true
	if !w.has(ruleRebase) {
		return
	}
	w.ended = sequence
	if c.Hard != 0 {
		c.drop()
	}
}
