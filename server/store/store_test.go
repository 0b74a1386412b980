package store

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/lru"
)

// noon is when tests begin.
const noon = Time(1_700_000_000_000)

// later is n seconds after noon.
func later(n int) Time { return noon + Time(n)*1000 }

func newTestStore(t testing.TB, c Config) *Store {
	t.Helper()
	leakless(t)
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// tiny is a store in which eviction is constant.
var tiny = Config{LimitBytes: 32 << 10, Shards: 1, PageBytes: 1 << 10, ItemMaxBytes: 8 << 10}

func key(k string) Key { return KeyOf([]byte(k)) }

// grab is a Visitor that keeps what it was shown.
type grab struct {
	Item
	value   string
	Version uint64
}

func (g *grab) VisitItem(it *Item) {
	g.Item = *it
	if it.Fresh != nil {
		g.Version = it.Fresh.Version
	}
	g.value = string(it.AppendValue(nil))
}

func (s *Store) mustSet(t testing.TB, k, v string, o SetOptions, now Time) SetResult {
	t.Helper()
	res := s.Set(key(k), []byte(v), &o, now)
	if res.Status != OK {
		t.Fatalf("set %s: status %d", k, res.Status)
	}
	return res
}

func (s *Store) get(k string, o GetOptions, now Time) (grab, Status) {
	var g grab
	st := s.Get(key(k), &o, now, &g)
	return g, st
}

func TestSetAndGet(t *testing.T) {
	s := newTestStore(t, Config{})
	for _, n := range []int{0, 1, 100, 2000, 2048, 5000, 100_000, 1<<20 - 100} {
		k, v := fmt.Sprint("key", n), strings.Repeat("v", n)
		res := s.mustSet(t, k, v, SetOptions{Flags: uint32(n)}, noon)
		got, st := s.get(k, GetOptions{}, noon)
		if st != OK || got.value != v || got.Size != n || got.Flags != uint32(n) || got.CAS != res.CAS {
			t.Errorf("%d bytes: status %d, %d bytes, flags %d, cas %d, want cas %d", n, st, len(got.value), got.Flags, got.CAS, res.CAS)
		}
	}
	if _, st := s.get("absent", GetOptions{}, noon); st != Miss {
		t.Errorf("absent: status %d, want Miss", st)
	}
}

func TestModes(t *testing.T) {
	tests := []struct {
		name   string
		before string // "" is absent
		mode   Mode
		want   Status
		after  string
	}{
		{"add to nothing", "", ModeAdd, OK, "new"},
		{"add to something", "old", ModeAdd, NotStored, "old"},
		{"replace nothing", "", ModeReplace, NotStored, ""},
		{"replace something", "old", ModeReplace, OK, "new"},
		{"append to nothing", "", ModeAppend, NotStored, ""},
		{"append to something", "old", ModeAppend, OK, "oldnew"},
		{"prepend to something", "old", ModePrepend, OK, "newold"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestStore(t, tiny)
			if tt.before != "" {
				s.mustSet(t, "k", tt.before, SetOptions{Flags: 7, Expiry: later(9).Seconds()}, noon)
			}
			res := s.Set(key("k"), []byte("new"), &SetOptions{Mode: tt.mode}, noon)
			got, _ := s.get("k", GetOptions{}, noon)
			if res.Status != tt.want || got.value != tt.after {
				t.Errorf("status %d, then %q; want %d, %q", res.Status, got.value, tt.want, tt.after)
			}
			if appended := tt.mode == ModeAppend && tt.before != ""; appended && (got.Flags != 7 || got.TTL != 9) {
				t.Errorf("after append flags %d, ttl %d, want 7, 9", got.Flags, got.TTL)
			}
		})
	}
}

