package server

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

// limited is the least limit, divided among so many loops that each has room
// for a few replies, as memcached's own test has it.
var limited = Config{Threads: 32, ReqsPerEvent: 500, Extended: Extended{ReadBufferMaxBytes: 1 << 20}}

func TestReplyLimit(t *testing.T) {
	p := newTestPeer(t, limited)
	fits := p.srv.buffers.repliesMax
	if fits < 10 || fits > 20 {
		t.Fatalf("%d replies for each loop", fits)
	}
	p.want("get"+strings.Repeat(" a", fits)+"\r\n", "END\r\n")
	p.want("get"+strings.Repeat(" a", fits+1)+"\r\n", "SERVER_ERROR out of memory writing get response\r\n")
	p.want(strings.Repeat("mn\r\n", fits), strings.Repeat("MN\r\n", fits))
	if got := p.stat("", "response_obj_oom"); got != "1" {
		t.Errorf("response_obj_oom: got %s want 1", got)
	}
	q := p.another()
	if got := q.send(strings.Repeat("mn\r\n", fits+1)); got != "" || !q.closed {
		t.Errorf("too many in a batch: got %q, closed %v", got, q.closed)
	}
	if got := p.stat("", "response_obj_oom"); got != "2" {
		t.Errorf("response_obj_oom: got %s want 2", got)
	}
}

// With a smaller -R nothing is lost: the batch ends before.
func TestReplyLimitYields(t *testing.T) {
	c := limited
	c.ReqsPerEvent = 5
	p := newTestPeer(t, c)
	p.want(strings.Repeat("mn\r\n", 200), strings.Repeat("MN\r\n", 200))
}

// What connections hold is counted, given back, and bounded.
func TestBufferLimit(t *testing.T) {
	s, addr := startServer(t, Config{Threads: 1, Extended: Extended{ReadBufferMaxBytes: lineMax + blockBytes}})
	b := &s.buffers
	line, value, idle := dial(t, addr), dial(t, addr), dial(t, addr)
	for _, step := range []struct {
		c       io.Writer
		send    string
		holders int64
		bytes   int64
	}{
		{idle, "get none\r\n", 0, 0},
		{line, "get no", 1, lineMax},
		{value, "set k 0 0 5\r\nab", 2, lineMax + blockBytes},
		{value, "cde\r\n", 1, lineMax},
		{line, "ne\r\n", 0, 0},
	} {
		if _, err := io.WriteString(step.c, step.send); err != nil {
			t.Fatal(err)
		}
		eventually(t, step.send, func() bool {
			return b.holders.Load() == step.holders && b.bytes.Load() == step.bytes
		})
	}
	for _, step := range []struct {
		c    io.Writer
		send string
		want int64
	}{
		{line, "get no", lineMax},
		{value, "set k 0 0 5\r\nab", lineMax + blockBytes},
	} {
		if _, err := io.WriteString(step.c, step.send); err != nil {
			t.Fatal(err)
		}
		eventually(t, step.send, func() bool { return b.bytes.Load() == step.want })
	}
	if _, err := io.WriteString(idle, "get no"); err != nil {
		t.Fatal(err)
	}
	if err := idle.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(idle); err != nil || string(got) != "END\r\n" {
		t.Errorf("beyond the limit: got %q, %v, want the end", got, err)
	}
	if n, bytes := b.refused.Load(), b.bytes.Load(); n != 1 || bytes != lineMax+blockBytes {
		t.Errorf("%d closed, %d bytes are held", n, bytes)
	}
}

func TestBlockBytes(t *testing.T) {
	if n := reflect.TypeFor[block]().Size(); n > blockBytes || n < blockBytes/2 {
		t.Errorf("a block takes %d bytes, and is counted with %d", n, blockBytes)
	}
}
