package bench

import "math"

// Sizes for the keys of traces that tell none: lognormal with the mean given
// and a sigma of 1, from the key alone, so that a key has the same size in
// each run and in each program that follows the rule.
const (
	traceSizeMin = 1
	traceSizeMax = 500_000
)

// traceSize is the size in bytes of a key's object. Two hashes of the key
// give a normal number by Box and Muller.
func traceSize(key uint64, meanBytes int) uint32 {
	u1 := float64(fmix64(key)>>11+1) / (1 << 53)                  // above 0, at most 1
	u2 := float64(fmix64(key^0x9e3779b97f4a7c15)>>11) / (1 << 53) // 0 to below 1
	z := math.Sqrt(-2*math.Log(u1)) * math.Cos(2*math.Pi*u2)
	size := math.Exp(math.Log(float64(meanBytes)) - 0.5 + z)
	return uint32(min(max(size, traceSizeMin), traceSizeMax))
}

// fmix64 is the finalizer of MurmurHash3's 128-bit form.
func fmix64(k uint64) uint64 {
	k ^= k >> 33
	k *= 0xff51afd7ed558ccd
	k ^= k >> 33
	k *= 0xc4ceb9fe1a85ec53
	return k ^ k>>33
}
