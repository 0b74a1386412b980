package store

import (
	"container/list"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// tenantsOf is a store's tenants by name.
func tenantsOf(s *Store) (byName map[string]TenantStats, other TenantStats) {
	rows, other := s.Tenants(1 << 30)
	byName = make(map[string]TenantStats)
	for _, r := range rows {
		byName[r.Name] = r
	}
	return byName, other
}

func withTenants(c Config, t TenantConfig) Config {
	if t.Delimiter == 0 {
		t.Delimiter = ':'
	}
	c.Tenants = t
	return c
}

func named(name string, q Quota) []TenantQuota { return []TenantQuota{{name, q}} }

// modelTenants are more tenants than there is room for, with quotas that are
// always in the way.
var modelTenants = TenantConfig{
	Delimiter: ':',
	Quotas: []TenantQuota{
		{"t0", Quota{MemoryBytes: 2 << 10}},
		{"t1", Quota{ValueMaxBytes: 500, NewKeysPerSecond: 3}},
	},
	Default:    Quota{MemoryBytes: 6 << 10},
	TrackedMax: 2,
}

// hastenTenants lets tenants take each other's rows at every store.
func (s *Store) hastenTenants() {
	for _, sh := range s.shards {
		if sh.tenants != nil {
			sh.tenants.votesMin = 1
		}
	}
}

func TestTenantAccount(t *testing.T) {
	s := newTestStore(t, withTenants(Config{LimitBytes: 1 << 20, Shards: 2}, TenantConfig{}))
	s.mustSet(t, "a:1", "12345", SetOptions{}, noon)
	s.mustSet(t, "a:2", "12345", SetOptions{Flags: 1}, noon)
	s.mustSet(t, "a:2", "123", SetOptions{Flags: 1}, noon)
	s.mustSet(t, "b:1:2", "", SetOptions{}, noon)
	s.mustSet(t, "nothing", "x", SetOptions{}, noon)
	s.mustSet(t, ":empty", "x", SetOptions{}, noon)
	s.get("a:1", GetOptions{}, noon)
	s.get("a:3", GetOptions{}, noon)
	s.get("c:1", GetOptions{}, noon)

	rows, other := tenantsOf(s)
	for _, want := range []TenantStats{
		{Name: "a", Items: 2, Bytes: 28 + 3 + 5 + 28 + 4 + 3 + 3, Hits: 1, Misses: 1, Sets: 3},
		{Name: "b", Items: 1, Bytes: 28 + 5, Sets: 1},
		{Name: "", Items: 2, Bytes: 28 + 7 + 1 + 28 + 6 + 1, Sets: 2},
	} {
		if got := rows[want.Name]; got != want {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	if len(rows) != 3 || other.Misses != 1 || other.Items != 0 {
		t.Errorf("%d rows, want 3; other %+v, want the miss of c", len(rows), other)
	}
	for _, k := range []string{"a:1", "a:2", "b:1:2", "nothing", ":empty"} {
		s.Delete(key(k), &DeleteOptions{}, noon)
	}
	s.ResetStats()
	rows, _ = tenantsOf(s)
	for name, got := range rows {
		if got != (TenantStats{Name: name}) {
			t.Errorf("in the end %+v, want nothing", got)
		}
	}
}

// What is in the way of a value changes its charge with it.
func TestTenantAccountOfEveryOperation(t *testing.T) {
	s := newTestStore(t, withTenants(tiny, TenantConfig{}))
	check := func(what string, items, bytes uint64) {
		t.Helper()
		if err := s.Check(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if rows, _ := tenantsOf(s); rows["a"].Items != items || rows["a"].Bytes != bytes {
			t.Errorf("%s: %d items of %d bytes, want %d of %d", what, rows["a"].Items, rows["a"].Bytes, items, bytes)
		}
	}
	const head = headerBytes + 3
	s.mustSet(t, "a:1", "99", SetOptions{}, noon)
	s.Arith(key("a:1"), &ArithOptions{Delta: 1}, noon, nil)
	check("incr to a longer number", 1, head+3)
	s.Arith(key("a:1"), &ArithOptions{Decr: true, Delta: 1}, noon, nil)
	check("decr in place", 1, head+3)
	s.Set(key("a:1"), []byte("bc"), &SetOptions{Mode: ModeAppend}, noon)
	check("append", 1, head+5)
	s.Delete(key("a:1"), &DeleteOptions{Invalidate: true}, noon)
	check("invalidate", 1, head+5)
	s.Delete(key("a:1"), &DeleteOptions{RemoveValue: true, HasNewCAS: true, NewCAS: 3}, noon)
	check("remove the value", 1, head+extraBytes) // it says that there is no value
	s.Get(key("a:2"), &GetOptions{Vivify: true, VivifyExpiry: later(1).Seconds()}, noon, nil)
	check("vivify", 2, 2*head+extraBytes)
	s.Sweep(later(2))
	check("expire", 1, head+extraBytes)
	s.FlushAll(0, later(2))
	s.Sweep(later(2))
	check("flush", 0, 0)
	s.mustSet(t, "a:1", strings.Repeat("x", 5000), SetOptions{}, later(2))
	check("large", 1, head+chainBytes+5000)
}

func TestTenantQuotaRefuses(t *testing.T) {
	for _, tt := range []struct {
		name  string
		quota Quota
		sets  []string // key=length, refused ones with a !
		want  TenantStats
	}{
		{"value", Quota{ValueMaxBytes: 10}, []string{"a:1=10", "a:2=11!", "a:1=11!"},
			TenantStats{Sets: 1, RefusedValue: 2}},
		{"large value", Quota{ValueMaxBytes: 4000}, []string{"a:1=4000", "a:2=4001!"},
			TenantStats{Sets: 1, RefusedValue: 1}},
		{"memory of one item", Quota{MemoryBytes: 100}, []string{"a:1=69", "a:2=70!"},
			TenantStats{Sets: 1, RefusedMemory: 1}},
		{"rate", Quota{NewKeysPerSecond: 2}, []string{"a:1=1", "a:2=1", "a:3=1!", "a:2=1", "b:3=1"},
			TenantStats{Sets: 3, RefusedRate: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestStore(t, withTenants(tiny, TenantConfig{Quotas: named("a", tt.quota)}))
			for _, set := range tt.sets {
				refused := strings.HasSuffix(set, "!")
				k, n, _ := strings.Cut(strings.TrimSuffix(set, "!"), "=")
				size, _ := strconv.Atoi(n)
				want := OK
				if refused {
					want = NoMemory
					if tt.quota.ValueMaxBytes > 0 {
						want = TooLarge
					}
				}
				if got := s.Set(key(k), make([]byte, size), &SetOptions{DropOnError: true}, noon); got.Status != want {
					t.Errorf("%s: status %d, want %d", set, got.Status, want)
				}
			}
			rows, _ := tenantsOf(s)
			got := rows["a"]
			got = TenantStats{Sets: got.Sets, RefusedMemory: got.RefusedMemory, RefusedRate: got.RefusedRate, RefusedValue: got.RefusedValue}
			if got != tt.want {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestTenantQuotaOfUploadsAndAppends(t *testing.T) {
	s := newTestStore(t, withTenants(tiny, TenantConfig{Quotas: named("a", Quota{ValueMaxBytes: 10, MemoryBytes: 100})}))
	var u Upload
	if st := s.Begin(key("a:1"), 11, &SetOptions{}, noon, &u); st != TooLarge {
		t.Errorf("begin 11 bytes: status %d, want TooLarge", st)
	}
	s.mustSet(t, "a:1", "123456", SetOptions{}, noon)
	if got := s.Set(key("a:1"), []byte("12345"), &SetOptions{Mode: ModeAppend}, noon); got.Status != NotStored {
		t.Errorf("append beyond 10 bytes: status %d, want NotStored", got.Status)
	}
	if got, _ := s.get("a:1", GetOptions{}, noon); got.value != "123456" {
		t.Errorf("after that %q", got.value)
	}
	if st := s.Get(key("a:"+strings.Repeat("k", 80)), &GetOptions{Vivify: true}, noon, nil); st != Miss {
		t.Errorf("vivify of an item beyond the quota: status %d, want Miss", st)
	}
}

// The rate counts keys that were not there, in the time that is passed in.
func TestTenantRate(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			const rate = 400
			s := newTestStore(t, withTenants(Config{LimitBytes: 4 << 20, Shards: shards, PageBytes: 16 << 10},
				TenantConfig{Default: Quota{NewKeysPerSecond: rate}}))
			next := 0
			fill := func(tries int, now Time) (stored int) {
				for range tries {
					next++
					if s.Set(key(fmt.Sprint("a:", next)), nil, &SetOptions{}, now).Status == OK {
						stored++
					}
				}
				return stored
			}
			within := func(what string, got, want int) {
				t.Helper()
				if got > want || got < want*9/10 {
					t.Errorf("%s: %d keys, want %d", what, got, want)
				}
			}
			within("at once", fill(2000, noon), rate)
			within("a quarter of a second later", fill(1000, noon+250), rate/4)
			within("at the same time", fill(1000, noon+250), 0)
			within("when the clock goes back", fill(1000, noon-5000), 0)
			within("and on", fill(1000, noon-4750), rate/4)
			within("after an hour", fill(2000, later(3600)), rate)
			total := 0
			for ms := range 10_000 {
				total += fill(1, later(3600)+Time(ms))
			}
			within("ten seconds of a key each millisecond", total, 10*rate)
		})
	}
	t.Run("what is no new key", func(t *testing.T) {
		s := newTestStore(t, withTenants(tiny, TenantConfig{Default: Quota{NewKeysPerSecond: 1}}))
		s.mustSet(t, "a:1", "1", SetOptions{Expiry: later(5).Seconds()}, noon)
		s.mustSet(t, "a:1", "2", SetOptions{}, noon)
		s.mustSet(t, "a:1", "3", SetOptions{Expiry: later(5).Seconds()}, noon)
		for _, o := range []SetOptions{{Mode: ModeReplace}, {Mode: ModeAppend}} {
			if got := s.Set(key("a:2"), nil, &o, noon); got.Status != NotStored {
				t.Errorf("mode %d of nothing: status %d, want NotStored", o.Mode, got.Status)
			}
		}
		if got := s.Set(key("a:2"), nil, &SetOptions{Compare: true, CompareCAS: 1}, noon); got.Status != Miss {
			t.Errorf("cas of nothing: status %d, want Miss", got.Status)
		}
		if got := s.Set(key("a:2"), nil, &SetOptions{}, noon); got.Status != NoMemory {
			t.Errorf("second new key: status %d, want NoMemory", got.Status)
		}
		s.mustSet(t, "a:1", "4", SetOptions{}, later(5)) // expired, and so a new key
		if got := s.Set(key("a:2"), nil, &SetOptions{}, later(5)); got.Status != NoMemory {
			t.Errorf("new key beside an expired one: status %d, want NoMemory", got.Status)
		}
	})
}

// S1-77: a tenant at its memory quota loses items of its own, however its
// items are spread, and no neighbour loses any while there is room for all.
func TestTenantEvictsItsOwn(t *testing.T) {
	sizes := map[string]func(i int) int{
		"one size":                func(int) int { return 100 },
		"mixed sizes":             func(int) int { return 20 + rand.IntN(1500) },
		"large ones now and then": func(i int) int { return 60 + i%100/99*20_000 },
		"sizes that grow":         func(i int) int { return 50 + i/10 },
	}
	const quota = 512 << 10
	for name, size := range sizes {
		for _, share := range []string{"most of the cache", "a small part of it"} {
			t.Run(name+", "+share, func(t *testing.T) {
				limit, neighbours := int64(4<<20), 2000
				if share != "most of the cache" {
					limit, neighbours = 16<<20, 40_000
				}
				s := newTestStore(t, withTenants(Config{LimitBytes: limit, Shards: 2, PageBytes: 16 << 10},
					TenantConfig{Quotas: named("a", Quota{MemoryBytes: quota})}))
				for i := range neighbours {
					s.mustSet(t, fmt.Sprint("b:", i), strings.Repeat("v", 20+i%180), SetOptions{}, noon)
				}
				most := uint64(0)
				for i := range 10_000 {
					now := noon + Time(i)
					s.mustSet(t, fmt.Sprint("a:", i), strings.Repeat("v", size(i)), SetOptions{}, now)
					if i%64 == 0 {
						rows, _ := tenantsOf(s)
						most = max(most, rows["a"].Bytes)
					}
				}
				rows, _ := tenantsOf(s)
				a, b := rows["a"], rows["b"]
				t.Logf("a holds %d bytes, at most %d of %d; %d evicted", a.Bytes, most, quota, a.Evicted)
				if most > quota+quota/ownOverdraft {
					t.Errorf("a held %d bytes, quota %d", most, quota)
				}
				if a.Bytes < quota*7/8 {
					t.Errorf("a holds %d bytes, far below its quota of %d", a.Bytes, quota)
				}
				if b.Items != uint64(neighbours) || b.Evicted != 0 {
					t.Errorf("b has %d items and lost %d, want %d and 0", b.Items, b.Evicted, neighbours)
				}
				if a.Evicted != a.EvictedOwn {
					t.Errorf("a lost %d items, %d of them for its quota", a.Evicted, a.EvictedOwn)
				}
			})
		}
	}
}

// A tenant with so few items that the pages are not looked through far enough
// to find one loses those it stored first, and never what it just stored.
func TestTenantLosesWhatItStoredBefore(t *testing.T) {
	s := newTestStore(t, withTenants(Config{LimitBytes: 16 << 20, Shards: 1},
		TenantConfig{Quotas: named("a", Quota{MemoryBytes: 300})}))
	for i := range 20_000 {
		s.mustSet(t, fmt.Sprint("b:", i), strings.Repeat("v", 70), SetOptions{}, noon)
	}
	s.mustSet(t, "a:1", strings.Repeat("v", 70), SetOptions{}, noon)
	s.mustSet(t, "a:2", strings.Repeat("v", 70), SetOptions{}, noon)
	s.mustSet(t, "a:1", strings.Repeat("v", 70), SetOptions{}, noon)
	s.mustSet(t, "a:1", strings.Repeat("w", 200), SetOptions{}, noon)
	if got, st := s.get("a:1", GetOptions{}, noon); st != OK || got.Size != 200 {
		t.Errorf("what was just stored: status %d, %d bytes", st, got.Size)
	}
	if _, st := s.get("a:2", GetOptions{}, noon); st != Miss {
		t.Errorf("what was stored before: status %d, want Miss", st)
	}
}

func TestTenantZeroAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := newTestStore(t, withTenants(Config{LimitBytes: 4 << 20},
		TenantConfig{Default: Quota{MemoryBytes: 100 << 10, NewKeysPerSecond: 1 << 20}, TrackedMax: 10}))
	value := make([]byte, 100)
	keys := make([]Key, 20_000)
	for i := range keys {
		keys[i] = key(fmt.Sprintf("t%d:%d", i%20, i))
		s.Set(keys[i], value, &SetOptions{}, noon)
	}
	i := 0
	next := func() Key { i++; return keys[i%len(keys)] }
	now := noon
	for name, f := range map[string]func(){
		"get": func() { s.Get(next(), &GetOptions{}, noon, nil) },
		"set": func() { now++; s.Set(next(), value, &SetOptions{}, now) },
	} {
		if n := testing.AllocsPerRun(5000, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

// What a tenant loses for its quota is chosen about as well as an LRU of the
// quota's size would, although the order is shared with neighbours that hold
// most of the cache.
func TestTenantChoosesWhatItLoses(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine, and nothing new")
	}
	const quota, limit, requests, points = 1 << 20, 16 << 20, 300_000, 5
	value := make([]byte, 200)
	for name, drift := range map[string]int{"steady": 0, "drifting": 100} {
		t.Run(name, func(t *testing.T) {
			s := newTestStore(t, withTenants(Config{LimitBytes: limit, Shards: 1},
				TenantConfig{Quotas: named("a", Quota{MemoryBytes: quota})}))
			for i := range 40_000 {
				s.mustSet(t, fmt.Sprint("b:", i), string(value), SetOptions{}, noon)
			}
			zipf := rand.NewZipf(rand.New(rand.NewPCG(7, 8)), 1.05, 20, 50_000)
			where := make(map[int]*list.Element)
			order := list.New()
			hits, lruHits := 0, 0
			for i := range requests {
				n := int(zipf.Uint64())
				if drift > 0 {
					n += i / drift
				}
				now := noon + Time(i)
				k := key(fmt.Sprintf("a:%08d", n))
				if s.Get(k, &GetOptions{}, now, nil) == OK {
					hits++
				} else {
					s.Set(k, value, &SetOptions{}, now)
				}
				if e := where[n]; e != nil {
					lruHits++
					order.MoveToFront(e)
					continue
				}
				where[n] = order.PushFront(n)
				if order.Len() > quota/(headerBytes+len(k.Bytes)+len(value)) {
					delete(where, order.Remove(order.Back()).(int))
				}
			}
			got, want := float64(hits)*100/requests, float64(lruHits)*100/requests
			t.Logf("%.2f %% of hits, an LRU %.2f", got, want)
			if got < want-points {
				t.Errorf("%.2f %% of hits, an LRU of the quota's size %.2f", got, want)
			}
		})
	}
}

// Many tenants, each a thousandth of the cache, and all at their quotas.
func TestTenantsByTheHundred(t *testing.T) {
	const n, quota = 300, 16 << 10
	s := newTestStore(t, withTenants(Config{LimitBytes: 16 << 20, Shards: 1},
		TenantConfig{Default: Quota{MemoryBytes: quota}, TrackedMax: n}))
	for i := range 100_000 {
		s.mustSet(t, fmt.Sprintf("t%d:%d", rand.IntN(n), i), strings.Repeat("v", rand.IntN(200)), SetOptions{}, noon+Time(i))
	}
	rows, other := tenantsOf(s)
	if other.Items != 0 || len(rows) != n {
		t.Errorf("%d tenants, want %d, and %d items of others", len(rows), n, other.Items)
	}
	for name, r := range rows {
		if r.Bytes > quota || r.Bytes < quota*3/4 {
			t.Errorf("%s holds %d bytes, want almost %d", name, r.Bytes, quota)
		}
	}
}

func TestTenantQuotaWithoutEviction(t *testing.T) {
	c := tiny
	c.NoEvict = true
	s := newTestStore(t, withTenants(c, TenantConfig{Quotas: named("a", Quota{MemoryBytes: 1000})}))
	for i := range 10 {
		want := OK
		if i >= 7 {
			want = NoMemory
		}
		if got := s.Set(key(fmt.Sprint("a:", i)), make([]byte, 100), &SetOptions{}, noon); got.Status != want {
			t.Errorf("set %d: status %d, want %d", i, got.Status, want)
		}
	}
	s.mustSet(t, "a:1", strings.Repeat("v", 100), SetOptions{}, noon)
	s.mustSet(t, "b:1", strings.Repeat("v", 100), SetOptions{}, noon)
	if got := s.Set(key("a:1"), make([]byte, 100), &SetOptions{Mode: ModeAppend}, noon); got.Status != NoMemory {
		t.Errorf("append: status %d, want NoMemory", got.Status)
	}
}

// S1-45: whatever the keys are, the account stays as small as it is.
func TestTenantTableIsBounded(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("a million keys")
	}
	s := newTestStore(t, withTenants(Config{LimitBytes: 8 << 20, Shards: 1}, TenantConfig{}))
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	random := rand.New(rand.NewPCG(1, 2))
	flood := func(n int) {
		for range n {
			k := KeyOf(fmt.Appendf(nil, "%x:%x", random.Uint64(), random.Uint32()))
			s.Set(k, nil, &SetOptions{}, noon)
			s.Get(k, &GetOptions{}, noon, nil)
		}
	}
	flood(10_000)
	before := heap()
	flood(1_000_000)
	if after := heap(); after > before+256<<10 {
		t.Errorf("heap grew from %d to %d bytes", before, after)
	}
	rows, other := tenantsOf(s)
	if len(rows) > tenantTrackedDefault {
		t.Errorf("%d tenants tracked, want %d at most", len(rows), tenantTrackedDefault)
	}
	if other.Items == 0 || other.Hits < 900_000 {
		t.Errorf("other has %d items and %d hits", other.Items, other.Hits)
	}

	// A tenant that is more than noise gets its row in the midst of it.
	for i := range 20_000 {
		s.Set(key(fmt.Sprint("large:", i%1000)), make([]byte, 100), &SetOptions{}, noon)
		flood(10)
	}
	live := uint64(0)
	for i := range 1000 {
		if s.Peek(key(fmt.Sprint("large:", i)), noon, nil) == OK {
			live++
		}
	}
	rows, _ = tenantsOf(s)
	if r := rows["large"]; r.Items != live || live == 0 {
		t.Errorf("the large tenant has %d items in the account, %d in the store", r.Items, live)
	}
}

// Tenants that take each other's rows over and over, with items that have
// explicit CAS numbers among them: Check recounts every row.
func TestTenantRowsChangeHands(t *testing.T) {
	s := newTestStore(t, withTenants(Config{LimitBytes: 256 << 10, Shards: 1, PageBytes: 1 << 10},
		TenantConfig{TrackedMax: 3, Quotas: named("t0", Quota{}), Default: Quota{MemoryBytes: 40 << 10}}))
	s.hastenTenants()
	random := rand.New(rand.NewPCG(3, 4))
	names := make(map[string]bool)
	for i := range 30_000 {
		phase := i / 3000
		k := fmt.Sprintf("t%d:%d", (random.IntN(3)*random.IntN(4)+phase)%10, random.IntN(400))
		o := SetOptions{HasNewCAS: random.IntN(4) == 0, NewCAS: random.Uint64()}
		switch random.IntN(8) {
		case 0:
			s.Delete(key(k), &DeleteOptions{}, noon)
		case 1:
			s.Delete(key(k), &DeleteOptions{Invalidate: true, HasNewCAS: o.HasNewCAS, NewCAS: o.NewCAS}, noon)
		case 2:
			s.Delete(key(k), &DeleteOptions{RemoveValue: true}, noon)
		case 3:
			s.Arith(key(k), &ArithOptions{Vivify: true, HasNewCAS: o.HasNewCAS, NewCAS: o.NewCAS}, noon, nil)
		default:
			s.Set(key(k), make([]byte, random.IntN(300)), &o, noon)
		}
		if i%100 == 0 {
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
		rows, _ := tenantsOf(s)
		for name := range rows {
			names[name] = true
		}
		if len(rows) > 4 {
			t.Fatalf("%d rows, want 4 at most", len(rows))
		}
	}
	if len(names) < 8 {
		t.Errorf("%d tenants ever had a row, want most of 10", len(names))
	}
}

// The hash table of names under insertions and removals, against a map.
func TestTenantIndex(t *testing.T) {
	tn := newTenants(&TenantConfig{Delimiter: ':', TrackedMax: 40}, 1, 1)
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 20_000 {
		name := []byte(fmt.Sprint(random.IntN(100)))
		h := xxhash.Sum64(name)
		switch r := tn.lookUp(name, h); {
		case r != nil:
		case len(tn.rows) < cap(tn.rows):
			tn.add(name, h)
		default:
			n := 1 + random.IntN(40)
			tn.unindex(n)
			tn.rows[n].name, tn.rows[n].hash = name, h
			tn.index(n)
		}
		for n := 1; n < len(tn.rows); n++ {
			if got := tn.lookUp(tn.rows[n].name, tn.rows[n].hash); got != &tn.rows[n] {
				t.Fatalf("step %d: row %d %q is not found", i, n, tn.rows[n].name)
			}
		}
	}
}

// scene is two tenants in one cache: a quiet one, which reads and on a miss
// stores what it needs, and one that scans.
type scene struct {
	limit    int64
	quota    int64 // of the scanner, 0 none
	scanRate int   // requests of the scanner for each of the quiet one
	keys     uint64
	sizeMax  int // of values, which have 50 bytes at least
	requests int // of the quiet one, as many to get warm as are counted then
}

// quietHits is the hit ratio of the quiet tenant in percent, once it is warm.
func (c scene) quietHits(t testing.TB) float64 {
	cfg := withTenants(Config{LimitBytes: c.limit, Shards: 2, PageBytes: 16 << 10},
		TenantConfig{Quotas: named("scan", Quota{MemoryBytes: c.quota})})
	s := newTestStore(t, cfg)
	value := make([]byte, c.sizeMax)
	zipf := rand.NewZipf(rand.New(rand.NewPCG(7, 8)), 1.05, 20, c.keys-1)
	now := noon
	request := func(k Key) bool {
		if s.Get(k, &GetOptions{}, now, nil) == OK {
			return true
		}
		s.Set(k, value[:50+k.Hash%uint64(c.sizeMax-49)], &SetOptions{}, now)
		return false
	}
	hits, scanned := 0, 0
	var buf []byte
	for i := range 2 * c.requests {
		now = noon + Time(i/10) // 10,000 requests a second
		buf = fmt.Appendf(buf[:0], "quiet:%08d", zipf.Uint64())
		if request(KeyOf(buf)) && i >= c.requests {
			hits++
		}
		for range c.scanRate {
			buf = fmt.Appendf(buf[:0], "scan:%010d", scanned)
			scanned++
			request(KeyOf(buf))
		}
	}
	rows, _ := tenantsOf(s)
	t.Logf("%+v: %.2f %%; quiet %d bytes, scanner %d bytes", c, float64(hits)*100/float64(c.requests), rows["quiet"].Bytes, rows["scan"].Bytes)
	return float64(hits) * 100 / float64(c.requests)
}

// The goal: of two tenants, one scanning at ten times the other's rate, the
// quiet one keeps its hit ratio within a point.
func TestQuietTenantKeepsItsHits(t *testing.T) {
	if testing.Short() {
		t.Skip("three million requests")
	}
	if raceEnabled {
		t.Skip("one goroutine, and nothing new")
	}
	for _, tt := range []struct {
		name string
		scene
	}{
		{"working set that fits", scene{limit: 8 << 20, keys: 20_000, sizeMax: 350, requests: 60_000}},
		{"working set that does not fit", scene{limit: 8 << 20, keys: 200_000, sizeMax: 350, requests: 60_000}},
		{"and of many sizes", scene{limit: 32 << 20, keys: 800_000, sizeMax: 1500, requests: 120_000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			quota := tt.limit / 4
			run := func(limit, quota int64, scanRate int) float64 {
				c := tt.scene
				c.limit, c.quota, c.scanRate = limit, quota, scanRate
				return c.quietHits(t)
			}
			// The quota counts items, not the rounding to chunks and pages.
			alone := run(tt.limit-quota-quota/16, 0, 0)
			slow := run(tt.limit, quota, 1)
			fast := run(tt.limit, quota, 10)
			if fast < alone-1 || fast < slow-1 {
				t.Errorf("%.2f %% of hits beside a scan at ten times the rate, %.2f at the same rate, %.2f alone in the rest of the memory",
					fast, slow, alone)
			}
		})
	}
}

// All of it at once, for the race detector.
func TestTenantsConcurrently(t *testing.T) {
	s := newTestStore(t, withTenants(Config{LimitBytes: 1 << 20, Shards: 2, PageBytes: 4 << 10},
		TenantConfig{TrackedMax: 4, Default: Quota{MemoryBytes: 100 << 10, NewKeysPerSecond: 1 << 20}}))
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 9))
			for i := range 5000 {
				k := key(fmt.Sprintf("t%d:%d", random.IntN(10), random.IntN(500)))
				now := noon + Time(i)
				switch random.IntN(10) {
				case 0:
					s.Delete(k, &DeleteOptions{}, now)
				case 1:
					s.Tenants(3)
				case 2, 3, 4:
					s.Get(k, &GetOptions{}, now, nil)
				default:
					s.Set(k, make([]byte, random.IntN(400)), &SetOptions{}, now)
				}
			}
		})
	}
	workers.Wait()
}

func TestTenantConfigIsValidated(t *testing.T) {
	for _, c := range []TenantConfig{
		{Delimiter: ':', TrackedMax: -1},
		{Delimiter: ':', TrackedMax: TenantTrackedMax + 1},
		{Delimiter: ':', Quotas: named("a:b", Quota{})},
		{Delimiter: ':', Quotas: append(named("a", Quota{}), named("a", Quota{})...)},
		{Delimiter: ':', Quotas: named("a", Quota{NewKeysPerSecond: TenantRateMax + 1})},
		{Delimiter: ':', Default: Quota{MemoryBytes: -1}},
		{Delimiter: ':', Quotas: make([]TenantQuota, TenantQuotasMax+1)},
	} {
		if s, err := Open(Config{Tenants: c}); err == nil {
			s.Close()
			t.Errorf("%+v is taken", c)
		}
	}
}

// benchTenants is benchStore with keys of 100 tenants, with a delimiter and a
// quota or without.
func benchTenants(b *testing.B, c TenantConfig, limit int64, n int) (*Store, []Key) {
	s, err := Open(Config{LimitBytes: limit, Tenants: c})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	value := make([]byte, 100)
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = KeyOf(fmt.Appendf(nil, "tenant%02d:%012d", rand.IntN(100), i))
		s.Set(keys[i], value, &SetOptions{}, noon)
	}
	return s, keys
}

func BenchmarkTenants(b *testing.B) {
	const n = 1_000_000
	configs := []struct {
		name string
		c    TenantConfig
	}{
		{"off", TenantConfig{}},
		{"account", TenantConfig{Delimiter: ':'}},
		{"quota", TenantConfig{Delimiter: ':', Default: Quota{MemoryBytes: 1 << 30, ValueMaxBytes: 1000}}},
		{"rate", TenantConfig{Delimiter: ':', Default: Quota{NewKeysPerSecond: 1e9}}},
	}
	for _, c := range configs {
		b.Run("get/hit/100B/"+c.name, func(b *testing.B) {
			s, keys := benchTenants(b, c.c, 1<<30, n)
			v := &appender{dst: make([]byte, 0, 4096)}
			i := 0
			for b.Loop() {
				v.dst = v.dst[:0]
				s.Get(keys[i], &GetOptions{}, noon, v)
				if i++; i == n {
					i = 0
				}
			}
		})
		b.Run("set/overwrite/100B/"+c.name, func(b *testing.B) {
			s, keys := benchTenants(b, c.c, 1<<30, n)
			value := make([]byte, 100)
			i := 0
			for b.Loop() {
				s.Set(keys[i], value, &SetOptions{}, noon)
				if i++; i == n {
					i = 0
				}
			}
		})
	}
	// Each set evicts: one of the tenant's own, a hundredth of all, which are
	// hard to find; or whatever the order says.
	for _, tt := range []struct {
		name string
		c    TenantConfig
	}{
		{"evicts its own", TenantConfig{Delimiter: ':', Default: Quota{MemoryBytes: 256 << 10}}},
		{"evicts anyone", TenantConfig{}},
	} {
		b.Run("set/new/100B/"+tt.name, func(b *testing.B) {
			s, keys := benchTenants(b, tt.c, 32<<20, n)
			value := make([]byte, 100)
			i := 0
			for b.Loop() {
				s.Set(keys[i], value, &SetOptions{}, noon)
				if i++; i == n {
					i = 0
				}
			}
		})
	}
}
