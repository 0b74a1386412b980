package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestReadProcUse(t *testing.T) {
	const stat = "42 (a) b (c)) S 1 2 3 4 -1 4194560 100 0 0 0 1234 567 8 9 20 0 6 0 100 1000 200\n"
	const status = "Name:\ta) b (c)\nVmPeak:\t  9999 kB\nVmRSS:\t   2048 kB\nThreads:\t6\n"
	for _, c := range []struct {
		name, stat, status string
		want               procUse
		fails              bool
	}{
		{"running", stat, status, procUse{user: 12340 * time.Millisecond, system: 5670 * time.Millisecond, cpu: 18010 * time.Millisecond, rssBytes: 2 << 20}, false},
		{"zombie", stat, "Name:\ta\n", procUse{user: 12340 * time.Millisecond, system: 5670 * time.Millisecond, cpu: 18010 * time.Millisecond}, false},
		{"short", "42 (a) S 1 2\n", status, procUse{}, true},
		{"no number", "42 (a) S 1 2 3 4 -1 4194560 100 0 0 0 x 567 8 9\n", status, procUse{}, true},
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "42")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"stat": c.stat, "status": c.status} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := readProcUse(root, 42)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, c.want)
		}
	}
	if threadsCPU(t.TempDir()) != 0 {
		t.Error("CPU time of no process")
	}
	own, err := readProcUse("/proc", os.Getpid())
	if err != nil || own.cpu <= 0 {
		t.Errorf("own use: %+v, %v", own, err)
	}
	if _, err := readProcUse(t.TempDir(), 42); err == nil {
		t.Error("no such process: got no error")
	}
}
