package lru

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func newTestSketch(t interface {
	Fatal(...any)
	Cleanup(func())
}) *sketch {
	s, err := newSketch(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.mem.Release() })
	return s
}

// A count is never too low but for ageing, and rarely too high.
func TestSketchCounts(t *testing.T) {
	s := newTestSketch(t)
	const items = 10_000
	for n := range items {
		s.grow(n + 1)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	hashes := make([]uint64, items)
	for i := range hashes {
		hashes[i] = rng.Uint64()
		for range i % 4 { // 0 to 3 times
			s.add(hashes[i], items)
		}
	}
	low, high := 0, 0
	for i, h := range hashes {
		switch got, want := s.count(h), uint64(i%4); {
		case got < want:
			low++
		case got > want:
			high++
		}
	}
	if low > 0 {
		t.Errorf("%d of %d counts are too low", low, items)
	}
	if high > items/4 {
		t.Errorf("%d of %d counts are too high", high, items)
	}
}

// At the end of a period every count is halved, whether its block is touched
// or not, and old counts are gone for good.
func TestSketchAges(t *testing.T) {
	s := newTestSketch(t)
	const items = 1 << sketchLevelMin * itemsPerBlock
	for range 12 {
		s.add(42, items)
	}
	if got := s.count(42); got != 12 {
		t.Fatalf("count %d, want 12", got)
	}
	for want := uint64(6); ; want /= 2 {
		s.period++
		if got := s.count(42); got != want {
			t.Fatalf("after %d periods: count %d, want %d", s.period, got, want)
		}
		if want == 0 {
			break
		}
	}
	for range 12 {
		s.add(42, items)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for s.period < 40 {
		s.add(rng.Uint64(), items)
	}
	if got := s.count(42); got > 8 {
		t.Errorf("count %d of a key not asked for in 36 periods", got)
	}
	if got, want := s.bytes(), int64(items*2); got != want {
		t.Errorf("%d bytes for %d items, want %d", got, items, want)
	}
}

// Growing keeps all counts.
func TestSketchGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newTestSketch(t)
		counts := map[uint64]uint64{}
		n := 0
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			for range rapid.IntRange(0, 30).Draw(t, "adds") {
				h := rapid.Uint64().Draw(t, "hash")
				s.add(h, 1<<20)
				counts[h]++
			}
			for range rapid.IntRange(0, 3000).Draw(t, "items") {
				n++
				s.grow(n)
			}
			for h, want := range counts {
				if got := s.count(h); got < min(want, countMax) {
					t.Fatalf("after growing to %d items: count %d, want at least %d", n, got, want)
				}
			}
		}
	})
}
