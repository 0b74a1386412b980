package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// startServer starts a server on a free port of the loopback, or on the unix
// socket that cfg names, and returns it with its address. It ends with the
// test, after its store was found to be consistent.
func startServer(t testing.TB, cfg Config) (*Server, string) {
	t.Helper()
	leakless(t)
	if cfg.Port == 0 {
		cfg.Port = -1
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.aheadItemsMin = 0 // as if there were many items
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.store.Check(); err != nil {
			t.Errorf("store: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s, s.Addrs()[0].String()
}

// testClock is a Clock that stands still until it is moved.
type testClock struct{ now atomic.Int64 }

func newTestClock() *testClock {
	c := new(testClock)
	c.now.Store(time.Now().UnixMilli())
	return c
}

func (c *testClock) Now() store.Time { return store.Time(c.now.Load()) }

func (c *testClock) Advance(d time.Duration) { c.now.Add(d.Milliseconds()) }

// testConfig is the Config of a few flags that transcripts give.
func testConfig(t testing.TB, flags []string) Config {
	t.Helper()
	var c Config
	for i := 0; i < len(flags); i++ {
		flag := flags[i]
		value := ""
		if i+1 < len(flags) && !strings.HasPrefix(flags[i+1], "-") {
			i++
			value = flags[i]
		}
		switch flag + " " + value {
		case "-A ":
			c.EnableShutdown = true
		case "-C ":
			c.NoCAS = true
		case "-F ":
			c.FlushDisabled = true
		case "-M ":
			c.NoEvict = true
		case "-m 8":
			c.MemoryMB = 8
		case "-W ":
			c.NoWatch = true
		case "-X ":
			c.NoDump = true
		case "-D /":
			c.PrefixDelim, c.DetailOn = '/', true
		case "-B binary", "-B ascii":
			c.Protocol = value
		case "-t 2":
			c.Threads = 2
		case "-I 2k":
			c.ItemMaxBytes = 2 << 10
		case "-I 4m":
			c.ItemMaxBytes = 4 << 20
		case "-o slab_chunk_max=1":
			c.Extended.SlabChunkMaxBytes = 1 << 10
		case flagTenantDelimiter + " :":
			c.TenantDelimiter = ':'
		case flagTenantTracked + " 1":
			c.TenantsTracked = 1
		case "-o no_lru_crawler,no_lru_maintainer":
			c.Extended.NoLRUCrawler, c.Extended.NoLRUMaintainer = true, true
		case "-o no_slab_reassign":
			c.Extended.NoSlabReassign = true
		case "-o no_slab_automove":
			c.Extended.NoSlabAutomove = true
		case "-o no_lru_crawler":
			c.Extended.NoLRUCrawler = true
		case "-o lru_crawler_sleep=50,lru_crawler_tocrawl=7":
			c.Extended.LRUCrawlerSleepMicros, c.Extended.LRUCrawlerItemsMax = 50, 7
		case "-o no_lru_maintainer":
			c.Extended.NoLRUMaintainer, c.Extended.LRUFlat = true, true
		case "-o track_sizes":
			c.Extended.TrackSizes = true
		case "-o temporary_ttl=60":
			c.Extended.TempLRU, c.Extended.TemporaryTTLSeconds = true, 60
		default:
			switch {
			case flag == flagTenantQuota || flag == flagTenantDefault:
				tenantFlag(t, &c, flag, value)
				continue
			case freshFlag(t, &c.Fresh, flag, value):
				continue
			}
			t.Fatalf("this test does not know the flag %s %s", flag, value)
		}
	}
	return c
}

// tenantFlag reads a quota into c.
func tenantFlag(t testing.TB, c *Config, flag, value string) {
	t.Helper()
	var err error
	if flag == flagTenantDefault {
		c.TenantDefault, err = ParseTenantDefault(value)
	} else {
		var q TenantQuota
		q, err = ParseTenantQuota(value)
		c.TenantQuotas = append(c.TenantQuotas, q)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// freshFlag reads a flag of freshness into c, and reports whether it is one.
func freshFlag(t testing.TB, c *FreshConfig, flag, value string) bool {
	t.Helper()
	n := 0
	switch flag {
	case "--version-range":
		prefix, text, _ := strings.Cut(value, "=")
		most, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		c.VersionRanges = append(c.VersionRanges, VersionRange{Prefix: prefix, Max: most})
		return true
	case "--grant-only":
		c.GrantOnly = append(c.GrantOnly, value)
		return true
	case "--grant-max-ms", "--fill-rate-foreground", "--fill-rate-background", "--fill-inflight":
		var err error
		if n, err = strconv.Atoi(value); err != nil {
			t.Fatal(err)
		}
	}
	switch flag {
	case "--grant-max-ms":
		c.GrantMaxMillis = int64(n)
	case "--fill-rate-foreground":
		c.RateForeground = n
	case "--fill-rate-background":
		c.RateBackground = n
	case "--fill-inflight":
		c.InflightMax = n
	default:
		return false
	}
	return true
}

// startQuarryTarget starts a server to hold to transcripts. Its clock stands.
func startQuarryTarget(t testing.TB, flags []string) *target {
	t.Helper()
	return startTarget(t, testConfig(t, flags), func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) })
}

// startSecureTarget is startQuarryTarget with TLS.
func startSecureTarget(t testing.TB, flags []string) *target {
	t.Helper()
	cfg := testConfig(t, flags)
	ca := newTestCA(t, "ca")
	cfg.TLS = ca.server(t)
	client := ca.client(t)
	return startTarget(t, cfg, func(addr string) (net.Conn, error) { return tls.Dial("tcp", addr, client) })
}

// startAlongTarget is startQuarryTarget with reads that take no lock.
func startAlongTarget(t testing.TB, flags []string) *target {
	t.Helper()
	cfg := testConfig(t, flags)
	cfg.Extended.OptimisticReads = true
	return startTarget(t, cfg, func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) })
}

// startFreshTarget is startQuarryTarget where keys that no case uses have
// versions, absences, floors and tokens.
func startFreshTarget(t testing.TB, flags []string) *target {
	t.Helper()
	cfg := testConfig(t, flags)
	clock := newTestClock()
	cfg.Clock = clock.Now
	s, addr := startServer(t, cfg)
	tg := clockTarget(clock, func() (net.Conn, error) { return net.Dial("tcp", addr) })
	tg.flushed = func() {
		now := clock.Now()
		for i := range 64 {
			k := store.KeyOf(fmt.Appendf(nil, "beside:%d", i))
			a := store.Ask{Class: store.GrantForeground}
			s.store.Get(k, &store.GetOptions{Ask: &a}, now, nil)
			f := store.Fill{HasToken: true, Token: a.Token, Version: 1 << 20, Deadlines: store.Deadlines{Hard: now + 3_600_000}}
			switch i % 4 {
			case 0:
				continue // a token
			case 1:
				f.Kind = store.FillAbsent
			case 2:
				s.store.Notice(k, 1<<20+1, false, now) // a floor
			}
			s.store.Set(k, nil, &store.SetOptions{Fill: &f}, now)
		}
	}
	return tg
}

// startTarget starts a server as cfg says, with a clock that stands; dial
// connects to it.
func startTarget(t testing.TB, cfg Config, dial func(addr string) (net.Conn, error)) *target {
	t.Helper()
	clock := newTestClock()
	cfg.Clock = clock.Now
	_, addr := startServer(t, cfg)
	return clockTarget(clock, func() (net.Conn, error) { return dial(addr) })
}

// clockTarget is the target that dial reaches, whose clock is clock.
func clockTarget(clock *testClock, dial func() (net.Conn, error)) *target {
	return &target{
		name:    "quarry",
		dial:    dial,
		advance: func(d time.Duration) error { clock.Advance(d); return nil },
		now:     func() (int64, error) { return int64(clock.Now().Seconds()), nil },
		millis:  func() int64 { return int64(clock.Now()) },
		timeout: transcriptTimeout,
	}
}
