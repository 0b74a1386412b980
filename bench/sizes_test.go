package bench

import (
	"fmt"
	"math"
	"testing"
)

func parseSizes(t testing.TB, spec string) Sizes {
	t.Helper()
	var s Sizes
	if err := s.UnmarshalText([]byte(spec)); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSizesMean(t *testing.T) {
	for _, c := range []struct {
		spec     string
		mean     float64
		low, top int
	}{
		{"100", 100, 100, 100},
		{"0", 0, 0, 0},
		{"uniform:20-100000", 50010, 20, 100000},
		{"log-uniform:20-100000", (100000 - 20) / math.Log(100000.0/20), 20, 100000},
		{"lognormal:400,1", 400, 1, 100000},
	} {
		const n = 200_000
		v, again := newValues(parseSizes(t, c.spec)), newValues(parseSizes(t, c.spec))
		sum := 0.0
		for k := range uint64(n) {
			size := v.size(k)
			if size < c.low || size > c.top {
				t.Fatalf("%s: key %d: got %d bytes, want %d to %d", c.spec, k, size, c.low, c.top)
			}
			if other := again.size(k); other != size {
				t.Fatalf("%s: key %d: got %d bytes, then %d", c.spec, k, size, other)
			}
			sum += float64(size)
		}
		if got := sum / n; math.Abs(got-c.mean) > 0.02*c.mean {
			t.Errorf("%s: mean: got %.1f, want %.1f", c.spec, got, c.mean)
		}
	}
}

func TestSizesRefused(t *testing.T) {
	for _, spec := range []string{
		"", "x", "-1", "5000000000", "uniform", "uniform:5", "uniform:9-5", "uniform:1-9999999999",
		"log-uniform:a-b", "lognormal:100", "lognormal:100,0", "lognormal:0,1", "lognormal:NaN,1", "gauss:1-2",
	} {
		var s Sizes
		if err := s.UnmarshalText([]byte(spec)); err == nil {
			t.Errorf("sizes %q: got no error", spec)
		}
	}
}

// TestValuesHold reads values in parts, whole and altered.
func TestValuesHold(t *testing.T) {
	v := newValues(parseSizes(t, "log-uniform:1-300"))
	for k := range uint64(500) {
		value := v.append(nil, k)
		if len(value) != v.size(k) {
			t.Fatalf("key %d: got %d bytes, want %d", k, len(value), v.size(k))
		}
		for cut := range len(value) + 1 {
			if !v.holds(k, 0, value[:cut]) || !v.holds(k, cut, value[cut:]) {
				t.Fatalf("key %d: its own value, cut at %d, does not hold", k, cut)
			}
		}
		last := len(value) - 1
		value[last] ^= 1
		if v.holds(k, 0, value) || v.holds(k, last, value[last:]) {
			t.Fatalf("key %d: an altered value holds", k)
		}
		if v.holds(k, last+1, []byte{0}) {
			t.Fatalf("key %d: a byte after the value holds", k)
		}
	}
}

func ExampleSizes() {
	var sizes Sizes
	if err := sizes.UnmarshalText([]byte("log-uniform:20-100000")); err != nil {
		fmt.Println(err)
	}
	fmt.Println(sizes)
	fmt.Println(sizes.UnmarshalText([]byte("huge")))
	// Output:
	// log-uniform:20-100000
	// bench: value size "huge": want bytes, uniform:a-b, log-uniform:a-b or lognormal:mean,sigma
}

func ExampleRatio() {
	var ratio Ratio
	fmt.Println(ratio.UnmarshalText([]byte("1:10")), ratio)
	fmt.Println(ratio.UnmarshalText([]byte("0:0")))
	// Output:
	// <nil> 1:10
	// bench: ratio "0:0": want sets:gets, such as 1:10
}
