package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// newReaderStore is a store with a Reader; the test is skipped where there are
// none.
func newReaderStore(t testing.TB, c Config) (*Store, *Reader) {
	t.Helper()
	if !ReadsAlong {
		t.Skip("reads take the lock here")
	}
	c.ReadAlong = true
	s := newTestStore(t, c)
	return s, s.NewReader()
}

// along is how many hits took no lock.
func (s *Store) along(now Time) uint64 {
	var st Stats
	s.Snapshot(now, &st)
	return st.ReadAlong
}

// What was read twice in a second is read without the lock, and shown as it is
// under it, until something happens to it.
func TestReader(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *Store, k Key, now *Time)
		along  bool   // read without the lock all the same
		want   string // "": a miss
	}{
		{"nothing", func(*Store, Key, *Time) {}, true, "value"},
		{"another key stored", func(s *Store, _ Key, now *Time) { s.Set(key("b"), []byte("b"), &SetOptions{}, *now) }, true, "value"},
		{"stored", func(s *Store, k Key, now *Time) { s.Set(k, []byte("other"), &SetOptions{}, *now) }, false, "other"},
		{"deleted", func(s *Store, k Key, now *Time) { s.Delete(k, &DeleteOptions{}, *now) }, false, ""},
		{"invalidated", func(s *Store, k Key, now *Time) { s.Delete(k, &DeleteOptions{Invalidate: true}, *now) }, false, "value"},
		{"flushed", func(s *Store, _ Key, now *Time) { s.FlushAll(0, *now) }, false, ""},
		{"flush due in a second", func(s *Store, _ Key, now *Time) { s.FlushAll(now.Seconds()+1, *now); *now += 1000 }, false, ""},
		{"expired", func(s *Store, k Key, now *Time) {
			s.Get(k, &GetOptions{Touch: true, Expiry: now.Seconds() + 1}, *now, nil)
			*now += 1000
		}, false, ""},
		{"given a TTL", func(s *Store, k Key, now *Time) {
			s.Get(k, &GetOptions{Touch: true, Expiry: now.Seconds() + 1}, *now, nil)
		}, true, "value"},
		{"given a TTL that has passed", func(s *Store, k Key, now *Time) {
			s.Get(k, &GetOptions{Touch: true, Expiry: expiredAtOnce}, *now, nil)
		}, false, ""},
		{"a second later", func(_ *Store, _ Key, now *Time) { *now += 1000 }, false, "value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, rd := newReaderStore(t, Config{LimitBytes: 4 << 20})
			now := noon
			k := key("a")
			res := s.mustSet(t, "a", "value", SetOptions{Flags: 7}, now)
			for i := range 3 {
				var g grab
				if st := s.Get(k, &GetOptions{Reader: rd}, now, &g); st != OK || g.value != "value" {
					t.Fatalf("read %d: status %d, %q", i, st, g.value)
				}
				if n := s.along(now); n != uint64(max(i-1, 0)) {
					t.Fatalf("read %d: %d without the lock", i, n)
				}
				if i > 0 && (g.Flags != 7 || g.CAS != res.CAS || !g.HitBefore || g.TTL != -1 || g.LastAccess != 0 ||
					g.Size != 5 || string(g.Key) != "a" || g.Won || g.Stale || g.WinSent) {
					t.Errorf("read %d: %+v", i, g)
				}
			}
			before := s.along(now)
			c.change(s, k, &now)
			var g grab
			if st := s.Get(k, &GetOptions{Reader: rd}, now, &g); (st == OK) != (c.want != "") || st == OK && g.value != c.want {
				t.Errorf("status %d, %q, want %q", st, g.value, c.want)
			}
			if got := s.along(now) > before; got != c.along {
				t.Errorf("without the lock: %t, want %t", got, c.along)
			}
		})
	}
}

