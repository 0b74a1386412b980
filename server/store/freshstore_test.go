package store

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The store does what the model does. Requests of all kinds, in any order, go
// to a store and to a model of each key. The store is so small that it evicts
// all the time, its tables of floors and tokens are full, pages move, values
// arrive in parts, and it starts again. After each step every answer is what
// the model says, and so is all that is kept of every key.
//
// What a store may do of its own will, it is seen to have done: evict a value,
// forget a floor that need not be kept, or that is in a full table, and then
// know that floors are unknown. settle says so to the model, or fails.

// twin is a store with the models of its keys.
type twin struct {
	t     *rapid.T
	s     *Store
	now   Time
	names []string
	keys  map[string]*twinKey

	uploads []*twinUpload
	pins    []Pin
	flushAt uint32
	latest  Time
	n       int // values made
}

// twinKey is the model of a key, which has a world of its own, and what was
// ever given of it.
type twinKey struct {
	world
	cell
	k      Key
	tokens []Token
}

// twinUpload is a value that is half there.
type twinUpload struct {
	Upload
	name  string
	bytes string
	opts  SetOptions
	rest  string
}

const (
	twinTokens = 3 // of a key, to choose from
	twinBack   = 3 // ms by which the clock can go back
)

func newTwin(t *rapid.T, s *Store) *twin {
	w := &twin{t: t, s: s, now: noon, keys: map[string]*twinKey{}}
	for i := range 6 {
		name := fmt.Sprintf("t%d:%d", i%3, i)
		w.names = append(w.names, name)
		w.keys[name] = &twinKey{k: key(name), world: world{
			trusted: true, incarnation: s.fresh.incarnation, grantMax: Time(s.fresh.cfg.GrantMaxMillis),
			retention: Time(s.fresh.cfg.RetentionMillis), skew: Time(s.fresh.cfg.SkewMaxMillis),
		}}
	}
	w.setNow(noon)
	return w
}

// setNow lets the time come, and the flush that is due.
func (w *twin) setNow(now Time) {
	w.now = now
	for _, k := range w.keys {
		k.now = now
	}
	if w.flushAt != 0 && now.Seconds() >= w.flushAt {
		w.flushAt = 0
		for _, sh := range w.s.shards { // a shard flushes when it is used next
			sh.mu.Lock()
			sh.enter(now)
			sh.mu.Unlock()
		}
		w.flushed()
	}
}

func (w *twin) flushed() {
	for _, k := range w.keys {
		k.drop()
		k.endToken()
	}
}

func (w *twin) pick() (string, *twinKey) {
	name := rapid.SampledFrom(w.names).Draw(w.t, "key")
	tk := w.keys[name]
	w.ready(name, tk)
	return name, tk
}

