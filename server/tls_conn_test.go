package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Replies over TLS are right byte for byte, however the input is cut, and also
// those that were pending when the peer shut down its sending side.
func TestTLSPipelines(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ca := newTestCA(t, "ca")
	for _, tt := range []struct {
		name    string
		cfg     Config
		version uint16
	}{
		{"roomy", Config{}, tls.VersionTLS13},
		{"short writes", Config{sendBufferBytes: smallSend}, tls.VersionTLS13},
		{"turns and short writes", Config{ReqsPerEvent: 3, sendBufferBytes: smallSend}, tls.VersionTLS12},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Threads = 2
			tt.cfg.MemoryMB = 256 // nothing is evicted
			tt.cfg.TLS = ca.server(t)
			s, addr := startServer(t, tt.cfg)
			client := ca.client(t)
			client.MaxVersion = tt.version
			conns, requests := 8, 2000
			if raceEnabled {
				conns, requests = 4, 800
			}
			errs := make(chan error)
			for i := range conns {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				d := newDialogue(rng, fmt.Sprint("k", i), requests)
				c := dialTLS(t, addr, client)
				go func() { errs <- d.run(c, rng) }()
			}
			for range conns {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			eventually(t, "all connections have ended", func() bool { return s.counts.current.Load() == 0 })
			if n := s.tls.protoErrors.Load(); n != 0 {
				t.Errorf("ssl_proto_errors: got %d", n)
			}
			if tt.cfg.ReqsPerEvent > 0 && s.totals.sum().yields == 0 {
				t.Error("no connection ever let others have a turn")
			}
		})
	}
}

// A peer that closes its socket for writing without a word of TLS gets its
// replies too.
func TestTLSHalfClose(t *testing.T) {
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{TLS: ca.server(t), sendBufferBytes: smallSend})
	c := dialTLS(t, addr, ca.client(t))
	value := bytes.Repeat([]byte("0123456789"), 9000)
	send := fmt.Appendf(nil, "set k 0 0 %d\r\n%s\r\n", len(value), value)
	want := []byte("STORED\r\n")
	for range 40 {
		send = append(send, "get k\r\n"...)
		want = fmt.Appendf(want, "VALUE k 0 %d\r\n%s\r\nEND\r\n", len(value), value)
	}
	if _, err := c.Write(send); err != nil {
		t.Fatal(err)
	}
	if err := c.NetConn().(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it waits for its peer", func() bool { return connState(only(t, s).state.Load()) == connMwrite })
	got, err := io.ReadAll(c) // which fails when the end is not announced
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
	}
}

// What is no handshake ends the connection, is counted, and harms nobody.
func TestTLSGarbage(t *testing.T) {
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{TLS: ca.server(t)})
	random := make([]byte, 4096)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	random[0] = 'x' // no record of TLS
	for i, send := range [][]byte{
		[]byte("get k\r\n"),
		[]byte("version\r\nversion\r\nversion\r\n"),
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		{0x80, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
		random,
		{0x16, 3, 1, 0xff, 0xff, 1, 2, 3}, // a record over any size
		{0x16, 3, 1, 0, 5, 1, 0xff, 0xff, 0xff, 0},       // a message over any size
		append([]byte{0x16, 3, 1, 0, 9}, "123456789"...), // a record of nonsense
		{0x15, 3, 1, 0, 2, 2, 40},                        // an alert comes first
	} {
		c := dial(t, addr)
		if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(send); err != nil {
			t.Fatal(err)
		}
		var ne net.Error
		if _, err := io.Copy(io.Discard, c); errors.As(err, &ne) && ne.Timeout() {
			t.Errorf("%.20q: still open", send)
		}
		eventually(t, "it is counted", func() bool { return s.tls.handshakeErrors.Load() == uint64(i)+1 })
	}
	silent := dial(t, addr)
	silent.Close()
	eventually(t, "all have ended", func() bool { return s.counts.current.Load() == 0 })
	if n := s.tls.handshakeErrors.Load(); n != 9 {
		t.Errorf("ssl_handshake_errors: got %d, want 9: one that said nothing is no error", n)
	}
	if err := tryTLS(t, addr, ca.client(t)); err != nil {
		t.Error(err)
	}
}

