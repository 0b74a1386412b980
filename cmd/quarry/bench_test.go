package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/bench"
	"github.com/quarrycache/quarry/cluster"
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

// TestBenchCluster holds the flags' defaults against the package's own, and runs.
func TestBenchCluster(t *testing.T) {
	var c cli
	parser, err := kong.New(&c, options()...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse([]string{"bench", "cluster", "--quiet"}); err != nil {
		t.Fatal(err)
	}
	b := &c.Bench.Cluster
	got, err := b.config([]string{"h:1"})
	if err != nil {
		t.Fatal(err)
	}
	want := bench.ClusterConfig{Config: bench.Config{Warmup: time.Second, Ratio: bench.Ratio{Gets: 1}}, Client: cluster.Options{Seeds: []string{"h:1"}, Timeout: time.Second}}
	if got, want := got.WithDefaults(), want.WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("defaults:\n got %+v\nwant %+v", got, want)
	}

	_, addr := startServer(t, nil)
	var r bench.ClusterReport
	text := must(t, "bench", "cluster", "--server", addr, "--fetch", "--source-latency=1ms", "--near=1s", "--clients=2", "--keys=50",
		"--warmup=0s", "--requests=500", "--ratio=1:20", "--verify", "--quiet", "--json=-")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	if r.Requests != 500 || r.Load.Clients != 2 || !r.Load.Fetch || r.Load.SourceMS != 1 || r.From.Near == 0 || r.Source.Loads == 0 || r.Sets == 0 {
		t.Errorf("got %+v", r)
	}
	contains(t, must(t, "bench", "cluster", "--server", addr, "--warmup=0s", "--requests=50", "--quiet"), "miss 100.00 %", "nodes ", addr)
	if _, err := try(t, "bench", "cluster", "--source-errors=0.1", "--server", addr); err == nil || !strings.Contains(err.Error(), "--fetch") {
		t.Errorf("a source of nobody: %v", err)
	}
	if _, err := try(t, "bench", "cluster", "--ladder", "--server", addr, "--quiet"); err == nil || !strings.Contains(err.Error(), "needs a cluster") {
		t.Errorf("a ladder without a cluster: %v", err)
	}
}
