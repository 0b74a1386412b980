package store

import (
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The explorer takes every road through the model: two readers who may stop
// anywhere, a writer whose notices and copies are late, twice or in another
// order, time, and whatever can go wrong, at any moment and as often as it
// likes. It works like this:
//
//  1. A plot is all there is at a moment: the node, the key, what each reader
//     holds, what is in the network, and what an all-knowing witness would
//     remember. It has no pointers, so plots can be compared.
//  2. moves lists what can happen next, and each is one step of the model.
//  3. After each step the invariants are asked, which know nothing of how the
//     model decides: they look at what was answered, and at what the witness
//     remembers.
//  4. tidy forgets what makes no difference: times become ages, with a largest
//     one, tokens that can fill nothing are thrown away, and who is who among
//     the readers is not remembered. So there is an end of plots without a
//     bound on time, on the rounds of the readers, on how often a notice or a
//     copy arrives, or on troubles.
//  5. Breadth first, each plot is met once, and the road to what must not be is
//     a shortest one. It is printed.
//
// With -v it tells how many plots there are. The suite allows one trouble at a
// time: 101,598. QUARRY_FRESH_TROUBLES=-1 looks at all of it, with no end of
// troubles: 1,554,462, in a minute and a GB of memory.

// Time goes in steps of a millisecond.
const (
	plotGrant     = 2 // a token lives so long
	plotHard      = 4 // a value may be served so long after its read began
	plotSoft      = 1
	plotRetention = 3
	plotJump      = 2         // by which a clock goes wrong
	plotNow       = 1_000_000 // it is always then
	plotAgeMax    = 5         // beyond all of them
)

// bounds are what a search is allowed.
type bounds struct {
	troubles int8 // of any kind, on one road; negative is no end of them
	lagging  bool // a reader may read of a replica that is behind
}

// The versions that the writer commits are 1 and 2; there is no row before.
const plotVersions = 2

// plot is all there is at a moment.
type plot struct {
	world
	cell
	sequence uint64 // of the token given last
	readers  [2]modelReader
	clock    Time // UTC is so much later than now

	source uint8 // what is committed
	left   int8  // troubles to come, negative: no end of them

	witness
}

// modelReader is a reader with what it has in its hands.
type modelReader struct {
	phase phase
	token Token
	got   uint8 // what it read
	began Time  // when it began to, in UTC
}

type phase uint8

const (
	readerIdle    phase = iota
	readerGranted       // it has a token
	readerLoaded        // and what the source said
	readerDone          // and has filled
)

// witness remembers what no node could.
type witness struct {
	committed [plotVersions + 1]Time // when each version was, in UTC
	told      uint8                  // the highest version that the node was ever told of
	used      uint64                 // tokens that have filled, a bit each
	dead      uint64                 // tokens that must not fill any more
	suspect   bool                   // since the warm restart nothing was heard of this version
	lagged    bool                   // what is stored came from a replica that was behind
}

func (w *witness) bit(t Token) uint64 { return 1 << (t.sequence & 63) }

// utc is the time of the world outside.
func (s *plot) utc() Time { return s.now + s.clock }

// killAll notes that no token given so far may fill.
func (s *plot) killAll() { s.dead |= 1<<(s.sequence+1) - 1 }

func firstPlot(b bounds, without rule) plot {
	s := plot{left: b.troubles, world: world{
		now: plotNow, trusted: true, incarnation: 1,
		grantMax: plotGrant, retention: plotRetention, without: without,
	}}
	s.tidy()
	return s
}

// moves calls try with all that can happen in s.
func (s *plot) moves(b bounds, try func(name string, do func(s *plot) error)) {
	for i := range s.readers {
		s.readerMoves(i, b, try)
	}
	s.writerMoves(try)
	if s.left != 0 {
		s.troubles(func(name string, do func(s *plot)) {
			try(name, func(s *plot) error { s.left--; do(s); return nil })
		})
	}
	try("a millisecond passes", func(s *plot) error { s.now++; return nil })
}

func (s *plot) readerMoves(i int, b bounds, try func(string, func(*plot) error)) {
	r := &s.readers[i]
	who := string(rune('A' + i))
	if r.phase == readerIdle {
		try(who+" looks up", func(s *plot) error { return s.lookUp(i, 0) })
		if s.source > 0 {
			try(fmt.Sprintf("%s looks up, wants %d", who, s.source), func(s *plot) error { return s.lookUp(i, uint64(s.source)) })
		}
	}
	switch r.phase {
	case readerGranted:
		try(who+" reads the source", func(s *plot) error { s.load(i, s.source); return nil })
		if b.lagging && s.source > 0 {
			try(who+" reads a replica that is behind", func(s *plot) error { s.load(i, s.source-1); return nil })
		}
		try(who+" gives back", func(s *plot) error {
			s.giveBack(&s.cell, s.readers[i].token)
			s.readers[i].phase = readerIdle
			return nil
		})
	case readerLoaded, readerDone:
		kind := FillValue
		if r.got == 0 {
			kind = FillAbsent
		}
		again := ""
		if r.phase == readerDone {
			again = " again, for it has heard nothing"
		}
		try(fmt.Sprintf("%s fills with %d%s", who, r.got, again), func(s *plot) error { return s.fillBy(i, kind) })
		if r.got > 0 && s.what == isValue {
			try(fmt.Sprintf("%s says it is still %d", who, r.got), func(s *plot) error { return s.fillBy(i, FillRevalidate) })
		}
	}
}

func (s *plot) load(i int, version uint8) {
	r := &s.readers[i]
	r.phase, r.got, r.began = readerLoaded, version, s.utc()
}

// next is the token that is given next, if one is.
func (s *plot) next() Token {
	return Token{incarnation: s.incarnation, sequence: s.sequence + 1, nonce: 1}
}

func (s *plot) lookUp(i int, least uint64) error {
	r := &s.readers[i]
	t := s.next()
	a := s.lookup(&s.cell, least, t, plotGrant)
	if err := s.checkServed(&a, least, true); err != nil {
		return err
	}
	if a.granted {
		s.sequence++
		r.phase, r.token = readerGranted, t
	}
	return nil
}

func (s *plot) fillBy(i int, kind FillKind) error {
	r := &s.readers[i]
	f := Fill{Kind: kind, HasToken: true, Token: r.token, Version: uint64(r.got),
		Deadlines: Deadlines{Hard: r.began + plotHard, Soft: r.began + plotSoft, Read: r.began}}
	if s.fill(&s.cell, &f, "", 0) != ReasonNone {
		if kind != FillRevalidate {
			r.phase = readerDone
		}
		return nil
	}
	r.phase = readerDone
	bit := s.bit(r.token)
	switch {
	case s.used&bit != 0:
		return fmt.Errorf("token %d has filled twice", r.token.sequence)
	case s.dead&bit != 0:
		return fmt.Errorf("token %d has filled after it was ended", r.token.sequence)
	}
	s.used |= bit
	s.suspect, s.lagged = false, r.got < s.told
	s.told = max(s.told, r.got)
	return nil
}

func (s *plot) writerMoves(try func(string, func(*plot) error)) {
	if s.source < plotVersions {
		try(fmt.Sprintf("%d is committed", s.source+1), func(s *plot) error {
			s.source++
			s.committed[s.source] = s.utc()
			return nil
		})
	}
	for v := uint8(1); v <= s.source; v++ {
		try(fmt.Sprintf("a notice of %d arrives", v), func(s *plot) error { s.hear(v, false); return nil })
		try(fmt.Sprintf("a queued write of %d arrives", v), func(s *plot) error { s.write(v, s.committed[v]); return nil })
	}
}

func (s *plot) hear(v uint8, takedown bool) {
	if uint64(v) > s.floor {
		s.killAll()
	}
	s.notice(&s.cell, uint64(v), takedown)
	s.told = max(s.told, v)
	if s.version < uint64(v) {
		s.suspect = false // it is marked for a reason of its own
	}
}

// write is a write without a grant: of what was committed, at the moment when
// that was, or as a careless copier has it.
func (s *plot) write(v uint8, at Time) {
	f := Fill{Version: uint64(v), Deadlines: Deadlines{Hard: at + plotHard, Soft: at + plotSoft, Read: at}}
	if why := s.fill(&s.cell, &f, "", 0); why == ReasonNone {
		s.suspect, s.lagged = false, false
		s.told = max(s.told, v)
	}
}

// troubles are what can go wrong at any moment.
func (s *plot) troubles(try func(string, func(*plot))) {
	if s.what != isNothing {
		try("the value is evicted", func(s *plot) { s.killAll(); s.evict(&s.cell) })
	}
	if s.floor != 0 && s.what == isNothing {
		try("the floor goes from the full table", func(s *plot) { s.forget(&s.cell) })
	}
	try("a cold restart", func(s *plot) {
		s.killAll()
		s.restart(&s.cell, false)
		s.suspect = false
	})
	try("a warm restart", func(s *plot) {
		s.killAll()
		s.restart(&s.cell, true)
		s.suspect = true
	})
	try("the bucket changes its owner", func(s *plot) { s.killAll(); s.hide(&s.cell, s.sequence) })
	try("a plain delete", func(s *plot) { s.killAll(); s.remove(&s.cell) })
	try("a plain write", func(s *plot) { s.killAll(); s.set(&s.cell, "", 0); s.lagged, s.suspect = false, false })
	try("a plain md I", func(s *plot) { s.killAll(); s.invalidate(&s.cell) })
	try("a plain md x", func(s *plot) { s.killAll(); s.empty(&s.cell, 0) })
	try("a plain mg N", func(s *plot) {
		if !s.shown(&s.cell) {
			s.killAll()
			s.vivify(&s.cell, 0)
		}
	})
	if s.what == isValue && s.version != 0 {
		try(fmt.Sprintf("somebody copies %d with a new time", s.version), func(s *plot) { s.write(uint8(s.version), s.utc()) })
	}
	for v := uint8(1); v <= s.source; v++ {
		try(fmt.Sprintf("a takedown of %d arrives", v), func(s *plot) { s.hear(v, true) })
	}
	switch {
	case s.trusted:
		try("the node stands still, and its clock is behind", func(s *plot) { s.trusted = false; s.clock += plotJump })
		try("the wall clock is wrong", func(s *plot) { s.trusted = false })
	case s.clock == s.offset:
		try("the wall clock is right again", func(s *plot) { s.trusted = true })
	}
	if !s.trusted {
		try("the clock is set", func(s *plot) { s.killAll(); s.rebase(&s.cell, s.clock, s.sequence) })
	}
}

// checkServed asks the invariants of what a lookup was told, or of what a get
// would be.
func (s *plot) checkServed(a *answer, least uint64, ask bool) error {
	v := a.version
	switch {
	case a.absent && v < least:
		return fmt.Errorf("known to be absent at %d, told to a reader who knows of %d", v, least)
	case a.hit && v < least:
		return fmt.Errorf("version %d, given to a reader who wants %d", v, least)
	case !a.hit && !a.absent:
		return nil
	case v == 0 && a.hit && ask && !a.stale:
		return fmt.Errorf("a plain value is fresh")
	case v == 0 && a.hit:
		return nil // nothing is promised of plain values
	case s.Hard != 0 && s.utc() >= s.Hard && s.what != isNothing:
		return fmt.Errorf("served %d ms past hard", s.utc()-s.Hard)
	case s.lagged:
		return nil // the source itself has told something old
	case v < uint64(s.source) && s.utc() >= s.committed[v+1]+plotHard:
		return fmt.Errorf("version %d, served %d ms after %d was committed", v, s.utc()-s.committed[v+1], v+1)
	case !a.stale && v < uint64(s.told):
		return fmt.Errorf("version %d as fresh, when the node was told of %d", v, s.told)
	case !a.stale && s.suspect && a.hit:
		return fmt.Errorf("version %d as fresh, when its notices may have been missed", v)
	}
	return nil
}

// check asks the invariants of the step from before to s, which is called name.
func (s *plot) check(before *plot, name string) error {
	// What anybody could be told now, without a trace.
	peek := *s
	if a := peek.get(&peek.cell, 0, true); a.hit {
		if err := s.checkServed(&a, 0, false); err != nil {
			return err
		}
	}
	if a := s.told; a < before.told {
		return fmt.Errorf("the witness has forgotten")
	}
	if err := s.checkFloor(before, name); err != nil {
		return err
	}
	restarted := s.incarnation != before.incarnation
	if s.what != isNothing && before.what != isNothing && s.version != 0 && s.version < before.version && !restarted {
		return fmt.Errorf("version %d was replaced by %d", before.version, s.version)
	}
	renewed := strings.Contains(name, "fills") || strings.Contains(name, "still")
	if s.what != isNothing && s.version != 0 && s.version == before.version && s.Hard > before.Hard && before.what != isNothing && !renewed {
		return fmt.Errorf("the hard deadline of version %d has grown by %d ms", s.version, s.Hard-before.Hard)
	}
	return s.checkTokens()
}

func (s *plot) checkFloor(before *plot, name string) error {
	if s.floor >= before.floor {
		return nil
	}
	if strings.HasPrefix(name, "a cold restart") || strings.HasPrefix(name, "the floor goes") || before.canForget(&before.cell) {
		return nil
	}
	return fmt.Errorf("the floor has fallen from %d to %d", before.floor, s.floor)
}

// checkTokens: one token can fill at most, none that has or that was ended, and
// a reader who has died holds nobody up for longer than its token lives.
func (s *plot) checkTokens() error {
	var good Token
	for i := range s.readers {
		t := s.readers[i].token
		if t == (Token{}) || s.redeem(&s.cell, t) != ReasonNone {
			continue
		}
		if s.dead&s.bit(t) != 0 {
			return fmt.Errorf("token %d is good after it was ended", t.sequence)
		}
		if good != (Token{}) && good != t {
			return fmt.Errorf("tokens %d and %d are both good", good.sequence, t.sequence)
		}
		good = t
	}
	later := *s
	later.now += plotGrant
	if a := later.lookup(&later.cell, uint64(s.source), later.next(), plotGrant); a.waits {
		return fmt.Errorf("%d ms later there is still no grant", plotGrant)
	}
	return nil
}

// found is what a search has found.
type found struct {
	plots, steps int
	road         []string // to what must not be; nil: there is none
	err          error
}

// explore searches all plots that b allows.
func explore(b bounds, without rule) found {
	// step is how a plot was met first: the move-th of those that can happen in
	// the plot met from-th.
	type step struct{ from, move int32 }
	// Plots are known by 64 bits: of a million, two share them once in 30
	// million searches.
	met := make(map[uint64]struct{})
	seed := maphash.MakeSeed()
	first := firstPlot(b, without)
	met[maphash.Comparable(seed, first)] = struct{}{}
	steps := []step{{-1, 0}}
	var f found
	for at, shore := 0, []plot{first}; len(shore) > 0; {
		var next []plot
		for _, here := range shore {
			n := int32(-1)
			here.moves(b, func(name string, do func(*plot) error) {
				if n++; f.err != nil {
					return
				}
				f.steps++
				s := here
				if f.err = do(&s); f.err == nil {
					f.err = s.check(&here, name)
				}
				s.tidy()
				h := maphash.Comparable(seed, s)
				if _, ok := met[h]; ok && f.err == nil {
					return
				}
				met[h] = struct{}{}
				steps = append(steps, step{int32(at), n})
				next = append(next, s)
			})
			if f.err != nil {
				break
			}
			at++
		}
		if f.err != nil {
			break
		}
		shore = next
	}
	f.plots = len(steps)
	if f.err == nil {
		return f
	}
	var moves []int32
	for n := len(steps) - 1; steps[n].from >= 0; n = int(steps[n].from) {
		moves = append(moves, steps[n].move)
	}
	slices.Reverse(moves)
	s := first
	for _, m := range moves {
		n, here := int32(-1), s
		here.moves(b, func(name string, do func(*plot) error) {
			if n++; n == m {
				f.road = append(f.road, name)
				_ = do(&s) // the last of them fails
				s.tidy()
			}
		})
	}
	return f
}

// tidy forgets what makes no difference any more, so that plots are the same
// that behave the same.
func (s *plot) tidy() {
	s.expire(&s.cell)
	if s.canForget(&s.cell) {
		s.floor, s.raised = 0, 0
	}
	s.tidyTokens()
	s.tidyTimes()
	if s.left < 0 {
		s.left = -1
	}
	if a, b := &s.readers[0], &s.readers[1]; b.phase < a.phase || b.phase == a.phase && (b.got < a.got || b.got == a.got && b.began < a.began) {
		*a, *b = *b, *a
	}
}

// tidyTokens throws away the tokens that fill nothing, and numbers the one that
// is left, if there is one.
func (s *plot) tidyTokens() {
	g := &s.grant
	if !s.isOut(&s.cell) {
		g.token, g.granted, g.ends = Token{}, 0, 0
	}
	used, dead := s.used&s.bit(g.token) != 0, s.dead&s.bit(g.token) != 0
	var token Token
	if g.token != (Token{}) {
		token = Token{incarnation: 1, sequence: 1, nonce: 1}
	}
	for i := range s.readers {
		r := &s.readers[i]
		if r.token == (Token{}) || r.token != g.token {
			*r = modelReader{} // what it will say changes nothing
			continue
		}
		if r.token = token; r.phase == readerGranted {
			r.got, r.began = 0, 0
		}
	}
	g.token = token
	s.incarnation, s.sequence, s.owned, s.ended, s.used, s.dead = 1, token.sequence, 0, 0, 0, 0
	if used {
		s.used = s.bit(token)
	}
	if dead {
		s.dead = s.bit(token)
	}
	if g.next <= s.now {
		g.next = 0
	}
}

// tidyTimes makes it the same moment as ever, and forgets how long ago things
// were that are out of reach.
func (s *plot) tidyTimes() {
	passed := s.now - plotNow
	own := func(t *Time) {
		if *t != 0 {
			*t = max(*t-passed, plotNow-plotAgeMax)
		}
	}
	for _, t := range []*Time{&s.raised, &s.grant.granted, &s.grant.ends, &s.grant.next, &s.unknownUntil} {
		own(t)
	}
	if s.unknownUntil <= plotNow {
		s.unknownUntil = 0
	}
	// Of UTC it makes a difference how the node sees it.
	passed += s.offset
	s.committed[0] = 0
	for _, t := range []*Time{&s.Hard, &s.Soft, &s.readers[0].began, &s.readers[1].began, &s.committed[1], &s.committed[2]} {
		own(t)
	}
	s.now, s.clock, s.offset = plotNow, s.clock-s.offset, 0
	if s.Soft != 0 && s.Soft < plotNow {
		s.Soft = plotNow
	}
	s.Read = 0 // nobody asks for it any more
}

// String is the road to what was found.
func (f *found) String() string {
	var b strings.Builder
	for i, name := range f.road {
		fmt.Fprintf(&b, "  %2d. %s\n", i+1, name)
	}
	return fmt.Sprintf("%s  => %v", b.String(), f.err)
}

// S1-08, S1-22, S1-25 to S1-40: nothing that must not happen can, on any road.
func TestFreshExplore(t *testing.T) {
	b := bounds{troubles: 1}
	if raceEnabled {
		b.troubles = 0 // there is nothing here for the detector
	}
	if word := os.Getenv("QUARRY_FRESH_TROUBLES"); word != "" {
		n, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		b.troubles = int8(n)
	}
	f := explore(b, 0)
	t.Logf("%d states, %d steps", f.plots, f.steps)
	if f.err != nil {
		t.Errorf("\n%v", &f)
	}
}

// Each rule is needed: without it something happens that must not, and the
// invariants notice.
func TestFreshExploreWithout(t *testing.T) {
	for _, c := range []struct {
		name    string
		without rule
		want    string
		lagging bool
	}{
		{"hard deadlines", ruleHard, "past hard", false},
		{"using tokens up", ruleOnce, "twice", false},
		{"a floor under fills", ruleFillFloor, "was replaced by", true},
		{"notices that end tokens", ruleNoticeToken, "is good after it was ended", false},
		{"notices that mark values", ruleNoticeStale, "as fresh, when the node was told of", false},
		{"evictions that end tokens", ruleEvictToken, "is good after it was ended", false},
		{"deletes that end tokens", ruleDeleteToken, "is good after it was ended", false},
		{"an incarnation in tokens", ruleRestartToken, "is good after it was ended", false},
		{"an ownership in tokens", ruleOwnershipToken, "is good after it was ended", false},
		{"a time for tokens", ruleTokenTime, "there is still no grant", false},
		{"copies that renew nothing", ruleCopyDeadlines, "has grown", false},
		{"doubt after a warm restart", ruleWarmStale, "may have been missed", false},
		{"doubt while floors are unknown", ruleUnknownStale, "as fresh, when the node was told of", false},
		{"an age for writes", ruleOldRead, "as fresh, when the node was told of", false},
		{"distrust of the clock", ruleClock, "past hard", false},
		{"dropping after the clock was set", ruleRebase, "is good after it was ended", false},
		{"an end of absences", ruleAbsenceMin, "told to a reader who knows of", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := explore(bounds{troubles: 2, lagging: c.lagging}, c.without)
			switch {
			case f.err == nil:
				t.Errorf("nothing in %d states: is the rule of no use?", f.plots)
			case !strings.Contains(f.err.Error(), c.want):
				t.Errorf("want ... %s ..., got\n%v", c.want, &f)
			default:
				t.Logf("%d states\n%v", f.plots, &f)
			}
		})
	}
}
