package server

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// docBlocks are the blocks of a document that are fenced as kind.
func docBlocks(t *testing.T, path, kind string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, part := range strings.Split(string(data), "\n```"+kind+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, block)
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no %s", path, kind)
	}
	return blocks
}

// TestFreshnessSessions types the sessions of the documents into netcat, write-through
// and pointers to keys that never change among them (S1-70).
func TestFreshnessSessions(t *testing.T) {
	nc := needProgram(t, "netcat-openbsd", "nc")
	for _, path := range []string{"../docs/freshness.md", "../docs/recipes.md"} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			clock := newTestClock()
			_, addr := startServer(t, Config{Clock: clock.Now})
			clock.Advance(30 * time.Second) // floors are known
			host, port := splitAddr(t, addr)
			cmd := exec.Command(nc, "-C", host, port)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			end := func() { cmd.Process.Kill() }
			timer := time.AfterFunc(time.Minute, end)
			defer timer.Stop()
			defer cmd.Wait()
			defer end()
			r := bufio.NewReader(out)
			token := ""
			for _, block := range docBlocks(t, path, "session") {
				for line := range strings.SplitSeq(block, "\n") {
					if want, ok := strings.CutPrefix(line, "< "); ok {
						got, err := r.ReadString('\n')
						if err != nil {
							t.Fatalf("got %q and then %v, want %q", got, err, want)
						}
						got = strings.TrimRight(got, "\r\n")
						t.Logf("< %s", got)
						if before, after, ok := strings.Cut(want, "TOKEN"); ok && strings.HasPrefix(got, before) && strings.HasSuffix(got, after) {
							token = got[len(before) : len(got)-len(after)]
						} else if got != want {
							t.Fatalf("got %q, want %q", got, want)
						}
						continue
					}
					if pause, ok := strings.CutSuffix(line, " s later)"); ok {
						seconds, err := strconv.Atoi(strings.TrimPrefix(pause, "("))
						if err != nil {
							t.Fatal(err)
						}
						clock.Advance(time.Duration(seconds) * time.Second)
						continue
					}
					line = strings.ReplaceAll(line, "TOKEN", token)
					line = regexp.MustCompile(`NOW(\+\d+)?`).ReplaceAllStringFunc(line, func(s string) string {
						n, _ := strconv.ParseInt(strings.TrimPrefix(s, "NOW"), 10, 64) // 0 of none
						return strconv.FormatInt(int64(clock.Now())+n, 10)
					})
					t.Log(line)
					if _, err := io.WriteString(in, line+"\n"); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// TestFreshnessPython runs the client of the document against a server: a miss, a
// hit, a source that fails, and one that never answers.
func TestFreshnessPython(t *testing.T) {
	python := needProgram(t, "python3", "/usr/bin/python3", "python3")
	_, addr := startServer(t, Config{Fresh: FreshConfig{EarlyBeta: -1, RateForeground: 4}})
	host, port := splitAddr(t, addr)
	program := docBlocks(t, "../docs/freshness.md", "python")[0] + `
cache, loads = Cache("` + host + `", ` + port + `), []
def load(timeout):
    assert 0 < timeout <= 1, timeout
    loads.append(timeout)
    return 41, b"apple"
def broken(timeout):
    raise OSError("the source is down")
assert fetch(cache, "item:1", load) == b"apple" and fetch(cache, "item:1", load) == b"apple" and len(loads) == 1
assert cache.ask("md item:1 I Y42")[0] == "HD"
assert fetch(cache, "item:1", broken) == b"apple"      # stale, before hard
try:
    fetch(cache, "item:2", broken)
    assert False
except OSError:
    pass
cache.ask("mg item:3 G1000")
try:
    fetch(cache, "item:4", load)
    assert False
except RuntimeError:
    print("ok")
`
	out, err := exec.Command(python, "-c", program).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Errorf("%v: %s", err, out)
	}
}
