package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// smallTrace writes a trace of keys below 2000, small ones more often, with
// sizes of their own.
func smallTrace(t testing.TB) (dir string) {
	t.Helper()
	var text []byte
	for i := range uint64(20_000) {
		key := fmix64(i) % (1 + fmix64(i+1<<40)%2000)
		text = fmt.Appendf(text, "%d %d %d\n", i, key, traceSize(key, 4000))
	}
	dir = t.TempDir()
	writeTrace(t, dir, "small.txt.gz", text)
	return dir
}

func TestBatches(t *testing.T) {
	w := &workload{trace: &Trace{Requests: []uint32{0, 1, 0, 0, 2, 1, 3, 0}}, sizes: make([]uint32, 4)}
	for _, c := range []struct {
		most int
		want [][]uint32
	}{
		{1, [][]uint32{{0}, {1}, {0}, {0}, {2}, {1}, {3}, {0}}},
		{3, [][]uint32{{0, 1}, {0}, {0, 2, 1}, {3, 0}}},
		{9, [][]uint32{{0, 1}, {0}, {0, 2, 1, 3}, {0}}},
	} {
		var got [][]uint32
		for from, to := range w.batches(c.most) {
			got = append(got, w.trace.Requests[from:to])
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("at most %d: got %v, want %v", c.most, got, c.want)
		}
	}
}