// Peers that never finish their handshake are cut off in time, and meanwhile
// others shake hands, however many the slow ones are.
func TestTLSSlowHandshakes(t *testing.T) {
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{TLS: ca.server(t), MaxConns: 100, handshakeTimeout: 2 * time.Second})
	hello := clientHello(t, ca.client(t))
	const peers = 60
	start := time.Now()
	conns := make([]net.Conn, peers)
	for i := range conns {
		conns[i] = dial(t, addr)
		switch i % 3 {
		case 1: // a part of its first message
			conns[i].Write(hello[:len(hello)/2])
		case 2: // all of it, and then nothing
			conns[i].Write(hello)
		}
	}
	eventually(t, "all have their place", func() bool { return s.counts.current.Load() == peers })
	for range 5 {
		if err := tryTLS(t, addr, ca.client(t)); err != nil {
			t.Error(err)
		}
	}
	if d := time.Since(start); d > s.cfg.handshakeTimeout {
		t.Logf("others had to wait: %v", d) // no error: the machine may be slow
	}
	for _, c := range conns[:10] {
		go func() { // a byte now and then is no excuse
			for {
				if _, err := c.Write([]byte{0x16}); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	eventually(t, "all have ended", func() bool { return s.counts.current.Load() == 0 })
	if d := time.Since(start); d < s.cfg.handshakeTimeout {
		t.Errorf("they ended after %v, too early", d)
	}
	if n := s.tls.handshakeErrors.Load(); n < peers {
		t.Errorf("ssl_handshake_errors: got %d, want %d", n, peers)
	}
}

// clientHello is the first message of a handshake.
func clientHello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(near, c).Handshake()
		near.Close()
	}()
	buf := make([]byte, 16<<10)
	n, err := io.ReadAtLeast(far, buf, 5)
	if err != nil {
		t.Fatal(err)
	}
	all := 5 + int(buf[3])<<8 + int(buf[4])
	if _, err := io.ReadFull(far, buf[n:max(all, n)]); err != nil {
		t.Fatal(err)
	}
	return buf[:all]
}

// What breaks the rules behind the handshake is counted, and ends the
// connection.
func TestTLSProtocolError(t *testing.T) {
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{TLS: ca.server(t)})
	c := dialTLS(t, addr, ca.client(t))
	if err := version(c); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NetConn().Write(append([]byte{0x17, 3, 3, 0, 32}, make([]byte, 32)...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool { return s.counts.current.Load() == 0 })
	if n := s.tls.protoErrors.Load(); n != 1 {
		t.Errorf("ssl_proto_errors: got %d, want 1", n)
	}
}

// Handshakes count within -c from the start.
func TestTLSConnLimit(t *testing.T) {
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{TLS: ca.server(t), MaxConns: 2})
	established := dialTLS(t, addr, ca.client(t))
	silent := dial(t, addr)
	eventually(t, "both have a place", func() bool { return s.counts.current.Load() == 2 })
	got, err := io.ReadAll(dial(t, addr))
	if err != nil || string(got) != tooManyLine {
		t.Errorf("over -c: got %q, %v, want %q", got, err, tooManyLine)
	}
	silent.Close()
	eventually(t, "a place is free", func() bool { return s.counts.current.Load() == 1 })
	if err := version(dialTLS(t, addr, ca.client(t))); err != nil {
		t.Error(err)
	}
	if err := version(established); err != nil {
		t.Error(err)
	}
}

