package store

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// freshKey is a store and one of its keys, for tests that read as a script.
type freshKey struct {
	t   *testing.T
	s   *Store
	k   Key
	now Time
}

func newFreshKey(t *testing.T, c FreshConfig) *freshKey {
	t.Helper()
	if c.EarlyBeta == 0 {
		c.EarlyBeta = -1
	}
	return &freshKey{t: t, s: newTestStore(t, Config{LimitBytes: 1 << 20, PageBytes: 4 << 10, Fresh: c}), k: key("k"), now: noon}
}

// look is a lookup that asks for a grant.
func (f *freshKey) look(class GrantClass, least uint64) (string, Ask) {
	f.t.Helper()
	a := Ask{Class: class, Min: least}
	v := &appender{}
	var it Item
	st := f.s.Get(f.k, &GetOptions{Ask: &a}, f.now, visitors{v, &itemKeeper{&it}})
	var b strings.Builder
	switch {
	case st == OK:
		fmt.Fprintf(&b, "VA %s", v.dst)
		if it.Stale {
			b.WriteString(" X")
		}
	case a.Absent:
		fmt.Fprintf(&b, "EN e y%d", a.Version)
	default:
		b.WriteString("EN")
	}
	switch {
	case a.Granted:
		b.WriteString(" W")
	case a.Waits:
		b.WriteString(" Z")
	case a.Denied:
		b.WriteString(" d")
	}
	return b.String(), a
}

type visitors []Visitor

func (vs visitors) VisitItem(it *Item) {
	for _, v := range vs {
		v.VisitItem(it)
	}
}

type itemKeeper struct{ it *Item }

func (k *itemKeeper) VisitItem(it *Item) { *k.it = *it }

// want looks and compares what comes back.
func (f *freshKey) want(want string) Ask {
	f.t.Helper()
	got, a := f.look(GrantForeground, 0)
	if got != want {
		f.t.Errorf("a lookup answers %q, want %q", got, want)
	}
	return a
}

// plain is a lookup without a grant.
func (f *freshKey) plain(want string) {
	f.t.Helper()
	v := &appender{}
	got := "EN"
	if f.s.Get(f.k, &GetOptions{NoWin: true}, f.now, v) == OK {
		got = "VA " + string(v.dst)
	}
	if got != want {
		f.t.Errorf("a plain get answers %q, want %q", got, want)
	}
}

func (f *freshKey) fill(a Ask, version uint64, value string, want Reason) {
	f.t.Helper()
	f.fillWith(Fill{HasToken: true, Token: a.Token, Version: version,
		Deadlines: Deadlines{Hard: f.now + 30_000, Soft: f.now + 10_000, Read: f.now}}, value, want)
}

func (f *freshKey) fillWith(fill Fill, value string, want Reason) {
	f.t.Helper()
	res := f.s.Set(f.k, []byte(value), &SetOptions{Fill: &fill}, f.now)
	if res.Reason != want || (want == ReasonNone) != (res.Status == OK) {
		f.t.Errorf("a fill of version %d answers %v, reason %d, want reason %d", fill.Version, res.Status, res.Reason, want)
	}
}

func TestFreshRecordSize(t *testing.T) {
	r := reflect.TypeFor[record]()
	if r.Size() != recordBytes {
		t.Errorf("a record has %d bytes, want %d", r.Size(), recordBytes)
	}
	var check func(r reflect.Type)
	check = func(r reflect.Type) {
		for i := range r.NumField() {
			switch f := r.Field(i); f.Type.Kind() {
			case reflect.Struct:
				check(f.Type)
			case reflect.Pointer, reflect.Slice, reflect.Map, reflect.String, reflect.Interface, reflect.Chan, reflect.Func:
				t.Errorf("field %s of a record is a %s: records are off the Go heap", f.Name, f.Type)
			}
		}
	}
	check(r)
}

func TestExtraHeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := Open(Config{LimitBytes: 1 << 20, PageBytes: 4 << 10})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		deadline := rapid.Map(rapid.Int64Range(0, DeadlineMax), func(n int64) Time { return Time(n) })
		want := extra{
			version:   rapid.Uint64().Draw(t, "version"),
			floor:     rapid.Uint64().Draw(t, "floor"),
			Deadlines: Deadlines{deadline.Draw(t, "hard"), deadline.Draw(t, "soft"), deadline.Draw(t, "read")},
			raised:    Time(rapid.Uint32().Draw(t, "raised")) * 1000,
			ttl:       rapid.Uint32().Draw(t, "ttl"),
			fill:      Time(rapid.Int64Range(0, extraFillMax).Draw(t, "fill")),
			absent:    rapid.Bool().Draw(t, "absent"),
			stub:      rapid.Bool().Draw(t, "stub"),
		}
		k, flags := key("some key"), rapid.SampledFrom([]uint32{0, 7}).Draw(t, "flags")
		value := make([]byte, rapid.SampledFrom([]int{0, 3, 2000}).Draw(t, "bytes"))
		for i := range value {
			value[i] = byte(i)
		}
		fill := Fill{Version: 1}
		if st := s.Set(k, value, &SetOptions{Flags: flags, Fill: &fill}, noon).Status; st != OK {
			t.Fatal(st)
		}
		sh := s.shards[0]
		it := sh.item(sh.find(k))
		it.setExtra(&want, 0)
		if got := it.extra(); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		p := it.pieces()
		if got := p.appendTo(nil); string(got) != string(value) || string(it.key()) != "some key" || it.flags() != flags {
			t.Errorf("the header has run into what is behind it")
		}
	})
}

func TestFreshToken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Token{rapid.Uint32().Draw(t, "incarnation"), rapid.Uint64Min(1).Draw(t, "sequence"), rapid.Uint64Max(1<<nonceBits-1).Draw(t, "nonce")}
		text := want.AppendTo(nil)
		if len(text) > TokenTextMax {
			t.Errorf("%q has %d bytes", text, len(text))
		}
		if got, ok := ParseToken(text); !ok || got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	})
	for _, bad := range []string{"", ".", "AAAAAA..AAAAAAAAAA", "AAAAAA.0.AAAAAAAAAA", "AAAAAA.1.AAAAAAAAA", "AAAAA!.1.AAAAAAAAAA",
		"AAAAAA.zzzzzzzzzzzzz.AAAAAAAAAA", "AAAAAA.-1.AAAAAAAAAA", "AAAAAA.1.AAAAAAAAA!"} {
		if _, ok := ParseToken([]byte(bad)); ok {
			t.Errorf("%q is a token", bad)
		}
	}
}

// The life of a value: absent, granted, filled, past soft, refreshed, noticed.
func TestFreshLife(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	a := f.want("EN W")
	f.want("EN Z")
	f.plain("EN")
	f.now += 50
	f.fill(a, 41, "one", ReasonNone)
	f.want("VA one")
	f.plain("VA one")
	f.fill(a, 41, "one", ReasonToken) // used

	f.now += 10_000 // past soft
	b := f.want("VA one W")
	f.want("VA one Z")
	f.plain("VA one")
	f.fill(b, 42, "two", ReasonNone)
	f.want("VA two")

	f.s.Notice(f.k, 43, false, f.now)
	c := f.want("VA two X W")
	f.want("VA two X Z")
	f.fill(c, 42, "two", ReasonFloor) // read before what the notice tells
	d := f.want("VA two X W")
	f.fill(d, 43, "three", ReasonNone)
	f.want("VA three")

	f.now += 30_000 // past hard
	f.want("EN W")
	f.plain("EN")
}

// A write without a grant whose read is as old as floors are kept could be of
// before a floor that is forgotten. The explorer has found this one.
func TestFreshOldWrite(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	began := f.now // version 1 is read, and 2 is committed at once
	f.s.Notice(f.k, 2, false, f.now)
	f.now += retentionDefault
	f.fillWith(Fill{Version: 1, Deadlines: Deadlines{Hard: began + 60_000, Read: began}}, "one", ReasonPast)
	f.fillWith(Fill{Version: 3, Deadlines: Deadlines{Hard: began + 60_000, Read: began + 2*skewMaxDefault + 1}}, "three", ReasonNone)
}

