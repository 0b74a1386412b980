package server

import (
	"context"
	"net"
	"testing"
	"time"
)

// Why a connection ended is known in the end, wherever it was.
func TestCloseReasons(t *testing.T) {
	clock := newTestClock()
	for _, tt := range []struct {
		want string
		do   func(t *testing.T, s *Server, c *net.TCPConn)
	}{
		{"normal", func(_ *testing.T, _ *Server, c *net.TCPConn) { c.Close() }},
		{"normal", func(_ *testing.T, _ *Server, c *net.TCPConn) { c.Write([]byte("quit\r\n")) }},
		{"error", func(_ *testing.T, _ *Server, c *net.TCPConn) {
			_ = c.SetLinger(0)
			c.Close()
		}},
		{"idle_timeout", func(_ *testing.T, s *Server, _ *net.TCPConn) {
			clock.Advance(time.Minute)
			s.kickIdle(clock.Now())
		}},
		{"shutdown", func(t *testing.T, s *Server, _ *net.TCPConn) {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}},
	} {
		s, addr := startServer(t, Config{Clock: clock.Now, IdleSeconds: 10})
		c := dial(t, addr).(*net.TCPConn)
		if err := version(c); err != nil {
			t.Fatal(err)
		}
		it := only(t, s)
		tt.do(t, s, c)
		eventually(t, "the connection has ended", func() bool { return s.counts.current.Load() == 0 })
		if got := it.reason.String(); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}
