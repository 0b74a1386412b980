package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// lookaside reads a key, stores it on a miss, and reports whether it was a hit.
func lookaside(t testing.TB, s *Store, k string, value []byte, now Time) bool {
	kk := key(k)
	if s.Get(kk, &GetOptions{}, now, nil) == OK {
		return true
	}
	if res := s.Set(kk, value, &SetOptions{}, now); res.Status != OK {
		t.Fatalf("set %s: status %d", k, res.Status)
	}
	return false
}

// A scan of 10 times the cache passes through a hot set of half of it, with
// items of another size or the same (S1-44, S3-23).
func TestScanBesideHotSet(t *testing.T) {
	if raceEnabled {
		t.Skip("millions of requests")
	}
	const limit = 16 << 20
	for _, tt := range []struct{ hot, scan int }{{300, 300}, {300, 1000}, {1000, 300}, {300, 9000}, {9000, 300}} {
		t.Run(fmt.Sprintf("hot %d scan %d", tt.hot, tt.scan), func(t *testing.T) {
			s := newTestStore(t, Config{LimitBytes: limit, Shards: 1})
			rng := rand.New(rand.NewPCG(5, 6))
			hotN := limit / 2 / (tt.hot + 60)
			scanN := 10 * limit / (tt.scan + 60)
			hotValue, scanValue := make([]byte, tt.hot), make([]byte, tt.scan)
			hot := func() bool { return lookaside(t, s, fmt.Sprint("hot:", rng.IntN(hotN)), hotValue, noon) }
			for range 20 * hotN {
				hot()
			}
			hits, reads := 0, 0
			for i := range scanN {
				lookaside(t, s, fmt.Sprint("scan:", i), scanValue, noon)
				for range max(1, hotN*10/scanN) {
					reads++
					if hot() {
						hits++
					}
				}
			}
			t.Logf("hot set's hit ratio during the scan: %.2f %%", 100*float64(hits)/float64(reads))
			if float64(hits)/float64(reads) < 0.98 {
				t.Errorf("%.2f %%, want at least 98", 100*float64(hits)/float64(reads))
			}
		})
	}
}
