package bench

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// quantileCount is how finely a distribution of sizes is drawn. The table is
// 64 KiB: it stays in the second-level cache.
const quantileCount = 1 << 14

// Sizes is a distribution of value sizes. A key's size is the quantile that
// the hash of the key picks, so it is the same at each set, in each run.
type Sizes struct {
	spec      string
	quantiles []uint32 // sizes in rising order, each as likely; one when fixed
}

// UnmarshalText reads a number of bytes, log-uniform:20-100000,
// uniform:20-100000, or lognormal:mean,sigma, where mean is the mean size in
// bytes and sigma the standard deviation of its logarithm.
func (s *Sizes) UnmarshalText(text []byte) error {
	spec := string(text)
	kind, args, _ := strings.Cut(spec, ":")
	var quantile func(p float64) float64 // the size that a share p stays below
	switch kind {
	case "uniform":
		low, high, err := sizeRange(spec, args)
		if err != nil {
			return err
		}
		quantile = func(p float64) float64 { return low + p*(high-low) }
	case "log-uniform":
		low, high, err := sizeRange(spec, args)
		if err != nil {
			return err
		}
		low = max(low, 1)
		quantile = func(p float64) float64 { return low * math.Pow(high/low, p) }
	case "lognormal":
		mean, sigma, err := twoNumbers(spec, args, ",")
		if err != nil {
			return err
		}
		if mean < 1 || sigma <= 0 || sigma > 5 {
			return fmt.Errorf("bench: value size %q: want a mean of 1 or more, and a sigma above 0, at most 5", spec)
		}
		mu := math.Log(mean) - sigma*sigma/2
		quantile = func(p float64) float64 {
			return math.Exp(mu + sigma*math.Sqrt2*math.Erfinv(2*p-1))
		}
	default:
		n, err := strconv.ParseUint(spec, 10, 32)
		if err != nil || n > valueBytesMax {
			return fmt.Errorf("bench: value size %q: want bytes, uniform:a-b, log-uniform:a-b or lognormal:mean,sigma", spec)
		}
		*s = fixedSizes(int(n))
		return nil
	}
	s.spec = spec
	s.quantiles = make([]uint32, quantileCount)
	for i := range s.quantiles {
		size := math.Round(quantile((float64(i) + 0.5) / quantileCount))
		s.quantiles[i] = uint32(min(size, valueBytesMax))
	}
	return nil
}

// String is the text that the distribution was read from.
func (s Sizes) String() string { return s.spec }

func fixedSizes(n int) Sizes {
	return Sizes{spec: strconv.Itoa(n), quantiles: []uint32{uint32(n)}}
}

func sizeRange(spec, args string) (low, high float64, err error) {
	low, high, err = twoNumbers(spec, args, "-")
	if err == nil && (low < 0 || high < low || high > valueBytesMax) {
		err = fmt.Errorf("bench: value size %q: want a range a-b, at most %d", spec, valueBytesMax)
	}
	return low, high, err
}

func twoNumbers(spec, args, separator string) (a, b float64, err error) {
	first, second, _ := strings.Cut(args, separator)
	a, errA := strconv.ParseFloat(first, 64)
	b, errB := strconv.ParseFloat(second, 64)
	if errA != nil || errB != nil || math.IsInf(a+b, 0) || math.IsNaN(a+b) {
		return 0, 0, fmt.Errorf("bench: value size %q: want two numbers around %q", spec, separator)
	}
	return a, b, nil
}

// of is the size in bytes of the value of a key with this hash.
func (s *Sizes) of(hash uint64) int {
	if len(s.quantiles) == 1 {
		return int(s.quantiles[0])
	}
	i, _ := bits.Mul64(hash, uint64(len(s.quantiles)))
	return int(s.quantiles[i])
}

// max is the largest size that of returns.
func (s *Sizes) max() int { return int(s.quantiles[len(s.quantiles)-1]) }
