package store

import (
	"fmt"
	"testing"
)

// Plain commands on keys that have versions, floors or tokens.

// A stub is absent for who asks for a grant, whoever left it, and with a floor
// or without.
func TestFreshStubIsAbsent(t *testing.T) {
	for _, floor := range []uint64{0, 7} {
		for _, c := range []struct {
			name  string
			leave func(f *freshKey)
		}{
			{"vivify", func(f *freshKey) {
				f.s.Get(f.k, &GetOptions{Vivify: true, VivifyExpiry: later(60).Seconds()}, f.now, nil)
			}},
			{"remove the value", func(f *freshKey) {
				f.s.mustSet(f.t, "k", "x", SetOptions{}, f.now)
				f.s.Delete(f.k, &DeleteOptions{RemoveValue: true}, f.now)
			}},
		} {
			f := newFreshKey(t, FreshConfig{})
			if floor > 0 {
				f.s.Notice(f.k, floor, false, f.now)
			}
			c.leave(f)
			f.plain("VA ")
			if a := f.want("EN W"); a.Floor != floor {
				t.Errorf("%s: floor %d, want %d", c.name, a.Floor, floor)
			}
		}
	}
	f := newFreshKey(t, FreshConfig{})
	f.s.mustSet(t, "k", "", SetOptions{}, f.now)
	f.want("VA  X W") // an empty value is one
}

// An absence ends at its hard deadline, and not in the second after it.
func TestFreshAbsenceEndsAtHard(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	f.fillWith(Fill{Kind: FillAbsent, HasToken: true, Token: f.want("EN W").Token, Version: 3,
		Deadlines: Deadlines{Hard: f.now + 2100}}, "", ReasonNone)
	f.now += 2099
	f.want("EN e y3")
	f.now++
	f.want("EN W")
}

// T tells the earlier of the TTL and the deadline.
func TestFreshTouchTellsTheEarlier(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	f.fill(f.want("EN W"), 1, "x", ReasonNone)
	for _, c := range []struct{ ttl, want int64 }{{100, 30}, {10, 10}, {0, 30}} {
		var it Item
		f.s.Get(f.k, &GetOptions{Touch: true, Expiry: Expiry(c.ttl, f.now)}, f.now, &itemKeeper{&it})
		if it.TTL != c.want {
			t.Errorf("touched with %d: %d seconds left, want %d", c.ttl, it.TTL, c.want)
		}
	}
}

// What is made of a value that was read with a deadline has it too.
func TestFreshDeadlineOfWhatIsDerived(t *testing.T) {
	for _, c := range []struct {
		name, value, want string
		change            func(f *freshKey)
	}{
		{"append", "1", "12", func(f *freshKey) {
			f.s.Set(f.k, []byte("2"), &SetOptions{Mode: ModeAppend}, f.now)
		}},
		{"incr in place", "1", "2", func(f *freshKey) { f.s.Arith(f.k, &ArithOptions{Delta: 1}, f.now, nil) }},
		{"incr to a longer number", "9", "10", func(f *freshKey) { f.s.Arith(f.k, &ArithOptions{Delta: 1}, f.now, nil) }},
	} {
		f := newFreshKey(t, FreshConfig{})
		f.fill(f.want("EN W"), 5, c.value, ReasonNone)
		c.change(f)
		f.plain("VA " + c.want)
		f.want("VA " + c.want + " X W") // no version of the source
		f.now += 30_000 - 1
		f.plain("VA " + c.want)
		f.now++
		f.plain("EN")
	}
}

