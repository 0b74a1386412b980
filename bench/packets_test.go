package bench

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server"
)

// newServer starts a real server, whose address it returns.
func newServer(t testing.TB) string {
	t.Helper()
	leakless(t)
	s, err := server.New(server.Config{Port: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s.Addrs()[0].String()
}

// TestBinary runs loads in the binary protocol against a real server.
func TestBinary(t *testing.T) {
	address := newServer(t)
	for _, c := range []struct {
		name               string
		set                func(c *Config)
		hits, misses, sets uint64
	}{
		{"one at a time", func(*Config) {}, 1000, 0, 100},
		{"pipeline", func(c *Config) { c.Pipeline = 16 }, 1000, 0, 100},
		{"multiget", func(c *Config) { c.Multiget, c.Ratio = 7, Ratio{Gets: 1} }, 7700, 0, 0},
		{"empty values", func(c *Config) { c.Sizes = fixedSizes(0) }, 1000, 0, 100},
		{"misses", func(c *Config) { c.Preload, c.Ratio, c.KeyBytes = false, Ratio{Gets: 1}, 30 }, 0, 1100, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{
				Server: address, Protocol: Binary, Keys: 500, Conns: 4, Requests: 1100, Preload: true, Verify: true,
				Sizes: parseSizes(t, "log-uniform:1-9000"),
			}
			c.set(&config)
			r, err := Run(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			if r.Hits != c.hits || r.Misses != c.misses || r.Sets != c.sets || r.Errors != 0 || r.Corrupt != 0 {
				t.Errorf("got %d hits, %d misses, %d sets, %d errors (%s), %d corrupt; want %d, %d, %d",
					r.Hits, r.Misses, r.Sets, r.Errors, r.FirstError, r.Corrupt, c.hits, c.misses, c.sets)
			}
		})
	}
}

// TestScanPackets: it makes no difference where the bytes are cut.
func TestScanPackets(t *testing.T) {
	e := &encoder{protocol: Binary, keys: newKeys(10, 4), values: newValues(fixedSizes(3))}
	value := string(e.values.append(nil, 2))
	hit := "\x81\x0d\x00\x04\x04\x00\x00\x00\x00\x00\x00\x0b" + string(make([]byte, 12+4)) + string(e.keys.append(nil, 2)) + value
	noop := "\x81\x0a" + string(make([]byte, 22))
	for cut := range len(hit + noop) {
		var n counts
		rs := &replies{queue: newQueue(1, 3), encoder: e, verify: true, counts: &n}
		copy(rs.queue.push(kindGet, 0), []uint64{1, 2, 3})
		rest := []byte(hit + noop)[:cut]
		used, err := rs.scan(rest)
		if err != nil {
			t.Fatal(err)
		}
		again, err := rs.scan([]byte(hit + noop)[used:])
		if err != nil || used+again != len(hit+noop) || n.hits != 1 || n.misses != 2 || n.requests != 1 || n.corrupt != 0 {
			t.Errorf("cut at %d: used %d and %d, %+v, %v", cut, used, again, n, err)
		}
	}
	rs := &replies{queue: newQueue(1, 1), encoder: e, counts: new(counts)}
	rs.queue.push(kindGet, 0)
	if _, err := rs.scan([]byte("VALUE no packet at all\r\n")); err == nil {
		t.Error("a line is taken for a packet")
	}
}

// TestTLS runs a load inside TLS.
func TestTLS(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer web.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{values: map[string][]byte{}}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				f.serve(c)
			})
		}
	})
	defer served.Wait()
	defer l.Close()
	r, err := Run(t.Context(), Config{
		Server: l.Addr().String(), TLS: true, Keys: 100, Conns: 3, Requests: 1100, Preload: true, Verify: true, Pipeline: 4,
		Sizes: parseSizes(t, "log-uniform:1-100000"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Hits != 1000 || r.Sets != 100 || r.Corrupt != 0 {
		t.Errorf("got %d hits, %d sets, %d corrupt", r.Hits, r.Sets, r.Corrupt)
	}
	if _, err := Run(t.Context(), Config{Server: newFake(t, &fake{}, "tcp"), TLS: true, Requests: 1, Stall: time.Second}); err == nil {
		t.Error("TLS to a server without it: got no error")
	}
}