// TestReplayCounts replays with room for everything, so that each key is
// missed once, and with little.
func TestReplayCounts(t *testing.T) {
	c := ReplayConfig{
		Dir:     smallTrace(t),
		Rows:    []Row{{Trace: "small", MemoryMiB: 64}, {Trace: "small", MeanBytes: 1000, MemoryMiB: 64}, {Trace: "small", MemoryMiB: 4}},
		Columns: []string{"store", "lru40", "belady40"}, Jobs: 2, StoreRate: 1000,
	}
	table, err := Replay(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := OpenTrace(c.Dir, "small")
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range table.Lines {
		for j, res := range l.Results {
			name := fmt.Sprintf("%v, %s", l.Row, table.Columns[j])
			if res.Requests != 20_000 || res.Refused != 0 {
				t.Errorf("%s: got %d requests, %d refused, want 20000 and none", name, res.Requests, res.Refused)
			}
			if (res.CPU > 0) != (j == 0) {
				t.Errorf("%s: got %v of CPU", name, res.CPU)
			}
			all := uint64(len(trace.Keys))
			if few := i == 2; few && (res.Misses <= all || j < 2 && res.Evictions == 0) || !few && (res.Misses != all || res.Evictions != 0) {
				t.Errorf("%s: got %d misses, %d evictions; there are %d keys", name, res.Misses, res.Evictions, all)
			}
		}
	}
	if few := table.Lines[2].Results; few[2].Misses > few[0].Misses || few[2].Misses > few[1].Misses {
		t.Errorf("got %d misses of belady, fewer of the store (%d) or of lru (%d)", few[2].Misses, few[0].Misses, few[1].Misses)
	}
}

// TestReplayWrites has some keys only written, and some requests for the
// others: with room for all, a key is missed once, unless it was written first.
func TestReplayWrites(t *testing.T) {
	s := &aside{values: map[string]int{}}
	row := Row{Trace: "small", MemoryMiB: 64, WritePercent: 30, WrittenPercent: 20}
	c := ReplayConfig{
		Dir: smallTrace(t), Rows: []Row{row}, Columns: []string{"store", "server", "lru40", "s3fifo40", "belady40"}, Server: s.listen(t),
	}
	table, err := Replay(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := OpenTrace(c.Dir, "small")
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorkload(trace, row)
	if err != nil {
		t.Fatal(err)
	}
	var want Result
	seen, read := map[uint32]bool{}, map[uint32]bool{}
	for i, k := range trace.Requests {
		if !w.isWrite(i) {
			want.count(w.sizes[k], seen[k])
			read[k] = true
		}
		seen[k] = true
	}
	if n := want.Requests; n < 10_000 || n > 12_500 { // 0.7 * 0.8 of 20,000
		t.Errorf("%d reads of 20000 requests, want about 11200", n)
	}
	if n := len(read); n < len(trace.Keys)*75/100 || n > len(trace.Keys)*85/100 {
		t.Errorf("%d of %d keys were read, want about 80 %%", n, len(trace.Keys))
	}
	for j, got := range table.Lines[0].Results {
		got.CPU, got.Evictions = 0, 0
		if got != want {
			t.Errorf("%s: got %+v, want %+v", table.Columns[j], got, want)
		}
	}
	if len(s.values) != len(trace.Keys) {
		t.Errorf("server has %d keys, want all %d", len(s.values), len(trace.Keys))
	}
}

// TestBeladyKnowsWrites has a key that is written before it is read next: it is
// worth no room before that.
func TestBeladyKnowsWrites(t *testing.T) {
	trace := &Trace{Keys: []uint64{1, 2}, Requests: []uint32{0, 1, 0, 1}, Writes: []bool{false, false, true, false}, Sizes: []uint32{10, 10}}
	w, err := newWorkload(trace, Row{})
	if err != nil {
		t.Fatal(err)
	}
	if got := simulate(w, "belady", 0, keyTextBytes+10); got.Requests != 3 || got.Misses != 2 {
		t.Errorf("got %d misses of %d requests, want 2 of 3", got.Misses, got.Requests)
	}
}

func TestReplayValidates(t *testing.T) {
	for _, c := range []ReplayConfig{
		{Columns: []string{"lru"}},
		{Columns: []string{"fifo40"}},
		{Columns: []string{"server"}},
		{Columns: []string{"server"}, Server: "x", ServerStart: []string{"x"}, Rows: RowsTable()[:1]},
		{Columns: []string{"server"}, Server: "x"},
		{Rows: []Row{{Trace: "x", MemoryMiB: 0}}},
		{Rows: []Row{{Trace: "x", MeanBytes: -1, MemoryMiB: 1}}},
		{Rows: []Row{{Trace: "x", MemoryMiB: 1, WritePercent: 101}}},
		{Rows: []Row{{Trace: "x", MemoryMiB: 1, WrittenPercent: -1}}},
		{Batch: -1},
		{Jobs: -1},
		{StoreRate: -1},
	} {
		if _, err := Replay(t.Context(), c); err == nil {
			t.Errorf("%+v: got no error", c)
		}
	}
	if err := (ReplayConfig{}).Validate(); err != nil {
		t.Errorf("zero value: got %v", err)
	}
	dir := t.TempDir()
	writeTrace(t, dir, "bare.trace", []byte("1\n"))
	for _, row := range []Row{{Trace: "bare", MemoryMiB: 64}, {Trace: "absent", MemoryMiB: 64}} {
		if _, err := Replay(t.Context(), ReplayConfig{Dir: dir, Rows: []Row{row}}); err == nil {
			t.Errorf("%v: got no error", row)
		}
	}
}

func TestReplayEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Replay(ctx, ReplayConfig{Dir: smallTrace(t), Rows: []Row{{Trace: "small", MemoryMiB: 64}}}); err == nil {
		t.Error("got no error")
	}
}

// aside is a server without limits that speaks what a replay sends.
type aside struct {
	mu     sync.Mutex // all below
	values map[string]int
	wrong  string // what it answers to everything, if not empty
}

func (s *aside) listen(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		served.Wait()
	})
	return l.Addr().String()
}