// A new owner's grants need not wait for those of the old one to end.
func TestFreshGrantAfterHide(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	a := f.want("EN W")
	f.s.HideBuckets([]int{f.k.Bucket()}, f.now)
	b := f.want("EN W")
	f.fill(a, 1, "old", ReasonOwnership)
	f.fill(b, 1, "new", ReasonNone)
	f.want("VA new")
}

// A token takes its tenant's place until its time has passed, and not until
// floors of that time are forgotten.
func TestFreshTenantPlaceInTime(t *testing.T) {
	s := newTestStore(t, withTenants(Config{LimitBytes: 1 << 20, PageBytes: 4 << 10,
		Fresh: FreshConfig{EarlyBeta: -1, RetentionMillis: RetentionMillisLimit}},
		TenantConfig{Quotas: named("a", Quota{GrantsInFlight: 1})}))
	f := &freshKey{t: t, s: s, k: key("a:1"), now: noon}
	other := &freshKey{t: t, s: s, k: key("a:2"), now: noon}
	f.want("EN W")
	other.want("EN d")
	other.now += 1000 + 20 // and a slot of the wheel
	other.want("EN W")
	var st Stats
	s.Snapshot(other.now, &st)
	if st.Fresh.TokensExpired != 1 {
		t.Errorf("%d tokens expired, want 1", st.Fresh.TokensExpired)
	}
}

// From a full table the floor goes that was raised longest ago, also when
// nobody asks for a grant.
func TestFreshOldestFloorGoes(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 1 << 20, PageBytes: 4 << 10, Fresh: FreshConfig{EarlyBeta: -1, RecordsMax: 8}})
	now := noon
	for i := range 100 {
		s.Notice(key(fmt.Sprint(i)), 7, false, now)
		now += 1000
	}
	for i := range 100 {
		a := Ask{Class: GrantForeground}
		want := uint64(0)
		if i >= 100-8 {
			want = 7
		}
		sh := s.shards[0]
		if sh.tellFloor(key(fmt.Sprint(i)), &a, &extra{}); a.Floor != want {
			t.Errorf("floor %d of the notice %d s ago, want %d", a.Floor, 100-i, want)
		}
	}
	if got, want := s.shards[0].records.unknownUntil(), noon+91*1000+retentionDefault; got != want {
		t.Errorf("floors are unknown until %d, want %d", got, want)
	}
}

// S1-39: a fill that finds no room leaves the value that it was to replace,
// which nothing but values on their way lie beside.
func TestFreshFillKeepsItsKey(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 64 << 10, PageBytes: 16 << 10, Fresh: FreshConfig{EarlyBeta: -1}})
	f := &freshKey{t: t, s: s, k: key("k"), now: noon}
	value := strings.Repeat("v", 1500)
	f.fill(f.want("EN W"), 1, value, ReasonNone)
	sh := s.shards[0]
	var uploads []*Upload
	for c := sh.a.ClassOf(sh.find(f.k)); sh.a.HasRoom(c) || s.budget.Taken() < s.budget.Limit(); {
		u := new(Upload)
		if st := s.Begin(key(fmt.Sprint(len(uploads))), len(value), &SetOptions{}, f.now, u); st != OK {
			t.Fatal(st)
		}
		uploads = append(uploads, u)
	}
	f.now += 10_000
	a := f.want("VA " + value + " W")
	o := SetOptions{Fill: &Fill{HasToken: true, Token: a.Token, Version: 2, Deadlines: Deadlines{Hard: f.now + 30_000}}}
	if res := s.Set(f.k, []byte(value), &o, f.now); res.Status != NoMemory {
		t.Errorf("a fill without room: status %d, want %d", res.Status, NoMemory)
	}
	f.plain("VA " + value)
	f.fill(a, 2, value, ReasonToken) // it has ended
	for _, u := range uploads {
		u.Abort()
	}
}

