package store

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// fataler is a test that can end: testing's or rapid's.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// reopen closes s, after a graceful stop or as a crash would, and opens its
// file for another number of loops. The new store must be the old one: in all
// that dump shows, or after a crash in its items.
func reopen(t fataler, s *Store, crash bool, now Time) *Store {
	t.Helper()
	before, seqs := s.dump(!crash), s.seqs()
	c := s.cfg
	leave(t, s, crash)
	c.Loops, c.Shards, c.PageBytes, c.Now = c.Loops+3, 0, 0, now
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil {
		t.Fatalf("crash %t: %v", crash, err)
	}
	rs := s.Restart()
	if rs.Refused != "" || !rs.Found || rs.Recovered != crash || rs.ItemsDropped+uint64(rs.PagesDamaged) > 0 {
		t.Fatalf("crash %t: %+v", crash, rs)
	}
	if after := s.dump(!crash); after != before {
		t.Fatalf("crash %t: before\n%s\nafter\n%s", crash, before, after)
	}
	for i, sh := range s.shards {
		if !crash && sh.seq != seqs[i] || sh.seq < seqs[i] {
			t.Fatalf("crash %t: shard %d goes on after store %d, want %d", crash, i, sh.seq, seqs[i])
		}
	}
	return s
}

// leave closes s.
func leave(t fataler, s *Store, crash bool) {
	t.Helper()
	if crash {
		if err := s.file.f.Sync(); err != nil { // under -race the file is a copy
			t.Fatal(err)
		}
	} else if err := s.Save(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func (s *Store) seqs() []uint64 {
	var seqs []uint64
	for _, sh := range s.shards {
		seqs = append(seqs, sh.seq)
	}
	return seqs
}

// dump lists the items that are not gone, with all that is known of them, and
// with order also the order that they stand in, and what the shards know.
func (s *Store) dump(order bool) string {
	var b strings.Builder
	for _, sh := range s.shards {
		fmt.Fprintf(&b, "shard %d of %d: flush due at %d\n", sh.id, len(s.shards), sh.flushAt)
		if order {
			fmt.Fprintf(&b, "flushed %d, index level %d split %d, window %v, balance %v\n",
				sh.flushed, sh.idx.level, sh.idx.split, sh.order.WindowPct(), sh.balance.of)
		}
		var lines []string
		for c := range s.orderClasses() {
			for seg := range lru.Segment(lru.Segments) {
				for r := sh.order.Head(c, seg); r != 0; r = sh.a.Next(r) {
					it := sh.item(r)
					if sh.isFlushed(it) {
						continue // whether it is still there is of no meaning
					}
					p := it.pieces()
					lines = append(lines, fmt.Sprintf("%s: class %d segment %d tag %x flags %d expiry %d cas %d access %d: %x\n",
						it.key(), c, seg, it.tag, it.flags(), it.expiry(), it.cas(), it.access(), p.appendTo(nil)))
				}
			}
		}
		if !order {
			slices.Sort(lines)
		}
		b.WriteString(strings.Join(lines, ""))
	}
	return b.String()
}

// fileConfig is a small store in a file.
func fileConfig(t testing.TB) Config {
	return Config{
		LimitBytes: 64 << 10, Shards: 2, PageBytes: 1 << 10, ItemMaxBytes: 8 << 10,
		File: filepath.Join(t.TempDir(), "items"), Now: noon,
	}
}

// fill stores values of all sizes, many of them expected to be there.
func (s *Store) fill(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		k := fmt.Sprint("key", i)
		s.mustSet(t, k, told(k, toldBytes(i)), SetOptions{Flags: uint32(i % 3), Expiry: later(100 + i).Seconds()}, noon)
		if i%4 == 0 {
			s.get(k, GetOptions{}, noon)
		}
	}
}

// toldBytes is about how long the value of the i-th key is.
func toldBytes(i int) int { return []int{0, 3, 40, 100, 700, 3000}[i%6] }

// told is a value of about n bytes that says whose it is.
func told(k string, n int) string {
	unit := fmt.Sprintf("%s/%d;", k, n)
	return strings.Repeat(unit, n/len(unit)+1)
}

// checkTold fails if a key of fill has another value than its own. It returns
// how many have theirs.
func (s *Store) checkTold(t fataler, n int) (found int) {
	t.Helper()
	for i := range n {
		k := fmt.Sprint("key", i)
		var g grab
		if s.Peek(key(k), noon, &g) != OK {
			continue
		}
		found++
		if want := told(k, toldBytes(i)); g.value != want || g.Flags != uint32(i%3) {
			t.Fatalf("%s: %.40q flags %d, want %.40q flags %d", k, g.value, g.Flags, want, i%3)
		}
	}
	return found
}

func TestRestart(t *testing.T) {
	c := fileConfig(t)
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if rs := s.Restart(); rs != (Restart{}) {
		t.Errorf("a new file: %+v", rs)
	}
	s.fill(t, 120)
	s.mustSet(t, "won", "x", SetOptions{}, noon)
	s.Delete(key("won"), &DeleteOptions{Invalidate: true}, noon)
	s.get("won", GetOptions{}, noon)
	want := s.checkTold(t, 120)
	s = reopen(t, s, false, noon)
	defer s.Close()
	if got := s.checkTold(t, 120); got != want || got == 0 {
		t.Errorf("%d items, want %d", got, want)
	}
	if got, _ := s.get("won", GetOptions{}, noon); !got.Stale || !got.WinSent {
		t.Errorf("stale %t, win sent %t, want both", got.Stale, got.WinSent)
	}
	if _, err := os.Stat(c.File + metaSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the metadata is still there: %v", err)
	}
	// The time that the server was stopped counts.
	before, _ := s.get("key119", GetOptions{}, noon)
	if got, st := s.get("key119", GetOptions{}, later(300)); st != Miss || before.TTL != 219 {
		t.Errorf("ttl %d, later status %d with ttl %d; want 219, and a miss", before.TTL, st, got.TTL)
	}
}

// Memory that is divided in another way comes back, too.
func TestRestartGeometries(t *testing.T) {
	for name, c := range map[string]Config{
		"-f":                {LimitBytes: 1 << 20, PageBytes: 16 << 10, GrowthFactor: 1.5},
		"-f with checksums": {LimitBytes: 1 << 20, PageBytes: 16 << 10, GrowthFactor: 1.5, ItemChecksums: true},
		"compat_slabs":      {LimitBytes: 4 << 20, CompatSlabs: true},
		"compat, checksums": {LimitBytes: 4 << 20, CompatSlabs: true, ItemChecksums: true, NoCAS: true},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/crash=", crash), func(t *testing.T) {
				c := c
				c.File, c.Recover, c.Now = filepath.Join(t.TempDir(), "items"), true, noon
				s, err := Open(c)
				if err != nil {
					t.Fatal(err)
				}
				s.fill(t, 200)
				for i := range 6 { // more classes than there are pages: some are beyond the limit
					s.mustSet(t, fmt.Sprint("large", i), strings.Repeat("v", 1000<<i), SetOptions{}, noon)
				}
				want := s.checkTold(t, 200)
				s = reopen(t, s, crash, noon)
				s = reopen(t, s, !crash, noon)
				defer s.Close()
				if got := s.checkTold(t, 200); got != want || got == 0 {
					t.Errorf("%d items, want %d", got, want)
				}
			})
		}
	}
}