// ready has what the store would do with a dead item or an old floor when it
// meets them done before a request, so that the model knows of it.
func (w *twin) ready(name string, tk *twinKey) {
	sh := w.shardOf(tk.k)
	sh.mu.Lock()
	sh.enter(w.now)
	sh.stored(tk.k, w.now)
	sh.mu.Unlock()
	w.settle(name, tk)
	if !tk.canForget(&tk.cell) {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.takeFloor(tk.k)
	tk.floor, tk.raised = 0, 0
}

func (w *twin) shardOf(k Key) *shard { return w.s.shards[shardBits(k.Hash)&w.s.mask] }

// value is one that was not seen before.
func (w *twin) value() string {
	w.n++
	n := rapid.SampledFrom([]int{0, 1, 20, 60, 130, 300, 900, 2500}).Draw(w.t, "size")
	if n == 1 {
		return strconv.Itoa(w.n % 10)
	}
	return strings.Repeat(string(rune('a'+w.n%26)), n)
}

func (w *twin) expiry() uint32 {
	return Expiry(int64(rapid.SampledFrom([]int{0, 0, 1, 3, 60}).Draw(w.t, "ttl")), w.now)
}

// String is short where the value is long.
func (c cell) String() string {
	if len(c.bytes) > 10 {
		c.bytes = fmt.Sprint(c.bytes[:1], " times ", len(c.bytes))
	}
	type plain cell
	return fmt.Sprintf("%+v", plain(c))
}

// kept is all that a store keeps of a key.
type kept struct {
	cell
	extra  bool   // its item has room for a floor
	record record // zero: there is none
	out    bool
	cas    uint64
	pinned bool
}

// look reads it, and changes nothing.
func (w *twin) look(k Key) (r kept) {
	sh := w.shardOf(k)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.now = w.now
	if ref := sh.find(k); ref != 0 {
		it := sh.item(ref)
		x := it.extra()
		r.pinned = sh.pins[ref] > 0
		r.floor, r.raised, r.extra = x.floor, x.raised, it.tag&hasExtra != 0
		if !sh.isGone(ref, w.now) {
			p := it.pieces()
			r.what, r.bytes, r.cas = isValue, string(p.appendTo(nil)), it.cas()
			r.version, r.Deadlines, r.expiry = x.version, x.Deadlines, x.ttl
			r.stale, r.winSent, r.stub = it.tag&stale != 0, it.tag&winSent != 0, x.stub || it.isStub()
			if !r.extra {
				r.expiry = it.expiry()
			}
			if x.absent {
				r.what = isAbsence
			}
		}
	}
	if rec := sh.records.find(k); rec != nil {
		r.record, r.out = *rec, sh.out(k, &rec.grant, w.now)
		if rec.floor > r.floor {
			r.floor, r.raised = rec.floor, rec.raised
		}
	}
	return r
}

// settle compares what is kept of a key with the model, after telling that what
// the store may have done of its own.
func (w *twin) settle(name string, tk *twinKey) {
	tk.expire(&tk.cell)
	r := w.look(tk.k)
	if r.what == isNothing && tk.what != isNothing {
		tk.evict(&tk.cell)
	}
	w.settleFloor(name, tk, &r)
	w.settleGrant(name, tk, &r)
	want, got := tk.cell, r.cell
	want.raised, got.raised, want.grant, got.grant = 0, 0, modelGrant{}, modelGrant{}
	if got.what == isNothing {
		got.winSent, got.stale = false, false
	}
	if got != want {
		w.t.Fatalf("%s is\n%v, want\n%v", name, got, want)
	}
}

func (w *twin) settleFloor(name string, tk *twinKey, r *kept) {
	until := w.unknownUntil(tk)
	switch {
	case r.floor == tk.floor:
		// In an item it is raised at the end of the second.
		if d := r.raised - tk.raised; r.floor != 0 && (d < 0 || d >= 1000) {
			w.t.Fatalf("%s: a floor of %d that was raised %d ms late", name, r.floor, d)
		}
	case r.floor == 0 && !r.extra && (tk.canForget(&tk.cell) || tk.raised+tk.retention <= w.now):
		tk.floor, tk.raised = 0, 0
	case r.floor == 0 && until+twinBack >= tk.raised+tk.retention: // there was no room for it
		tk.world.forget(&tk.cell)
	default:
		w.t.Fatalf("%s: floor %d, want %d, raised %d ms ago", name, r.floor, tk.floor, w.now-tk.raised)
	}
	if until+twinBack < tk.unknownUntil {
		w.t.Fatalf("%s: floors are unknown for %d ms, want %d", name, until-w.now, tk.unknownUntil-w.now)
	}
	tk.unknownUntil = until // others were dropped, too
}

// unknownUntil is until when the floor of a key is unknown.
func (w *twin) unknownUntil(tk *twinKey) Time {
	sh := w.shardOf(tk.k)
	until := max(sh.unknownUntil, sh.records.unknownUntil())
	if o := sh.owned; o != nil {
		until = max(until, o.unknownUntil[tk.k.Bucket()])
	}
	return until
}

func (w *twin) settleGrant(name string, tk *twinKey, r *kept) {
	g, rg := &tk.grant, &r.record.grant
	if out := tk.isOut(&tk.cell); out != r.out {
		w.t.Fatalf("%s: its token is out: %t, want %t", name, r.out, out)
	}
	if r.out && (Token{tk.incarnation, rg.sequence, rg.nonce} != g.token || rg.ends != g.ends) {
		w.t.Fatalf("%s: token %d until %d, want %d until %d", name, rg.sequence, rg.ends, g.token.sequence, g.ends)
	}
	switch rs := &w.shardOf(tk.k).records; {
	case max(rg.next, w.now) == max(g.next, w.now) && rg.pause == g.pause:
	case rs.max > len(w.names) && w.now < g.next+tokenKept:
		w.t.Fatalf("%s: no grant before %d, then a pause of %d, want %d and %d", name, rg.next, rg.pause, g.next, g.pause)
	case rg.pause == 0 && rg.next <= w.now: // forgotten for want of room, or in time
		g.next, g.pause = 0, 0
	default:
		w.t.Fatalf("%s: no grant before %d, then a pause of %d, not even %d and %d", name, rg.next, rg.pause, g.next, g.pause)
	}
	if !r.out {
		if r.record.self == 0 || g.ends > w.now {
			g.token = Token{} // of one that has expired it may be known for a while
		}
	}
}

// lookUp is mg with G.
func (w *twin) lookUp(name string, tk *twinKey) {
	a := Ask{
		Class:     rapid.SampledFrom([]GrantClass{GrantForeground, GrantBackground, GrantStrong}).Draw(w.t, "class"),
		MaxMillis: rapid.SampledFrom([]int64{0, 30, 5000}).Draw(w.t, "life"),
		Min:       rapid.SampledFrom([]uint64{0, 0, 1, 3, 5}).Draw(w.t, "min"),
	}
	life := tk.grantMax
	if a.MaxMillis > 0 {
		life = min(life, Time(a.MaxMillis))
	}
	var g grab
	st := w.s.Get(tk.k, &GetOptions{Ask: &a}, w.now, &g)
	before := tk.grant
	want := tk.lookup(&tk.cell, a.Min, a.Token, life)
	if a.Denied {
		w.checkDenied(name, tk)
		if !want.granted {
			w.t.Fatalf("%s: a grant is denied that is not due", name)
		}
		want.granted, tk.grant = false, before
		if !tk.isOut(&tk.cell) && before.ends > w.now {
			tk.endToken()
		}
	}
	got := answer{hit: st == OK, bytes: g.value, version: g.Version, stale: g.Stale, granted: a.Granted, waits: a.Waits,
		absent: a.Absent, floor: a.Floor}
	if a.Absent {
		got.version = a.Version
	}
	if got.floor == 0 && w.look(tk.k).floor == 0 {
		want.floor = 0 // forgotten on the way, if settle agrees
	}
	if got != want {
		w.t.Fatalf("%s is looked up:\n%+v, want\n%+v", name, got, want)
	}
	switch {
	case a.Granted && a.LifeMillis != int64(life):
		w.t.Fatalf("%s: a token lives %d ms, want %d", name, a.LifeMillis, life)
	case a.Granted:
		tk.tokens = append(tk.tokens, a.Token)
		if len(tk.tokens) > twinTokens {
			tk.tokens = tk.tokens[1:]
		}
		w.checkQuota(name)
	case (a.Waits || a.Denied) && a.WaitMillis <= 0:
		w.t.Fatalf("%s: told to wait %d ms", name, a.WaitMillis)
	}
}

// outOf is how many tokens of the tenant of a key are out in its shard, and
// how many all together.
func (w *twin) outOf(name string) (tenant, all int) {
	sh := w.shardOf(key(name))
	for other, tk := range w.keys {
		if w.shardOf(tk.k) != sh || !tk.isOut(&tk.cell) {
			continue
		}
		all++
		if other[:2] == name[:2] {
			tenant++
		}
	}
	return tenant, all
}

func (w *twin) quotaOf(name string) int {
	if sh := w.shardOf(key(name)); sh.tenants != nil {
		return sh.tenants.findOrOther([]byte(name)).inflightMax
	}
	return 0
}

func (w *twin) checkQuota(name string) {
	if most := w.quotaOf(name); most > 0 {
		if n, _ := w.outOf(name); n > most {
			w.t.Fatalf("%s: %d tokens of its tenant are out, at most %d may be", name, n, most)
		}
	}
}

// checkDenied: nobody is denied a grant without a reason. Places of tokens that
// ended all at once, or a slot of the wheel ago, may still be taken.
func (w *twin) checkDenied(name string, tk *twinKey) {
	sh := w.shardOf(tk.k)
	taken := 0
	sh.records.each(func(r *record) {
		if r.grant.counted && r.grant.ends > w.now-sh.records.tokens.stepMs {
			taken++
		}
	})
	tenant, all := w.outOf(name)
	switch most := w.quotaOf(name); {
	case most > 0 && max(tenant, taken) >= most, max(all, taken) >= sh.records.max:
	default:
		w.t.Fatalf("%s: a grant is denied; %d of %d tokens of its tenant are out, %d of %d in all", name, tenant, most, all, sh.records.max)
	}
}

// fillOf is a fill of a key, as likely as not one that has to be refused.
func (w *twin) fillOf(tk *twinKey) *Fill {
	t := w.t
	at := tk.deadlineTime()
	f := &Fill{Version: uint64(rapid.IntRange(1, 6).Draw(t, "version"))}
	if known := max(tk.version, tk.floor); rapid.IntRange(0, 2).Draw(t, "known version") > 0 && known != 0 {
		f.Version = known
	}
	f.Hard = at + rapid.SampledFrom([]Time{30_000, 30_000, 2500, 300, 0, -1}).Draw(t, "hard")
	if rapid.Bool().Draw(t, "soft") {
		f.Soft = at + rapid.SampledFrom([]Time{-1, 100, 1000}).Draw(t, "soft")
	}
	if rapid.Bool().Draw(t, "read") {
		f.Read = at + rapid.SampledFrom([]Time{0, -500, 150, 500, -6000}).Draw(t, "read")
	}
	if rapid.IntRange(0, 3).Draw(t, "grant") == 0 {
		if rapid.Bool().Draw(t, "no deadlines") {
			f.Deadlines = Deadlines{}
		}
		return f
	}
	f.HasToken = true
	f.Kind = rapid.SampledFrom([]FillKind{FillValue, FillAbsent, FillRevalidate}).Draw(t, "kind")
	if f.Kind == FillAbsent && rapid.Bool().Draw(t, "never was") {
		f.Version = 0
	}
	switch own := tk.grant.token; {
	case rapid.IntRange(0, 3).Draw(t, "token") > 0 && own != Token{}:
		f.Token = own
	case len(tk.tokens) > 0:
		f.Token = rapid.SampledFrom(tk.tokens).Draw(t, "old token")
	default:
		f.Token = Token{tk.incarnation, 1 << 40, 7} // nobody gave it
	}
	return f
}

// fillOne is ms with G or Y, at once.
func (w *twin) fillOne(name string, tk *twinKey) {
	f := w.fillOf(tk)
	bytes := w.value()
	if f.Kind != FillValue {
		bytes = ""
	}
	o := SetOptions{Fill: f, Expiry: w.expiry()}
	before := w.look(tk.k)
	w.filled(name, tk, before, &o, bytes, w.s.Set(tk.k, []byte(bytes), &o, w.now))
}

// filled compares the answer to a fill. before is what was kept of its key, if
// that could not change meanwhile.
func (w *twin) filled(name string, tk *twinKey, before kept, o *SetOptions, bytes string, res SetResult) {
	f := o.Fill
	switch {
	case res.Status == OK || res.Status == Refused && res.Reason != ReasonQuota:
		if after := w.look(tk.k); after.stale && w.now >= tk.unknownUntil {
			tk.unknownUntil = w.unknownUntil(tk) // to make room has cost the floor of another key
		}
		want := tk.fill(&tk.cell, f, bytes, o.Expiry)
		if res.Reason == ReasonToken && want == ReasonExpired {
			want = ReasonToken // its record is gone
		}
		if res.Reason != want {
			w.t.Fatalf("%s is filled with %+v: reason %d, want %d", name, *f, res.Reason, want)
		}
	default:
		tk.expire(&tk.cell)
		if why := tk.judge(&tk.cell, f); why != ReasonNone && res.Reason == ReasonQuota {
			w.t.Fatalf("%s is filled with %+v: refused for the quota, want reason %d", name, *f, why)
		}
		tk.unstorable(&tk.cell, f)
	}
	if after := w.look(tk.k); res.Status != OK && before.what != isNothing && after.bytes != before.bytes {
		w.t.Fatalf("%s: a fill that was not stored (status %d, reason %d) has cost the value", name, res.Status, res.Reason)
	}
}

func (w *twin) begin() {
	name, tk := w.pick()
	u := &twinUpload{name: name, bytes: w.value(), opts: SetOptions{Expiry: w.expiry()}}
	if rapid.Bool().Draw(w.t, "fill") {
		u.opts.Fill = w.fillOf(tk)
		if u.opts.Fill.Kind != FillValue {
			u.bytes = ""
		}
	}
	before := w.look(tk.k)
	st := w.s.Begin(tk.k, len(u.bytes), &u.opts, w.now, &u.Upload)
	if st != OK {
		if u.opts.Fill != nil {
			w.filled(name, tk, before, &u.opts, u.bytes, SetResult{Status: st, Reason: u.Refusal})
		} else {
			tk.endToken()
		}
		return
	}
	u.rest = u.bytes
	w.uploads = append(w.uploads, u)
}

// goOn goes on with an upload, and ends it more often than not.
func (w *twin) goOn() {
	if len(w.uploads) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.uploads)-1).Draw(w.t, "upload")
	u := w.uploads[i]
	tk := w.keys[u.name]
	w.ready(u.name, tk)
	before := w.look(tk.k)
	cut := rapid.IntRange(0, len(u.rest)).Draw(w.t, "cut")
	if rapid.Bool().Draw(w.t, "whole") {
		cut = len(u.rest)
	}
	st := u.Write([]byte(u.rest[:cut]), w.now)
	u.rest = u.rest[cut:]
	drop := func() { w.uploads = append(w.uploads[:i], w.uploads[i+1:]...) }
	switch {
	case st != OK:
		if u.opts.Fill != nil {
			w.filled(u.name, tk, before, &u.opts, u.bytes, SetResult{Status: st})
		} else {
			tk.endToken()
		}
		u.Abort()
		drop()
	case rapid.IntRange(0, 5).Draw(w.t, "abort") == 0:
		u.Abort()
		drop()
	case u.rest == "":
		res := u.Commit(w.now)
		drop()
		if u.opts.Fill != nil {
			w.filled(u.name, tk, before, &u.opts, u.bytes, res)
		} else if res.Status == OK {
			tk.set(&tk.cell, u.bytes, u.opts.Expiry)
		}
	}
}

