package store

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// What has expired costs no capacity: in a cache in which all that is live
// fits, nothing live is ever evicted, although what is stored in all is many
// times the memory. The mixes are those of Twitter's clusters 12, 24 and 37
// (traces/WORKLOADS.md); the times of the first two are divided by ten, and
// long ones are held to what the test lasts.
func TestExpiredItemsCostNoCapacity(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("stores some GB")
	}
	const limit = 64 << 20
	type life struct {
		seconds float64
		share   float64
	}
	for _, tt := range []struct {
		name  string
		value int
		lives []life
	}{
		{"c12", 1030, []life{{30, 1}}},
		{"c24", 699, []life{{200, 0.05}, {6, 0.95}}},
		{"c37", 20134, []life{{20, 0.91}, {200, 0.09}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestStore(t, Config{LimitBytes: limit, Shards: 2})
			rng := rand.New(rand.NewPCG(7, 8))
			mean := 0.0
			for _, l := range tt.lives {
				mean += l.seconds * l.share
			}
			// 75 % of the memory is live: the rest is for what has expired and
			// was not swept yet, for rounding and for chance.
			perSecond := 0.75 * limit / float64(tt.value+60) / (mean + 1)
			const seconds = 200
			n, stored := 0, 0
			buf := make([]byte, 1<<20)
			for i := range seconds * int(time.Second/sweepTick) {
				now := noon + Time(i)*Time(sweepTick/time.Millisecond)
				for ; float64(n) < float64(i)*perSecond*sweepTick.Seconds(); n++ {
					size := int(min(float64(tt.value)*math.Exp(rng.NormFloat64()-0.5), 200e3))
					at, life := rng.Float64(), tt.lives[0].seconds
					for _, l := range tt.lives {
						life = l.seconds
						if at -= l.share; at < 0 {
							break
						}
					}
					o := SetOptions{Expiry: Expiry(int64(max(life, 1)), now)}
					if res := s.Set(key(fmt.Sprint("k", n)), buf[:size], &o, now); res.Status != OK {
						t.Fatalf("set: status %d", res.Status)
					}
					stored += size
				}
				for _, sh := range s.shards {
					s.sweepPart(sh, now)
				}
			}
			var st Stats
			s.Snapshot(noon, &st)
			t.Logf("%d items, %.1f times the memory, stored; %d evicted, %d reclaimed by stores, %d swept",
				n, float64(stored)/limit, st.Total.Evicted, st.Total.Reclaimed, st.Total.SweepReclaimed)
			if st.Total.Evicted > 0 {
				t.Errorf("%d live items were evicted", st.Total.Evicted)
			}
		})
	}
}