func (s *aside) serve(c net.Conn) {
	defer c.Close()
	in, out := bufio.NewReader(c), bufio.NewWriter(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		s.mu.Lock()
		reply := "EN\r\n"
		switch words[0] {
		case "ms":
			n, _ := strconv.Atoi(words[2])
			if _, err := in.Discard(n + 2); err == nil {
				s.values[words[1]] = n
			}
			reply = "HD\r\n"
		case "mg":
			if _, ok := s.values[words[1]]; ok {
				reply = "HD\r\n"
			}
		case "stats":
			reply = "STAT version 1 2\r\nSTAT evictions 17\r\nEND\r\n"
		}
		if s.wrong != "" {
			reply = s.wrong
		}
		s.mu.Unlock()
		io.WriteString(out, reply)
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

func TestReplayServer(t *testing.T) {
	s := &aside{values: map[string]int{}}
	c := ReplayConfig{
		Dir: smallTrace(t), Rows: []Row{{Trace: "small", MemoryMiB: 64}}, Columns: []string{"server", "lru40"},
		Server: s.listen(t), ServerName: "aside", ServerPID: os.Getpid(),
	}
	table, err := Replay(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	got, want := table.Lines[0].Results[0], table.Lines[0].Results[1]
	want.Evictions, want.CPU = 17, got.CPU
	if got != want || table.Columns[0] != "aside" {
		t.Errorf("%s: got %+v, want %+v", table.Columns[0], got, want)
	}
	trace, _ := OpenTrace(c.Dir, "small")
	for k, key := range trace.Keys {
		if text := fmt.Sprintf("%016x", key); s.values[text] != int(trace.Sizes[k]) {
			t.Errorf("key %s: stored %d bytes, want %d", text, s.values[text], trace.Sizes[k])
		}
	}

	for _, wrong := range []string{"ERROR\r\n", "VA 0\r\n\r\n"} {
		s.mu.Lock()
		s.wrong = wrong
		s.mu.Unlock()
		if _, err := Replay(t.Context(), c); err == nil || !strings.Contains(err.Error(), strconv.Quote(wrong)[1:4]) {
			t.Errorf("answered %q: got error %v", wrong, err)
		}
	}
}

// TestReplayStartsServers replays against a real server, a fresh one a row.
func TestReplayStartsServers(t *testing.T) {
	path, err := exec.LookPath("memcached")
	if err != nil {
		t.Skipf("no memcached: %v", err)
	}
	c := ReplayConfig{
		Dir: smallTrace(t), Rows: []Row{{Trace: "small", MemoryMiB: 64}, {Trace: "small", MemoryMiB: 64}}, Columns: []string{"server", "lru40"},
		ServerStart: []string{path, "-u", "root", "-l", "127.0.0.1", "-p", "{port}", "-t", "1", "-m", "{memory}"},
	}
	table, err := Replay(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range table.Lines {
		got, want := l.Results[0], l.Results[1]
		if got.CPU = 0; got != want {
			t.Errorf("row %d: got %+v, want %+v", i, got, want)
		}
	}

	began := time.Now()
	c.ServerStart = []string{"false"}
	if _, err := Replay(t.Context(), c); err == nil || time.Since(began) > serverStartMax {
		t.Errorf("a command that ends: got error %v after %v", err, time.Since(began))
	}
	c.ServerStart = []string{"/no/such/command"}
	if _, err := Replay(t.Context(), c); err == nil {
		t.Error("no such command: got no error")
	}
}

func sampleTable() *Table {
	return &Table{
		Columns: []string{"store", "lru40"},
		Lines: []Line{
			{Row{Trace: "a", MemoryMiB: 64}, 1 << 27, []Result{{1000, 90, 5000, 400, 7, 1, 1500 * time.Microsecond}, {1000, 100, 5000, 500, 8, 0, 0}}},
			{Row{Trace: "b", MeanBytes: 224, MemoryMiB: 32}, 1 << 26, []Result{{10, 3, 100, 40, 0, 0, 0}, {10, 2, 100, 20, 0, 0, 0}}},
		},
	}
}

func TestTableTSV(t *testing.T) {
	table := sampleTable()
	var text bytes.Buffer
	if err := table.WriteTSV(&text, "one line\nand another"); err != nil {
		t.Fatal(err)
	}
	want := "# one line\n# and another\ntrace\tmean_bytes\tmemory_mib\tall_bytes\trequests\trequested_bytes\t" +
		"store_miss_percent\tstore_misses\tstore_missed_bytes\tstore_evictions\tstore_refused\tstore_cpu_ms\t" +
		"lru40_miss_percent\tlru40_misses\tlru40_missed_bytes\tlru40_evictions\tlru40_refused\tlru40_cpu_ms\n" +
		"a\t0\t64\t134217728\t1000\t5000\t9.000\t90\t400\t7\t1\t1\t10.000\t100\t500\t8\t0\t0\n" +
		"b\t224\t32\t67108864\t10\t100\t30.000\t3\t40\t0\t0\t0\t20.000\t2\t20\t0\t0\t0\n"
	if text.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &text, want)
	}
	got, err := ReadTable(&text)
	table.Lines[0].Results[0].CPU = time.Millisecond // as fine as it is written
	if err != nil || !reflect.DeepEqual(got, table) {
		t.Errorf("read: got %+v, %v, want %+v", got, err, table)
	}

	table.Lines[1].WritePercent, table.Lines[1].WrittenPercent = 30, 5
	text.Reset()
	if err := table.WriteTSV(&text, ""); err != nil || !strings.Contains(text.String(), "\nb\t224\t32\t30\t5\t67108864\t") {
		t.Errorf("with writes: got %v\n%s", err, &text)
	}
	if got, err = ReadTable(&text); err != nil || !reflect.DeepEqual(got, table) {
		t.Errorf("with writes, read: got %+v, %v, want %+v", got, err, table)
	}

	for _, bad := range []string{"", "# only this\n", "trace\tmean_bytes\n", strings.Replace(want, "\t90\t", "\tx\t", 1), want + "c\t1\n"} {
		if _, err := ReadTable(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}

func TestTableText(t *testing.T) {
	table := sampleTable()
	table.Columns = append(table.Columns, "belady40")
	table.Lines[0].Results = append(table.Lines[0].Results, Result{1000, 40, 5000, 200, 9, 0, 0})
	table.Lines[1].Results = append(table.Lines[1].Results, Result{10, 1, 100, 10, 0, 0, 0})
	table.Reference = &Table{Columns: []string{"memcached"}, Lines: []Line{{Row{Trace: "a", MemoryMiB: 64}, 0, []Result{{Requests: 1000, Misses: 120}}}}}
	var text bytes.Buffer
	if err := table.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(" +").ReplaceAllString(text.String(), " ")
	for _, want := range []string{
		"a own 64 50.0 12.00 0.750 9.00 10.00 4.00 17 % | 8.00 7 1.50 10.00 8 4.00 9\n",
		"b 224 32 50.0 - - 30.00 20.00 10.00 -100 % | 40.00 0 0.00 20.00 0 10.00 0\n",
		"store / memcached: mean of the ratios 0.7500 over 1 rows, 0 above 1; worst 0.750 (a, own sizes, 64 MB), -3.00 points (a, own sizes, 64 MB)\n",
		"store / lru40: mean of the ratios 1.2000 over 2 rows, 1 above 1; worst 1.500 (b, mean 224, 32 MB), +10.00 points (b, mean 224, 32 MB)\n",
		"store refused 1 values\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwithout\n%s", got, want)
		}
	}
}

func TestReplayColumns(t *testing.T) {
	got, err := ReplayColumns([]string{"store", "lru", "s3fifo84"}, []int{84, 40})
	if want := []string{"store", "lru84", "lru40", "s3fifo84"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if _, err := ReplayColumns([]string{"lru"}, []int{-1}); err == nil {
		t.Error("overhead below 0: got no error")
	}
}

// TestRows holds that no row stands twice, so that none is tuned to that is
// held out.
func TestRows(t *testing.T) {
	seen := map[Row]bool{}
	for _, row := range slices.Concat(RowsTable(), RowsOther(), RowsWrites()) {
		if seen[row] {
			t.Errorf("%v stands twice", row)
		}
		seen[row] = true
	}
}
