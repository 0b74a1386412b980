package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Close ends connections in every state, and every goroutine.
func TestClose(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, addr := startServer(t, Config{sendBufferBytes: smallSend, IdleSeconds: 60, Threads: 3})
	value := bytes.Repeat([]byte("v"), 200_000)
	conns := map[string]net.Conn{
		"silent": dial(t, addr), "idle": dial(t, addr), "half a line": dial(t, addr),
		"half a value": dial(t, addr), "does not read": dial(t, addr),
	}
	if err := version(conns["idle"]); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conns["half a line"], "get a")
	fmt.Fprint(conns["half a value"], "set a 0 0 100000\r\nabc")
	fmt.Fprintf(conns["does not read"], "set k 0 0 %d\r\n%s\r\n%s", len(value), value, bytes.Repeat([]byte("get k\r\n"), 100))
	eventually(t, "one is aside", func() bool { return s.counts.aside.Load() == 1 })

	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	s.Wait()
	for name, c := range conns {
		if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		var ne net.Error
		if _, err := io.Copy(io.Discard, c); errors.As(err, &ne) && ne.Timeout() {
			t.Errorf("%s: still open", name)
		}
		c.Close()
	}
	if n := s.counts.current.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("still listening")
	}
	goleak.VerifyNone(t, before)
}

// A connection may come, leave its loop and go back while the server closes.
func TestCloseInTheMiddle(t *testing.T) {
	for range 5 {
		before := goleak.IgnoreCurrent()
		s, addr := startServer(t, Config{sendBufferBytes: smallSend, Threads: 2})
		stop := make(chan struct{})
		done := make(chan struct{})
		value := bytes.Repeat([]byte("v"), 60_000)
		const peers = 8
		for range peers {
			go func() {
				defer func() { done <- struct{}{} }()
				for {
					select {
					case <-stop:
						return
					default:
					}
					c, err := net.Dial("tcp", addr)
					if err != nil {
						continue
					}
					fmt.Fprintf(c, "set k 0 0 %d\r\n%s\r\n%s", len(value), value, bytes.Repeat([]byte("get k\r\n"), 5))
					_ = c.SetReadDeadline(time.Now().Add(asideIdle + 10*time.Millisecond))
					_, _ = io.Copy(io.Discard, c)
					c.Close()
				}
			}()
		}
		eventually(t, "connections move", func() bool { return s.counts.asides.Load() > peers })
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		close(stop)
		for range peers {
			<-done
		}
		goleak.VerifyNone(t, before)
	}
}

// Close gives up waiting with its context, and can be called again.
func TestCloseContext(t *testing.T) {
	s, _ := startServer(t, Config{})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.Wait()
	if err := s.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestShutdownAsked(t *testing.T) {
	s, addr := startServer(t, Config{EnableShutdown: true})
	for range 2 { // the second one finds it asked for already
		c := dial(t, addr)
		if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("shutdown\r\n")); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
			t.Errorf("got %q, %v, want the end", got, err)
		}
		select {
		case <-s.ShutdownAsked():
		case <-time.After(testTimeout):
			t.Error("nobody was told")
		}
	}
}
