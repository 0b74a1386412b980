package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server"
)

// source is a source of values that counts how often it is read.
type source struct {
	reads   atomic.Int64
	version atomic.Uint64
	takes   time.Duration
	fail    atomic.Bool
}

var errSource = errors.New("the source is down")

func (s *source) load(ctx context.Context, q LoadRequest) (Loaded, error) {
	s.reads.Add(1)
	v := s.version.Load()
	if s.takes > 0 {
		time.Sleep(s.takes)
	}
	if s.fail.Load() {
		return Loaded{}, errSource
	}
	if v == 0 {
		return Loaded{}, ErrNotFound
	}
	return Loaded{Value: []byte("v" + strconv.FormatUint(v, 10)), Version: v}, nil
}

func newSource(version uint64) *source {
	s := new(source)
	s.version.Store(version)
	return s
}

// clock is a clock that stands still until it is moved.
type clock struct{ offset atomic.Int64 }

func (k *clock) now() time.Time          { return time.Now().Add(time.Duration(k.offset.Load())) }
func (k *clock) forward(d time.Duration) { k.offset.Add(int64(d)) }

// startMemcached starts memcached, and skips the test where there is none.
func startMemcached(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip("memcached is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(path, "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	waitFor(t, "memcached", func() bool {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			_ = nc.Close()
		}
		return err == nil
	})
	return addr
}

// servers are the kinds of servers that Fetch works with.
func servers(t *testing.T, f func(t *testing.T, addr string)) {
	t.Run("quarryd", func(t *testing.T) { f(t, startServer(t, patient())) })
	t.Run("memcached", func(t *testing.T) { f(t, startMemcached(t)) })
}

// patient is a server whose grants last, as machines that run tests may be busy.
func patient() (cfg server.Config) {
	cfg.Fresh.GrantMaxMillis = 20_000
	return cfg
}

func want(t *testing.T, r Result, o Outcome, value string, from Origin) {
	t.Helper()
	if r.Outcome != o || string(r.Value) != value || r.From != from {
		t.Errorf("got %v %q from %v (%v), want %v %q from %v", r.Outcome, r.Value, r.From, r.Cause, o, value, from)
	}
}

