package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// modelItem is what the model believes of a key. The store may have evicted
// it, but must never show anything else.
type modelItem struct {
	value  string
	flags  uint32
	expiry uint32
	cas    uint64
	stale  bool
	sent   bool
}

// model is the store as a map, without a bound.
type model struct {
	items   map[string]*modelItem
	now     Time
	flushAt uint32
}

// at is the live item under k.
func (m *model) at(k string) *modelItem {
	it := m.items[k]
	if it == nil || it.expiry != 0 && it.expiry <= m.now.Seconds() {
		delete(m.items, k)
		return nil
	}
	return it
}

// Random operations over a store so small that eviction, page moves and
// chaining are constant, against a map: what the store has is what the map
// has, nothing is answered that was not stored, and Check finds nothing after
// any step.
func TestStoreModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			LimitBytes:   int64(rapid.IntRange(8, 40).Draw(t, "pages")) << 10,
			Shards:       rapid.SampledFrom([]int{1, 2}).Draw(t, "shards"),
			PageBytes:    1 << 10,
			ItemMaxBytes: 3 << 10,
		}
		if rapid.Bool().Draw(t, "tenants") {
			c.Tenants = modelTenants
		}
		c.ReadAlong = rapid.Bool().Draw(t, "readers")
		if c.ItemChecksums = rapid.Bool().Draw(t, "checksums"); rapid.Bool().Draw(t, "file") {
			dir, err := os.MkdirTemp("", "store")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			c.File, c.Recover = filepath.Join(dir, "items"), true
		}
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { s.Close() }()
		s.hastenTenants()
		rd := s.NewReader()
		m := &model{items: map[string]*modelItem{}, now: noon}

		name := func(t *rapid.T) string {
			n := rapid.IntRange(0, 30).Draw(t, "key")
			return fmt.Sprintf("t%d:k%d", n%6, n)
		}
		fill := 0
		value := func(t *rapid.T) string {
			fill++
			n := rapid.SampledFrom([]int{0, 1, 20, 90, 100, 130, 300, 900, 2500}).Draw(t, "size")
			return strings.Repeat(string(rune('a'+fill%26)), n)
		}
		expiry := func(t *rapid.T) uint32 {
			n := rapid.IntRange(0, 5).Draw(t, "ttl")
			return Expiry(int64(n), m.now)
		}
		// agree compares what was read with the model, which it may correct
		// for an eviction.
		agree := func(t *rapid.T, k string, st Status, g *grab) {
			want := m.at(k)
			if st == Miss {
				delete(m.items, k)
				return
			}
			if want == nil {
				t.Fatalf("%s: found %d bytes, want a miss", k, g.Size)
			}
			if g.value != want.value || g.Flags != want.flags || g.CAS != want.cas || g.Stale != want.stale {
				t.Fatalf("%s: %.20q (%d) flags %d cas %d stale %t, want %.20q (%d) flags %d cas %d stale %t",
					k, g.value, g.Size, g.Flags, g.CAS, g.Stale, want.value, len(want.value), want.flags, want.cas, want.stale)
			}
			if g.OldTTL != ttl(want.expiry, m.now) {
				t.Fatalf("%s: ttl %d, want %d", k, g.OldTTL, ttl(want.expiry, m.now))
			}
		}
		// present tells whether the store still has k, and corrects the model.
		present := func(t *rapid.T, k string) bool {
			var g grab
			st := s.Peek(key(k), m.now, &g)
			agree(t, k, st, &g)
			return st == OK
		}
		set := func(t *rapid.T, k, v string, o *SetOptions) SetResult {
			if len(v) > 200 || rapid.Bool().Draw(t, "whole") {
				return s.Set(key(k), []byte(v), o, m.now)
			}
			var u Upload
			if st := s.Begin(key(k), len(v), o, m.now, &u); st != OK {
				return SetResult{Status: st}
			}
			cut := rapid.IntRange(0, len(v)).Draw(t, "cut")
			for _, part := range []string{v[:cut], v[cut:]} {
				if st := u.Write([]byte(part), m.now); st != OK {
					u.Abort()
					return SetResult{Status: st}
				}
			}
			return u.Commit(m.now)
		}
		var pins []Pin
		var pinned []string
		release := func() {
			for i := range pins {
				pins[i].Release()
			}
			pins, pinned = nil, nil
		}

		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				k := name(t)
				o := GetOptions{NoBump: rapid.Bool().Draw(t, "u"), Reader: rd}
				if o.Touch = rapid.Bool().Draw(t, "touch"); o.Touch {
					o.Expiry = expiry(t)
				}
				for range rapid.IntRange(1, 4).Draw(t, "times") { // the third may be without the lock
					var g grab
					st := s.Get(key(k), &o, m.now, &g)
					agree(t, k, st, &g)
					if it := m.at(k); it != nil {
						if g.WinSent != it.sent || g.Won != (it.stale && !it.sent) {
							t.Fatalf("%s: won %t, sent %t; stale %t, sent before %t", k, g.Won, g.WinSent, it.stale, it.sent)
						}
						it.sent = it.sent || g.Won
						if o.Touch {
							it.expiry = o.Expiry
						}
					}
				}
			},
			"set": func(t *rapid.T) {
				k, v := name(t), value(t)
				o := SetOptions{Flags: rapid.SampledFrom([]uint32{0, 7}).Draw(t, "flags"), Expiry: expiry(t)}
				o.HasNewCAS = rapid.IntRange(0, 9).Draw(t, "E") == 0
				o.NewCAS = 5
				res := set(t, k, v, &o)
				if res.Status != OK {
					return // no room: too much is pinned
				}
				if o.HasNewCAS && res.CAS != 5 {
					t.Fatalf("cas %d, want 5", res.CAS)
				}
				m.items[k] = &modelItem{value: v, flags: o.Flags, expiry: o.Expiry, cas: res.CAS}
				if !present(t, k) && m.at(k) != nil {
					t.Fatalf("%s is not there right after it was stored", k)
				}
			},
			"modes": func(t *rapid.T) {
				k, v := name(t), value(t)
				mode := Mode(rapid.IntRange(1, 4).Draw(t, "mode"))
				present(t, k)
				it := m.at(k)
				res := set(t, k, v, &SetOptions{Mode: mode})
				if res.Status == NoMemory || res.Status == ReadNoMemory || res.Status == TooLarge {
					return
				}
				if it != nil && res.Status != OK && mode != ModeAdd {
					return // evicted on the way, or too large together
				}
				switch {
				case it == nil && mode != ModeAdd && res.Status != NotStored:
					t.Fatalf("mode %d on nothing: status %d", mode, res.Status)
				case it != nil && mode == ModeAdd && res.Status == OK:
					// It was evicted to make room for the newcomer.
					m.items[k] = &modelItem{value: v, cas: res.CAS}
				case res.Status == OK && (mode == ModeAdd || mode == ModeReplace):
					m.items[k] = &modelItem{value: v, cas: res.CAS}
				case res.Status == OK && mode == ModeAppend:
					m.items[k] = &modelItem{value: it.value + v, flags: it.flags, expiry: it.expiry, cas: res.CAS}
				case res.Status == OK:
					m.items[k] = &modelItem{value: v + it.value, flags: it.flags, expiry: it.expiry, cas: res.CAS}
				}
				present(t, k)
			},
			"cas": func(t *rapid.T) {
				k, v := name(t), value(t)
				present(t, k)
				it := m.at(k)
				o := SetOptions{Compare: true, CompareCAS: 3, Invalidate: rapid.Bool().Draw(t, "I")}
				if it != nil {
					o.CompareCAS = it.cas - rapid.SampledFrom([]uint64{0, 0, 1}).Draw(t, "less")
				}
				res := set(t, k, v, &o)
				if res.Status != OK {
					return
				}
				if it == nil {
					t.Fatal("cas stored over nothing")
				}
				next := &modelItem{value: v, cas: res.CAS}
				if o.CompareCAS != it.cas {
					if !o.Invalidate {
						t.Fatal("cas with another number was stored")
					}
					next.stale, next.sent, next.expiry = true, it.sent, it.expiry
				}
				m.items[k] = next
				present(t, k)
			},
			"delete": func(t *rapid.T) {
				k := name(t)
				o := DeleteOptions{Invalidate: rapid.Bool().Draw(t, "I"), RemoveValue: rapid.Bool().Draw(t, "x")}
				st := s.Delete(key(k), &o, m.now)
				it := m.at(k)
				if st != OK {
					if st == Miss {
						delete(m.items, k)
					}
					return
				}
				if it == nil {
					t.Fatalf("%s: deleted, but was not there", k)
				}
				switch {
				case !o.Invalidate && !o.RemoveValue:
					delete(m.items, k)
					return
				case o.RemoveValue:
					*it = modelItem{cas: it.cas}
				}
				if o.Invalidate {
					it.stale, it.sent = true, false
				}
				var g grab
				if s.Peek(key(k), m.now, &g) == OK {
					it.cas = g.CAS
				}
				present(t, k)
			},
			"arith": func(t *rapid.T) {
				k := name(t)
				o := ArithOptions{Delta: uint64(rapid.IntRange(0, 2000).Draw(t, "delta")), Vivify: true, Initial: 97}
				present(t, k)
				it := m.at(k)
				var g grab
				switch st := s.Arith(key(k), &o, m.now, &g); st {
				case OK:
					next := &modelItem{value: g.value, cas: g.CAS}
					if it != nil && !g.Vivified {
						next.flags, next.expiry = it.flags, it.expiry
						// In place the marks stay; beside a pinned item, or where
						// the number has grown, there is a new one without them.
						if len(g.value) == len(it.value) && len(pins) == 0 {
							next.stale, next.sent = it.stale, it.sent
						} else {
							next.stale, next.sent = g.Stale, g.WinSent
						}
					}
					m.items[k] = next
				case NonNumeric:
					if it == nil {
						t.Fatal("nothing is non-numeric")
					}
				}
				present(t, k)
			},
			"pin": func(t *rapid.T) {
				k := name(t)
				var p Pin
				v := pinner{p: &p}
				if s.Get(key(k), &GetOptions{NoBump: true}, m.now, &v); v.ok {
					pins = append(pins, p)
					pinned = append(pinned, m.at(k).value)
				}
				if it := m.at(k); it != nil && it.stale {
					it.sent = true
				}
			},
			"unpin": func(t *rapid.T) {
				if len(pins) == 0 {
					return
				}
				p, want := pins[0], pinned[0]
				pins, pinned = pins[1:], pinned[1:]
				if got := string(p.p.appendTo(nil)); got != want {
					t.Fatalf("a pinned value changed: %.20q (%d), want %.20q (%d)", got, len(got), want, len(want))
				}
				p.Release()
			},
			"abort": func(t *rapid.T) {
				v := value(t)
				var u Upload
				if s.Begin(key(name(t)), len(v), &SetOptions{}, m.now, &u) == OK {
					u.Write([]byte(v[:rapid.IntRange(0, len(v)).Draw(t, "cut")]), m.now)
				}
				u.Abort()
			},
			"advance": func(t *rapid.T) {
				m.now += Time(rapid.IntRange(0, 3000).Draw(t, "ms"))
				if m.flushAt != 0 && m.now.Seconds() >= m.flushAt {
					clear(m.items)
					m.flushAt = 0
				}
			},
			"restart": func(t *rapid.T) {
				if c.File == "" || rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					return
				}
				release()
				s = reopen(t, s, rapid.Bool().Draw(t, "crash"), m.now)
				s.hastenTenants()
				rd = s.NewReader()
			},
			"sweep": func(t *rapid.T) { s.Sweep(m.now) },
			"sweepStep": func(t *rapid.T) {
				for _, sh := range s.shards {
					sh.sweepStep(rapid.IntRange(1, 3).Draw(t, "pages"), rapid.IntRange(1, 30).Draw(t, "chunks"), m.now)
				}
			},
			"reassign": func(t *rapid.T) {
				n := s.table.Len()
				s.Reassign(rapid.IntRange(-1, n).Draw(t, "from"), rapid.IntRange(0, n).Draw(t, "to"))
			},
			"moveStep": func(t *rapid.T) {
				for _, sh := range s.shards {
					if sh.move.page != 0 {
						sh.moveStep(rapid.IntRange(1, 5).Draw(t, "chunks"), m.now)
					}
				}
			},
			"limit": func(t *rapid.T) {
				s.SetLimit(int64(rapid.IntRange(8, 40).Draw(t, "pages")) << 10)
				s.shrink(m.now) // with a file the limit stays
				if over := s.budget.Taken() - s.budget.Limit(); over > 0 && len(pins) == 0 {
					t.Fatalf("%d bytes over the limit after shrinking", over)
				}
			},
			"flush": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
					return
				}
				n := rapid.IntRange(0, 3).Draw(t, "delay")
				if n == 0 {
					m.flushAt = 0 // the last flush_all counts, as memcached has it
					s.FlushAll(0, m.now)
					clear(m.items)
					return
				}
				m.flushAt = m.now.Seconds() + uint32(n)
				s.FlushAll(m.flushAt, m.now)
			},
			"": func(t *rapid.T) {
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
			},
		})
		release()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		var stats Stats
		s.Snapshot(m.now, &stats)
		if stats.PinnedBytes != 0 || stats.UploadBytes != 0 {
			t.Errorf("%d bytes pinned, %d in uploads at the end", stats.PinnedBytes, stats.UploadBytes)
		}
	})
}