func (w *twin) dropUploads() {
	for _, u := range w.uploads {
		u.Abort()
	}
	w.uploads = nil
}

// get is a plain get, with a touch or a minimum version or neither.
func (w *twin) get() {
	name, tk := w.pick()
	o := GetOptions{NoWin: rapid.Bool().Draw(w.t, "no win")}
	var ask Ask
	if rapid.IntRange(0, 3).Draw(w.t, "minimum") == 0 {
		ask.Min = uint64(rapid.IntRange(0, 6).Draw(w.t, "min"))
		o.Ask = &ask
	}
	if o.Touch = rapid.IntRange(0, 3).Draw(w.t, "touch") == 0; o.Touch {
		o.Expiry = w.expiry()
	}
	var g grab
	st := w.s.Get(tk.k, &o, w.now, &g)
	want := tk.get(&tk.cell, ask.Min, o.NoWin)
	got := answer{hit: st == OK, bytes: g.value, version: g.Version, stale: g.Stale, waits: g.WinSent, won: g.Won}
	want.floor = 0
	if got != want {
		w.t.Fatalf("%s is read:\n%+v, want\n%+v", name, got, want)
	}
	if st == OK && o.Touch {
		tk.expiry = o.Expiry
	}
}

// plain is a write or a delete as memcached has it. act does it to the store
// and says what came of it; model does the same to a model, and says what is to
// come. When the value was evicted on the way, it is as if it was before.
func (w *twin) plain(name string, tk *twinKey, act func() Status, model func(c *cell) Status) {
	got := act()
	c := tk.cell
	want := model(&c)
	if got != want {
		c = tk.cell
		tk.evict(&c)
		if evicted := model(&c); got != evicted {
			w.t.Fatalf("%s: status %d, want %d, or if it was evicted %d", name, got, want, evicted)
		}
	}
	tk.cell = c
}