// Who may not have a grant has none before soft either.
func TestFreshEarlyIsAGrant(t *testing.T) {
	for _, none := range []bool{false, true} {
		f := newFreshKey(t, FreshConfig{EarlyBeta: 1e9})
		a := f.want("EN W")
		f.now += 5
		f.fill(a, 1, "x", ReasonNone)
		ask := Ask{Class: GrantForeground, NoGrant: none}
		if st := f.s.Get(f.k, &GetOptions{Ask: &ask}, f.now, nil); st != OK || ask.Granted == none || ask.Denied {
			t.Errorf("no grants %t: %v, granted %t, denied %t", none, st, ask.Granted, ask.Denied)
		}
	}
}

// A token whose time is over is counted whoever looks, not only by the next
// request.
func TestFreshExpiredIsCounted(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	f.want("EN W")
	f.now += 2000
	var st Stats
	f.s.Snapshot(f.now, &st)
	if n := st.Fresh.TokensExpired; n != 1 {
		t.Errorf("%d tokens have expired, want 1", n)
	}
}

type observerFunc func(e *Event)

func (f observerFunc) Observe(e *Event) { f(e) }

// S1-08: a floor that comes while a plain value waits for room that another
// shard gives up is kept for as long as the value.
func TestFreshFloorWhileRoomIsMade(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 1 << 20, PageBytes: 16 << 10, Shards: 2})
	now, value := noon, make([]byte, 490) // an extra header does not make it one of another class
	k, n := key("k"), 0
	home := s.shards[shardBits(k.Hash)&s.mask]
	other := func() Key {
		for {
			n++
			if o := key(fmt.Sprint("other", n)); s.shards[shardBits(o.Hash)&s.mask] != home {
				return o
			}
		}
	}
	for s.budget.Taken() < s.LimitBytes() { // all memory is another shard's
		s.Set(other(), value, &SetOptions{}, now)
	}
	for range 10 {
		s.Set(other(), value, &SetOptions{}, now)
	}
	heard := false
	s.Observe(observerFunc(func(e *Event) {
		if e.Kind == EventEvict && !heard { // the other shard is locked, ours is not
			heard = true
			s.Notice(k, 7, false, now)
		}
	}))
	if res := s.Set(k, value, &SetOptions{}, now); res.Status != OK || !heard {
		t.Fatalf("%v, a notice came meanwhile: %t", res.Status, heard)
	}
	s.Observe(nil)
	now += 2 * retentionDefault
	home.mu.Lock()
	home.records.turn(now, home.uncount)
	home.mu.Unlock()
	if floor, _ := s.State(k, now, nil); floor != 7 {
		t.Errorf("floor %d, want 7", floor)
	}
}

// Who waits is told when the value should be there; and when it is late, to ask
// the less often, the later it is.
func TestFreshWait(t *testing.T) {
	for _, c := range []struct {
		elapsed, left, typical Time
		want                   int64
	}{
		{0, 500, 0, 10},
		{0, 5, 0, 5},
		{400, 600, 0, 100},
		{0, 500, 20, 20},
		{5, 495, 20, 15},
		{20, 480, 20, 5},
		{100, 400, 20, 25},
		{400, 600, 20, 100},
		{490, 10, 20, 10},
		{0, 1, 1, 1},
		{1, 499, 1, 1},
	} {
		if got := waitFor(c.elapsed, c.left, c.typical); got != c.want {
			t.Errorf("a token is out for %d ms, and for %d more, fills take %d: wait %d ms, want %d",
				c.elapsed, c.left, c.typical, got, c.want)
		}
	}
	// From 1 ms on to the end of the token, a waiter asks a few dozen times.
	asked := 0
	for elapsed := Time(0); elapsed < 1000; asked++ {
		elapsed += Time(waitFor(elapsed, 1000-elapsed, 1))
	}
	if asked > 40 {
		t.Errorf("asked %d times in a second", asked)
	}
}
