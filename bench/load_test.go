package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// run runs c against a new fake and expects no error.
func run(t testing.TB, f *fake, c Config) *Report {
	t.Helper()
	leakless(t)
	c.Server = newFake(t, f, "tcp")
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRun runs each kind of load to its end: with everything preloaded all
// gets hit, and every value is right.
func TestRun(t *testing.T) {
	base := Config{Keys: 500, Conns: 4, Requests: 1100, Preload: true, Verify: true, Sizes: parseSizes(t, "log-uniform:1-9000")}
	for _, c := range []struct {
		name       string
		set        func(c *Config)
		gets, sets uint64
	}{
		{"one at a time", func(*Config) {}, 1000, 100},
		{"pipeline", func(c *Config) { c.Pipeline = 16 }, 1000, 100},
		{"meta", func(c *Config) { c.Protocol = Meta; c.Pipeline = 16 }, 1000, 100},
		{"multiget", func(c *Config) { c.Multiget = 7; c.Pipeline = 3 }, 7000, 100},
		{"meta multiget", func(c *Config) { c.Protocol = Meta; c.Multiget = 7 }, 7000, 100},
		{"gets", func(c *Config) { c.Ratio = Ratio{Gets: 1}; c.Distribution = Zipf }, 1100, 0},
		{"sets", func(c *Config) { c.Ratio = Ratio{Sets: 1}; c.Distribution = Hot }, 0, 1100},
		{"threads", func(c *Config) { c.Threads = 3; c.Pipeline = 5; c.Ratio = Ratio{Gets: 1} }, 1100, 0},
		{"open loop", func(c *Config) { c.Rate = 50_000; c.Pipeline = 2 }, 1000, 100},
		{"large values", func(c *Config) { c.Sizes = fixedSizes(1 << 20); c.Keys = 5; c.Requests = 110; c.Pipeline = 4 }, 100, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := base
			c.set(&config)
			r := run(t, &fake{}, config)
			if r.Requests != config.Requests || r.Hits != c.gets || r.Misses != 0 || r.Sets != c.sets {
				t.Errorf("got %d requests, %d hits, %d misses, %d sets; want %d, %d, 0, %d",
					r.Requests, r.Hits, r.Misses, r.Sets, config.Requests, c.gets, c.sets)
			}
			if r.Operations != c.gets+c.sets || r.Errors != 0 || r.Corrupt != 0 {
				t.Errorf("got %d operations, %d errors, %d corrupt; want %d, 0, 0", r.Operations, r.Errors, r.Corrupt, c.gets+c.sets)
			}
			if r.Latency.P50US <= 0 || r.Latency.MaxUS < r.Latency.P99US || r.Latency.P99US < r.Latency.P50US {
				t.Errorf("latency: got %+v", r.Latency)
			}
		})
	}
}

// TestLookaside begins with an empty server: each key misses once at least,
// each miss is stored, and nothing else is.
func TestLookaside(t *testing.T) {
	for _, rate := range []float64{0, 20_000} {
		for _, multiget := range []int{1, 5} {
			f := &fake{}
			r := run(t, f, Config{
				Keys: 50, Conns: 3, Requests: 2000, Ratio: Ratio{Gets: 1}, Lookaside: true, Verify: true, Multiget: multiget,
				Pipeline: 4, Rate: rate,
			})
			f.mu.Lock()
			stored := len(f.values)
			f.mu.Unlock()
			if stored != 50 || r.Misses < 50 || r.Misses > 800 || r.Fills != r.Sets || r.Corrupt != 0 {
				t.Errorf("rate %g, multiget %d: got %d keys stored, %d misses, %d fills, %d sets, %d corrupt",
					rate, multiget, stored, r.Misses, r.Fills, r.Sets, r.Corrupt)
			}
		}
	}
}

// TestVerify finds the one value that is not what was stored.
func TestVerify(t *testing.T) {
	f := &fake{before: func(n int) string {
		if n == 150 {
			return "VALUE key-000000000000 0 5\r\nhello\r\nEND\r\n"
		}
		return ""
	}}
	r := run(t, f, Config{Keys: 1, Conns: 1, Requests: 300, Preload: true, Verify: true, Ratio: Ratio{Gets: 1}})
	if r.Corrupt != 1 || r.Hits != 300 {
		t.Errorf("got %d corrupt of %d hits, want 1 of 300", r.Corrupt, r.Hits)
	}
}

