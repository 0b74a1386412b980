package bench

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
)

// digitPairs is 00 01 02 ... 99: two digits a step instead of one.
var digitPairs = func() (pairs [200]byte) {
	for i := range 100 {
		pairs[2*i], pairs[2*i+1] = '0'+byte(i/10), '0'+byte(i%10)
	}
	return pairs
}()

// keys gives each key its text: a fixed head, then the key's number with
// leading zeros. All texts have the same length.
//
//	key-000000001234
//	└──head──┘└digits┘
type keys struct {
	head   string // what all keys begin with
	digits int    // as many as the largest number needs
}

// newKeys is n keys of size bytes each.
func newKeys(n uint64, size int) *keys { return newKeysOf("key-", n, size) }

// newKeysOf is newKeys of keys that begin with a word.
func newKeysOf(word string, n uint64, size int) *keys {
	digits := len(strconv.FormatUint(n-1, 10))
	head := word + strings.Repeat("0", size)
	return &keys{head: head[:size-digits], digits: digits}
}

// prefix is what all keys begin with.
func (ks *keys) prefix() string { return ks.head }

// size is the length of each key in bytes.
func (ks *keys) size() int { return len(ks.head) + ks.digits }

// append appends the text of key k.
func (ks *keys) append(dst []byte, k uint64) []byte {
	dst = append(dst, ks.head...)
	end := len(dst) + ks.digits
	for len(dst)+8 <= end {
		dst = append(dst, "00000000"...)
	}
	for len(dst) < end {
		dst = append(dst, '0')
	}
	i := end
	for k >= 10 {
		pair := 2 * (k % 100)
		k /= 100
		i -= 2
		dst[i+1], dst[i] = digitPairs[pair+1], digitPairs[pair]
	}
	if k > 0 {
		dst[i-1] = '0' + byte(k)
	}
	return dst
}

// number is the key whose text is text.
func (ks *keys) number(text []byte) (k uint64, ok bool) {
	if len(text) != ks.size() || string(text[:len(ks.head)]) != ks.head {
		return 0, false
	}
	for _, c := range text[len(ks.head):] {
		if c -= '0'; c > 9 {
			return 0, false
		}
		k = k*10 + uint64(c)
	}
	return k, true
}

// popularity draws keys, each as often as its distribution says. It is not
// safe for two goroutines, as the random numbers are not.
type popularity interface {
	draw(random *rand.PCG) uint64
}

// newPopularity is the distribution that c asks for.
func newPopularity(c Config) popularity {
	switch c.Distribution {
	case Zipf:
		return newZipf(c.Keys, c.ZipfS)
	case Hot:
		return hot{keys: c.Keys, hotKeys: c.HotKeys, share: c.HotShare}
	}
	return uniform(c.Keys)
}

// uniform draws each of its keys alike.
type uniform uint64

func (u uniform) draw(random *rand.PCG) uint64 { return below(random, uint64(u)) }

// hot draws one of hotKeys with probability share, else one of all keys.
type hot struct {
	keys, hotKeys uint64
	share         float64
}

func (h hot) draw(random *rand.PCG) uint64 {
	if unit(random) < h.share {
		return below(random, h.hotKeys)
	}
	return below(random, h.keys)
}

// zipf draws key i in proportion to 1/(i+1)^s, for any s above 0, in constant
// time and without a table: rejection-inversion after W. Hörmann and
// G. Derflinger, "Rejection-inversion to generate variates from monotone
// discrete distributions", 1996. (An alias table is as quick only while it
// fits in the cache; math/rand/v2's Zipf needs s above 1.)
type zipf struct {
	n    float64
	s    float64
	low  float64 // area(1.5) - 1: where the area of rank 1 begins
	high float64 // area(n + 0.5)
	sure float64 // a draw this close below its rank is always taken
}

func newZipf(n uint64, s float64) *zipf {
	z := &zipf{n: float64(n), s: s}
	z.low = z.area(1.5) - 1
	z.high = z.area(z.n + 0.5)
	z.sure = 2 - z.areaInverse(z.area(2.5)-z.weight(2))
	return z
}

func (z *zipf) draw(random *rand.PCG) uint64 {
	for {
		u := z.high + unit(random)*(z.low-z.high)
		x := z.areaInverse(u)
		rank := min(max(math.Floor(x+0.5), 1), z.n)
		if rank-x <= z.sure || u >= z.area(rank+0.5)-z.weight(rank) {
			return uint64(rank) - 1
		}
	}
}

// weight is the weight of a rank.
func (z *zipf) weight(x float64) float64 { return math.Exp(-z.s * math.Log(x)) }

// area is the integral of weight, with area(1) = 0.
func (z *zipf) area(x float64) float64 {
	log := math.Log(x)
	return expm1Over((1-z.s)*log) * log
}

// areaInverse is the x whose area is a.
func (z *zipf) areaInverse(a float64) float64 {
	t := max(a*(1-z.s), -1) // below -1 only by rounding
	return math.Exp(log1pOver(t) * a)
}

// expm1Over is (e^x - 1)/x, also near 0, which is where s is near 1.
func expm1Over(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Expm1(x) / x
	}
	return 1 + x/2*(1+x/3)
}

// log1pOver is ln(1+x)/x, also near 0.
func log1pOver(x float64) float64 {
	if math.Abs(x) > 1e-8 {
		return math.Log1p(x) / x
	}
	return 1 - x*(1.0/2-x/3)
}

// below is a random number below n. Its bias, n/2^64, is nothing here.
func below(random *rand.PCG, n uint64) uint64 {
	high, _ := bits.Mul64(random.Uint64(), n)
	return high
}

// unit is a random number from 0 to below 1.
func unit(random *rand.PCG) float64 { return float64(random.Uint64()>>11) / (1 << 53) }