// idle_timeout holds for TLS, but not for a handshake or a half-sent value.
func TestTLSIdleTimeout(t *testing.T) {
	ca := newTestCA(t, "ca")
	clock := newTestClock()
	s, addr := startServer(t, Config{TLS: ca.server(t), IdleSeconds: 5, Clock: clock.Now})
	idle, active, value := dialTLS(t, addr, ca.client(t)), dialTLS(t, addr, ca.client(t)), dialTLS(t, addr, ca.client(t))
	shaking := dial(t, addr)
	for _, c := range []*tls.Conn{idle, active} {
		if err := version(c); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Fprint(value, "set k 0 0 5\r\nabc")
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
	clock.Advance(time.Second)
	s.kickIdle(clock.Now())
	if got, err := io.ReadAll(idle); err != nil || len(got) > 0 {
		t.Errorf("got %q, %v, want the announced end", got, err)
	}
	if err := version(active); err != nil {
		t.Error(err)
	}
	if n := s.counts.idleKicks.Load(); n != 1 {
		t.Errorf("idle_kicks: got %d, want 1", n)
	}
	fmt.Fprint(value, "de\r\n")
	stored := make([]byte, len("STORED\r\n"))
	if _, err := io.ReadFull(value, stored); err != nil {
		t.Errorf("in the middle of a value nobody is idle: %v", err)
	}
	if err := version(tls.Client(shaking, ca.client(t))); err != nil {
		t.Errorf("a handshake is not idle: %v", err)
	}
}

// TLS peers that ask for much and never read cost little, slow nobody down,
// and still get every byte when they read.
func TestTLSPeersThatDoNotRead(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const (
		peers     = 100
		gets      = 40
		eachBytes = 100 << 10 // as without TLS: heap and stack, the test's own side included
	)
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{TLS: ca.server(t), sendBufferBytes: 64 << 10, Threads: 2})
	client := ca.client(t)
	value := bytes.Repeat([]byte("0123456789"), 10_000)
	other := dialTLS(t, addr, client)
	fmt.Fprintf(other, "set k 0 0 %d\r\n%s\r\n", len(value), value)
	if _, err := io.ReadFull(other, make([]byte, len("STORED\r\n"))); err != nil {
		t.Fatal(err)
	}
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	conns := make([]*tls.Conn, peers)
	for i := range conns {
		conns[i] = dialTLS(t, addr, client)
	}
	before := used()
	send := bytes.Repeat([]byte("get k\r\n"), gets)
	for _, c := range conns {
		if _, err := c.Write(send); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all wait for their peers", func() bool {
		n := 0
		s.conns.each(func(c *conn) {
			if connState(c.state.Load()) == connMwrite {
				n++
			}
		})
		return n == peers
	})
	if n, waiting := s.buffers.waiters.Load(), s.buffers.waiting.Load(); n != peers || waiting < peers {
		t.Errorf("%d bytes wait to be taken by %d peers, want some for each of %d", waiting, n, peers)
	}
	for range 20 {
		start := time.Now()
		if err := version(other); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("another connection waited %v", d)
		}
	}
	each := (used() - before) / peers
	t.Logf("%d bytes each", each)
	if each > eachBytes {
		t.Errorf("%d bytes each, want at most %d", each, eachBytes)
	}
	want := fmt.Appendf(nil, "VALUE k 0 %d\r\n%s\r\nEND\r\n", len(value), value)
	got := make([]byte, len(want))
	for _, c := range conns {
		if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		for range gets {
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%v, or wrong bytes", err)
			}
		}
	}
	eventually(t, "nothing waits any more", func() bool {
		return s.buffers.waiters.Load() == 0 && s.buffers.waiting.Load() == 0
	})
}

// Replies that TLS peers do not take count against the memory that there is for
// connections, as those of others do.
func TestTLSReplyBytes(t *testing.T) {
	const (
		peers    = 8
		maxBytes = 1 << 20
	)
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{
		TLS: ca.server(t), sendBufferBytes: smallSend, Threads: 1,
		Extended: Extended{ReadBufferMaxBytes: maxBytes},
	})
	client := ca.client(t)
	value := bytes.Repeat([]byte("0123456789"), 10_000)
	other := dialTLS(t, addr, client)
	fmt.Fprintf(other, "set k 0 0 %d\r\n%s\r\n", len(value), value)
	if _, err := io.ReadFull(other, make([]byte, len("STORED\r\n"))); err != nil {
		t.Fatal(err)
	}
	b := &s.buffers
	for range peers {
		c := dialTLS(t, addr, client)
		n, refused := b.waiters.Load(), b.refused.Load()
		if _, err := c.Write(bytes.Repeat([]byte("get k\r\n"), 40)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it waits, or is closed", func() bool { return b.waiters.Load() > n || b.refused.Load() > refused })
		eventually(t, "it is within the bound", func() bool { return b.bytes.Load() <= maxBytes })
	}
	if n, refused := b.waiters.Load(), b.refused.Load(); n == 0 || refused == 0 || n+int64(refused) != peers {
		t.Errorf("%d peers are waited for, %d are not", n, refused)
	}
	if err := version(other); err != nil {
		t.Error(err)
	}
}