// Every plain change ends the token, on a key that has no value too.
func TestFreshPlainChangeEndsTheToken(t *testing.T) {
	set := func(m Mode) func(f *freshKey) {
		return func(f *freshKey) { f.s.Set(f.k, []byte("2"), &SetOptions{Mode: m}, f.now) }
	}
	del := func(o DeleteOptions) func(f *freshKey) {
		return func(f *freshKey) { f.s.Delete(f.k, &o, f.now) }
	}
	for _, c := range []struct {
		name   string
		change func(f *freshKey)
	}{
		{"set", set(ModeSet)}, {"add", set(ModeAdd)}, {"append", set(ModeAppend)}, {"prepend", set(ModePrepend)},
		{"incr", func(f *freshKey) { f.s.Arith(f.k, &ArithOptions{Delta: 1}, f.now, nil) }},
		{"decr", func(f *freshKey) { f.s.Arith(f.k, &ArithOptions{Delta: 1, Decr: true}, f.now, nil) }},
		{"vivify", func(f *freshKey) { f.s.Get(f.k, &GetOptions{Vivify: true}, f.now, nil) }},
		{"delete", del(DeleteOptions{})},
		{"invalidate", del(DeleteOptions{Invalidate: true})},
		{"remove the value", del(DeleteOptions{RemoveValue: true})},
		{"flush", func(f *freshKey) { f.s.FlushAll(0, f.now) }},
		{"notice", func(f *freshKey) { f.s.Notice(f.k, 9, false, f.now) }},
		{"takedown", func(f *freshKey) { f.s.Notice(f.k, 9, true, f.now) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFreshKey(t, FreshConfig{})
			a := f.want("EN W")
			c.change(f)
			f.fill(a, 9, "late", ReasonToken)
		})
	}
	for _, c := range []struct {
		name   string
		change func(f *freshKey)
	}{
		{"get", func(f *freshKey) { f.plain("EN") }},
		{"touch", func(f *freshKey) { f.s.Get(f.k, &GetOptions{Touch: true}, f.now, nil) }},
		{"an old notice", func(f *freshKey) { f.s.Notice(f.k, 3, false, f.now) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFreshKey(t, FreshConfig{})
			f.s.Notice(f.k, 3, false, f.now)
			a := f.want("EN W")
			c.change(f)
			f.fill(a, 9, "in time", ReasonNone)
		})
	}
}

// S1-33: a notice that comes again changes nothing.
func TestFreshNoticeAgain(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	f.fill(f.want("EN W"), 41, "old", ReasonNone)
	f.s.Notice(f.k, 42, false, f.now)
	cas := func() uint64 {
		var it Item
		f.s.Peek(f.k, f.now, &itemKeeper{&it})
		return it.CAS
	}
	first, a := cas(), f.want("VA old X W")
	for _, v := range []uint64{42, 41, 1} {
		f.s.Notice(f.k, v, false, f.now)
	}
	if cas() != first {
		t.Error("a notice that came again has changed the CAS")
	}
	f.fill(a, 42, "new", ReasonNone)
	f.s.Notice(f.k, 42, false, f.now)
	f.want("VA new")
}

// The pause after loaders that failed is kept as long as they go on failing,
// however long each takes.
func TestFreshPauseIsKept(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	for i, want := range []Time{0, 100, 200, 400, 800, 1000, 1000} {
		a := f.want("EN W")
		f.now += 700 // the loader tries
		if why := f.s.GiveBack(f.k, a.Token, true, f.now); why != ReasonNone {
			t.Fatal(why)
		}
		if want > 0 {
			f.now += want - 1
			f.want("EN Z")
			f.now++
		}
		if i == 3 {
			f.now += 5000 // nobody asks
		}
	}
	f.fill(f.want("EN W"), 1, "x", ReasonNone)
	f.s.Delete(f.k, &DeleteOptions{}, f.now)
	a := f.want("EN W")
	f.s.GiveBack(f.k, a.Token, true, f.now)
	f.want("EN W") // a fill has made good
}

// Right after the start of a store nothing is known of floors: what is written
// without a grant is stale.
func TestFreshFloorsUnknownAtTheStart(t *testing.T) {
	f := newFreshKey(t, FreshConfig{})
	f.s.LoseFloors(f.now)
	f.fillWith(Fill{Version: 4}, "x", ReasonNone)
	f.fill(f.want("VA x X W"), 4, "x", ReasonNone) // a token needs no older floor
	f.now += retentionDefault
	f.fillWith(Fill{Version: 5}, "y", ReasonNone)
	f.want("VA y")
}