func TestCompareAndSet(t *testing.T) {
	s := newTestStore(t, tiny)
	if got := s.Set(key("k"), []byte("x"), &SetOptions{Compare: true, CompareCAS: 5}, noon); got.Status != Miss {
		t.Errorf("cas on nothing: status %d, want Miss", got.Status)
	}
	first := s.mustSet(t, "k", "1", SetOptions{}, noon)
	second := s.mustSet(t, "k", "2", SetOptions{Compare: true, CompareCAS: first.CAS}, noon)
	if got := s.Set(key("k"), []byte("3"), &SetOptions{Compare: true, CompareCAS: first.CAS}, noon); got.Status != Exists {
		t.Errorf("cas with an old number: status %d, want Exists", got.Status)
	}
	if got := s.Set(key("k"), []byte("3"), &SetOptions{Compare: true}, noon); got.Status != Exists {
		t.Errorf("cas with 0: status %d, want Exists", got.Status)
	}
	// An older number, welcome: stored, stale, TTL kept.
	res := s.Set(key("k"), []byte("late"), &SetOptions{Compare: true, CompareCAS: first.CAS, Invalidate: true, Expiry: later(5).Seconds()}, noon)
	if res.Status != OK || res.CAS == second.CAS {
		t.Errorf("invalidating cas: status %d, cas %d", res.Status, res.CAS)
	}
	got, _ := s.get("k", GetOptions{}, noon)
	if !got.Stale || !got.Won || got.WinSent || got.value != "late" || got.TTL != -1 {
		t.Errorf("stale %t won %t winSent %t value %q ttl %d", got.Stale, got.Won, got.WinSent, got.value, got.TTL)
	}
	got, _ = s.get("k", GetOptions{}, noon)
	if !got.Stale || got.Won || !got.WinSent {
		t.Errorf("second reader: stale %t won %t winSent %t", got.Stale, got.Won, got.WinSent)
	}
}

func TestExpiry(t *testing.T) {
	t.Run("rule", func(t *testing.T) {
		sec := noon.Seconds()
		for _, tt := range []struct {
			exptime int64
			want    uint32
		}{
			{0, 0}, {-1, 1}, {1, sec + 1}, {RelativeMax, sec + RelativeMax},
			{RelativeMax + 1, RelativeMax + 1}, {int64(sec) + 5, sec + 5}, {1 << 40, math.MaxUint32},
		} {
			if got := Expiry(tt.exptime, noon); got != tt.want {
				t.Errorf("Expiry(%d) = %d, want %d", tt.exptime, got, tt.want)
			}
		}
	})
	t.Run("on read", func(t *testing.T) {
		s := newTestStore(t, tiny)
		s.mustSet(t, "k", "v", SetOptions{Expiry: later(2).Seconds()}, noon)
		if got, st := s.get("k", GetOptions{}, later(1)); st != OK || got.TTL != 1 {
			t.Errorf("after 1 s: status %d, ttl %d", st, got.TTL)
		}
		if _, st := s.get("k", GetOptions{}, later(2)); st != Miss {
			t.Errorf("after 2 s: status %d, want Miss", st)
		}
		var stats Stats
		s.Snapshot(later(2), &stats)
		if stats.Total.Items != 0 || stats.GetExpired != 1 {
			t.Errorf("%d items, %d expired, want 0, 1", stats.Total.Items, stats.GetExpired)
		}
	})
	t.Run("touched", func(t *testing.T) {
		s := newTestStore(t, tiny)
		s.mustSet(t, "k", "v", SetOptions{Expiry: later(2).Seconds()}, noon)
		got, _ := s.get("k", GetOptions{Touch: true, Expiry: later(10).Seconds()}, later(1))
		if got.OldTTL != 1 || got.TTL != 9 {
			t.Errorf("ttl before %d and after %d the touch, want 1, 9", got.OldTTL, got.TTL)
		}
		if _, st := s.get("k", GetOptions{}, later(9)); st != OK {
			t.Errorf("after 9 s: status %d", st)
		}
	})
	// S3-06: memory comes back without anybody reading.
	t.Run("swept", func(t *testing.T) {
		s := newTestStore(t, Config{LimitBytes: 1 << 20, Shards: 2, PageBytes: 4 << 10})
		for i := range 1000 {
			o := SetOptions{}
			if i%2 == 0 {
				o.Expiry = later(1 + i%7).Seconds()
			}
			s.mustSet(t, fmt.Sprint("k", i), "some value", o, noon)
		}
		s.Sweep(later(3))
		var stats Stats
		s.Snapshot(later(3), &stats)
		if want := uint64(1000 - 215); stats.Total.Items != want {
			t.Errorf("%d items after 3 s, want %d", stats.Total.Items, want)
		}
		s.Sweep(later(8))
		s.Snapshot(later(8), &stats)
		if stats.Total.Items != 500 || stats.Total.SweepReclaimed != 500 {
			t.Errorf("%d items after 8 s, %d swept, want 500 and 500", stats.Total.Items, stats.Total.SweepReclaimed)
		}
		checked := stats.Total.SweepChecked
		s.Sweep(later(9))
		s.Snapshot(later(9), &stats)
		if n := stats.Total.SweepChecked - checked; n > 300 {
			t.Errorf("a sweep with nothing to do looked at %d chunks and pages", n)
		}
	})
}