// noRoom is a status that says that there is none: the model cannot know.
func noRoom(st Status) bool { return st == NoMemory || st == ReadNoMemory || st == TooLarge }

func (w *twin) set() {
	name, tk := w.pick()
	bytes := w.value()
	o := SetOptions{Expiry: w.expiry(), DropOnError: rapid.Bool().Draw(w.t, "drop on error")}
	o.Mode = Mode(rapid.IntRange(0, 4).Draw(w.t, "mode"))
	if o.Mode == ModeSet && rapid.IntRange(0, 2).Draw(w.t, "cas") == 0 {
		o.Compare, o.CompareCAS = true, w.look(tk.k).cas+uint64(rapid.IntRange(0, 1).Draw(w.t, "other"))
	}
	if o.HasNewCAS = rapid.IntRange(0, 9).Draw(w.t, "E") == 0; o.HasNewCAS {
		o.NewCAS = 5
	}
	cas := w.look(tk.k).cas
	var st Status
	w.plain(name, tk, func() Status {
		st = w.s.Set(tk.k, []byte(bytes), &o, w.now).Status
		return st
	}, func(c *cell) Status {
		shown := tk.shown(c)
		switch {
		case noRoom(st):
			c.endToken()
			if o.DropOnError {
				c.drop()
			}
			return st
		case o.Compare && !shown:
			c.endToken()
			return Miss
		case o.Compare && cas != o.CompareCAS:
			return Exists
		case o.Mode == ModeAdd && shown:
			return NotStored
		case o.Mode == ModeReplace && !shown:
			c.endToken()
			return NotStored
		case o.Mode == ModeAppend || o.Mode == ModePrepend:
			if !shown {
				c.endToken()
				return NotStored
			}
			if st == NotStored { // no room for both
				c.endToken()
				return st
			}
			if both := c.bytes + bytes; o.Mode == ModeAppend {
				tk.alter(c, both, false)
			} else {
				tk.alter(c, bytes+c.bytes, false)
			}
			return OK
		}
		tk.set(c, bytes, o.Expiry)
		return OK
	})
}

