package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/quarrycache/quarry/bench"
)

// benchCommand is quarry bench: bench.Config as flags.
type benchCommand struct {
	Server  string `default:"127.0.0.1:11211" help:"Server: host:port or unix:PATH."`
	Threads int    `default:"1" help:"OS threads of the generator."`
	Conns   int    `default:"50" help:"Connections of all threads together."`

	TLS bool `name:"tls" help:"Speak TLS. The server's certificate is not checked."`

	Protocol bench.Protocol `default:"text" enum:"text,meta,binary" help:"Protocol: text, meta or binary."`
	Pipeline int            `default:"1" help:"Requests in flight on each connection."`
	Multiget int            `default:"1" help:"Keys in each get; each counts as an operation."`
	Ratio    bench.Ratio    `default:"1:10" help:"Sets to gets, in requests."`

	Keys         uint64             `default:"100000" help:"Number of keys."`
	KeySize      int                `default:"16" help:"Bytes of each key."`
	Distribution bench.Distribution `default:"uniform" enum:"uniform,zipf,hot" help:"How often each key is used: uniform, zipf or hot."`
	ZipfS        float64            `default:"0.99" help:"Exponent of zipf."`
	HotKeys      uint64             `default:"1" help:"With hot: number of hot keys."`
	HotShare     float64            `default:"0.9" help:"With hot: share of the requests that go to them."`
	ValueSize    bench.Sizes        `default:"100" help:"Bytes of a value, fixed for each key: N, uniform:A-B, log-uniform:A-B or lognormal:MEAN,SIGMA."`

	Preload   bool `help:"Store every key first."`
	Lookaside bool `help:"After a miss, store the key."`
	Verify    bool `help:"Compare each value read with what its key must hold."`

	Warmup   time.Duration `default:"1s" help:"Load before the measured time."`
	Duration time.Duration `help:"Measured time (10s, unless --requests is given)."`
	Requests uint64        `help:"Measured requests, in place of a duration."`
	Rate     float64       `help:"Open loop: so many requests a second, sent when they are due; latency counts from then."`
	Stall    time.Duration `default:"10s" help:"Give up when no reply comes for so long."`
	Seed     uint64        `help:"Of the random numbers: the same seed gives the same load."`

	ServerPID int    `name:"server-pid" placeholder:"PID" help:"The server's process, to report its CPU time per operation and its memory."`
	JSON      string `name:"json" placeholder:"FILE" help:"Write the report as JSON too (- for standard output, in place of the text)."`
	Quiet     bool   `help:"No line of progress each second."`
}

// config is the load that the flags ask for.
func (b *benchCommand) config() bench.Config {
	c := bench.Config{
		Server: b.Server, Threads: b.Threads, Conns: b.Conns, TLS: b.TLS,
		Protocol: b.Protocol, Pipeline: b.Pipeline, Multiget: b.Multiget, Ratio: b.Ratio,
		Keys: b.Keys, KeyBytes: b.KeySize, Distribution: b.Distribution,
		ZipfS: b.ZipfS, HotKeys: b.HotKeys, HotShare: b.HotShare, Sizes: b.ValueSize,
		Preload: b.Preload, Lookaside: b.Lookaside, Verify: b.Verify,
		Warmup: b.Warmup, Duration: b.Duration, Requests: b.Requests, Rate: b.Rate, Stall: b.Stall, Seed: b.Seed,
		ServerPID: b.ServerPID,
	}
	if !b.Quiet {
		c.Progress = os.Stderr
	}
	return c
}

// Run runs the load. Data that differed is an error; error replies are only
// reported, since a full server may give them.
func (b *benchCommand) Run(ctx context.Context) error {
	// One more than the workers, which hold their threads: the clock of the
	// run must not wait for them.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), b.Threads+1))
	report, err := bench.Run(ctx, b.config())
	if err != nil {
		return err
	}
	if b.JSON != "-" {
		if err := report.WriteText(os.Stdout); err != nil {
			return err
		}
	}
	if err := writeJSON(report, b.JSON); err != nil {
		return err
	}
	if report.Corrupt > 0 {
		return fmt.Errorf("bench: %d of %d hits had the wrong data", report.Corrupt, report.Hits)
	}
	return nil
}

// writeJSON writes the report to path, or to standard output for -.
func writeJSON(report *bench.Report, path string) error {
	switch path {
	case "":
		return nil
	case "-":
		return report.WriteJSON(os.Stdout)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := report.WriteJSON(file); err != nil {
		return err
	}
	return file.Close()
}
