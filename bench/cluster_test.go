package bench

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster"
	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/server"
)

// startCluster starts real servers that are the nodes of a map, in which a key is
// split into 3 if it is not "".
func startCluster(t *testing.T, n int, split string) (seeds []string) {
	t.Helper()
	leakless(t)
	var servers []*server.Server
	var nodes []bucket.Node
	for i := range n {
		id := fmt.Sprint("n", i)
		s, err := server.New(server.Config{Port: -1, Threads: 1, Logger: slog.New(slog.DiscardHandler),
			Cluster: server.ClusterConfig{NodeID: id, HasStore: true}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		servers = append(servers, s)
		seeds = append(seeds, s.Addrs()[0].String())
		nodes = append(nodes, bucket.Node{ID: id, Addr: seeds[i], Zone: id})
	}
	m, err := bucket.First("bench", nodes, 1, bucket.Budget{})
	if err == nil && split != "" {
		m, err = m.Plan(bucket.Change{Split: []bucket.Split{{Key: bucket.RawKey(split), N: 3}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if err := s.ApplyMap(m); err != nil {
			t.Fatal(err)
		}
	}
	return seeds
}

// runThrough is RunCluster of c, of so many requests.
func runThrough(t *testing.T, seeds []string, requests uint64, c ClusterConfig) *ClusterReport {
	t.Helper()
	c.Client.Seeds, c.Client.Timeout = seeds, 30*time.Second // a busy machine
	c.Requests, c.Verify = requests, true
	r, err := RunCluster(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Outcomes.sum() + r.Sets; r.Requests != requests || r.Operations != got || r.Corrupt != 0 || r.Errors != 0 {
		t.Errorf("%d requests, %d operations, %d outcomes and sets, %d corrupt, %d errors: %s", r.Requests, r.Operations, got, r.Corrupt, r.Errors, r.FirstError)
	}
	if len(r.Nodes) != len(seeds) || r.Latency.P50US <= 0 || r.Latency.P999US < r.Latency.P50US {
		t.Errorf("nodes %+v, latency %+v", r.Nodes, r.Latency)
	}
	return r
}

// reads are those that reached nodes.
func (r *ClusterReport) reads() (n uint64) {
	for _, x := range r.Nodes {
		n += x.Reads
	}
	return n
}

func TestClusterRun(t *testing.T) {
	seeds := startCluster(t, 3, "")
	c := ClusterConfig{Clients: 2, Goroutines: 4, Config: Config{Keys: 500, Ratio: Ratio{1, 3}, Preload: true}}
	r := runThrough(t, seeds, 2000, c)
	if r.Outcomes.Hit != r.Outcomes.sum() || r.From.Owner != r.Outcomes.Hit || r.Sets < 300 || r.Sets > 700 || r.reads() != r.Outcomes.Hit {
		t.Errorf("got %+v", r)
	}
	c.Multiget, c.Ratio, c.Near, c.Keys = 20, Ratio{Gets: 1}, time.Minute, 100
	r = runThrough(t, seeds, 200, c)
	if r.Operations != 200*20 || r.Outcomes.Hit != r.Operations || r.reads() > r.Operations {
		t.Errorf("in batches: %+v", r)
	}
	c = ClusterConfig{Config: Config{Keys: 300, KeyBytes: 20, Ratio: Ratio{Gets: 1}, Lookaside: true}}
	r = runThrough(t, seeds, 1000, c)
	if r.Outcomes.Miss == 0 || r.Fills != r.Outcomes.Miss || r.Sets != r.Fills || r.Outcomes.Hit == 0 {
		t.Errorf("look-aside: %+v", r)
	}
	for _, n := range r.Nodes {
		if n.Share < 0.2 || n.Share > 0.5 {
			t.Errorf("node %s has %.2f of the reads", n.Addr, n.Share)
		}
	}
}

// Fetch, from a source that is slow, fails, and does not have everything.
func TestClusterRunFetches(t *testing.T) {
	seeds := startCluster(t, 2, "")
	c := ClusterConfig{Clients: 4, Goroutines: 4, Fetch: true, Near: time.Minute,
		Source: SourceConfig{Latency: time.Millisecond, Absent: 0.3},
		Config: Config{Keys: 200, Ratio: Ratio{1, 50}}}
	r := runThrough(t, seeds, 3000, c)
	o := &r.Outcomes
	// A notice that comes between may refuse a load and the next one.
	if o.Unavailable > o.sum()/50 || o.Miss > 0 || o.Negative < o.sum()/10 || o.Hit < o.sum()/3 {
		t.Errorf("outcomes %+v: %s", r.Outcomes, r.FirstError)
	}
	if r.From.Near < o.sum()/2 || r.From.Owner == 0 || r.From.Source == 0 || r.From.Copy != 0 {
		t.Errorf("from %+v", r.From)
	}
	if s := r.Source; s.Loads < 100 || s.Loads > 1000 || s.Failed != 0 || s.AtOnceMax < 1 || s.AtOnceMax > 16 {
		t.Errorf("source %+v", s)
	}
	c.Source.Errors = 1
	c.KeyBytes = 20
	r = runThrough(t, seeds, 300, c)
	if r.Outcomes.Unavailable != r.Outcomes.sum() || r.Source.Failed != r.Source.Loads || !strings.Contains(r.FirstError, "source failed") {
		t.Errorf("a source that fails: %+v, %+v, %q", r.Outcomes, r.Source, r.FirstError)
	}
}

// S1-49 in small: near caches let through one read each in their life, whatever
// is asked.
func TestClusterRunRate(t *testing.T) {
	seeds := startCluster(t, 2, "")
	c := ClusterConfig{Clients: 8, Goroutines: 2, Fetch: true, Near: 500 * time.Millisecond,
		Config: Config{Keys: 10, Distribution: Hot, HotShare: 1, Ratio: Ratio{Gets: 1}, Rate: 4000, Warmup: 100 * time.Millisecond, Duration: time.Second}}
	c.Client.Seeds, c.Client.Timeout = seeds, 30*time.Second
	r, err := RunCluster(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.OpsPerSecond < 1000 || r.OpsPerSecond > 5000 {
		t.Errorf("%.0f requests/s, want about 4000", r.OpsPerSecond)
	}
	if most := float64(8) * (r.Seconds/0.5 + 1) * 1.1; float64(r.reads()) > most {
		t.Errorf("%d reads reach the nodes in %.1f s, want at most %.0f", r.reads(), r.Seconds, most)
	}
}

func TestLadder(t *testing.T) {
	c := ClusterConfig{Clients: 4, Goroutines: 4, Config: Config{Keys: 100, HotShare: 0.9, Ratio: Ratio{Gets: 1}, Warmup: 50 * time.Millisecond, Duration: 150 * time.Millisecond}}
	c.Client.Timeout = 30 * time.Second
	fetches := c.WithDefaults()
	fetches.Fetch = true
	c.Client.Seeds = startCluster(t, 3, fetches.name(1))
	l, err := RunLadder(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var text, js bytes.Buffer
	if err := l.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := l.WriteJSON(&js); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"merge ", "near cache ", "copies ", "split in 3 "} {
		if !strings.Contains(text.String(), "\n"+want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if !strings.Contains(js.String(), `"step": "split in 3"`) || l.Corrupt() != 0 {
		t.Errorf("%d corrupt, and\n%s", l.Corrupt(), js.String())
	}
	near := l.Steps[1].Report
	if near.From.Near < near.Outcomes.sum()*8/10 || l.Steps[0].Report.From.Near != 0 || near.Load.NearMS != 500 {
		t.Errorf("near cache: %+v", near)
	}
	for i, s := range l.Steps {
		if s.Report.Outcomes.Hit+s.Report.Outcomes.Stale != s.Report.Outcomes.sum() {
			t.Errorf("step %d: %+v: %s", i, s.Report.Outcomes, s.Report.FirstError)
		}
	}

	// Without a split, and where the hot key itself is split.
	c.KeyBytes = 20
	l, err = RunLadder(t.Context(), c)
	if err != nil || l.Steps[3].Report != nil || !strings.Contains(l.Steps[3].LeftOut, "is not split") {
		t.Errorf("no split: %+v, %v", l, err)
	}
	c.KeyBytes = 16
	c.Client.Seeds = startCluster(t, 3, fetches.name(0))
	if _, err := RunLadder(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is split") {
		t.Errorf("the hot key is split: %v", err)
	}
}

func TestClusterConfigValidate(t *testing.T) {
	seeds := cluster.Options{Seeds: []string{"h:1"}}
	for name, c := range map[string]ClusterConfig{
		"no seeds":             {},
		"clients":              {Client: seeds, Clients: -1},
		"goroutines":           {Client: seeds, Clients: 4096, Goroutines: 17},
		"near":                 {Client: seeds, Near: time.Microsecond},
		"Fetch reads one key":  {Client: seeds, Fetch: true, Config: Config{Multiget: 2}},
		"look-aside":           {Client: seeds, Fetch: true, Config: Config{Lookaside: true}},
		"copies":               {Client: seeds, Copies: true},
		"a source":             {Client: seeds, Source: SourceConfig{Errors: 0.5}},
		"source errors":        {Client: seeds, Fetch: true, Source: SourceConfig{Errors: 1.5}},
		"source absent":        {Client: seeds, Fetch: true, Source: SourceConfig{Absent: -1}},
		"keys with a prefix":   {Client: seeds, Fetch: true, Copies: true, Config: Config{Keys: 1000, KeyBytes: 3}},
		"a source has at most": {Client: seeds, Fetch: true, Config: Config{Keys: 1 << 25}},
		"bench: ratio":         {Client: seeds, Config: Config{Ratio: Ratio{Gets: -1, Sets: 3}}},
	} {
		err := c.Validate()
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if name != "no seeds" && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (ClusterConfig{Client: seeds}).Validate(); err != nil {
		t.Error(err)
	}
}

// A cluster that is not there is an error.
func TestClusterRunOfNothing(t *testing.T) {
	_, err := RunCluster(t.Context(), ClusterConfig{Client: cluster.Options{Seeds: []string{"127.0.0.1:1"}, Timeout: 100 * time.Millisecond}})
	if err == nil {
		t.Error("no error")
	}
}