func TestFlush(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 1 << 20, Shards: 2, PageBytes: 4 << 10})
	fill := func(n int, now Time) {
		for i := range n {
			s.mustSet(t, fmt.Sprint("k", i), "v", SetOptions{HasNewCAS: i%10 == 0, NewCAS: 1 << 60}, now)
		}
	}
	count := func(n int, now Time) int {
		found := 0
		for i := range n {
			if _, st := s.get(fmt.Sprint("k", i), GetOptions{NoBump: true}, now); st == OK {
				found++
			}
		}
		return found
	}
	fill(100, noon)
	s.FlushAll(0, noon)
	if got := count(50, noon); got != 0 {
		t.Errorf("%d items are left after a flush", got)
	}
	fill(30, noon) // in the same second
	if got := count(100, noon); got != 30 {
		t.Errorf("%d items after flush and 30 sets in one second, want 30", got)
	}
	s.Sweep(noon)
	var stats Stats
	s.Snapshot(noon, &stats)
	if stats.Total.Items != 30 {
		t.Errorf("%d items after the sweep, want 30", stats.Total.Items)
	}
	s.FlushAll(later(10).Seconds(), noon)
	fill(60, later(5))
	if got := count(60, later(9)); got != 60 {
		t.Errorf("%d items a second before the flush, want 60", got)
	}
	if got := count(60, later(10)); got != 0 {
		t.Errorf("%d items when the flush has come, want 0", got)
	}
}

func TestDelete(t *testing.T) {
	s := newTestStore(t, tiny)
	if got := s.Delete(key("k"), &DeleteOptions{}, noon); got != Miss {
		t.Errorf("delete of nothing: status %d", got)
	}
	first := s.mustSet(t, "k", "v", SetOptions{Flags: 5}, noon)
	if got := s.Delete(key("k"), &DeleteOptions{Compare: true, CompareCAS: first.CAS + 1}, noon); got != Exists {
		t.Errorf("delete with another cas: status %d, want Exists", got)
	}
	if got := s.Delete(key("k"), &DeleteOptions{Invalidate: true, Touch: true, Expiry: later(30).Seconds()}, noon); got != OK {
		t.Errorf("invalidate: status %d", got)
	}
	got, _ := s.get("k", GetOptions{}, noon)
	if !got.Stale || !got.Won || got.CAS == first.CAS || got.TTL != 30 || got.value != "v" {
		t.Errorf("invalidated: stale %t won %t ttl %d value %q", got.Stale, got.Won, got.TTL, got.value)
	}
	if got := s.Delete(key("k"), &DeleteOptions{RemoveValue: true, Flags: 9}, noon); got != OK {
		t.Errorf("empty the value: status %d", got)
	}
	cas := got.CAS
	got, _ = s.get("k", GetOptions{}, noon)
	if got.Size != 0 || got.Flags != 9 || got.TTL != -1 || got.CAS != cas {
		t.Errorf("emptied: %d bytes, flags %d, ttl %d, cas %d, want cas %d", got.Size, got.Flags, got.TTL, got.CAS, cas)
	}
	if got := s.Delete(key("k"), &DeleteOptions{}, noon); got != OK {
		t.Errorf("delete: status %d", got)
	}
	if _, st := s.get("k", GetOptions{}, noon); st != Miss {
		t.Errorf("after delete: status %d", st)
	}
}

