package server

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Many connections that are ready at once are read together; the replies of
// each are its own, also of one that says quit, or says a request and closes.
func TestRounds(t *testing.T) {
	s, addr := startServer(t, Config{Threads: 1, MemoryMB: 64})
	const conns, requests = 30, 200
	var wg sync.WaitGroup
	talk := func(i int) error {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(3 * testTimeout)); err != nil {
			return err
		}
		for n := range requests {
			send := fmt.Sprintf("set r%d 0 0 4\r\n%04d\r\nget r%d\r\n", i, n, i)
			want := fmt.Sprintf("STORED\r\nVALUE r%d 0 4\r\n%04d\r\nEND\r\n", i, n)
			if n%3 == 0 { // in two pieces
				if _, err := io.WriteString(c, send[:n%len(send)]); err != nil {
					return err
				}
				send = send[n%len(send):]
			}
			if _, err := io.WriteString(c, send); err != nil {
				return err
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				return fmt.Errorf("connection %d: got %q, %v, want %q", i, got, err, want)
			}
		}
		send, want := "mn\r\nquit\r\nmn\r\n", "MN\r\n"
		if i%2 == 0 {
			send = "mn\r\n"
		}
		if _, err := io.WriteString(c, send); err != nil {
			return err
		}
		if i%2 == 0 {
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				return err
			}
		}
		if got, err := io.ReadAll(c); err != nil || string(got) != want {
			return fmt.Errorf("connection %d, at its end: got %q, %v, want %q", i, got, err, want)
		}
		return nil
	}
	for tries := 0; ; tries++ {
		for i := range conns {
			wg.Go(func() {
				if err := talk(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		eventually(t, "all connections have ended", func() bool { return s.counts.current.Load() == 0 })
		n := s.totals.sum()
		if n.roundTurns >= 2*n.rounds && n.rounds > 0 {
			t.Logf("%d rounds of %.1f connections", n.rounds, float64(n.roundTurns)/float64(n.rounds))
			break
		}
		if t.Failed() || tries == 20 {
			t.Fatalf("%d rounds of %d connections: want two in a round, in the mean", n.rounds, n.roundTurns)
		}
	}
}

// A round of few connections
// is followed by reads that are served as they come, more of them each time.
func TestRoundPauses(t *testing.T) {
	s, addr := startServer(t, Config{Threads: 1})
	c := dial(t, addr)
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, len("MN\r\n"))
	const requests = 3 * roundPauseMax
	for range requests {
		if _, err := io.WriteString(c, "mn\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, reply); err != nil {
			t.Fatal(err)
		}
	}
	n := s.totals.sum()
	// 1, 32 direct, 1, 64 direct, ... 1, 1024 direct, 1.
	if n.roundTurns == 0 || n.roundTurns > 10 {
		t.Errorf("%d of %d requests were in rounds, want up to 10", n.roundTurns, requests)
	}
}