func (w *twin) count() {
	name, tk := w.pick()
	o := ArithOptions{Delta: uint64(rapid.SampledFrom([]int{1, 9, 95}).Draw(w.t, "delta")), Vivify: rapid.Bool().Draw(w.t, "vivify"), Initial: 7,
		VivifyExpiry: w.expiry()}
	pinned := w.look(tk.k).pinned
	var g grab
	var st Status
	w.plain(name, tk, func() Status {
		st = w.s.Arith(tk.k, &o, w.now, &g)
		return st
	}, func(c *cell) Status {
		n, err := strconv.ParseUint(strings.TrimSpace(c.bytes), 10, 64)
		switch {
		case noRoom(st):
			c.endToken()
			return st
		case !tk.shown(c) && o.Vivify:
			tk.set(c, "7", o.VivifyExpiry)
		case !tk.shown(c):
			c.endToken()
			return Miss
		case err != nil:
			return NonNumeric
		default:
			digits := strconv.FormatUint(n+o.Delta, 10)
			inPlace := len(digits) <= len(c.bytes) && !pinned
			if inPlace {
				digits += strings.Repeat(" ", len(c.bytes)-len(digits))
			}
			tk.alter(c, digits, inPlace)
		}
		return OK
	})
}

func (w *twin) remove() {
	name, tk := w.pick()
	o := DeleteOptions{Invalidate: rapid.Bool().Draw(w.t, "I"), RemoveValue: rapid.Bool().Draw(w.t, "x"), Expiry: w.expiry()}
	if o.Compare = rapid.IntRange(0, 4).Draw(w.t, "C") == 0; o.Compare {
		o.CompareCAS = w.look(tk.k).cas + 1
	}
	var st Status
	w.plain(name, tk, func() Status {
		st = w.s.Delete(tk.k, &o, w.now)
		return st
	}, func(c *cell) Status {
		c.endToken()
		switch {
		case !tk.shown(c):
			c.drop()
			return Miss
		case o.Compare:
			return Exists
		case noRoom(st):
			return st
		}
		switch {
		case o.RemoveValue:
			tk.empty(c, 0)
		case !o.Invalidate:
			tk.world.remove(c)
		}
		if o.Invalidate {
			tk.invalidate(c)
		}
		return OK
	})
}

