package bench

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// Columns that are no simulators.
const (
	columnStore  = "store"  // the store, in this process
	columnServer = "server" // a server, over a connection
)

// ReplayConfig says which traces are replayed, and against what. The zero
// value of a field is its default.
type ReplayConfig struct {
	Dir  string // where the traces are
	Rows []Row  // what is replayed (RowsTable)

	// Columns are what each row is replayed against: store, server, or the
	// name of a simulator with the bytes that it charges for an item beyond
	// key and value, such as lru40. (store, lru40, s3fifo40)
	Columns []string

	Batch int // most requests sent together, before the values that they missed (32)
	Jobs  int // replays at once (1)

	Store     store.Config // of the store column; its limit is the row's
	StoreRate float64      // requests in a second of the store's clock (0: it stands still)

	ServerName  string   // what the server's column is called (server)
	Server      string   // a running server, which one row can be sent to
	ServerStart []string // or a command that serves: {port} and {memory} are replaced; started anew for each row
	ServerPID   int      // with Server: whose CPU to report (0: nobody's)

	Reference *Table    // of an earlier run: its first column is compared with
	Progress  io.Writer // gets a line when a replay is done (nil: none)
}

// Row is a line of the table: a trace, its sizes, the memory for it, and which
// of its requests are writes beside those that are writes in the trace.
type Row struct {
	Trace     string
	MeanBytes int // mean size of values; 0: the trace's own sizes
	MemoryMiB int // -m

	WritePercent   int // of all requests are writes, whatever their keys
	WrittenPercent int // of the keys are written and never read
}

// String is the row in short.
func (r Row) String() string {
	mean, writes := "own sizes", ""
	if r.MeanBytes > 0 {
		mean = fmt.Sprintf("mean %d", r.MeanBytes)
	}
	if r.WritePercent > 0 {
		writes += fmt.Sprintf(", %d %% writes", r.WritePercent)
	}
	if r.WrittenPercent > 0 {
		writes += fmt.Sprintf(", %d %% of keys only written", r.WrittenPercent)
	}
	return fmt.Sprintf("%s, %s, %d MB%s", r.Trace, mean, r.MemoryMiB, writes)
}

// load is the row without what differs between rows of the same workload.
func (r Row) load() Row {
	r.MemoryMiB = 0
	return r
}

// Result is what a replay has counted.
type Result struct {
	Requests, Misses   uint64 // reads alone: a write hits and misses nothing
	Bytes, MissedBytes uint64 // of the objects asked for, and of those missed
	Evictions          uint64
	Refused            uint64 // values that were not stored
	CPU                time.Duration
}

// count counts a request for an object of size bytes.
func (res *Result) count(size uint32, hit bool) {
	res.Requests++
	res.Bytes += uint64(size)
	if !hit {
		res.Misses++
		res.MissedBytes += uint64(size)
	}
}

// MissPercent is how many of the requests missed.
func (res *Result) MissPercent() float64 {
	return 100 * ratio(float64(res.Misses), float64(res.Requests))
}

// ByteMissPercent is how many of the bytes asked for were missed.
func (res *Result) ByteMissPercent() float64 {
	return 100 * ratio(float64(res.MissedBytes), float64(res.Bytes))
}

// CPUUSPerRequest is the CPU time of a request in microseconds.
func (res *Result) CPUUSPerRequest() float64 {
	return ratio(float64(res.CPU.Microseconds()), float64(res.Requests))
}

// WithDefaults is c with each zero field that has a default set to it.
func (c ReplayConfig) WithDefaults() ReplayConfig {
	if len(c.Rows) == 0 {
		c.Rows = RowsTable()
	}
	if len(c.Columns) == 0 {
		c.Columns = []string{columnStore, "lru40", "s3fifo40"}
	}
	setDefault(&c.Batch, 32)
	setDefault(&c.Jobs, 1)
	setDefault(&c.ServerName, columnServer)
	return c
}

// Validate names the first field that cannot be, and its value.
func (c ReplayConfig) Validate() error {
	c = c.WithDefaults()
	for _, row := range c.Rows {
		if row.MeanBytes < 0 || row.MeanBytes > traceSizeMax || row.MemoryMiB < 1 {
			return fmt.Errorf("bench: row %v: want a mean size up to %d and at least 1 MB", row, traceSizeMax)
		}
		if min(row.WritePercent, row.WrittenPercent) < 0 || max(row.WritePercent, row.WrittenPercent) > 100 {
			return fmt.Errorf("bench: row %v: want 0 to 100 percent of writes", row)
		}
	}
	for _, column := range c.Columns {
		switch column {
		case columnStore:
		case columnServer:
			if (c.Server == "") == (len(c.ServerStart) == 0) {
				return fmt.Errorf("bench: server %q, command %q: want one of the two", c.Server, strings.Join(c.ServerStart, " "))
			}
			if c.Server != "" && len(c.Rows) > 1 {
				return fmt.Errorf("bench: server %s and %d rows: want a command that starts a fresh server for each", c.Server, len(c.Rows))
			}
		default:
			if _, _, err := splitPolicy(column); err != nil {
				return err
			}
		}
	}
	switch {
	case c.Batch < 1 || c.Batch > pipelineMax:
		return fmt.Errorf("bench: batch %d: want 1 to %d", c.Batch, pipelineMax)
	case c.Jobs < 1 || c.Jobs > threadsMax:
		return fmt.Errorf("bench: jobs %d: want 1 to %d", c.Jobs, threadsMax)
	case c.StoreRate < 0:
		return fmt.Errorf("bench: rate %g: want none below 0", c.StoreRate)
	}
	return nil
}