func TestArith(t *testing.T) {
	tests := []struct {
		value string
		decr  bool
		delta uint64
		want  string
		st    Status
	}{
		{"10", false, 1, "11", OK},
		{"99", false, 1, "100", OK},
		{"10", true, 1, "9 ", OK},
		{"5", true, 7, "0", OK},
		{"18446744073709551615", false, 2, "1                   ", OK},
		{"18446744073709551616", false, 1, "", NonNumeric},
		{"", false, 1, "", NonNumeric},
		{"abc", false, 1, "", NonNumeric},
		{"  7", false, 1, "8  ", OK},
		{"1 22", false, 1, "2   ", OK},
		{"5\x00x", false, 1, "6  ", OK},
		{"+4", false, 1, "5 ", OK},
		{"-1", false, 1, "", NonNumeric},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%q %t %d", tt.value, tt.decr, tt.delta), func(t *testing.T) {
			s := newTestStore(t, tiny)
			before := s.mustSet(t, "n", tt.value, SetOptions{Flags: 3, Expiry: later(9).Seconds()}, noon)
			st := s.Arith(key("n"), &ArithOptions{Decr: tt.decr, Delta: tt.delta}, noon, nil)
			if st != tt.st {
				t.Fatalf("status %d, want %d", st, tt.st)
			}
			if got, _ := s.get("n", GetOptions{}, noon); st == OK && (got.value != tt.want || got.CAS == before.CAS || got.Flags != 3 || got.TTL != 9) {
				t.Errorf("value %q, cas %d, flags %d, ttl %d; want %q, cas not %d, 3, 9", got.value, got.CAS, got.Flags, got.TTL, tt.want, before.CAS)
			}
		})
	}
	t.Run("vivify", func(t *testing.T) {
		s := newTestStore(t, tiny)
		if st := s.Arith(key("n"), &ArithOptions{Delta: 1}, noon, nil); st != Miss {
			t.Errorf("status %d, want Miss", st)
		}
		var g grab
		st := s.Arith(key("n"), &ArithOptions{Delta: 1, Vivify: true, Initial: 41, VivifyExpiry: later(7).Seconds()}, noon, &g)
		if st != OK || g.Number != 41 || g.TTL != 7 {
			t.Errorf("status %d, number %d, ttl %d", st, g.Number, g.TTL)
		}
	})
}

// An upload is seen when it is whole, and leaves nothing behind otherwise.
func TestUpload(t *testing.T) {
	s := newTestStore(t, tiny)
	used := func() (n uint64) {
		var stats Stats
		s.Snapshot(noon, &stats)
		for _, c := range stats.Classes {
			n += c.UsedChunks
		}
		return n
	}
	value := bytes.Repeat([]byte("0123456789"), 300)
	var u Upload
	for cut := 0; cut <= len(value); cut += 37 {
		before := used()
		if st := s.Begin(key("k"), len(value), &SetOptions{}, noon, &u); st != OK {
			t.Fatalf("begin: status %d", st)
		}
		if st := u.Write(value[:cut], noon); st != OK {
			t.Fatalf("write: status %d", st)
		}
		if _, st := s.get("k", GetOptions{}, noon); st != Miss {
			t.Fatalf("a value of which %d bytes are there can be read", cut)
		}
		u.Abort()
		u.Abort()
		if got := used(); got != before {
			t.Fatalf("%d chunks in use after an aborted upload, %d before", got, before)
		}
	}
	if got := s.uploadBytes.Load(); got != 0 {
		t.Errorf("%d upload bytes counted with no upload", got)
	}
	if st := s.Begin(key("k"), len(value), &SetOptions{}, noon, &u); st != OK {
		t.Fatalf("begin: status %d", st)
	}
	for i := range value {
		if st := u.Write(value[i:i+1], noon); st != OK {
			t.Fatalf("write: status %d", st)
		}
	}
	if res := u.Commit(noon); res.Status != OK || res.Size != len(value) {
		t.Fatalf("commit: status %d, size %d", res.Status, res.Size)
	}
	if got, _ := s.get("k", GetOptions{}, noon); got.value != string(value) {
		t.Error("the value read is not the value written")
	}
}

