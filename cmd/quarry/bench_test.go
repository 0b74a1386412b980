package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/bench"
)

func parse(t *testing.T, args ...string) (*benchCommand, error) {
	t.Helper()
	var c cli
	parser, err := kong.New(&c, options()...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return &c.Bench.Load, err
}

// TestBenchDefaults holds the flags' defaults against the package's own.
func TestBenchDefaults(t *testing.T) {
	b, err := parse(t, "bench", "--quiet")
	if err != nil {
		t.Fatal(err)
	}
	got, want := b.config().WithDefaults(), bench.Config{Warmup: time.Second}.WithDefaults()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults:\n got %+v\nwant %+v", got, want)
	}
}

func TestBenchFlags(t *testing.T) {
	b, err := parse(t, "bench", "--server=unix:/s", "--ratio=0:1", "--value-size=log-uniform:20-100", "--protocol=meta",
		"--distribution=zipf", "--zipf-s=1.1", "--rate=1000", "--requests=5", "--server-pid=7", "--multiget=50", "--lookaside")
	if err != nil {
		t.Fatal(err)
	}
	c := b.config()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.Server != "unix:/s" || c.Ratio != (bench.Ratio{Gets: 1}) || c.Sizes.String() != "log-uniform:20-100" ||
		c.Protocol != bench.Meta || c.Distribution != bench.Zipf || c.ZipfS != 1.1 || c.Rate != 1000 || c.Requests != 5 ||
		c.ServerPID != 7 || c.Multiget != 50 || !c.Lookaside {
		t.Errorf("got %+v", c)
	}
	for _, bad := range []string{"--ratio=1", "--value-size=x", "--protocol=quic", "--distribution=normal", "--no-such"} {
		if _, err := parse(t, "bench", bad); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
}