// TestErrorReplies are counted, and do not end the run.
func TestErrorReplies(t *testing.T) {
	f := &fake{before: func(n int) string {
		if n%10 == 0 {
			return fmt.Sprintf("SERVER_ERROR number %d\r\n", n)
		}
		return ""
	}}
	r := run(t, f, Config{Conns: 1, Requests: 1000})
	if r.Errors != 100 || r.FirstError != "SERVER_ERROR number 10" {
		t.Errorf("got %d errors, the first %q", r.Errors, r.FirstError)
	}
}

// TestRunFails when the server cannot be understood, falls silent, or goes.
func TestRunFails(t *testing.T) {
	at := func(n int, reply string) func(int) string {
		return func(i int) string {
			if i == n {
				return reply
			}
			return ""
		}
	}
	silent := make(chan struct{})
	for _, c := range []struct {
		name   string
		before func(int) string
		want   string
	}{
		{"nonsense", at(20, "HELLO\r\n"), `reply "HELLO"`},
		{"gone", at(20, "close"), "unexpected EOF"},
		{"gone with a word", func(n int) string {
			if n >= 20 {
				return map[bool]string{true: "ERROR Too many open connections\r\n", false: "close"}[n == 20]
			}
			return ""
		}, "server said \"ERROR Too many open connections\""},
		{"silent", func(n int) string {
			if n == 20 {
				<-silent
			}
			return ""
		}, "no reply for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{Conns: 1, Requests: 1000, Stall: 100 * time.Millisecond}
			config.Server = newFake(t, &fake{before: c.before}, "tcp")
			_, err := Run(t.Context(), config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
			if c.name == "silent" {
				close(silent)
			}
		})
	}
	if _, err := Run(t.Context(), Config{Server: "unix:" + t.TempDir() + "/none"}); err == nil {
		t.Error("no server: got no error")
	}
}

// TestNoCoordinatedOmission stalls the server once, for a fifth of the time.
// In an open loop the requests that were due meanwhile have waited, and the
// percentiles say so; one request alone would be lost among 1000.
func TestNoCoordinatedOmission(t *testing.T) {
	const stall = 200 * time.Millisecond
	f := &fake{before: func(n int) string {
		if n == 100 {
			time.Sleep(stall) // the stall is what is tested
		}
		return ""
	}}
	r := run(t, f, Config{Conns: 1, Rate: 1000, Requests: 1000})
	if limit := 0.4 * float64(stall.Microseconds()); r.Latency.P90US < limit {
		t.Errorf("p90: got %.0f us, want at least %.0f", r.Latency.P90US, limit)
	}
	if r.Latency.MaxUS < 0.9*float64(stall.Microseconds()) {
		t.Errorf("max: got %.0f us, want about %d", r.Latency.MaxUS, stall.Microseconds())
	}
}

// TestLate counts what a server too slow for the rate was never sent.
func TestLate(t *testing.T) {
	f := &fake{before: func(int) string {
		time.Sleep(10 * time.Millisecond) // the server's speed
		return ""
	}}
	r := run(t, f, Config{Conns: 2, Threads: 2, Rate: 1000, Duration: 300 * time.Millisecond})
	due := 1000 * r.Seconds
	if got := float64(r.Requests + r.Late); got < due-10 || got > due+10 || r.Requests > 62 {
		t.Errorf("got %d answered and %d late, want %.0f together", r.Requests, r.Late, due)
	}
}

// TestSameSeedSameLoad compares all bytes that one connection sends.
func TestSameSeedSameLoad(t *testing.T) {
	stored := func(seed uint64) string {
		f := &fake{}
		run(t, f, Config{Keys: 100_000, Conns: 1, Requests: 200, Ratio: Ratio{Sets: 1}, Seed: seed})
		f.mu.Lock()
		defer f.mu.Unlock()
		return fmt.Sprint(f.values)
	}
	first := stored(1)
	if again := stored(1); first != again {
		t.Error("the same seed gave another load")
	}
	if first == stored(2) {
		t.Error("another seed gave the same load")
	}
}