// A revalidation needs no room: it works where nothing can be evicted.
func TestFreshRevalidateNeedsNoRoom(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 64 << 10, PageBytes: 16 << 10, NoEvict: true, Fresh: FreshConfig{EarlyBeta: -1}})
	f := &freshKey{t: t, s: s, k: key("k"), now: noon}
	f.fill(f.want("EN W"), 4, "x", ReasonNone)
	for i := range 10_000 {
		if s.Set(key(string(rune('a'+i%26))+string(rune(i))), []byte("12345"), &SetOptions{}, f.now).Status == NoMemory {
			break
		}
	}
	f.now += 20_000
	a := f.want("VA x W")
	f.fillWith(Fill{Kind: FillRevalidate, HasToken: true, Token: a.Token, Version: 4, Deadlines: Deadlines{Hard: f.now + 30_000}}, "", ReasonNone)
	f.now += 29_999
	f.plain("VA x")
}

// The eviction of a tenant's own item ends the token of its key, as any does.
func TestFreshOwnEvictionEndsTheToken(t *testing.T) {
	s := newTestStore(t, withTenants(Config{LimitBytes: 1 << 20, PageBytes: 4 << 10, Fresh: FreshConfig{EarlyBeta: -1}},
		TenantConfig{Quotas: named("a", Quota{MemoryBytes: 4 << 10})}))
	f := &freshKey{t: t, s: s, k: key("a:k"), now: noon}
	f.fill(f.want("EN W"), 4, "x", ReasonNone)
	f.now += 20_000
	a := f.want("VA x W")
	for i := 0; s.Peek(f.k, f.now, nil) == OK; i++ {
		if i == 100_000 {
			t.Fatal("the item is still there")
		}
		k := fmt.Sprint("a:", i)
		s.mustSet(t, k, "0123456789012345678901234567890123456789", SetOptions{}, f.now)
		s.get(k, GetOptions{}, f.now)
	}
	f.fill(a, 5, "y", ReasonToken)
}

// A source that answers nobody in time is asked less, as one that is slow.
func TestAdapterHearsOfSilence(t *testing.T) {
	b := budget{adapt: newAdapter()}
	now := noon
	for range 2000 {
		n := 0
		for b.take(GrantForeground, now, now+1000) == 0 {
			n++
		}
		for range n {
			b.free(now+5, now+1000, 5)
		}
		now += 5
	}
	before := b.adapt.limit()
	for range 30 {
		for b.take(GrantForeground, now, now+1000) == 0 {
		}
		now += 1000
	}
	if got := b.adapt.limit(); before < 2*adaptStart || got != adaptMin {
		t.Errorf("%d tokens may be out after %d, want %d", got, before, adaptMin)
	}
}

// A plain write that stores nothing has been one at the source all the same:
// what was read before it must not fill.
func TestFreshWriteThatFails(t *testing.T) {
	large := make([]byte, 700_000)
	set := func(mode Mode, value []byte, cas uint64) func(f *freshKey) Status {
		return func(f *freshKey) Status {
			o := SetOptions{Mode: mode, Compare: cas != 0, CompareCAS: cas}
			return f.s.Set(f.k, value, &o, f.now).Status
		}
	}
	for _, c := range []struct {
		name   string
		before []byte
		write  func(f *freshKey) Status
		want   Status
	}{
		{"replace of nothing", nil, set(ModeReplace, []byte("x"), 0), NotStored},
		{"append to nothing", nil, set(ModeAppend, []byte("x"), 0), NotStored},
		{"cas of nothing", nil, set(ModeSet, []byte("x"), 5), Miss},
		{"append that is too large", []byte("x"), set(ModeAppend, make([]byte, 2<<20), 0), TooLarge},
		{"append that becomes too large", large, set(ModeAppend, large, 0), NotStored},
	} {
		f := newFreshKey(t, FreshConfig{})
		if c.before != nil {
			f.s.mustSet(t, "k", string(c.before), SetOptions{}, f.now)
		}
		_, a := f.look(GrantForeground, 0)
		if st := c.write(f); st != c.want {
			t.Errorf("%s: %v, want %v", c.name, st, c.want)
		}
		f.fill(a, 1, "old", ReasonToken)
	}
}
