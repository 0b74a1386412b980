package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// only is the one connection of s.
func only(t *testing.T, s *Server) *conn {
	t.Helper()
	var found []*conn
	s.conns.each(func(c *conn) { found = append(found, c) })
	if len(found) != 1 {
		t.Fatalf("got %d connections, want 1", len(found))
	}
	return found[0]
}

// A peer that does not read is set aside; when it keeps up again it comes
// back, with its socket as it was.
func TestAsideAndBack(t *testing.T) {
	s, addr := startServer(t, Config{sendBufferBytes: smallSend, Threads: 1})
	c := dial(t, addr)
	if err := version(c); err != nil {
		t.Fatal(err)
	}
	options := func() (got [5]int) {
		fd := int(only(t, s).fd.Load())
		for i, o := range [...][2]int{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE},
			{unix.IPPROTO_TCP, unix.TCP_NODELAY},
			{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
			{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
			{unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
		} {
			v, err := unix.GetsockoptInt(fd, o[0], o[1])
			if err != nil {
				t.Fatal(err)
			}
			got[i] = v
		}
		return got
	}
	fresh := options()
	if fresh[0] != 1 || fresh[1] != 1 {
		t.Errorf("SO_KEEPALIVE and TCP_NODELAY: got %d and %d, want 1 and 1", fresh[0], fresh[1])
	}
	value := bytes.Repeat([]byte("v"), 200_000)
	const gets = 60
	for round := range 3 {
		send := fmt.Appendf(nil, "set k 0 0 %d\r\n%s\r\n", len(value), value)
		send = append(send, bytes.Repeat([]byte("get k\r\n"), gets)...)
		go c.Write(send)
		eventually(t, "it is aside", func() bool { return s.counts.aside.Load() == 1 })
		eventually(t, "it waits for its peer", func() bool {
			return connState(only(t, s).state.Load()) == connMwrite
		})
		want := fmt.Appendf([]byte("STORED\r\n"), "%s",
			strings.Repeat(fmt.Sprintf("VALUE k 0 %d\r\n%s\r\nEND\r\n", len(value), value), gets))
		got := make([]byte, len(want))
		if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("round %d: %v, or wrong bytes", round, err)
		}
		eventually(t, "it is back", func() bool {
			return s.counts.aside.Load() == 0 && only(t, s).joins.Load() == uint32(round)+2
		})
		if err := version(c); err != nil {
			t.Fatal(err)
		}
		if got := options(); got != fresh {
			t.Errorf("socket options: got %v, want %v as before", got, fresh)
		}
	}
}

// Peers that ask for much and never read cost little, slow nobody down, and
// still get every byte when they read.
func TestPeersThatDoNotRead(t *testing.T) {
	const (
		peers     = 200
		eachBytes = 100 << 10 // heap and stack, the test's own side included
		waitMax   = time.Second
	)
	gets := 40
	if raceEnabled {
		gets = 10
	}
	s, addr := startServer(t, Config{sendBufferBytes: 64 << 10, Threads: 2})
	value := bytes.Repeat([]byte("0123456789"), 10_000)
	other := dial(t, addr)
	if err := other.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(other, "set k 0 0 %d\r\n%s\r\n", len(value), value)
	stored := make([]byte, len("STORED\r\n"))
	if _, err := io.ReadFull(other, stored); err != nil {
		t.Fatal(err)
	}
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	before := used()
	conns := make([]net.Conn, peers)
	send := bytes.Repeat([]byte("get k\r\n"), gets)
	for i := range conns {
		conns[i] = dial(t, addr)
		if _, err := conns[i].Write(send); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all of them are aside", func() bool { return s.counts.aside.Load() == peers })
	var waits []time.Duration
	for range 20 {
		start := time.Now()
		if err := version(other); err != nil {
			t.Fatal(err)
		}
		waits = append(waits, time.Since(start))
	}
	// The median: a busy machine makes one or two wait for long.
	if slices.Sort(waits); waits[len(waits)/2] > waitMax {
		t.Errorf("another connection waited %v", waits)
	}
	each := (used() - before) / peers
	t.Logf("%d bytes each", each)
	if each > eachBytes {
		t.Errorf("%d bytes each, want at most %d", each, eachBytes)
	}
	want := fmt.Appendf(nil, "VALUE k 0 %d\r\n%s\r\nEND\r\n", len(value), value)
	errs := make(chan error)
	for _, c := range conns {
		go func() {
			got := make([]byte, len(want))
			err := c.SetDeadline(time.Now().Add(3 * testTimeout))
			for range gets {
				if err != nil {
					break
				}
				if _, err = io.ReadFull(c, got); err == nil && !bytes.Equal(got, want) {
					err = fmt.Errorf("wrong bytes")
				}
			}
			errs <- err
		}()
	}
	for range conns {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "all are back", func() bool { return s.counts.aside.Load() == 0 })
}

// A value that is being sent stays as it was, whatever becomes of its item.
func TestAsideValueStays(t *testing.T) {
	s, addr := startServer(t, Config{sendBufferBytes: smallSend})
	c, other := dial(t, addr), dial(t, addr)
	value := bytes.Repeat([]byte("0123456789"), 90_000)
	if _, err := fmt.Fprintf(c, "set k 0 0 %d\r\n%s\r\nget k\r\n", len(value), value); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is aside", func() bool { return s.counts.aside.Load() == 1 })
	nines := bytes.Repeat([]byte("9"), len(value))
	for i := range 80 { // more than the memory holds: k is evicted, too
		if _, err := fmt.Fprintf(other, "set %d 0 0 %d noreply\r\n%s\r\n", i, len(value), nines); err != nil {
			t.Fatal(err)
		}
	}
	if err := version(other); err != nil {
		t.Fatal(err)
	}
	want := fmt.Appendf(nil, "STORED\r\nVALUE k 0 %d\r\n%s\r\nEND\r\n", len(value), value)
	got := make([]byte, len(want))
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, or wrong bytes", err)
	}
}
