package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func TestKeyText(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		size int
		k    uint64
		want string
	}{
		{1000, 16, 0, "key-000000000000"},
		{1000, 16, 7, "key-000000000007"},
		{1000, 16, 999, "key-000000000999"},
		{1000, 3, 42, "042"},
		{1000, 5, 42, "ke042"},
		{1, 1, 0, "0"},
		{10_000_000_000, 12, 9_876_543_210, "ke9876543210"},
	} {
		ks := newKeys(c.n, c.size)
		got := string(ks.append(nil, c.k))
		if got != c.want {
			t.Errorf("key %d of %d, size %d: got %q, want %q", c.k, c.n, c.size, got, c.want)
		}
		if k, ok := ks.number([]byte(got)); !ok || k != c.k {
			t.Errorf("number of %q: got %d, %v, want %d", got, k, ok, c.k)
		}
	}
	ks := newKeys(1000, 16)
	for _, text := range []string{"", "key-00000000000x", "kay-000000000001", "key-00000000001", "key-0000000000011"} {
		if k, ok := ks.number([]byte(text)); ok {
			t.Errorf("number of %q: got %d, want none", text, k)
		}
	}
}

func TestKeyBytesMax(t *testing.T) {
	ks := newKeys(100, keyBytesMax)
	if got := len(ks.append(nil, 99)); got != keyBytesMax {
		t.Errorf("key: got %d bytes, want %d", got, keyBytesMax)
	}
}

// TestZipf holds the shares of ranks against 1/rank^s over all ranks.
func TestZipf(t *testing.T) {
	const n, draws = 1000, 400_000
	for _, s := range []float64{0.5, 0.99, 1, 1.3} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			z, random := newZipf(n, s), rand.NewPCG(1, 1)
			var seen [n]int
			for range draws {
				seen[z.draw(random)]++
			}
			total := 0.0
			for rank := 1; rank <= n; rank++ {
				total += math.Pow(float64(rank), -s)
			}
			got, want := 0.0, 0.0 // of all ranks up to this one
			for i := range n {
				got += float64(seen[i]) / draws
				want += math.Pow(float64(i+1), -s) / total
				if i == 0 || i == 1 || i == 9 || i == 99 {
					if math.Abs(got-want) > 0.004 {
						t.Errorf("share of the first %d keys: got %.4f, want %.4f", i+1, got, want)
					}
				}
			}
		})
	}
}

func TestZipfOneKey(t *testing.T) {
	z, random := newZipf(1, 0.99), rand.NewPCG(1, 1)
	for range 1000 {
		if k := z.draw(random); k != 0 {
			t.Fatalf("draw of one key: got %d, want 0", k)
		}
	}
}

func TestUniformAndHot(t *testing.T) {
	const n, draws = 100, 200_000
	for _, c := range []struct {
		name string
		p    popularity
		want float64 // share of the first two keys
	}{
		{"uniform", uniform(n), 0.02},
		{"hot", hot{keys: n, hotKeys: 2, share: 0.8}, 0.8 + 0.2*0.02},
	} {
		random := rand.NewPCG(1, 1)
		first, most := 0, uint64(0)
		for range draws {
			k := c.p.draw(random)
			if k < 2 {
				first++
			}
			most = max(most, k)
		}
		if got := float64(first) / draws; math.Abs(got-c.want) > 0.004 {
			t.Errorf("%s: share of two keys: got %.4f, want %.4f", c.name, got, c.want)
		}
		if most != n-1 {
			t.Errorf("%s: last key: got %d, want %d", c.name, most, n-1)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	random := rand.NewPCG(1, 1)
	for _, c := range []struct {
		name string
		p    popularity
	}{
		{"uniform", uniform(1_000_000)},
		{"zipf", newZipf(1_000_000, 0.99)},
		{"hot", hot{keys: 1_000_000, hotKeys: 1, share: 0.9}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.p.draw(random)
			}
		})
	}
}
