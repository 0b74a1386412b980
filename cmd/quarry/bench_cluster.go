package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/bench"
	"github.com/quarrycache/quarry/cluster"
)

// benchClusterCommand is quarry bench cluster: bench.ClusterConfig as flags.
type benchClusterCommand struct {
	serverFlags

	Clients    int           `default:"1" help:"Clients, each as in a process of its own."`
	Goroutines int           `default:"16" help:"Goroutines of each client that ask, one request at a time."`
	Near       time.Duration `help:"Life in the near cache of each client; without it there is none."`
	Copies     bool          `help:"Hot keys may be read from nodes with copies. With --fetch."`
	Random     bool          `name:"split-random" help:"Read any place of a split key, in place of one for each client."`

	Fetch         bool          `help:"Read with Fetch, from a source behind the cache. A set is a change at the source then, and the notice after it."`
	SourceLatency time.Duration `default:"10ms" help:"With --fetch: time that a load takes."`
	SourceErrors  float64       `help:"With --fetch: share of the loads that fail."`
	SourceAbsent  float64       `help:"With --fetch: share of the keys that the source does not have."`

	Ladder bool        `help:"Run once for each step of the hot-key ladder, with --fetch and a share of --hot-share for key 0: merged lookups, near cache, copies, and a split. The last one is read from key 1, which quarry cluster split has split before."`
	Ratio  bench.Ratio `default:"0:1" help:"Sets to gets, in requests."`

	loadFlags
	reportFlags
}

// config is the load that the flags ask for, of a cluster with these seeds.
func (b *benchClusterCommand) config(seeds []string) (bench.ClusterConfig, error) {
	c := bench.ClusterConfig{
		Config: b.loadFlags.config(), Clients: b.Clients, Goroutines: b.Goroutines, Near: b.Near, Copies: b.Copies, Fetch: b.Fetch || b.Ladder,
		Client: cluster.Options{Seeds: seeds, Timeout: b.Timeout, User: b.User, Password: b.Password},
	}
	c.Ratio, c.Progress = b.Ratio, b.progress()
	if b.Ladder {
		c.Warmup = max(c.Warmup, bench.LadderWarmup)
	}
	if b.Random {
		c.Client.SplitChoice = cluster.SplitRandom
	}
	if c.Fetch {
		c.Source = bench.SourceConfig{Latency: b.SourceLatency, Errors: b.SourceErrors, Absent: b.SourceAbsent}
	} else if b.SourceErrors != 0 || b.SourceAbsent != 0 {
		return c, errors.New("quarry: --source-errors and --source-absent: want --fetch, too")
	}
	var err error
	c.Client.TLS, err = b.tlsConfig()
	return c, err
}

// seeds are the servers to begin with: those that are named, or the nodes of the
// map in the store.
func (b *benchClusterCommand) seeds(ctx context.Context) ([]string, error) {
	if b.Server != "" || b.Cluster == "" {
		seeds := strings.Split(cmp.Or(b.Server, serverDefault), ",")
		for i, s := range seeds {
			seeds[i] = strings.TrimPrefix(s, "unix:")
		}
		return seeds, nil
	}
	m, err := b.clusterMap(ctx)
	if err != nil {
		return nil, err
	}
	var seeds []string
	for i := range m.Nodes {
		seeds = append(seeds, m.Nodes[i].Addr)
	}
	return seeds, nil
}

// Run runs the load. Data that differed is an error; what the cluster could not
// do is only reported.
func (b *benchClusterCommand) Run(ctx context.Context, k *kong.Kong) error {
	seeds, err := b.seeds(ctx)
	if err != nil {
		return err
	}
	c, err := b.config(seeds)
	if err != nil {
		return err
	}
	var report benchReport
	corrupt := uint64(0)
	if b.Ladder {
		l, err := bench.RunLadder(ctx, c)
		if err != nil {
			return err
		}
		report, corrupt = l, l.Corrupt()
	} else {
		r, err := bench.RunCluster(ctx, c)
		if err != nil {
			return err
		}
		report, corrupt = r, r.Corrupt
	}
	if err := b.write(k, report); err != nil {
		return err
	}
	if corrupt > 0 {
		return fmt.Errorf("bench: %d reads found what their keys never had", corrupt)
	}
	return nil
}
