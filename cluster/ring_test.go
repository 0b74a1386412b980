package cluster

import (
	"fmt"
	"math"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// TestJump grows a ring: about 1/n of the keys move, all of them to the new
// server, and each has its part.
func TestJump(t *testing.T) {
	const keys = 20000
	for n := 1; n < 40; n++ {
		moved, load := 0, make([]int, n+1)
		for i := range keys {
			h := xxhash.Sum64String(fmt.Sprint("key", i))
			a, b := jump(h, n), jump(h, n+1)
			load[b]++
			if a != b {
				moved++
				if b != n {
					t.Fatalf("key%d goes from %d to %d, which is not the new one", i, a, b)
				}
			}
		}
		want := float64(keys) / float64(n+1)
		if math.Abs(float64(moved)-want) > 6*math.Sqrt(want) {
			t.Errorf("%d servers: %d keys move, want about %.0f", n, moved, want)
		}
		for s, k := range load {
			if math.Abs(float64(k)-want) > 6*math.Sqrt(want) {
				t.Errorf("%d servers: %d has %d keys, want about %.0f", n+1, s, k, want)
			}
		}
	}
}

// TestKetama is where libmemcached has the keys with MEMC_BEHAVIOR_KETAMA_WEIGHTED.
func TestKetama(t *testing.T) {
	servers := []string{"10.0.1.1:11211", "10.0.1.2:11211", "10.0.1.3:11212", "10.0.1.4:11211"}
	r := newRing(RingKetama, servers)
	load := make([]int, len(servers))
	for i := range 20000 {
		key := fmt.Sprint("key", i)
		load[r.of(key, xxhash.Sum64String(key))]++
	}
	for s, n := range load {
		if n < 3500 || n > 6500 {
			t.Errorf("%s has %d of 20000 keys, want about 5000", servers[s], n)
		}
	}
	// The server of key0, key1, …: the last digit of its address, as
	// libmemcached 1.1 with MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED says.
	const want = "312122422223214434344314"
	for i := range want {
		if got := servers[r.of(fmt.Sprint("key", i), 0)]; got[7] != want[i] {
			t.Errorf("key%d: got %s, want 10.0.1.%c", i, got, want[i])
		}
	}
}
