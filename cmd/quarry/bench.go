package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/bench"
)

// benchCommand is quarry bench: bench.Config as flags.
type benchCommand struct {
	Server  string `default:"127.0.0.1:11211" help:"Server: host:port or unix:PATH."`
	Threads int    `default:"1" help:"OS threads of the generator."`
	Conns   int    `default:"50" help:"Connections of all threads together."`

	TLS bool `name:"tls" help:"Speak TLS. The server's certificate is not checked."`

	Protocol bench.Protocol `default:"text" enum:"text,meta,binary,redis" help:"Protocol: text, meta or binary; redis for a peer that speaks nothing else."`
	Pipeline int            `default:"1" help:"Requests in flight on each connection."`
	Ratio    bench.Ratio    `default:"1:10" help:"Sets to gets, in requests."`

	loadFlags

	Stall time.Duration `default:"10s" help:"Give up when no reply comes for so long."`

	ServerPID int `name:"server-pid" placeholder:"PID" help:"The server's process, to report its CPU time per operation and its memory."`
	reportFlags
}

// loadFlags say what is asked for, and how long.
type loadFlags struct {
	Multiget int `default:"1" help:"Keys in each get; each counts as an operation."`

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
	Seed     uint64        `help:"Of the random numbers: the same seed gives the same load."`
}

// reportFlags say what is written.
type reportFlags struct {
	JSON  string `name:"json" placeholder:"FILE" help:"Write the report as JSON too (- for standard output, in place of the text)."`
	Quiet bool   `help:"No line of progress each second."`
}

// config is what they ask for.
func (f *loadFlags) config() bench.Config {
	return bench.Config{
		Multiget: f.Multiget, Keys: f.Keys, KeyBytes: f.KeySize, Distribution: f.Distribution,
		ZipfS: f.ZipfS, HotKeys: f.HotKeys, HotShare: f.HotShare, Sizes: f.ValueSize,
		Preload: f.Preload, Lookaside: f.Lookaside, Verify: f.Verify,
		Warmup: f.Warmup, Duration: f.Duration, Requests: f.Requests, Rate: f.Rate, Seed: f.Seed,
	}
}

// progress is where a line a second goes, if anywhere.
func (f *reportFlags) progress() io.Writer {
	if f.Quiet {
		return nil
	}
	return os.Stderr
}

// write writes a report.
func (f *reportFlags) write(k *kong.Kong, r benchReport) error {
	if f.JSON != "-" {
		if err := r.WriteText(k.Stdout); err != nil {
			return err
		}
	}
	return writeJSON(k.Stdout, r, f.JSON)
}

// benchReport is what a run came to.
type benchReport interface {
	WriteText(w io.Writer) error
	WriteJSON(w io.Writer) error
}

// config is the load that the flags ask for.
func (b *benchCommand) config() bench.Config {
	c := b.loadFlags.config()
	c.Server, c.Threads, c.Conns, c.TLS = b.Server, b.Threads, b.Conns, b.TLS
	c.Protocol, c.Pipeline, c.Ratio = b.Protocol, b.Pipeline, b.Ratio
	c.Stall, c.ServerPID, c.Progress = b.Stall, b.ServerPID, b.progress()
	return c
}

// Run runs the load. Data that differed is an error; error replies are only
// reported, since a full server may give them.
func (b *benchCommand) Run(ctx context.Context, k *kong.Kong) error {
	// One more than the workers, which hold their threads: the clock of the
	// run must not wait for them.
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), b.Threads+1))
	report, err := bench.Run(ctx, b.config())
	if err != nil {
		return err
	}
	if err := b.write(k, report); err != nil {
		return err
	}
	if report.Corrupt > 0 {
		return fmt.Errorf("bench: %d of %d hits had the wrong data", report.Corrupt, report.Hits)
	}
	return nil
}

// writeJSON writes the report to path, or to standard output for -.
func writeJSON(stdout io.Writer, report benchReport, path string) error {
	switch path {
	case "":
		return nil
	case "-":
		return report.WriteJSON(stdout)
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
