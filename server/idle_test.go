package server

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestIdleTimeout(t *testing.T) {
	clock := newTestClock()
	s, addr := startServer(t, Config{IdleSeconds: 5, Clock: clock.Now})
	idle, active, value := dial(t, addr), dial(t, addr), dial(t, addr)
	for _, c := range []net.Conn{idle, active} {
		if err := version(c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := value.Write([]byte("set k 0 0 5\r\nabc")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "half a value is there", func() bool {
		n := 0
		s.conns.each(func(c *conn) {
			if connState(c.state.Load()) == connNread {
				n++
			}
		})
		return n == 1
	})
	clock.Advance(5 * time.Second)
	s.kickIdle(clock.Now()) // not idle for longer than 5 seconds
	if err := version(active); err != nil {
		t.Fatal(err)
	}
	if n := s.counts.idleKicks.Load(); n != 0 {
		t.Errorf("idle_kicks: got %d too early", n)
	}
	clock.Advance(time.Second)
	s.kickIdle(clock.Now())
	if err := idle.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(idle); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v, want the end", got, err)
	}
	if err := version(active); err != nil {
		t.Error(err)
	}
	if n := s.counts.idleKicks.Load(); n != 1 {
		t.Errorf("idle_kicks: got %d, want 1", n)
	}
	if _, err := value.Write([]byte("de\r\n")); err != nil {
		t.Fatal(err)
	}
	stored := make([]byte, len("STORED\r\n"))
	if err := value.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(value, stored); err != nil {
		t.Errorf("in the middle of a value nobody is idle: %v", err)
	}
}

func TestIdleTimeoutSparesUnix(t *testing.T) {
	clock := newTestClock()
	path := filepath.Join(t.TempDir(), "s")
	s, _ := startServer(t, Config{UnixSocket: path, IdleSeconds: 1, Clock: clock.Now})
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := version(c); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Hour)
	s.kickIdle(clock.Now())
	if err := version(c); err != nil {
		t.Error(err)
	}
}