// A pinned value stays as it was, whatever becomes of its key.
func TestPin(t *testing.T) {
	read := func(p *Pin) string {
		var b []byte
		for p.Len() > 0 {
			pieces := p.Peek(make([][]byte, 0, 3))
			b = append(b, pieces[0][:(len(pieces[0])+1)/2]...)
			p.Advance((len(pieces[0]) + 1) / 2)
		}
		return string(b)
	}
	for name, disturb := range map[string]func(t *testing.T, s *Store){
		"deleted":     func(t *testing.T, s *Store) { s.Delete(key("k"), &DeleteOptions{}, noon) },
		"overwritten": func(t *testing.T, s *Store) { s.mustSet(t, "k", "other", SetOptions{}, noon) },
		"appended":    func(t *testing.T, s *Store) { s.mustSet(t, "k", "more", SetOptions{Mode: ModeAppend}, noon) },
		"evicted": func(t *testing.T, s *Store) {
			for i := range 500 {
				s.mustSet(t, fmt.Sprint("filler", i), strings.Repeat("f", 100+i), SetOptions{}, noon)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, tiny)
			value := strings.Repeat("abcdefg", 400)
			s.mustSet(t, "k", value, SetOptions{}, noon)
			var p1, p2 Pin
			for _, p := range []*Pin{&p1, &p2} {
				v := pinner{p: p}
				if s.Get(key("k"), &GetOptions{}, noon, &v); !v.ok {
					t.Fatal("not pinned")
				}
			}
			disturb(t, s)
			for _, p := range []*Pin{&p1, &p2} {
				if got := read(p); got != value {
					t.Errorf("a pinned value changed: %d bytes, want %d", len(got), len(value))
				}
				p.Release()
				p.Release()
			}
			if n := s.pinnedBytes.Load(); n != 0 {
				t.Errorf("%d bytes are pinned with no pin", n)
			}
		})
	}
}

type pinner struct {
	p  *Pin
	ok bool
}

func (v *pinner) VisitItem(it *Item) { *v.p, v.ok = it.Pin() }

// Values larger than any that the shard's other classes hold push those out:
// memory moves between classes.
func TestMemoryMovesToOtherClasses(t *testing.T) {
	s := newTestStore(t, tiny)
	for i := range 1000 {
		s.mustSet(t, fmt.Sprint("small", i), "0123456789", SetOptions{}, noon)
	}
	for i := range 20 {
		k, v := fmt.Sprint("large", i), strings.Repeat(fmt.Sprint(i%10), 4000)
		s.mustSet(t, k, v, SetOptions{}, noon)
		if got, st := s.get(k, GetOptions{}, noon); st != OK || got.value != v {
			t.Fatalf("%s: status %d, %d bytes", k, st, len(got.value))
		}
	}
	for i := range 200 {
		s.mustSet(t, fmt.Sprint("small", i), "0123456789", SetOptions{}, noon)
	}
}

// An item may be larger than what its shard holds: others give way.
func TestMemoryMovesToOtherShards(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 256 << 10, Shards: 4, PageBytes: 4 << 10, ItemMaxBytes: 128 << 10})
	for i := range 5000 {
		s.mustSet(t, fmt.Sprint("small", i), strings.Repeat("s", 60), SetOptions{}, noon)
	}
	for i := range 10 {
		k, v := fmt.Sprint("large", i), strings.Repeat(fmt.Sprint(i%10), 127<<10)
		s.mustSet(t, k, v, SetOptions{}, noon)
		if got, st := s.get(k, GetOptions{}, noon); st != OK || got.value != v {
			t.Fatalf("%s: status %d, %d bytes", k, st, len(got.value))
		}
	}
}

func TestNoEvict(t *testing.T) {
	c := tiny
	c.NoEvict = true
	s := newTestStore(t, c)
	n := 0
	for s.Set(key(fmt.Sprintf("k%04d", n)), make([]byte, 50), &SetOptions{Expiry: later(10).Seconds()}, noon).Status == OK {
		n++
	}
	for i := range n {
		if _, st := s.get(fmt.Sprintf("k%04d", i), GetOptions{}, noon); st != OK {
			t.Fatalf("item %d of %d is gone", i, n)
		}
	}
	if res := s.Set(key("k0001"), make([]byte, 50), &SetOptions{Expiry: later(10).Seconds()}, noon); res.Status != OK {
		t.Errorf("set over a value of that size in a full store: status %d", res.Status)
	}
	if res := s.Set(key("k0000"), make([]byte, 200), &SetOptions{DropOnError: true}, noon); res.Status != NoMemory {
		t.Errorf("set of a larger value into a full store: status %d, want NoMemory", res.Status)
	}
	if _, st := s.get("k0000", GetOptions{}, noon); st != Miss {
		t.Error("the old value outlived a set that failed")
	}
	s.Sweep(later(10))
	if res := s.Set(key("k9999"), make([]byte, 50), &SetOptions{}, later(10)); res.Status != OK {
		t.Errorf("set after all has expired: status %d", res.Status)
	}
}

