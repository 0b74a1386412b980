package store

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// row is a row of the source, and what its key was told of.
type row struct {
	k       Key
	version atomic.Uint64 // committed
	told    atomic.Uint64 // a notice or a fill of it has been answered
}

func (r *row) tell(version uint64) {
	for {
		old := r.told.Load()
		if old >= version || r.told.CompareAndSwap(old, version) {
			return
		}
	}
}

// Readers, writers, plain commands, evictions, moving pages and owners at once:
// nobody is given as fresh, or as absent, what is older than what the key was
// told of before, what is served is what was filled with that version, and at
// the end no token has left a trace in the budget or with its tenant.
func TestFreshConcurrent(t *testing.T) {
	const rate, inflight = 400, 24
	s := newTestStore(t, withTenants(Config{LimitBytes: 256 << 10, PageBytes: 4 << 10, Shards: 4,
		Fresh: FreshConfig{RateForeground: rate, RateBackground: rate / 2, InflightMax: inflight, Adapt: true}},
		TenantConfig{Quotas: named("t", Quota{GrantsInFlight: 40})}))
	rows := make([]*row, 60)
	for i := range rows {
		rows[i] = &row{k: key(fmt.Sprint("t:", i))}
	}
	var clock atomic.Int64
	clock.Store(int64(noon))
	now := func() Time { return Time(clock.Load()) }
	steps := 20_000
	if testing.Short() || raceEnabled {
		steps = 3000
	}
	var granted, fresh, refused atomic.Int64
	reader := func(rng *rand.Rand) {
		for range steps {
			r := rows[rng.IntN(len(rows))]
			told := r.told.Load()
			a := Ask{Class: GrantForeground + GrantClass(rng.IntN(3)), Min: []uint64{0, 0, told}[rng.IntN(3)]}
			var g grab
			st := s.Get(r.k, &GetOptions{Ask: &a}, now(), &g)
			switch {
			case a.Absent && a.Version < told:
				t.Errorf("%s is absent at %d, when it was told of %d", r.k.Bytes, a.Version, told)
			case st == OK && g.Version != 0 && strings.TrimRight(g.value, ".") != strconv.FormatUint(g.Version, 10):
				t.Errorf("%s: version %d is %.20q", r.k.Bytes, g.Version, g.value)
			case st == OK && !g.Stale && g.Version < told:
				t.Errorf("%s: version %d is fresh, when it was told of %d", r.k.Bytes, g.Version, told)
			case st == OK && !g.Stale:
				fresh.Add(1)
			}
			if !a.Granted {
				continue
			}
			granted.Add(1)
			began := now()
			version := r.version.Load()
			runtime.Gosched()
			f := Fill{HasToken: true, Token: a.Token, Version: version,
				Deadlines: Deadlines{Hard: began + 3000, Soft: began + 500, Read: began}}
			var res SetResult
			switch {
			case rng.IntN(20) == 0:
				continue // it dies
			case rng.IntN(10) == 0:
				s.GiveBack(r.k, a.Token, true, now())
				continue
			case version == 0:
				f.Kind = FillAbsent
				res = s.Set(r.k, nil, &SetOptions{Fill: &f}, now())
			case st == OK && g.Version == version && rng.IntN(2) == 0:
				f.Kind = FillRevalidate
				res = s.Set(r.k, nil, &SetOptions{Fill: &f}, now())
			default:
				res = s.uploadInTwo(r.k, padded(version, rng.IntN(900)), &SetOptions{Fill: &f}, now)
			}
			if res.Status == OK {
				r.tell(version)
			} else {
				refused.Add(1)
			}
		}
	}
	writer := func(rng *rand.Rand) {
		for i := range steps {
			r := rows[rng.IntN(len(rows))]
			switch rng.IntN(12) {
			case 0:
				s.Delete(r.k, &DeleteOptions{Invalidate: rng.IntN(2) == 0}, now())
			case 1:
				s.Set(key(fmt.Sprint("u:", i%300)), make([]byte, rng.IntN(2000)), &SetOptions{}, now())
			case 2:
				f := Fill{Version: r.version.Load(), Deadlines: Deadlines{Hard: now() + 3000, Read: now()}}
				if f.Version > 0 {
					s.Set(r.k, []byte(padded(f.Version, rng.IntN(500))), &SetOptions{Fill: &f}, now())
				}
			case 3, 4, 5:
				v := r.version.Add(1)
				s.Notice(r.k, v, rng.IntN(4) == 0, now())
				r.tell(v)
			case 6:
				s.Get(r.k, &GetOptions{Touch: rng.IntN(2) == 0, Expiry: now().Seconds() + 2}, now(), nil)
			case 7:
				if i%50 == 0 {
					s.HideBuckets([]int{r.k.Bucket()}, now())
				}
			}
		}
	}
	var all, beside sync.WaitGroup
	var done atomic.Bool
	beside.Go(func() { // time and the background
		for n := 0; !done.Load(); n++ {
			clock.Add(1)
			if n%8 == 0 {
				s.tick(now())
			}
			if n%100 == 0 {
				var st Stats
				if s.Snapshot(now(), &st); st.Fresh.Inflight > inflight {
					t.Errorf("%d tokens are out, at most %d may be", st.Fresh.Inflight, inflight)
				}
			}
			runtime.Gosched()
		}
	})
	for i := range uint64(4) {
		all.Go(func() { reader(rand.New(rand.NewPCG(1, i))) })
	}
	for i := range uint64(2) {
		all.Go(func() { writer(rand.New(rand.NewPCG(2, i))) })
	}
	all.Wait()
	done.Store(true)
	beside.Wait()
	seconds := (now()-noon)/1000 + 1
	if n := granted.Load(); n == 0 || n > int64(seconds)*(rate+rate/2) {
		t.Errorf("%d grants in %d s, at most %d a second may be", n, seconds, rate+rate/2)
	}
	later := now() + 2*grantMaxDefault
	var st Stats
	s.Snapshot(later, &st)
	for _, sh := range s.shards {
		sh.enter(later)
		sh.records.turn(later, sh.uncount)
		for i := range sh.tenants.rows {
			if n := sh.tenants.rows[i].inflight; n != 0 {
				t.Errorf("tenant %q has %d tokens out at the end", sh.tenants.rows[i].name, n)
			}
		}
	}
	if st.Fresh.Inflight != 0 {
		t.Errorf("%d tokens are out at the end", st.Fresh.Inflight)
	}
	t.Logf("%d s: %d grants, %d fresh values, %d fills refused, %d expired, %d evictions", seconds, granted.Load(), fresh.Load(), refused.Load(),
		st.Fresh.TokensExpired, st.Total.Evicted)
}

// padded is a value that says its version, and n dots.
func padded(version uint64, n int) string {
	return strconv.FormatUint(version, 10) + strings.Repeat(".", n)
}

// uploadInTwo is Set in two parts.
func (s *Store) uploadInTwo(k Key, value string, o *SetOptions, now func() Time) SetResult {
	var u Upload
	if st := s.Begin(k, len(value), o, now(), &u); st != OK {
		return SetResult{Status: st, Reason: u.Refusal}
	}
	for _, part := range []string{value[:len(value)/2], value[len(value)/2:]} {
		if st := u.Write([]byte(part), now()); st != OK {
			u.Abort()
			return SetResult{Status: st}
		}
		runtime.Gosched()
	}
	return u.Commit(now())
}