// What takes the lock whoever asks for it.
func TestReaderTakesLock(t *testing.T) {
	s, rd := newReaderStore(t, Config{LimitBytes: 256 << 20}) // whole in one chunk
	long := bytes.Repeat([]byte("x"), AlongMaxBytes+1)
	s.mustSet(t, "long", string(long), SetOptions{}, noon)
	s.mustSet(t, "longest", string(long[1:]), SetOptions{}, noon)
	s.mustSet(t, "cas", "v", SetOptions{HasNewCAS: true, NewCAS: 5}, noon)
	s.mustSet(t, "a", "v", SetOptions{}, noon)
	for _, c := range []struct {
		name string
		key  string
		o    GetOptions
		v    Visitor
		want uint64
	}{
		{"plain", "a", GetOptions{}, new(grab), 2},
		{"as long as it may be", "longest", GetOptions{}, new(grab), 2},
		{"too long", "long", GetOptions{}, new(grab), 0},
		{"explicit CAS", "cas", GetOptions{}, new(grab), 0},
		{"not there", "b", GetOptions{}, new(grab), 0},
		{"touch", "a", GetOptions{Touch: true}, new(grab), 0},
		{"without a trace", "a", GetOptions{NoBump: true}, new(grab), 0},
		{"vivify", "a", GetOptions{Vivify: true}, new(grab), 0},
		{"recache", "a", GetOptions{Recache: true, RecacheBefore: 1}, new(grab), 0},
		{"grant", "a", GetOptions{Ask: new(Ask)}, new(grab), 0},
		{"nothing shown", "a", GetOptions{}, nil, 0},
	} {
		before := s.along(noon)
		for range 4 {
			c.o.Reader = rd
			s.Get(key(c.key), &c.o, noon, c.v)
		}
		if n := s.along(noon) - before; n != c.want {
			t.Errorf("%s: %d of 4 without the lock, want %d", c.name, n, c.want)
		}
	}
}

// Nothing is read while somebody is changing the shard.
func TestReaderDuringChange(t *testing.T) {
	s, rd := newReaderStore(t, Config{LimitBytes: 4 << 20})
	s.mustSet(t, "a", "v", SetOptions{}, noon)
	for range 3 {
		s.Get(key("a"), &GetOptions{}, noon, nil)
	}
	sh := s.shards[0]
	var during [2]bool
	for i, lock := range []func(){sh.lockToRead, sh.lock} {
		lock()
		during[i] = sh.getAlong(key("a"), rd, noon, new(grab))
		sh.unlock()
	}
	if want := [2]bool{true, false}; during != want {
		t.Errorf("read while it is locked to be read and to be changed: %t, want %t", during, want)
	}
}

// meddler is a Visitor that has something happen while it is shown an item
// without the lock.
type meddler struct {
	grab
	once func()
}

func (m *meddler) VisitItem(it *Item) {
	m.grab.VisitItem(it)
	if f := m.once; f != nil {
		m.once = nil
		f()
	}
}

// What changes while it is read is read again, under the lock.
func TestReaderReadsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		once func(s *Store)
		want string // "": a miss
	}{
		"stored":         {func(s *Store) { s.Set(key("a"), []byte("other"), &SetOptions{}, noon) }, "other"},
		"deleted":        {func(s *Store) { s.Delete(key("a"), &DeleteOptions{}, noon) }, ""},
		"another stored": {func(s *Store) { s.Set(key("b"), []byte("b"), &SetOptions{}, noon) }, "value"},
	} {
		t.Run(name, func(t *testing.T) {
			s, rd := newReaderStore(t, Config{LimitBytes: 4 << 20})
			s.mustSet(t, "a", "value", SetOptions{}, noon)
			for range 2 {
				s.Get(key("a"), &GetOptions{}, noon, nil)
			}
			v := meddler{once: func() { c.once(s) }}
			st := s.Get(key("a"), &GetOptions{Reader: rd}, noon, &v)
			if (st == OK) != (c.want != "") || st == OK && v.value != c.want {
				t.Errorf("status %d, %q, want %q", st, v.value, c.want)
			}
			var n Stats
			if s.Snapshot(noon, &n); n.ReadInVain != 1 || n.ReadAlong != 0 || v.once != nil {
				t.Errorf("%d in vain, %d without the lock, want 1 and 0", n.ReadInVain, n.ReadAlong)
			}
		})
	}
}