func (w *twin) vivify() {
	name, tk := w.pick()
	o := GetOptions{Vivify: true, VivifyExpiry: w.expiry(), NoWin: true}
	if tk.shown(&tk.cell) {
		return
	}
	var st Status
	w.plain(name, tk, func() Status {
		st = w.s.Get(tk.k, &o, w.now, nil)
		return st
	}, func(c *cell) Status {
		if st == Miss {
			return st // no room
		}
		tk.world.vivify(c, o.VivifyExpiry)
		return OK
	})
}

func (w *twin) notice() {
	name, tk := w.pick()
	v, down := uint64(rapid.IntRange(1, 6).Draw(w.t, "version")), rapid.IntRange(0, 3).Draw(w.t, "takedown") == 0
	if st := w.s.Notice(tk.k, v, down, w.now); st != OK {
		w.t.Fatalf("%s: a notice: status %d", name, st)
	}
	tk.world.notice(&tk.cell, v, down)
}

func (w *twin) giveBack() {
	name, tk := w.pick()
	t := tk.grant.token
	if len(tk.tokens) > 0 && rapid.Bool().Draw(w.t, "old token") {
		t = rapid.SampledFrom(tk.tokens).Draw(w.t, "token")
	}
	got, want := w.s.GiveBack(tk.k, t, true, w.now), tk.world.giveBack(&tk.cell, t)
	if got == ReasonToken && want == ReasonExpired {
		want = got
	}
	if got != want {
		w.t.Fatalf("%s: a token given back: reason %d, want %d", name, got, want)
	}
}