// A flush, done or due, holds over stop and crash.
func TestRestartFlush(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash=", crash), func(t *testing.T) {
			c := fileConfig(t)
			c.Recover = true
			s, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			s.mustSet(t, "before", "x", SetOptions{}, noon)
			s.FlushAll(0, noon)
			s.mustSet(t, "after", "x", SetOptions{}, noon)
			s.FlushAll(later(50).Seconds(), noon)
			s = reopen(t, s, crash, noon)
			defer s.Close()
			if _, st := s.get("before", GetOptions{}, noon); st != Miss {
				t.Error("what was flushed is back")
			}
			if _, st := s.get("after", GetOptions{}, noon); st != OK {
				t.Error("what was stored after the flush is gone")
			}
			if _, st := s.get("after", GetOptions{}, later(50)); st != Miss {
				t.Error("the flush that was due did not happen")
			}
			s.Sweep(later(50))
			var stats Stats
			if s.Snapshot(later(50), &stats); stats.Total.Items != 0 {
				t.Errorf("%d items are left after a sweep", stats.Total.Items)
			}
		})
	}
}

// The accounts of tenants are those of before.
func TestRestartTenants(t *testing.T) {
	for _, crash := range []bool{false, true} {
		c := fileConfig(t)
		c.Recover = true
		c.Tenants = TenantConfig{Delimiter: ':', Quotas: []TenantQuota{{"web", Quota{MemoryBytes: 20 << 10}}}}
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			s.mustSet(t, fmt.Sprintf("%s:%d", []string{"web", "app", "batch"}[i%3], i), "value", SetOptions{}, noon)
		}
		before := accounts(s)
		s = reopen(t, s, crash, noon)
		if after := accounts(s); after != before {
			t.Errorf("crash %t: %s, want %s", crash, after, before)
		}
		s.Close()
	}
}

func accounts(s *Store) string {
	var rows []string
	for _, sh := range s.shards {
		for i := range sh.tenants.rows {
			r := &sh.tenants.rows[i]
			rows = append(rows, fmt.Sprintf("%d %s: %d items %d bytes of %d", sh.id, r.name, r.items, r.bytes, r.memoryMax))
		}
	}
	slices.Sort(rows)
	return strings.Join(rows, "\n")
}

