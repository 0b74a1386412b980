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
	f.fillWith(Fill{Version: 3, Deadlines: Deadlines{Hard: began + 60_000, Read: began + 1}}, "three", ReasonNone)
}
