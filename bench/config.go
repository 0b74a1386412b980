package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Protocol is the words a run speaks.
type Protocol string

// The protocols.
const (
	Text   Protocol = "text"   // get and set
	Meta   Protocol = "meta"   // mg and ms
	Binary Protocol = "binary" // packets
	Redis  Protocol = "redis"  // GET, MGET and SET, for a peer that speaks nothing else
)

// Distribution says how often each key is asked for.
type Distribution string

// The distributions.
const (
	Uniform Distribution = "uniform" // each key alike
	Zipf    Distribution = "zipf"    // key i in proportion to 1/(i+1)^s
	Hot     Distribution = "hot"     // a few keys take HotShare of all requests
)

// Bounds of a run.
const (
	keyBytesMax   = 250     // memcached's KEY_MAX_LENGTH
	pipelineMax   = 1 << 14 // requests in flight on one connection
	multigetMax   = 1 << 12 // keys of one request
	connsMax      = 1 << 16
	threadsMax    = 256
	valueBytesMax = 1 << 30 // memcached's largest -I
)

// Config says what a run does. The zero value of a field is its default.
type Config struct {
	Server  string // host:port, or unix:PATH (127.0.0.1:11211)
	Threads int    // workers, each an OS thread (1)
	Conns   int    // connections of all threads together (50)
	TLS     bool   // with TLS; the server's certificate is not checked

	Protocol Protocol // Text
	Pipeline int      // requests in flight on a connection (1)
	Multiget int      // keys in one get (1)
	Ratio    Ratio    // sets to gets, in requests (1:10)

	Keys         uint64       // number of keys (100,000)
	KeyBytes     int          // length of each key (16)
	Distribution Distribution // Uniform
	ZipfS        float64      // exponent of Zipf (0.99, as YCSB)
	HotKeys      uint64       // keys that are hot (1)
	HotShare     float64      // share of requests that go to them (0.9)
	Sizes        Sizes        // bytes of a value (100)

	Preload   bool // store every key before the load
	Lookaside bool // after a miss, store the key
	Verify    bool // compare the data of each hit with what the key must hold

	Warmup   time.Duration // load before the measured time (none)
	Duration time.Duration // measured time (10 s)
	Requests uint64        // measured requests, in place of Duration
	Rate     float64       // requests a second, of all threads (0: a closed loop)
	Stall    time.Duration // no reply at all for so long ends the run (10 s)
	Seed     uint64        // of the random numbers; the same seed, the same load

	ServerPID int       // whose CPU and memory to report (0: nobody's)
	Progress  io.Writer // gets a line a second (nil: none)
}

// WithDefaults is c with each zero field that has a default set to it.
func (c Config) WithDefaults() Config {
	setDefault(&c.Server, "127.0.0.1:11211")
	setDefault(&c.Threads, 1)
	setDefault(&c.Conns, 50)
	setDefault(&c.Protocol, Text)
	setDefault(&c.Pipeline, 1)
	setDefault(&c.Multiget, 1)
	setDefault(&c.Ratio, Ratio{Sets: 1, Gets: 10})
	setDefault(&c.Keys, 100_000)
	setDefault(&c.KeyBytes, 16)
	setDefault(&c.Distribution, Uniform)
	setDefault(&c.ZipfS, 0.99)
	setDefault(&c.HotKeys, 1)
	setDefault(&c.HotShare, 0.9)
	if c.Sizes.quantiles == nil {
		c.Sizes = fixedSizes(100)
	}
	if c.Requests == 0 {
		setDefault(&c.Duration, 10*time.Second)
	}
	setDefault(&c.Stall, 10*time.Second)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate names the first field that cannot be, and its value.
func (c Config) Validate() error {
	c = c.WithDefaults()
	switch {
	case c.Threads < 1 || c.Threads > threadsMax:
		return fmt.Errorf("bench: threads %d: want 1 to %d", c.Threads, threadsMax)
	case c.Conns < c.Threads || c.Conns > connsMax:
		return fmt.Errorf("bench: conns %d: want %d (one a thread) to %d", c.Conns, c.Threads, connsMax)
	case c.Protocol != Text && c.Protocol != Meta && c.Protocol != Binary && c.Protocol != Redis:
		return fmt.Errorf("bench: protocol %q: want %s, %s, %s or %s", c.Protocol, Text, Meta, Binary, Redis)
	case c.Pipeline < 1 || c.Pipeline > pipelineMax:
		return fmt.Errorf("bench: pipeline %d: want 1 to %d", c.Pipeline, pipelineMax)
	case c.Multiget < 1 || c.Multiget > multigetMax:
		return fmt.Errorf("bench: multiget %d: want 1 to %d", c.Multiget, multigetMax)
	case c.Ratio.Sets < 0 || c.Ratio.Gets < 0:
		return fmt.Errorf("bench: ratio %v: want none below 0", c.Ratio)
	case c.KeyBytes < 1 || c.KeyBytes > keyBytesMax:
		return fmt.Errorf("bench: key size %d: want 1 to %d", c.KeyBytes, keyBytesMax)
	case c.KeyBytes < len(strconv.FormatUint(c.Keys-1, 10)):
		return fmt.Errorf("bench: key size %d: too short to tell %d keys apart", c.KeyBytes, c.Keys)
	case c.Distribution != Uniform && c.Distribution != Zipf && c.Distribution != Hot:
		return fmt.Errorf("bench: distribution %q: want %s, %s or %s", c.Distribution, Uniform, Zipf, Hot)
	case c.ZipfS <= 0 || c.ZipfS > 10:
		return fmt.Errorf("bench: zipf exponent %g: want above 0, at most 10", c.ZipfS)
	case c.HotKeys > c.Keys:
		return fmt.Errorf("bench: hot keys %d: there are %d keys", c.HotKeys, c.Keys)
	case c.HotShare < 0 || c.HotShare > 1:
		return fmt.Errorf("bench: hot share %g: want 0 to 1", c.HotShare)
	case c.Rate < 0 || c.Rate > 1e9:
		return fmt.Errorf("bench: rate %g: want 0 to 1e9", c.Rate)
	case c.Warmup < 0 || c.Duration < 0 || c.Stall < 0:
		return fmt.Errorf("bench: warm-up %v, duration %v, stall %v: want none below 0", c.Warmup, c.Duration, c.Stall)
	case c.Duration > 0 && c.Requests > 0:
		return fmt.Errorf("bench: duration %v and requests %d: want one of the two", c.Duration, c.Requests)
	}
	return nil
}

// Ratio is sets to gets, counted in requests.
type Ratio struct {
	Sets, Gets int
}

// UnmarshalText reads sets:gets, such as 1:10 or 0:1.
func (r *Ratio) UnmarshalText(text []byte) error {
	sets, gets, ok := strings.Cut(string(text), ":")
	s, errSets := strconv.ParseUint(sets, 10, 20)
	g, errGets := strconv.ParseUint(gets, 10, 20)
	if !ok || errSets != nil || errGets != nil || s+g == 0 {
		return fmt.Errorf("bench: ratio %q: want sets:gets, such as 1:10", text)
	}
	r.Sets, r.Gets = int(s), int(g)
	return nil
}

// String is the form that UnmarshalText reads.
func (r Ratio) String() string { return fmt.Sprintf("%d:%d", r.Sets, r.Gets) }