// The number of shards is the file's, whatever -t says now.
func TestRestartKeepsShards(t *testing.T) {
	c := Config{LimitBytes: 64 << 20, Loops: 4, File: filepath.Join(t.TempDir(), "items")}
	if raceEnabled {
		c.LimitBytes = 32 << 20
	}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	want := s.Shards()
	s.fill(t, 100)
	leave(t, s, false)
	c.Loops = 1
	if s, err = Open(c); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Shards() != want || s.checkTold(t, 100) != 100 {
		t.Errorf("%d shards, want %d; %d items, want 100", s.Shards(), want, s.checkTold(t, 100))
	}
}

func TestRestartRefused(t *testing.T) {
	flip := func(t *testing.T, name string, off int64) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var b [1]byte
		f.ReadAt(b[:], off)
		b[0] ^= 0x10
		if _, err := f.WriteAt(b[:], off); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name   string
		change func(t *testing.T, c *Config)
		want   string
	}{
		{"crash", func(t *testing.T, c *Config) { os.Remove(c.File + metaSuffix) }, "the server before was not stopped gracefully"},
		{"limit", func(t *testing.T, c *Config) { c.LimitBytes *= 2 }, "it was made for 65536 bytes of items, not 131072"},
		{"item size", func(t *testing.T, c *Config) { c.ItemMaxBytes /= 2 }, "it was made for items of at most 8192 bytes, not 4096"},
		{"classes", func(t *testing.T, c *Config) { c.GrowthFactor = 1.25 }, "it was made with other slab classes"},
		{"cas", func(t *testing.T, c *Config) { c.NoCAS = true }, "it was made with CAS on"},
		{"checksums", func(t *testing.T, c *Config) { c.ItemChecksums = true }, "it was made with item checksums off"},
		{"superblock", func(t *testing.T, c *Config) { flip(t, c.File, 20) }, "it is not a memory file of this version, or its first bytes are damaged"},
		{"version of metadata", func(t *testing.T, c *Config) { flip(t, c.File+metaSuffix, 8) }, "its metadata is damaged: not the metadata of this version"},
		{"run", func(t *testing.T, c *Config) { flip(t, c.File+metaSuffix, 12) }, "its metadata is damaged: checksum"},
		{"cut", func(t *testing.T, c *Config) { os.Truncate(c.File+metaSuffix, 100) }, "its metadata is damaged: shorter than it should be"},
		{"file gone", func(t *testing.T, c *Config) { os.Remove(c.File) }, "there is metadata, but no memory file"},
		{"file cut", func(t *testing.T, c *Config) { os.Truncate(c.File, 10) }, "it is not a memory file of this version, or its first bytes are damaged"},
		{"another file", func(t *testing.T, c *Config) {
			other := *c
			other.File += "2"
			s, err := Open(other)
			if err != nil {
				t.Fatal(err)
			}
			leave(t, s, false)
			os.Rename(other.File, c.File)
		}, "its metadata belongs to another file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := fileConfig(t)
			s, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			s.fill(t, 50)
			leave(t, s, false)
			tt.change(t, &c)
			if s, err = Open(c); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if rs := s.Restart(); !strings.HasPrefix(rs.Refused, tt.want) {
				t.Errorf("refused: %q, want %q", rs.Refused, tt.want)
			}
			if n := s.checkTold(t, 50); n != 0 {
				t.Errorf("%d items in an empty cache", n)
			}
			if _, err := os.Stat(c.File + metaSuffix); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the metadata is still there: %v", err)
			}
			s.fill(t, 50)
			reopen(t, s, false, noon).Close()
		})
	}
}