// A value over another of its class takes its chunk: nothing has to go for it,
// and it is a new item in all else.
func TestOverwriteInPlace(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first SetOptions
		o     SetOptions
		value string
		reuse bool
	}{
		{"same size", SetOptions{}, SetOptions{Expiry: later(5).Seconds()}, "0123456789", true},
		{"shorter", SetOptions{}, SetOptions{}, "012345678", true},
		{"with flags, so longer", SetOptions{}, SetOptions{Flags: 7}, "0123", true},
		{"much longer", SetOptions{}, SetOptions{}, strings.Repeat("x", 300), false},
		{"a CAS of its own", SetOptions{}, SetOptions{HasNewCAS: true, NewCAS: 5}, "0123456789", false},
		{"over a CAS of its own", SetOptions{HasNewCAS: true, NewCAS: 1 << 60}, SetOptions{}, "0123456789", false},
		{"expired", SetOptions{Expiry: later(1).Seconds()}, SetOptions{}, "0123456789", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestStore(t, tiny)
			s.mustSet(t, "k", "9876543210", tt.first, noon)
			s.mustSet(t, "other", "9876543210", SetOptions{}, noon)
			if tt.first.Expiry == 0 {
				if _, st := s.get("k", GetOptions{}, noon); st != OK {
					t.Fatal("it is not there")
				}
			}
			sh := s.shards[shardBits(key("k").Hash)&s.mask]
			before, old := sh.find(key("k")), sh.item(sh.find(key("k"))).cas()
			now := later(2)
			res := s.Set(key("k"), []byte(tt.value), &tt.o, now)
			after := sh.find(key("k"))
			if res.Status != OK || res.CAS == old || (before == after) != tt.reuse {
				t.Errorf("status %d, CAS %d after %d, chunk %d after %d", res.Status, res.CAS, old, after, before)
			}
			it := sh.item(after)
			if it.tag&(lru.Fetched|lru.Active) != 0 || it.flags() != tt.o.Flags || it.expiry() != tt.o.Expiry {
				t.Errorf("tag %x, flags %d, expiry %d", it.tag, it.flags(), it.expiry())
			}
			if got, st := s.get("k", GetOptions{}, now); st != OK || got.value != tt.value {
				t.Errorf("status %d, %q", st, got.value)
			}
		})
	}
}

// Keys that are written and never read do not wash out what is read: neither
// many, each in its turn, nor a few that are written very often.
func TestWritesLeaveHotSet(t *testing.T) {
	const hotKeys, writtenKeys, oftenKeys, turns = 2400, 20_000, 2400, 40
	s := newTestStore(t, Config{LimitBytes: 4 << 20, Shards: 1})
	value := strings.Repeat("v", 1000)
	misses := 0
	for i := range turns * hotKeys {
		s.mustSet(t, fmt.Sprint("written", i%writtenKeys), value, SetOptions{}, noon)
		s.mustSet(t, fmt.Sprint("often", i%oftenKeys), value, SetOptions{}, noon)
		k := fmt.Sprint("hot", i%hotKeys)
		if _, st := s.get(k, GetOptions{}, noon); st == Miss {
			s.mustSet(t, k, value, SetOptions{}, noon)
			if i > turns/2*hotKeys {
				misses++
			}
		}
	}
	if most := turns / 2 * hotKeys / 1000; misses > most {
		t.Errorf("%d of %d reads missed, want at most %d", misses, turns/2*hotKeys, most)
	}
}

// A value that is being sent is not written over.
func TestOverwritePinned(t *testing.T) {
	s := newTestStore(t, tiny)
	s.mustSet(t, "k", "before", SetOptions{}, noon)
	var pin Pin
	s.Get(key("k"), &GetOptions{}, noon, &pinner{p: &pin})
	s.mustSet(t, "k", "behind", SetOptions{}, noon)
	if got := string(bytes.Join(pin.Peek(make([][]byte, 0, 4)), nil)); got != "before" {
		t.Errorf("the pinned value is %q", got)
	}
	pin.Release()
	if got, _ := s.get("k", GetOptions{}, noon); got.value != "behind" {
		t.Errorf("the new one is %q", got.value)
	}
}