// An idle TLS connection is small, and smaller than while it was busy.
func TestTLSIdleConnectionBytes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const conns, bytesMax = 300, 24 << 10
	ca := newTestCA(t, "ca")
	s, _ := startServer(t, Config{TLS: ca.server(t)})
	addr := s.Addrs()[0].String()
	used := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	client := ca.client(t)
	before := used()
	clients := make([]*tls.Conn, conns)
	for i := range clients {
		clients[i] = dialTLS(t, addr, client)
		if err := version(clients[i]); err != nil {
			t.Fatal(err)
		}
	}
	both := (used() - before) / conns
	t.Logf("%d bytes a connection, the client's side included", both)
	if both > bytesMax {
		t.Errorf("an idle connection and its client take %d bytes, want at most %d", both, bytesMax)
	}
	runtime.KeepAlive(clients)
}

// Close ends TLS connections in every state, announces it to those that listen,
// and leaves no goroutine.
func TestTLSClose(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{TLS: ca.server(t), sendBufferBytes: smallSend, IdleSeconds: 60})
	client := ca.client(t)
	hello := clientHello(t, client)
	silent, half, whole := dial(t, addr), dial(t, addr), dial(t, addr)
	half.Write(hello[:50])
	whole.Write(hello)
	idle, value, stuck := dialTLS(t, addr, client), dialTLS(t, addr, client), dialTLS(t, addr, client)
	if err := version(idle); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(value, "set a 0 0 100000\r\nabc")
	big := bytes.Repeat([]byte("v"), 200_000)
	fmt.Fprintf(stuck, "set k 0 0 %d\r\n%s\r\n%s", len(big), big, bytes.Repeat([]byte("get k\r\n"), 100))
	eventually(t, "one waits for its peer", func() bool {
		waits := false
		s.conns.each(func(c *conn) { waits = waits || connState(c.state.Load()) == connMwrite })
		return waits
	})
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Errorf("closing took %v", d)
	}
	if n := s.counts.current.Load(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
	for name, c := range map[string]*tls.Conn{"idle": idle, "half a value": value} {
		if got, err := io.ReadAll(c); err != nil || len(got) > 0 {
			t.Errorf("%s: got %q, %v, want the announced end", name, got, err)
		}
	}
	for _, c := range []net.Conn{silent, half, whole, idle, value, stuck} {
		c.Close()
	}
	goleak.VerifyNone(t, before)
}

// Connections come and shake hands while the server closes.
func TestTLSCloseInTheMiddle(t *testing.T) {
	ca := newTestCA(t, "ca")
	client := ca.client(t)
	for range 5 {
		before := goleak.IgnoreCurrent()
		s, addr := startServer(t, Config{TLS: ca.server(t), Threads: 2})
		const peers = 6
		done := make(chan struct{}, peers)
		for range peers {
			go func() {
				defer func() { done <- struct{}{} }()
				for {
					raw, err := net.Dial("tcp", addr)
					if err != nil {
						return
					}
					c := tls.Client(raw, client)
					err = version(c)
					c.Close()
					if err != nil {
						return
					}
				}
			}()
		}
		eventually(t, "many were there", func() bool { return s.counts.total.Load() > 2*peers })
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		for range peers {
			<-done
		}
		goleak.VerifyNone(t, before)
	}
}