// TestInterrupted ends a run early: the report is on the time until then.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{before: func(n int) string {
		if n == 500 {
			cancel()
		}
		return ""
	}}
	r, err := Run(ctx, Config{Server: newFake(t, f, "tcp"), Duration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests == 0 || r.Seconds > 60 {
		t.Errorf("got %d requests in %.1f s", r.Requests, r.Seconds)
	}

	for _, c := range []Config{{Warmup: time.Hour}, {Preload: true, Keys: 1 << 40}} {
		ctx, cancel := context.WithCancel(t.Context())
		f := &fake{before: func(int) string { cancel(); return "" }}
		c.Server = newFake(t, f, "tcp")
		if _, err := Run(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("stopped before the measured time: got error %v, want %v", err, context.Canceled)
		}
	}
}

// TestWarmupIsExcluded gives errors in the warm-up alone.
func TestWarmupIsExcluded(t *testing.T) {
	f := &fake{before: func(n int) string {
		if n <= 10 {
			return "SERVER_ERROR cold\r\n"
		}
		return ""
	}}
	var progress bytes.Buffer
	r := run(t, f, Config{Conns: 1, Warmup: 1100 * time.Millisecond, Requests: 100, Progress: &progress})
	if r.Errors != 0 || r.Requests < 100 { // and a few that were on their way as the warm-up ended
		t.Errorf("got %d errors, %d requests, want 0, at least 100", r.Errors, r.Requests)
	}
	if got := progress.String(); !strings.HasPrefix(got, "warm-up: 1 s: ") {
		t.Errorf("progress: got %q, want a line for the warm-up", got)
	}
}

// TestServerUse takes this process for the server.
func TestServerUse(t *testing.T) {
	f := &fake{}
	r, err := Run(t.Context(), Config{
		Server: newFake(t, f, "unix"), Conns: 2, Preload: true, Duration: 100 * time.Millisecond, ServerPID: os.Getpid(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Server; s == nil || s.CPUUSPerOp <= 0 || s.RSSBeforeBytes == 0 || s.RSSAfterBytes == 0 {
		t.Errorf("server use: got %+v", s)
	}
	if r.GeneratorCPU <= 0 {
		t.Errorf("generator: got %v cores", r.GeneratorCPU)
	}
	var text, data bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "us an operation") {
		t.Errorf("text: got %q, %v", text.String(), err)
	}
	var back Report
	if err := r.WriteJSON(&data); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || *back.Server != *r.Server || back.Latency != r.Latency {
		t.Errorf("JSON: got %+v, %v", back, err)
	}
	if _, err := Run(t.Context(), Config{Server: newFake(t, &fake{}, "tcp"), ServerPID: 1 << 30}); err == nil {
		t.Error("no such process: got no error")
	}
}

func TestValidate(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("defaults: got %v", err)
	}
	for _, c := range []Config{
		{Threads: -1},
		{Threads: 4, Conns: 3},
		{Protocol: "quic"},
		{Pipeline: 1 << 20},
		{Multiget: -1},
		{Ratio: Ratio{Sets: -1, Gets: 2}},
		{KeyBytes: 251},
		{KeyBytes: 3, Keys: 1001},
		{Distribution: "normal"},
		{ZipfS: -1},
		{HotKeys: 10, Keys: 9},
		{HotShare: 1.5},
		{Rate: -1},
		{Warmup: -1},
		{Duration: 1, Requests: 1},
	} {
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), "bench: ") {
			t.Errorf("%+v: got error %v", c, err)
		}
	}
}

func ExampleRun() {
	address, stop := (&fake{}).start("tcp", "127.0.0.1:0") // a server in this process
	defer stop()
	r, err := Run(context.Background(), Config{
		Server:   address,
		Keys:     1000,
		Pipeline: 16,
		Preload:  true,
		Verify:   true,
		Requests: 11_000,
		Progress: io.Discard,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Hits, "hits", r.Misses, "misses", r.Sets, "sets", r.Corrupt, "corrupt")
	// Output: 10000 hits 0 misses 1000 sets 0 corrupt
}
