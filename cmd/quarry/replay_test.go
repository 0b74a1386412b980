package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/bench"
)

func parseReplay(t *testing.T, args ...string) (bench.ReplayConfig, error) {
	t.Helper()
	var c cli
	parser, err := kong.New(&c, options()...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(append([]string{"bench", "replay", "--quiet"}, args...)); err != nil {
		return bench.ReplayConfig{}, err
	}
	return c.Bench.Replay.config()
}

func TestReplayFlags(t *testing.T) {
	c, err := parseReplay(t, "--trace=orm-busy", "--mean-size=8000,224", "--memory=64,128", "--policy=store,lru,s3fifo84", "--overhead=84,40")
	if err != nil {
		t.Fatal(err)
	}
	wantRows := []bench.Row{{Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 64}, {Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 128},
		{Trace: "orm-busy", MeanBytes: 224, MemoryMiB: 64}, {Trace: "orm-busy", MeanBytes: 224, MemoryMiB: 128}}
	if want := []string{"store", "lru84", "lru40", "s3fifo84"}; !slices.Equal(c.Rows, wantRows) || !slices.Equal(c.Columns, want) {
		t.Errorf("got %v, %v, want %v, %v", c.Rows, c.Columns, wantRows, want)
	}
	c, err = parseReplay(t, "--rows=all", "--columns=server", "--server-start=memcached -p {port}")
	if err != nil || c.Validate() != nil || len(c.Rows) != len(bench.RowsTable())+len(bench.RowsOther())+len(bench.RowsWrites()) {
		t.Errorf("got %d rows, %v, %v", len(c.Rows), err, c.Validate())
	}
	c, err = parseReplay(t, "--trace=x", "--memory=64", "--writes=30", "--written=20")
	if want := (bench.Row{Trace: "x", MemoryMiB: 64, WritePercent: 30, WrittenPercent: 20}); err != nil || !slices.Equal(c.Rows, []bench.Row{want}) {
		t.Errorf("got %v, %v, want %v", c.Rows, err, want)
	}
	for _, bad := range [][]string{
		{}, {"--rows=writes", "--writes=1"}, {"--rows=table", "--written=1"}, {"--trace=x"}, {"--memory=64"}, {"--rows=table", "--trace=x"}, {"--rows=none"}, {"--rows=table", "--overhead=-1"},
		{"--rows=table", "--reference=/no/such/file"},
	} {
		if _, err := parseReplay(t, bad...); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}

// TestReplayRun runs the command on a trace of its own, with its own figures
// as the reference.
func TestReplayRun(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tiny.txt"), []byte("1 7 100\n2 8 200\n3 7 100\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tsv := filepath.Join(dir, "out.tsv")
	for _, args := range [][]string{{"--columns=lru"}, {"--columns=store", "--reference=" + tsv}} {
		var c cli
		parser, err := kong.New(&c, options()...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(append([]string{"bench", "replay", "--quiet", "--traces=" + dir, "--trace=tiny", "--memory=16", "--tsv=" + tsv}, args...)); err != nil {
			t.Fatal(err)
		}
		if err := c.Bench.Replay.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	table, err := readTable(tsv)
	if err != nil || len(table.Lines) != 1 || table.Lines[0].Results[0].Misses != 2 || table.Columns[0] != "store" {
		t.Errorf("got %+v, %v", table, err)
	}
}