// workload is a trace with a size for each of its keys.
type workload struct {
	trace  *Trace
	sizes  []uint32 // by key
	bytes  uint64   // of all objects with their keys
	writes []bool   // by request; nil: all are reads
}

func newWorkload(t *Trace, row Row) (*workload, error) {
	w := &workload{trace: t, sizes: t.Sizes, writes: t.Writes}
	switch {
	case row.MeanBytes > 0:
		w.sizes = make([]uint32, len(t.Keys))
		for k, key := range t.Keys {
			w.sizes[k] = traceSize(key, row.MeanBytes)
		}
	case w.sizes == nil:
		return nil, fmt.Errorf("bench: trace %s has no sizes: want a mean size", t.Name)
	}
	for _, size := range w.sizes {
		w.bytes += keyTextBytes + uint64(size)
	}
	if row.WritePercent > 0 || row.WrittenPercent > 0 {
		w.addWrites(row)
	}
	return w, nil
}

// addWrites makes writes of the requests that row asks for: which ones follows
// from their keys and their places in the trace alone.
func (w *workload) addWrites(row Row) {
	const byKey, byPlace = 0x517cc1b727220a95, 0x2545f4914f6cdd1d // no seeds of the sizes
	w.writes = make([]bool, len(w.trace.Requests))
	for i, k := range w.trace.Requests {
		w.writes[i] = w.trace.isWrite(i) ||
			fmix64(w.trace.Keys[k]^byKey)%100 < uint64(row.WrittenPercent) ||
			fmix64(uint64(i)^byPlace)%100 < uint64(row.WritePercent)
	}
}

// isWrite reports whether request i stores its key without asking for it.
func (w *workload) isWrite(i int) bool { return w.writes != nil && w.writes[i] }

// batches are the requests in their order, from one up to another, up to n
// together, and no key twice in a batch: it would miss twice, for it is stored
// when the batch is over.
func (w *workload) batches(n int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		last := make([]int, len(w.sizes)) // where each key was asked for last, counted from 1
		requests, start := w.trace.Requests, 0
		for i, k := range requests {
			if i-start == n || last[k] > start {
				if !yield(start, i) {
					return
				}
				start = i
			}
			last[k] = i + 1
		}
		if start < len(requests) {
			yield(start, len(requests))
		}
	}
}

// replay is a replay in progress.
type replay struct {
	config ReplayConfig
	loads  map[Row]func() (*workload, error) // by all but the memory; each is made when first used
	table  *Table
}

// Replay replays each row against each column: look-aside, which is to get a
// key, and on a miss to set it. A write sets it at once.
func Replay(ctx context.Context, c ReplayConfig) (*Table, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &replay{config: c.WithDefaults(), loads: map[Row]func() (*workload, error){}}
	r.prepare()
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	return r.table, nil
}

// prepare lays out the table, and shares traces and sizes between its rows.
func (r *replay) prepare() {
	c := &r.config
	r.table = newTable(c)
	traces := map[string]func() (*Trace, error){}
	for _, row := range c.Rows {
		name := row.Trace
		if traces[name] == nil {
			traces[name] = sync.OnceValues(func() (*Trace, error) { return OpenTrace(c.Dir, name) })
		}
		key := row.load()
		if r.loads[key] == nil {
			open := traces[name]
			r.loads[key] = sync.OnceValues(func() (*workload, error) {
				t, err := open()
				if err != nil {
					return nil, err
				}
				return newWorkload(t, key)
			})
		}
	}
}

// run does all replays, Jobs at a time, and ends at the first error.
func (r *replay) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan [2]int)
	var running sync.WaitGroup
	for range r.config.Jobs {
		running.Go(func() {
			for at := range work {
				if err := r.replayCell(ctx, at[0], at[1]); err != nil {
					stop(err)
				}
			}
		})
	}
	for i := range r.config.Rows {
		for j := range r.config.Columns {
			if ctx.Err() == nil {
				work <- [2]int{i, j}
			}
		}
	}
	close(work)
	running.Wait()
	return context.Cause(ctx)
}

// replayCell replays row i against column j.
func (r *replay) replayCell(ctx context.Context, i, j int) error {
	if ctx.Err() != nil {
		return nil
	}
	row, column := r.config.Rows[i], r.config.Columns[j]
	w, err := r.loads[row.load()]()
	if err != nil {
		return err
	}
	began := time.Now()
	var res Result
	switch column {
	case columnStore:
		res, err = replayStore(ctx, &r.config, w, row)
	case columnServer:
		res, err = replayServer(ctx, &r.config, w, row)
	default:
		name, overhead, _ := splitPolicy(column)
		res = simulate(w, name, overhead, uint64(row.MemoryMiB)<<20)
	}
	if err != nil {
		return fmt.Errorf("bench: replay %v: %w", row, err)
	}
	line := &r.table.Lines[i]
	line.Results[j] = res
	if j == 0 { // one of the replays of the line, which may run at once
		line.AllBytes = w.bytes
	}
	if r.config.Progress != nil {
		fmt.Fprintf(r.config.Progress, "%v, %s: %.2f %% misses in %.1f s\n", row, r.table.Columns[j], res.MissPercent(), time.Since(began).Seconds())
	}
	return nil
}

// tracesDefault is where the traces are, seen from the project's folder.
const tracesDefault = "../shared/traces"

// TracesDir is where the traces are, unless told otherwise: what
// QUARRY_TRACES says, or ../shared/traces.
func TracesDir() string {
	if dir := os.Getenv("QUARRY_TRACES"); dir != "" {
		return dir
	}
	return tracesDefault
}