func TestFetch(t *testing.T) {
	servers(t, func(t *testing.T, addr string) {
		k := new(clock)
		c := newClient(t, Options{Servers: []string{addr}, Now: k.now})
		s := newSource(7)
		before := uint64(time.Now().UnixMilli())
		r := c.Fetch(bg, "k", s.load)
		want(t, r, Hit, "v7", FromSource)
		if r.Version != 7 || r.Read < before || r.Hard > r.Read+uint64(defaultLife.Milliseconds()) || r.Soft >= r.Hard || r.Soft == 0 {
			t.Errorf("got version %d, %+v", r.Version, r.Deadlines)
		}
		near := c.Fetch(bg, "k", s.load)
		want(t, near, Hit, "v7", FromNear)
		k.forward(defaultNearLife)
		again := c.Fetch(bg, "k", s.load)
		want(t, again, Hit, "v7", FromOwner)
		// The deadline is the same, wherever the value is (S1-09, S1-50).
		if near.Deadlines != r.Deadlines || again.Deadlines != r.Deadlines {
			t.Errorf("deadlines: source %+v, near %+v, owner %+v", r.Deadlines, near.Deadlines, again.Deadlines)
		}
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}

// TestJitter: what is loaded together does not end together; lives are shorter by
// up to a tenth, never longer (S3-35).
func TestJitter(t *testing.T) {
	c := newClient(t, Options{Servers: []string{startServer(t, patient())}})
	s := newSource(1)
	hard, soft := map[uint64]bool{}, map[uint64]bool{}
	for i := range 50 {
		r := c.Fetch(bg, fmt.Sprint("k", i), s.load)
		want(t, r, Hit, "v1", FromSource)
		life := time.Duration(r.Hard-r.Read) * time.Millisecond
		if life > defaultLife || life < defaultLife*9/10-time.Millisecond {
			t.Errorf("a life of %v, want nine to ten tenths of %v", life, defaultLife)
		}
		hard[r.Hard-r.Read], soft[r.Soft-r.Read] = true, true
	}
	if len(hard) < 40 || len(soft) < 40 {
		t.Errorf("50 values have %d hard deadlines and %d soft ones", len(hard), len(soft))
	}
}

// TestFetchAbsent keeps that the source has no such row, for 2 s, and never that
// it could not be read (S1-23).
func TestFetchAbsent(t *testing.T) {
	servers(t, func(t *testing.T, addr string) {
		c := newClient(t, Options{Servers: []string{addr}, Near: NearOptions{Bytes: -1}})
		s := newSource(0)
		r := c.Fetch(bg, "k", s.load)
		want(t, r, Negative, "", FromSource)
		if life := r.Hard - r.Read; life != uint64(defaultNegativeLife.Milliseconds()) {
			t.Errorf("it is kept for %d ms", life)
		}
		want(t, c.Fetch(bg, "k", s.load), Negative, "", FromOwner)
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
		s.fail.Store(true)
		for range 3 {
			r = c.Fetch(bg, "other", s.load)
			if r.Outcome != Unavailable || !errors.Is(r.Cause, errSource) && !errors.Is(r.Cause, ErrWait) {
				t.Errorf("got %v, %v; want the source's error", r.Outcome, r.Cause)
			}
		}
	})
}

// TestStampede has 200 clients ask for one key that is not there: one of them
// loads it (S3-30, S3-31, S3-33).
func TestStampede(t *testing.T) {
	servers(t, func(t *testing.T, addr string) {
		s := newSource(1)
		s.takes = 50 * time.Millisecond
		clients := 200
		if testing.Short() {
			clients = 40
		}
		stampede(t, addr, clients, s, func(r Result) {
			if r.Outcome != Hit || string(r.Value) != "v1" {
				t.Errorf("got %v %q, %v", r.Outcome, r.Value, r.Cause)
			}
		})
		if n := s.reads.Load(); n != 1 {
			t.Errorf("%d loads, want 1", n)
		}
	})
}

func stampede(t *testing.T, addr string, clients int, s *source, check func(Result)) {
	t.Helper()
	list := make([]*Client, clients)
	for i := range list {
		list[i] = newClient(t, Options{Servers: []string{addr}, Connections: 1, Timeout: 10 * time.Second, Fetch: FetchOptions{Grant: 10 * time.Second, Wait: 10 * time.Second}})
		list[i].Get(bg, "connect")
	}
	var wg sync.WaitGroup
	for _, c := range list {
		wg.Go(func() { check(c.Fetch(bg, "k", s.load)) })
	}
	wg.Wait()
}

// TestStampedeFailing: when the loads fail they are few, and all are told why.
func TestStampedeFailing(t *testing.T) {
	s := newSource(1)
	s.fail.Store(true)
	s.takes = 5 * time.Millisecond
	begin := time.Now()
	stampede(t, startServer(t, server.Config{}), 100, s, func(r Result) {
		var l *LoadError
		if r.Outcome != Unavailable || !errors.As(r.Cause, &l) && !errors.Is(r.Cause, ErrWait) {
			t.Errorf("got %v, %v", r.Outcome, r.Cause)
		}
	})
	// After the second one, at 100 ms, 200, 400, … and then each second.
	most := int64(6 + time.Since(begin)/time.Second)
	if n := s.reads.Load(); n > most {
		t.Errorf("%d loads, want at most %d", n, most)
	}
}

// TestMerge has many goroutines of one client ask: one lookup, one load.
func TestMerge(t *testing.T) {
	f := startFake(t)
	f.put("k", "v")
	f.delay.Store(int64(50 * time.Millisecond))
	c := newClient(t, Options{Servers: []string{f.addr}, Timeout: time.Second})
	if _, err := c.knowsVersions(bg, "k"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { want(t, c.Fetch(bg, "k", nil), Hit, "v", FromOwner) })
	}
	wg.Wait()
	if n := f.gets.Load(); n > 2 {
		t.Errorf("%d lookups, want one or two", n)
	}
}

// TestLeaderLeaves: when the context of the caller that looks ends, others do
// not end with it.
func TestLeaderLeaves(t *testing.T) {
	f := startFake(t)
	f.put("k", "v")
	c := newClient(t, Options{Servers: []string{f.addr}, Timeout: 2 * time.Second})
	if _, err := c.knowsVersions(bg, "k"); err != nil {
		t.Fatal(err)
	}
	f.delay.Store(int64(100 * time.Millisecond))
	ctx, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	wg.Go(func() {
		if r := c.Fetch(ctx, "k", nil); !errors.Is(r.Cause, context.Canceled) {
			t.Errorf("got %v, %v", r.Outcome, r.Cause)
		}
	})
	waitFor(t, "the lookup", func() bool { return c.flights.under.Load() == 1 })
	for range 5 {
		wg.Go(func() {
			if r := c.Fetch(bg, "k", nil); r.Outcome != Hit {
				t.Errorf("got %v, %v", r.Outcome, r.Cause)
			}
		})
	}
	cancel()
	wg.Wait()
}

// TestLoadsDirectly: with the owner dead there are no more loads than
// DirectLoads allow, and they fill nothing (S1-61).
func TestLoadsDirectly(t *testing.T) {
	f := startFake(t)
	f.stop()
	const rate = 50
	c := newClient(t, Options{Servers: []string{f.addr}, Fetch: FetchOptions{DirectLoads: rate}, Near: NearOptions{Bytes: -1}})
	s := newSource(1)
	var found, none int
	begin := time.Now()
	for i := 0; time.Since(begin) < 500*time.Millisecond || none == 0 && time.Since(begin) < time.Minute; i++ {
		switch r := c.Fetch(bg, fmt.Sprint("k", i), s.load); r.Outcome {
		case Hit:
			found++
			if r.From != FromSource || r.Cause == nil {
				t.Fatalf("got %+v", r)
			}
		case Unavailable:
			none++
		default:
			t.Fatalf("got %+v", r)
		}
		time.Sleep(100 * time.Microsecond)
	}
	most := int(time.Since(begin).Seconds()*rate) + 1
	if found == 0 || found > most || none == 0 || s.reads.Load() != int64(found) {
		t.Errorf("%d found, %d not, %d loads; want 1 to %d loads", found, none, s.reads.Load(), most)
	}
}

// TestNoLoadsDirectly: none are none, from the first one on (S1-61).
func TestNoLoadsDirectly(t *testing.T) {
	f := startFake(t)
	f.stop()
	c := newClient(t, Options{Servers: []string{f.addr}, Fetch: FetchOptions{DirectLoads: -1}, Near: NearOptions{Bytes: -1}})
	s := newSource(1)
	for i := range 3 {
		if r := c.Fetch(bg, fmt.Sprint("k", i), s.load); r.Outcome != Unavailable || s.reads.Load() != 0 {
			t.Errorf("got %v, and %d loads, want none", r.Outcome, s.reads.Load())
		}
	}
}

// TestRefusedFill has a notice arrive while the value is being loaded: what was
// loaded is not stored, and one more look finds what is (S1-25, S1-37).
func TestRefusedFill(t *testing.T) {
	addr := startServer(t, server.Config{})
	c := newClient(t, Options{Servers: []string{addr}})
	other := newClient(t, Options{Servers: []string{addr}})
	s := newSource(41)
	loads := 0
	r := c.Fetch(bg, "k", func(ctx context.Context, q LoadRequest) (Loaded, error) {
		got, err := s.load(ctx, q)
		if loads++; loads == 1 {
			s.version.Store(42)
			if err := other.Take(ctx, "k", 42); err != nil {
				t.Errorf("notice: %v", err)
			}
		}
		return got, err
	})
	want(t, r, Hit, "v42", FromSource)
	if loads != 2 {
		t.Errorf("%d loads, want 2", loads)
	}
	// Twice refused: the value will do, as stale, and is not stored.
	v := uint64(100)
	r = c.Fetch(bg, "j", func(ctx context.Context, q LoadRequest) (Loaded, error) {
		v++
		return Loaded{Value: []byte("old"), Version: v - 1}, other.Take(ctx, "j", v)
	})
	want(t, r, Stale, "old", FromSource)
	var refused *RefusedError
	if !errors.As(r.Cause, &refused) {
		t.Errorf("got %v, want the refusal", r.Cause)
	}
	if r := other.Get(bg, "j"); r.Outcome != Miss {
		t.Errorf("got %v %q, want nothing stored", r.Outcome, r.Value)
	}
}

// TestMinVersion skips what is older at every level.
func TestMinVersion(t *testing.T) {
	addr := startServer(t, server.Config{})
	c := newClient(t, Options{Servers: []string{addr}})
	s := newSource(5)
	want(t, c.Fetch(bg, "k", s.load), Hit, "v5", FromSource)
	want(t, c.Fetch(bg, "k", s.load, MinVersion(5)), Hit, "v5", FromNear)
	s.version.Store(6)
	want(t, c.Fetch(bg, "k", s.load, MinVersion(6)), Hit, "v6", FromSource)
	want(t, c.Fetch(bg, "k", s.load), Hit, "v6", FromNear)
	// The source itself is behind.
	if r := c.Fetch(bg, "k", s.load, MinVersion(9)); r.Found() && r.Version < 9 {
		t.Errorf("got version %d, want none below 9", r.Version)
	}
}

// TestReadStart: the deadline counts from before the source was asked, and a
// value that took longer than its life is not given (S1-17, S1-19).
func TestReadStart(t *testing.T) {
	k := new(clock)
	c := newClient(t, Options{Servers: []string{startServer(t, server.Config{})}, Now: k.now})
	var called uint64
	slow := func(d time.Duration) Loader {
		return func(context.Context, LoadRequest) (Loaded, error) {
			called = uint64(k.now().UnixMilli())
			k.forward(d)
			return Loaded{Value: []byte("v"), Version: 1}, nil
		}
	}
	if r := c.Fetch(bg, "a", slow(50*time.Millisecond)); r.Outcome != Hit || r.Read > called || r.Hard > called+30000 {
		t.Errorf("got %v, %+v; the loader was called at %d", r.Outcome, r.Deadlines, called)
	}
	if r := c.Fetch(bg, "b", slow(time.Minute)); r.Outcome != Unavailable || r.Value != nil {
		t.Errorf("got %v %q, want nothing: its deadline has passed", r.Outcome, r.Value)
	}
}

// TestLoaderContext ends with the grant (S1-40), and a loader that does not heed
// it holds nobody up.
func TestLoaderContext(t *testing.T) {
	c := newClient(t, Options{Servers: []string{startServer(t, server.Config{})}, Fetch: FetchOptions{Grant: 50 * time.Millisecond}})
	release := make(chan struct{})
	begin := time.Now()
	ended := make(chan time.Duration, 1)
	r := c.Fetch(bg, "k", func(ctx context.Context, q LoadRequest) (Loaded, error) {
		<-ctx.Done()
		ended <- time.Since(begin)
		<-release
		return Loaded{Value: []byte("late"), Version: 1}, nil
	})
	if r.Outcome != Unavailable || !errors.Is(r.Cause, context.DeadlineExceeded) {
		t.Errorf("got %v, %v", r.Outcome, r.Cause)
	}
	if after := <-ended; after > 10*time.Second || time.Since(begin) > 10*time.Second {
		t.Errorf("the context ended after %v, the Fetch after %v", after, time.Since(begin))
	}
	close(release)
	if r := c.Fetch(bg, "p", func(context.Context, LoadRequest) (Loaded, error) { panic("oops") }); r.Outcome != Unavailable || r.Cause == nil {
		t.Errorf("got %v, %v; want the panic as an error", r.Outcome, r.Cause)
	}
}

// TestRefreshAhead serves a value past its soft deadline while one caller loads
// it again.
func TestRefreshAhead(t *testing.T) {
	servers(t, func(t *testing.T, addr string) {
		c := newClient(t, Options{Servers: []string{addr}, Near: NearOptions{Bytes: -1},
			Fetch: FetchOptions{Life: 30 * time.Second, SoftLife: time.Millisecond}})
		s := newSource(1)
		want(t, c.Fetch(bg, "k", s.load), Hit, "v1", FromSource)
		s.version.Store(2)
		waitFor(t, "the refresh", func() bool {
			r := c.Fetch(bg, "k", s.load)
			if r.Outcome != Hit {
				t.Fatalf("got %v, %v", r.Outcome, r.Cause)
			}
			return r.Version == 2
		})
	})
}

// TestUnchanged: the source says that it still has the version, and the bytes
// stay.
func TestUnchanged(t *testing.T) {
	servers(t, func(t *testing.T, addr string) {
		c := newClient(t, Options{Servers: []string{addr}, Near: NearOptions{Bytes: -1},
			Fetch: FetchOptions{Life: 30 * time.Second, SoftLife: time.Millisecond}})
		s := newSource(3)
		first := c.Fetch(bg, "k", s.load)
		want(t, first, Hit, "v3", FromSource)
		waitFor(t, "the refresh", func() bool {
			r := c.Fetch(bg, "k", func(_ context.Context, q LoadRequest) (Loaded, error) {
				if q.Known != 3 {
					t.Errorf("version %d is known, want 3", q.Known)
				}
				return Loaded{Unchanged: true}, nil
			})
			want(t, r, Hit, "v3", r.From)
			return r.Read > first.Read
		})
	})
}

// TestBusy: flights and waiters are bounded.
func TestBusy(t *testing.T) {
	f := startFake(t)
	f.put("k", "v")
	c := newClient(t, Options{Servers: []string{f.addr}, Timeout: 5 * time.Second, Fetch: FetchOptions{FlightsMax: 1, WaitersMax: 1, Wait: 5 * time.Second}})
	if _, err := c.knowsVersions(bg, "k"); err != nil {
		t.Fatal(err)
	}
	f.delay.Store(int64(300 * time.Millisecond))
	var wg sync.WaitGroup
	wg.Go(func() { want(t, c.Fetch(bg, "k", nil), Hit, "v", FromOwner) })
	waitFor(t, "the flight", func() bool { return c.flights.under.Load() == 1 })
	if r := c.Fetch(bg, "j", nil); !errors.Is(r.Cause, ErrBusy) {
		t.Errorf("got %v, %v; want ErrBusy", r.Outcome, r.Cause)
	}
	wg.Go(func() { want(t, c.Fetch(bg, "k", nil), Hit, "v", FromOwner) })
	waitFor(t, "the waiter", func() bool { return c.flights.waiters.Load() == 1 })
	if r := c.Fetch(bg, "k", nil); !errors.Is(r.Cause, ErrBusy) {
		t.Errorf("got %v, %v; want ErrBusy", r.Outcome, r.Cause)
	}
	wg.Wait()
}
