package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// gone waits for the end of a server that was sent s, or told to end.
func (p *process) gone(t testing.TB, s os.Signal) {
	t.Helper()
	if s != nil {
		p.cmd.Process.Signal(s)
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("still there after %v: %s", patience, p.stderr.String())
	}
}

// says fails if the server has not printed text once it listens.
func (p *process) says(t testing.TB, text string) {
	t.Helper()
	await(t, "line about listening", func() bool { return strings.Contains(p.stderr.String(), "listening") })
	if !strings.Contains(p.stderr.String(), text) {
		t.Errorf("nothing about %q: %s", text, p.stderr.String())
	}
}

func TestWarmRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "items")
	args := []string{"-p", "-1", "-m", "16", "-A", "-e", file}
	p := start(t, append(args, "-t", "4")...)
	addr := p.tcp(t)
	p.says(t, "the memory file is new")
	if got := ask(t, "tcp", addr, "set k 5 1000 5\r\nvalue"); got != "STORED" {
		t.Fatalf("set: got %q", got)
	}
	before := ask(t, "tcp", addr, "mg k v f c")
	if got := ask(t, "tcp", addr, "cache_memlimit 32"); !strings.HasPrefix(got, "MEMLIMIT_ADJUST_FAILED") {
		t.Errorf("cache_memlimit: got %q", got)
	}
	p.end(t, unix.SIGUSR1)

	p = start(t, append(args, "-t", "1")...)
	addr = p.tcp(t)
	p.says(t, "1 items are back")
	if got := ask(t, "tcp", addr, "mg k v f c"); got != before || !strings.HasPrefix(got, "VA 5 f5 c") {
		t.Errorf("after USR1: got %q want %q", got, before)
	}
	ask(t, "tcp", addr, "shutdown graceful")
	p.wantEnd(t)

	p = start(t, args...)
	addr = p.tcp(t)
	if got := ask(t, "tcp", addr, "mg k v f c"); got != before {
		t.Errorf("after shutdown graceful: got %q want %q", got, before)
	}
	p.end(t, unix.SIGTERM)

	// TERM ends it as it ends memcached: without a word to the next one.
	p = start(t, args...)
	addr = p.tcp(t)
	p.says(t, "the server before was not stopped gracefully")
	if got := ask(t, "tcp", addr, "mg k v"); got != "EN" {
		t.Errorf("after TERM: got %q want EN", got)
	}
	p.end(t, unix.SIGUSR1)

	p = start(t, append(args, "-m", "32")...)
	p.tcp(t)
	p.says(t, "it was made for 16777216 bytes of items, not 33554432")
	p.end(t, unix.SIGINT)
}

// Metadata is read once: a start that fails for another reason leaves it.
func TestFailedStartKeepsItems(t *testing.T) {
	file := filepath.Join(t.TempDir(), "items")
	p := start(t, "-p", "-1", "-m", "16", "-e", file)
	ask(t, "tcp", p.tcp(t), "set k 0 0 1\r\nv")
	p.end(t, unix.SIGUSR1)
	if got := finish(t, quarryd, "quarryd", "-s", "/no/such/folder/socket", "-m", "16", "-e", file); got.code != 71 {
		t.Errorf("got %d %q want 71", got.code, got.stderr)
	}
	p = start(t, "-p", "-1", "-m", "16", "-e", file)
	if got := ask(t, "tcp", p.tcp(t), "mg k v"); got != "VA 1" {
		t.Errorf("got %q want VA 1", got)
	}
}

func TestMemoryFileRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "items")
	if err := os.WriteFile(file+".meta", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := finish(t, quarryd, "quarryd", "-p", "-1", "-e", file)
	if want := "server: store: the metadata file is empty: " + file + ".meta\n"; got.code != 1 || !strings.HasSuffix(got.stderr, want) {
		t.Errorf("got %d %q want 1 %q", got.code, got.stderr, want)
	}
	got = finish(t, quarryd, "quarryd", "-p", "-1", "-e", filepath.Join(dir, "no/such/folder"))
	if got.code != 1 || !strings.Contains(got.stderr, "no such file or directory") {
		t.Errorf("got %d %q", got.code, got.stderr)
	}
	used := filepath.Join(dir, "used")
	p := start(t, "-p", "-1", "-e", used)
	p.tcp(t)
	p.says(t, "the memory file is new")
	got = finish(t, quarryd, "quarryd", "-p", "-1", "-e", used)
	if got.code != 1 || !strings.Contains(got.stderr, "another process uses it") {
		t.Errorf("got %d %q", got.code, got.stderr)
	}
}

// A server that is killed while clients write to it comes back with values that
// they sent, whole, under their own keys.
func TestKilledUnderLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "items")
	args := []string{"-p", "-1", "-m", "16", "-t", "2", "-e", file, "--recover", "--item-checksums"}
	for round := range 2 {
		p := start(t, args...)
		addr := p.tcp(t)
		var writers sync.WaitGroup
		for i := range 4 {
			writers.Go(func() { writeUntilError(addr, i) })
		}
		// Long enough for evictions.
		await(t, "items", func() bool { return stat(t, addr, "cmd_set") > 50_000 })
		p.gone(t, unix.SIGKILL)
		writers.Wait()

		p = start(t, args...)
		addr = p.tcp(t)
		p.says(t, "items recovered")
		if items, found := stat(t, addr, "curr_items"), checkWritten(t, addr); found == 0 || found > items {
			t.Errorf("round %d: %d items, %d found", round, items, found)
		}
		p.gone(t, unix.SIGKILL)
	}
}

const writtenKeys = 20_000

// writeUntilError pipelines sets. A value is its key's number, so and so often.
func writeUntilError(addr string, seed int) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	w := bufio.NewWriterSize(conn, 64<<10)
	for i := seed; ; i += 7 {
		unit := fmt.Sprintf("%d;", i%writtenKeys)
		n := 1 + i*i%[]int{4, 50, 1500}[i%3]
		if _, err := fmt.Fprintf(w, "set key%d 0 0 %d noreply\r\n%s\r\n", i%writtenKeys, n*len(unit), strings.Repeat(unit, n)); err != nil {
			return
		}
	}
}

// checkWritten asks for all keys and returns how many are there.
func checkWritten(t testing.TB, addr string) (found int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	r := bufio.NewReaderSize(conn, 1<<20)
	for i := range writtenKeys {
		fmt.Fprintf(conn, "get key%d\r\n", i)
		head, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if head == "END\r\n" {
			continue
		}
		found++
		value, _ := r.ReadString('\n')
		r.ReadString('\n') // END
		unit := fmt.Sprintf("%d;", i)
		value = strings.TrimSuffix(value, "\r\n")
		if value != strings.Repeat(unit, len(value)/len(unit)) || !strings.HasPrefix(head, fmt.Sprintf("VALUE key%d 0 %d\r", i, len(value))) {
			t.Fatalf("key%d: %q %.60q", i, head, value)
		}
	}
	return found
}

// stat is one of the server's figures.
func stat(t testing.TB, addr, name string) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(conn, "stats\r\n")
	for r := bufio.NewScanner(conn); r.Scan(); {
		if text, ok := strings.CutPrefix(r.Text(), "STAT "+name+" "); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no stat %s", name)
	return 0
}