func (w *twin) hide() {
	_, tk := w.pick()
	w.s.HideBuckets([]int{tk.k.Bucket()}, w.now)
	for _, other := range w.keys {
		if other.k.Bucket() == tk.k.Bucket() {
			sh := w.shardOf(other.k)
			other.world.hide(&other.cell, sh.sequenceOf(sh.tokenSeq))
		}
	}
}

func (w *twin) turnClock() {
	var trusted bool
	for _, tk := range w.keys {
		trusted = tk.trusted
	}
	offset := Time(w.s.fresh.offset.Load())
	switch {
	case trusted:
		w.s.SetDeadlineClock(offset, false)
		for _, tk := range w.keys {
			tk.trusted = false
		}
	case rapid.Bool().Draw(w.t, "right again"):
		w.s.SetDeadlineClock(offset, true)
		for _, tk := range w.keys {
			tk.trusted = true
		}
	default:
		offset += rapid.SampledFrom([]Time{-5000, -500, 500, 5000}).Draw(w.t, "step")
		w.s.Rebase(offset, w.now)
		for _, tk := range w.keys {
			sh := w.shardOf(tk.k)
			tk.rebase(&tk.cell, offset, sh.sequenceOf(sh.tokenSeq))
		}
	}
}

func (w *twin) restart() {
	if w.s.file == nil || rapid.IntRange(0, 3).Draw(w.t, "rarely") > 0 {
		return
	}
	w.dropUploads()
	w.unpin()
	offset, untrusted := Time(w.s.fresh.offset.Load()), w.s.fresh.untrusted.Load()
	c, crash := w.s.cfg, rapid.IntRange(0, 2).Draw(w.t, "crash") == 0
	leave(w.t, w.s, crash)
	c.Now, c.Recover = w.now, true
	s, err := Open(c)
	if err != nil {
		w.t.Fatal(err)
	}
	if rs := s.Restart(); rs.Refused != "" || !rs.Found {
		w.t.Fatalf("the items are not there again: %+v", rs)
	}
	w.s = s
	s.SetDeadlineClock(offset, !untrusted)
	for _, tk := range w.keys {
		tk.world.restart(&tk.cell, true)
		tk.incarnation, tk.owned, tk.ended = s.fresh.incarnation, 0, 0
		if crash {
			tk.unknownUntil = w.now + tk.retention // and floors in the table are gone
		}
	}
}

func (w *twin) unpin() {
	for i := range w.pins {
		w.pins[i].Release()
	}
	w.pins = nil
}

