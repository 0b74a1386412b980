package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// A prefetch changes nothing and finds nothing: it may be of any keys, while
// others write.
func TestPrefetch(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 4 << 20, Shards: 4})
	keys := make([]Key, 2000)
	for i := range keys {
		keys[i] = KeyOf(fmt.Appendf(nil, "key:%d", i))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, k := range keys[:1000] {
			s.Set(k, k.Bytes, &SetOptions{}, noon)
		}
	}()
	for i := 0; i+PrefetchMax <= len(keys); i += PrefetchMax {
		s.Prefetch(keys[i : i+PrefetchMax])
	}
	<-done
	var before, after Stats
	s.Snapshot(noon, &before)
	for n := range PrefetchMax + 1 {
		s.Prefetch(keys[990 : 990+n])
	}
	if s.Snapshot(noon, &after); after.Total != before.Total || after.GetMisses != before.GetMisses {
		t.Errorf("counted %+v, before it %+v", after.Total, before.Total)
	}
}

// An empty store has about no items, however many shards it has.
func TestItemsAbout(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 16 << 20, Shards: 16})
	if n := s.ItemsAbout(); n != 0 {
		t.Errorf("about %d items, where there is none", n)
	}
	const items = 100_000
	for i := range items {
		k := KeyOf(fmt.Appendf(nil, "key:%d", i))
		s.Set(k, nil, &SetOptions{}, noon)
	}
	if n := s.ItemsAbout(); n < items*9/10 || n > items*3/2 {
		t.Errorf("about %d items, where there are %d", n, items)
	}
}

// BenchmarkPrefetch reads keys drawn at random, as 32 pipelined gets do: one
// after the other, and after a Prefetch of them all.
func BenchmarkPrefetch(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000, 6_000_000} {
		s, err := Open(Config{LimitBytes: 2 << 30})
		if err != nil {
			b.Fatal(err)
		}
		name := func(k int) []byte { return fmt.Appendf(nil, "key-%012d", k) }
		value := make([]byte, 100)
		for i := range n {
			s.Set(KeyOf(name(i)), value, &SetOptions{}, noon)
		}
		random := rand.New(rand.NewPCG(1, 2))
		asked := make([]Key, 1<<16)
		for i := range asked {
			asked[i] = KeyOf(name(random.IntN(n)))
		}
		v := &appender{dst: make([]byte, 0, 4096)}
		for _, prefetch := range []bool{false, true} {
			b.Run(fmt.Sprintf("Get/items=%d/prefetch=%t", n, prefetch), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					batch := asked[i : i+PrefetchMax]
					i = (i + PrefetchMax) % len(asked)
					if prefetch {
						s.Prefetch(batch)
					}
					for _, k := range batch {
						v.dst = v.dst[:0]
						s.Get(k, &GetOptions{NoWin: true}, noon, v)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*PrefetchMax), "ns/get")
			})
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
