package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// talk is a connection on which one line is asked for at a time.
type talk struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dialTalk(t testing.TB, addr string) *talk {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return &talk{t, c, bufio.NewReader(c)}
}

func (c *talk) send(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

func (c *talk) line() string {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("got %q and then %v", line, err)
	}
	return strings.TrimRight(line, "\r\n")
}

// fill stores a value under key that is gone in so many ms, and says when.
func (c *talk) fill(key string, millis int64) (hard int64) {
	c.t.Helper()
	c.send("mg %s G1000\r\n", key)
	got := c.line()
	_, token, ok := strings.Cut(got, " W g")
	token, _, _ = strings.Cut(token, " ")
	if !ok {
		c.t.Fatalf("%s: %q", key, got)
	}
	hard = time.Now().UnixMilli() + millis
	c.send("ms %s 1 G%s Y1 A%d\r\nx\r\n", key, token, hard)
	if got := c.line(); got != "HD" {
		c.t.Fatalf("fill of %s: %q", key, got)
	}
	return hard
}

// S1-18: the process is stopped for 2 s, across a hard deadline, with requests that
// wait for it. Nothing past its deadline goes out when it goes on, and the clock is
// trusted: it is the process that stood, not the time.
func TestFreshnessOfAStoppedProcess(t *testing.T) {
	p := start(t, "-p", "-1", "-m", "64", "-t", "2")
	c := dialTalk(t, p.tcp(t))
	hard := c.fill("short", 1000)
	c.fill("long", 30_000)
	if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The signal is on its way: until all threads stand, they serve.
	if err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED, nil); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	const gets = 1000
	c.send("%s", strings.Repeat("mg short v\r\nget short\r\nmg short v G1\r\nmg long\r\n", gets))
	time.Sleep(2 * time.Second) // the process is stopped: there is nothing to wait for
	if now := time.Now().UnixMilli(); now <= hard {
		t.Fatalf("stopped for %v, and the deadline has not come", time.Since(asked))
	}
	if err := p.cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for range gets {
		for _, want := range []string{"EN", "END", "EN ", "HD"} {
			if got := c.line(); !strings.HasPrefix(got, want) {
				t.Fatalf("got %q, want %s", got, want)
			}
		}
	}
	c.send("stats freshness\r\n")
	for got := c.line(); got != "END"; got = c.line() {
		if strings.HasPrefix(got, "STAT clock_") && got != "STAT clock_trusted 1" && !strings.HasSuffix(got, " 0") && !strings.HasPrefix(got, "STAT clock_skew") {
			t.Error(got)
		}
	}
	p.end(t, unix.SIGTERM)
}

// S1-38: a process is killed, and another one started. Tokens of the first are of
// no use, and it is said why.
func TestFreshnessOfAKilledProcess(t *testing.T) {
	p := start(t, "-p", "-1", "-m", "64", "-t", "2")
	c := dialTalk(t, p.tcp(t))
	c.send("mg k G1000\r\n")
	got := c.line()
	_, token, _ := strings.Cut(got, " W g")
	token, _, _ = strings.Cut(token, " ")
	p.cmd.Process.Kill()
	io.Copy(io.Discard, c.r)

	p = start(t, "-p", "-1", "-m", "64", "-t", "2")
	c = dialTalk(t, p.tcp(t))
	c.send("ms k 3 G%s Y41 A%d\r\nv41\r\n", token, time.Now().UnixMilli()+30_000)
	if got := c.line(); got != "NF r3" {
		t.Errorf("got %q, want NF r3", got)
	}
	c.send("mg k v\r\n")
	if got := c.line(); got != "EN" {
		t.Errorf("got %q, want EN", got)
	}
	p.end(t, unix.SIGTERM)
}