// actions are what can be done to a twin.
func (w *twin) actions() map[string]func(*rapid.T) {
	with := func(f func()) func(*rapid.T) {
		return func(t *rapid.T) { w.t = t; f() }
	}
	return map[string]func(*rapid.T){
		"look up": with(func() { w.lookUp(w.pick()) }),
		"fill":    with(func() { w.fillOne(w.pick()) }),
		"look up and fill": with(func() {
			name, tk := w.pick()
			w.lookUp(name, tk)
			w.setNow(w.now + Time(rapid.SampledFrom([]int{0, 1, 40}).Draw(w.t, "ms")))
			w.ready(name, tk)
			w.fillOne(name, tk)
		}),
		"fill and look up": with(func() {
			name, tk := w.pick()
			w.fillOne(name, tk)
			w.ready(name, tk)
			w.lookUp(name, tk)
		}),
		"begin": with(w.begin), "go on": with(w.goOn),
		"get": with(w.get), "set": with(w.set), "count": with(w.count), "remove": with(w.remove), "vivify": with(w.vivify),
		"notice": with(w.notice), "give back": with(w.giveBack),
		"time passes": with(func() {
			w.setNow(w.now + Time(rapid.SampledFrom([]int{1, 20, 100, 400, 1000, 3000, 9000}).Draw(w.t, "ms")))
		}),
		"the clock goes back": with(func() {
			if w.flushAt == 0 {
				for name, tk := range w.keys { // what has gone would be there again
					w.ready(name, tk)
				}
				w.latest = max(w.latest, w.now)
				w.setNow(w.latest - Time(rapid.IntRange(0, twinBack).Draw(w.t, "ms")))
			}
		}),
		"sweep": with(func() { w.s.Sweep(w.now) }),
		"hide":  with(w.hide),
		"clock": with(w.turnClock),
		"flush": with(func() {
			if rapid.IntRange(0, 3).Draw(w.t, "rarely") > 0 {
				return
			}
			if n := rapid.IntRange(0, 2).Draw(w.t, "delay"); n > 0 {
				w.flushAt = w.now.Seconds() + uint32(n)
				w.s.FlushAll(w.flushAt, w.now)
				return
			}
			w.flushAt = 0
			w.s.FlushAll(0, w.now)
			for _, sh := range w.s.shards {
				sh.flushAt = 0
			}
			w.flushed()
		}),
		"restart": with(w.restart),
		"pin": with(func() {
			_, tk := w.pick()
			if !tk.shown(&tk.cell) || len(w.pins) > 3 {
				return
			}
			var p Pin
			v := pinner{p: &p}
			if w.s.Get(tk.k, &GetOptions{NoWin: true, NoBump: true}, w.now, &v); v.ok {
				w.pins = append(w.pins, p)
			}
		}),
		"unpin": with(w.unpin),
		"move a page": with(func() {
			n := w.s.table.Len()
			w.s.Reassign(rapid.IntRange(-1, n).Draw(w.t, "from"), rapid.IntRange(0, n).Draw(w.t, "to"))
			for range rapid.IntRange(0, 3).Draw(w.t, "steps") {
				w.s.tick(w.now)
			}
		}),
		"crowd": with(func() {
			w.n++
			w.s.Set(key(fmt.Sprint("t1:crowd", w.n%40)), bytes.Repeat([]byte("c"), 20+w.n*37%800), &SetOptions{}, w.now)
		}),
		"": with(func() {
			for _, name := range w.names {
				w.settle(name, w.keys[name])
			}
			if err := w.s.Check(); err != nil {
				w.t.Fatal(err)
			}
		}),
	}
}

// twinConfig is a store that has no room for anything.
func twinConfig(t *rapid.T) Config {
	c := Config{
		LimitBytes:   int64(rapid.IntRange(12, 40).Draw(t, "pages")) << 10,
		Shards:       rapid.SampledFrom([]int{1, 2}).Draw(t, "shards"),
		PageBytes:    1 << 10,
		ItemMaxBytes: 3 << 10,
		NoEvict:      rapid.IntRange(0, 5).Draw(t, "-M") == 0,
		NoCAS:        rapid.IntRange(0, 5).Draw(t, "-C") == 0,
		Now:          noon,
		Fresh: FreshConfig{
			RetentionMillis: rapid.SampledFrom([]int64{5000, 5000, RetentionMillisLimit}).Draw(t, "retention"),
			GrantMaxMillis:  rapid.SampledFrom([]int64{1000, 60, 60_000}).Draw(t, "grant"),
			RecordsMax:      rapid.SampledFrom([]int{2, 4, 8, 100}).Draw(t, "records"),
			EarlyBeta:       -1,
			Seed:            rapid.Uint64Min(1).Draw(t, "seed"),
		},
	}
	if rapid.Bool().Draw(t, "tenants") {
		c.Tenants = TenantConfig{
			Delimiter: ':',
			Quotas: []TenantQuota{
				{"t0", Quota{MemoryBytes: 2 << 10, GrantsInFlight: 1}},
				{"t1", Quota{ValueMaxBytes: 500, NewKeysPerSecond: 3, GrantsInFlight: 4}},
			},
			TrackedMax: 2,
		}
	}
	return c
}

// S1-08, S1-27 to S1-40, S1-77: the store does what the model does.
func TestFreshStore(t *testing.T) {
	dir := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		c := twinConfig(t)
		if runs++; rapid.Bool().Draw(t, "file") {
			c.File = filepath.Join(dir, strconv.Itoa(runs))
		}
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		w := newTwin(t, s)
		defer func() { _ = w.s.Close() }()
		t.Repeat(w.actions())
		w.t = t
		w.dropUploads()
		w.unpin()
		if err := w.s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