// An empty metadata file stops the start, as it does memcached's.
func TestRestartEmptyMetadata(t *testing.T) {
	c := fileConfig(t)
	if err := os.WriteFile(c.File+metaSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(c); !errors.Is(err, ErrMetaEmpty) {
		t.Errorf("got %v, want %v", err, ErrMetaEmpty)
	}
}

// Two servers on one file would destroy each other's items.
func TestFileInUse(t *testing.T) {
	c := fileConfig(t)
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := Open(c); !errors.Is(err, slab.ErrFileInUse) {
		t.Errorf("got %v, want %v", err, slab.ErrFileInUse)
	}
}

func TestLimitFixedInFile(t *testing.T) {
	s, err := Open(fileConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetLimit(s.LimitBytes() / 2); err == nil {
		t.Error("the limit was changed")
	}
}

// Pages that go back to the budget take no space in the file.
func TestFileIsSparse(t *testing.T) {
	c := Config{LimitBytes: 16 << 20, Shards: 1, PageBytes: 64 << 10, File: filepath.Join(t.TempDir(), "items")}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	value := strings.Repeat("v", 6000)
	for i := range 2000 {
		s.mustSet(t, fmt.Sprint(i), value, SetOptions{}, noon)
	}
	full := blocks(t, s)
	for i := range 2000 {
		s.Delete(key(fmt.Sprint(i)), &DeleteOptions{}, noon)
	}
	if empty := blocks(t, s); full < 10<<20 || empty > full/2 {
		t.Errorf("the file takes %d bytes full, and %d when all is deleted", full, empty)
	}
}

// The metadata of a run that was killed while it wrote it is not there at all.
func TestMetadataIsWholeOrAbsent(t *testing.T) {
	c := fileConfig(t)
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	m := &metadata{}
	broken := errors.New("no space")
	if err := m.save(c.File, func(int, io.Writer) error { return broken }); err != nil {
		t.Fatal(err) // no shards, so nothing is asked of it
	}
	os.Remove(c.File + metaSuffix)
	m.shards = make([]shardMeta, 1)
	if err := m.save(c.File, func(int, io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	s.Close()
	names, err := filepath.Glob(c.File + "*")
	if err != nil || len(names) != 1 {
		t.Errorf("files %v, want the memory file alone", names)
	}
}

// Items without metadata get an order of their last accesses.
func TestRecoveredOrder(t *testing.T) {
	c := fileConfig(t)
	c.Recover, c.Shards = true, 1
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		s.mustSet(t, fmt.Sprint("key", i), "value", SetOptions{}, later(i/2))
	}
	c.Now = later(20)
	leave(t, s, true)
	if s, err = Open(c); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if rs := s.Restart(); rs.Items != 20 || rs.OrderLost != 1 {
		t.Errorf("%+v, want 20 items in an order that is guessed", rs)
	}
	sh := s.shards[0]
	for seg := range lru.Segment(lru.Segments) {
		for c := range s.orderClasses() {
			var last item
			for r := sh.order.Head(c, seg); r != 0; r = sh.a.Next(r) {
				it := sh.item(r)
				if last.r != 0 && cmp.Compare(last.cas(), it.cas()) < 0 {
					t.Errorf("%s stands behind %s", it.key(), last.key())
				}
				last = it
			}
		}
	}
	if got := s.mustSet(t, "new", "x", SetOptions{}, noon).CAS; got <= 20 {
		t.Errorf("CAS %d was given out before", got)
	}
}

// A page move that a crash cuts short leaves a chunk twice; a chain of which a
// part is missing is no item.
func TestRecoverTorn(t *testing.T) {
	tests := []struct {
		name    string
		valueOf int
		tear    func(sh *shard, it item)
		want    Status
	}{
		{"item copied", 100, func(sh *shard, it item) { sh.copyChunk(it.r) }, OK},
		{"large item copied", 3000, func(sh *shard, it item) { sh.copyChunk(it.r) }, OK},
		{"large item copied, a piece turned", 3000, func(sh *shard, it item) {
			sh.a.SetPrev(it.firstPiece(), sh.copyChunk(it.r))
		}, Miss},
		{"piece copied", 3000, func(sh *shard, it item) { sh.copyChunk(it.firstPiece()) }, OK},
		{"piece freed", 3000, func(sh *shard, it item) { sh.a.Free(sh.a.Next(it.firstPiece())) }, Miss},
		{"chain to nowhere", 3000, func(sh *shard, it item) { it.setFirstPiece(1<<32 - 1) }, Miss},
		{"being written", 100, func(sh *shard, it item) { it.setTag(it.tag.WithState(slab.StatePending)) }, Miss},
		{"being sent", 100, func(sh *shard, it item) { it.setTag(it.tag.WithState(slab.StatePinned)) }, Miss},
		{"length", 100, func(sh *shard, it item) { it.setTag(it.tag.WithLength(90)) }, Miss},
		{"of another shard", 100, func(sh *shard, it item) { it.setCAS(it.cas() + 1) }, Miss},
		{"key of another shard", 100, func(sh *shard, it item) { copy(it.key(), "kez") }, Miss},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := fileConfig(t)
			c.Recover = true
			s, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			s.fill(t, 30)
			value := told("torn", tt.valueOf)
			s.mustSet(t, "torn", value, SetOptions{}, noon)
			k := key("torn")
			sh := s.shards[shardBits(k.Hash)&s.mask]
			tt.tear(sh, sh.item(sh.find(k)))
			leave(t, s, true)
			if s, err = Open(c); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			if got, st := s.get("torn", GetOptions{}, noon); st != tt.want || st == OK && got.value != value {
				t.Errorf("status %d, %d bytes; want status %d", st, len(got.value), tt.want)
			}
			if n := s.checkTold(t, 30); n != 30 {
				t.Errorf("%d of 30 others are there", n)
			}
		})
	}
}