// Keys made to collide: a chain is bounded, the one accessed longest ago
// goes, and that is counted.
func TestCollidingKeys(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 4 << 20, Shards: 1})
	var keys []string
	for i := 0; len(keys) < 3*chainEntriesMax; i++ {
		if k := fmt.Sprint("collides", i); key(k).Hash&(1<<indexLevelMin-1) == 42 {
			keys = append(keys, k)
		}
	}
	for i, k := range keys {
		s.mustSet(t, k, "v", SetOptions{}, later(i))
	}
	for i, k := range keys {
		_, st := s.get(k, GetOptions{}, later(len(keys)))
		if want := i >= len(keys)-chainEntriesMax; want != (st == OK) {
			t.Fatalf("key %d of %d: status %d", i, len(keys), st)
		}
	}
	var stats Stats
	s.Snapshot(later(len(keys)), &stats)
	if got, want := stats.ChainEvictions, uint64(len(keys)-chainEntriesMax); got != want {
		t.Errorf("%d chain evictions counted, want %d", got, want)
	}
}

// DESIGN decision 6: -m 64 -t 32 holds at least 85 % of 64 MB as key and
// value bytes before the first eviction.
func TestFillBeforeEviction(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("fills 64 MB several times")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	lo, hi := math.Log(20), math.Log(100e3)
	for name, size := range map[string]func() float64{
		"log-uniform": func() float64 { return math.Exp(lo + (hi-lo)*rng.Float64()) },
		"uniform":     func() float64 { return 20 + (100e3-20)*rng.Float64() },
		"lognormal":   func() float64 { return math.Exp(math.Log(1000) + 1.5*rng.NormFloat64()) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, Config{LimitBytes: 64 << 20, Loops: 32})
			buf := make([]byte, 100<<10)
			var stats Stats
			payload, held := 0, 0
			for i := 0; ; i++ {
				n := int(min(max(size(), 20), 100e3))
				k := fmt.Sprintf("key:%012d", i)
				s.mustSet(t, k, string(buf[:n]), SetOptions{}, noon)
				if s.Snapshot(noon, &stats); stats.Total.Evicted > 0 {
					break
				}
				payload += n + len(k)
				held = payload
			}
			percent := 100 * float64(held) / (64 << 20)
			t.Logf("%.1f %% of 64 MB are keys and values before the first eviction", percent)
			if percent < 85 {
				t.Errorf("%.1f %%, want at least 85", percent)
			}
		})
	}
}

// Values that are not whole yet can take three quarters of the memory, all of
// which can then be stored, and no more.
func TestHalfSentValuesHaveABound(t *testing.T) {
	const limit, size = 8 << 20, 100 << 10
	s := newTestStore(t, Config{LimitBytes: limit, Shards: 2})
	var whole, refused []*Upload
	for i := range limit / size {
		u := new(Upload)
		if s.Begin(key(fmt.Sprint("k", i)), size, &SetOptions{}, noon, u) != OK {
			continue
		}
		if u.Write(make([]byte, size), noon) == OK {
			whole = append(whole, u)
		} else {
			refused = append(refused, u)
		}
	}
	if got, least := len(whole)*size, limit/2; got < least || s.uploadBytes.Load() > limit/4*3 {
		t.Errorf("%d bytes are there of half-sent values, %d counted; want %d to %d", got, s.uploadBytes.Load(), least, limit/4*3)
	}
	for _, u := range refused {
		u.Abort()
	}
	for _, u := range whole {
		if res := u.Commit(noon); res.Status != OK {
			t.Errorf("commit: status %d", res.Status)
		}
	}
	if got := s.uploadBytes.Load(); got != 0 {
		t.Errorf("%d bytes counted at the end", got)
	}
}

func TestPastTTLIsShownAsZero(t *testing.T) {
	s := newTestStore(t, tiny)
	s.mustSet(t, "k", "v", SetOptions{}, noon)
	if got, _ := s.get("k", GetOptions{Touch: true, Expiry: Expiry(-1, noon)}, noon); got.TTL != 0 {
		t.Errorf("ttl %d, want 0", got.TTL)
	}
}