// Statistics have the hits of all readers, of their class and segment, until
// they are reset.
func TestReaderStats(t *testing.T) {
	s, rd := newReaderStore(t, Config{LimitBytes: 4 << 20})
	s.mustSet(t, "a", "v", SetOptions{}, noon)
	s.mustSet(t, "b", string(make([]byte, 500)), SetOptions{}, noon)
	other := s.NewReader()
	for range 50 {
		s.Get(key("a"), &GetOptions{Reader: rd}, noon, new(grab))
		s.Get(key("b"), &GetOptions{Reader: other}, noon, new(grab))
		s.Get(key("b"), &GetOptions{}, noon, new(grab))
	}
	check := func(want uint64) {
		t.Helper()
		var st Stats
		s.Snapshot(noon, &st)
		var hits []uint64
		for _, c := range st.Classes {
			if c.GetHits > 0 {
				hits = append(hits, c.GetHits)
			}
			if in := c.HitsWindow + c.HitsProbation + c.HitsProtected + c.HitsTemporary; in != c.GetHits {
				t.Errorf("%d hits, in segments %d", c.GetHits, in)
			}
		}
		if st.Total.GetHits != want || len(hits) > 0 && (len(hits) != 2 || hits[0]*2 != hits[1]) {
			t.Errorf("%d hits, want %d; by class %d", st.Total.GetHits, want, hits)
		}
	}
	check(150)
	s.ResetStats()
	check(0)
	s.Get(key("a"), &GetOptions{Reader: rd}, noon, new(grab))
	s.Get(key("b"), &GetOptions{Reader: rd}, noon, new(grab))
	s.Get(key("b"), &GetOptions{Reader: other}, noon, new(grab))
	check(3)
}

// Nobody locks a shard but by its own methods: they tell readers of a change.
func TestShardLockedByItsMethods(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var in []string
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && regexp.MustCompile(`\b(sh|rich)\.mu\.`).Match(src) {
			in = append(in, file)
		}
	}
	// A prefetch locks only where there are no readers, and what is timed is
	// lockToRead.
	if want := []string{"prefetch.go", "reader.go", "stalls.go"}; !slices.Equal(in, want) {
		t.Errorf("in %q, want %q", in, want)
	}
}

// selfTelling is a Visitor that knows values that say what they are: all of
// them begin with the number of the key and go on with one byte.
type selfTelling struct {
	buf  []byte
	bad  string
	seen int
}

func (v *selfTelling) VisitItem(it *Item) { v.buf = it.AppendValue(v.buf[:0]) }

func (v *selfTelling) judge(n uint32) {
	v.seen++
	switch {
	case v.bad != "":
	case len(v.buf) < 5 || binary.LittleEndian.Uint32(v.buf) != n:
		v.bad = fmt.Sprintf("key %d: %x", n, v.buf)
	case bytes.Count(v.buf[4:], v.buf[4:5]) != len(v.buf)-4 || (len(v.buf)-4)%251 != int(v.buf[4])%251:
		v.bad = fmt.Sprintf("key %d: torn: %x", n, v.buf)
	}
}

