package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/quarrycache/quarry/bench"
)

// replayCommand is quarry bench replay: bench.ReplayConfig as flags.
type replayCommand struct {
	Traces string `default:"${traces}" placeholder:"DIR" help:"Folder of the traces (${default}; QUARRY_TRACES)."`

	Rows     string `enum:"table,other,writes,all,one" default:"one" help:"Rows: table, other and writes are presets, all is the three, one is what --trace, --mean-size, --memory and the flags for writes say."`
	Trace    string `placeholder:"NAME" help:"Trace, such as orm-busy."`
	MeanSize []int  `placeholder:"BYTES" help:"Mean sizes of values, one or more; 0 is the trace's own sizes."`
	Memory   []int  `placeholder:"MB" help:"Memory of the cache, one or more."`

	Writes  int `placeholder:"PERCENT" help:"Of the requests that are writes, whatever their keys: sets of values that may be there."`
	Written int `placeholder:"PERCENT" help:"Of the keys that are written and never read."`

	Columns  []string `default:"store,lru,s3fifo" aliases:"policy" help:"What each row is replayed against: store (in this process), server, or simulators: ${policies}. A simulator is charged --overhead, or the bytes behind its name: lru84."`
	Overhead []int    `default:"40" help:"Bytes that simulators charge for an item beyond key and value; with more than one, each simulator has as many columns."`

	Batch       int     `default:"32" help:"Requests sent together, before the values that they missed."`
	Rate        float64 `default:"100000" help:"Requests in a second of the store's clock; 0: it stands still."`
	Loops       int     `default:"1" help:"Loops that the store is made for."`
	Server      string  `placeholder:"ADDRESS" help:"With the column server: a running one, for one row."`
	ServerPID   int     `name:"server-pid" placeholder:"PID" help:"Its process, to report its CPU."`
	ServerStart string  `placeholder:"COMMAND" help:"With the column server: starts one for each row; {port} and {memory} are replaced."`
	ServerName  string  `default:"server" help:"Name of the server's column."`

	Reference string `placeholder:"FILE" help:"A TSV of an earlier run: the first column here is compared with the first there."`
	Jobs      int    `default:"2" help:"Replays at once."`
	TSV       string `name:"tsv" placeholder:"FILE" help:"Write the counts as TSV too (- for standard output, in place of the text)."`
	Comment   string `help:"Comment for the head of the TSV."`
	Quiet     bool   `help:"No line of progress for each replay."`
}

// config is the replay that the flags ask for.
func (r *replayCommand) config() (bench.ReplayConfig, error) {
	c := bench.ReplayConfig{
		Dir: r.Traces, Batch: r.Batch, Jobs: r.Jobs, StoreRate: r.Rate,
		Server: r.Server, ServerPID: r.ServerPID, ServerStart: strings.Fields(r.ServerStart), ServerName: r.ServerName,
	}
	c.Store.Loops = r.Loops
	var err error
	if c.Columns, err = bench.ReplayColumns(r.Columns, r.Overhead); err != nil {
		return c, err
	}
	if c.Rows, err = r.rows(); err != nil {
		return c, err
	}
	if r.Reference != "" {
		if c.Reference, err = readTable(r.Reference); err != nil {
			return c, err
		}
	}
	if !r.Quiet {
		c.Progress = os.Stderr
	}
	return c, nil
}

func (r *replayCommand) rows() ([]bench.Row, error) {
	single := r.Trace != "" || len(r.MeanSize) > 0 || len(r.Memory) > 0 || r.Writes != 0 || r.Written != 0
	switch {
	case r.Rows != "one" && single:
		return nil, fmt.Errorf("--rows=%s has its own traces, sizes, memory and writes", r.Rows)
	case r.Rows == "table":
		return bench.RowsTable(), nil
	case r.Rows == "other":
		return bench.RowsOther(), nil
	case r.Rows == "writes":
		return bench.RowsWrites(), nil
	case r.Rows == "all":
		return slices.Concat(bench.RowsTable(), bench.RowsOther(), bench.RowsWrites()), nil
	case r.Trace == "" || len(r.Memory) == 0:
		return nil, errors.New("want --rows=table, other, writes or all, or --trace and --memory")
	}
	means := r.MeanSize
	if len(means) == 0 {
		means = []int{0}
	}
	var rows []bench.Row
	for _, mean := range means {
		for _, memory := range r.Memory {
			rows = append(rows, bench.Row{Trace: r.Trace, MeanBytes: mean, MemoryMiB: memory, WritePercent: r.Writes, WrittenPercent: r.Written})
		}
	}
	return rows, nil
}

func readTable(path string) (*bench.Table, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return bench.ReadTable(file)
}

// Run replays and prints.
func (r *replayCommand) Run(ctx context.Context) error {
	c, err := r.config()
	if err != nil {
		return err
	}
	table, err := bench.Replay(ctx, c)
	if err != nil {
		return err
	}
	if r.TSV == "-" {
		return table.WriteTSV(os.Stdout, r.Comment)
	}
	if err := table.WriteText(os.Stdout); err != nil || r.TSV == "" {
		return err
	}
	file, err := os.Create(r.TSV)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := table.WriteTSV(file, r.Comment); err != nil {
		return err
	}
	return file.Close()
}