// Readers see whole values of the key that they ask for, while others store,
// delete, evict, move pages and let chunks change their class.
func TestReadersAndWriters(t *testing.T) {
	s, _ := newReaderStore(t, Config{LimitBytes: 256 << 10, Shards: 2, PageBytes: 16 << 10})
	const keys = 60
	rounds := 200_000
	if testing.Short() {
		rounds = 20_000
	}
	// All go on until each has had its rounds.
	var behind atomic.Int32
	behind.Store(4)
	another := func(round int) bool {
		if round == rounds {
			behind.Add(-1)
		}
		return behind.Load() > 0
	}
	name := func(n uint32) Key { return key(fmt.Sprintf("key:%d", n)) }
	var running sync.WaitGroup
	for i := range 2 {
		running.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			var value []byte
			for round := 0; another(round); round++ {
				n := random.Uint32N(keys)
				if random.IntN(8) == 0 {
					s.Delete(name(n), &DeleteOptions{}, noon)
					continue
				}
				size := 1 + random.IntN(250)
				value = binary.LittleEndian.AppendUint32(value[:0], n)
				for range size + 251*random.IntN(4) {
					value = append(value, byte(size))
				}
				s.Set(name(n), value, &SetOptions{}, noon)
				if random.IntN(64) == 0 {
					s.Sweep(noon)
				}
			}
		})
	}
	visitors := make([]selfTelling, 2)
	for i := range visitors {
		running.Go(func() {
			v, rd := &visitors[i], s.NewReader()
			random := rand.New(rand.NewPCG(2, uint64(i)))
			var n uint32
			for round := 0; another(round); round++ {
				if round%8 == 0 {
					n = random.Uint32N(keys)
				}
				if s.Get(name(n), &GetOptions{Reader: rd}, noon, v) == OK {
					v.judge(n)
				}
			}
		})
	}
	running.Wait()
	var st Stats
	s.Snapshot(noon, &st)
	for i := range visitors {
		if v := &visitors[i]; v.bad != "" || v.seen == 0 {
			t.Errorf("of %d: %s", v.seen, v.bad)
		}
	}
	if st.ReadAlong == 0 || st.Total.Evicted == 0 {
		t.Errorf("%d without the lock, %d evicted: this shows too little", st.ReadAlong, st.Total.Evicted)
	}
	t.Logf("%d without the lock, %d in vain, of %d; %d evicted", st.ReadAlong, st.ReadInVain, st.Total.GetHits, st.Total.Evicted)
}

// BenchmarkHotKey reads one key from one loop and from two, under the lock and
// without.
func BenchmarkHotKey(b *testing.B) {
	for _, loops := range []int{1, 2} {
		for _, along := range []bool{false, true} {
			b.Run(fmt.Sprintf("loops=%d/along=%t", loops, along), func(b *testing.B) {
				s := newTestStore(b, Config{LimitBytes: 4 << 20, ReadAlong: along})
				s.mustSet(b, "hot", string(make([]byte, 100)), SetOptions{}, noon)
				b.ReportAllocs()
				b.ResetTimer()
				var running sync.WaitGroup
				for range loops {
					running.Go(func() {
						v, k := &appender{dst: make([]byte, 0, 4096)}, key("hot")
						o := GetOptions{NoWin: true, Reader: s.NewReader()}
						for range b.N {
							v.dst = v.dst[:0]
							s.Get(k, &o, noon, v)
						}
					})
				}
				running.Wait()
			})
		}
	}
}

// keyGrower makes the item's key as long as a length can be, as a writer may while
// the item is shown, and then reads its value.
type keyGrower struct{ shown int }

func (g *keyGrower) VisitItem(it *Item) {
	g.shown++
	off := it.it.r.Off() + accessOff + 3
	n := it.it.a.U8(off)
	it.it.a.PutU8(off, 255)
	it.AppendValue(nil)
	it.it.a.PutU8(off, n)
}

// Nothing behind the end of memory is read, whatever becomes of the key's length
// meanwhile.
func TestReaderAtEndOfMemory(t *testing.T) {
	s, rd := newReaderStore(t, Config{LimitBytes: 4 << 20})
	sh := s.shards[0]
	const size = 60
	near := 0
	for i := 0; near == 0 && i < 30_000; i++ {
		k := key(fmt.Sprint(i))
		s.Set(k, make([]byte, size), &SetOptions{}, noon)
		it := sh.item(sh.find(k))
		atEnd := !sh.a.Holds(it.valueOff(), size+keyLenSlack)
		if !atEnd && i%1000 != 0 {
			continue
		}
		for range 3 {
			s.Get(k, &GetOptions{}, noon, nil)
		}
		var g keyGrower
		if along := sh.getAlong(k, rd, noon, &g); along == atEnd || (g.shown > 0) == atEnd {
			t.Errorf("item %d, at the end of memory %t, is read without the lock: %t", i, atEnd, along)
		}
		if atEnd {
			near++
		}
	}
	if near == 0 {
		t.Error("no item is at the end of memory")
	}
}
