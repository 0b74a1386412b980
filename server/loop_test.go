package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallSend is a send buffer that makes short writes happen on loopback.
const smallSend = 32 << 10

// dialogue is requests on keys of its own, and the replies they must get.
type dialogue struct {
	send, want []byte
	marks      []mark // now and then
}

// mark is behind a request and its reply.
type mark struct{ send, want int }

// newDialogue makes n requests at random: some of them on values large enough to
// be sent from slab memory.
func newDialogue(rng *rand.Rand, name string, n int) *dialogue {
	d := new(dialogue)
	values := map[string][]byte{}
	const keys, markEach = 8, 50
	for i := range n {
		if i%markEach == 0 {
			d.marks = append(d.marks, mark{len(d.send), len(d.want)})
		}
		k := fmt.Sprintf("%s.%d", name, rng.IntN(keys))
		v, ok := values[k]
		switch rng.IntN(12) {
		case 0:
			v = make([]byte, rng.IntN(100))
			if rng.IntN(4) == 0 {
				v = make([]byte, rng.IntN(60_000))
			}
			for i := range v {
				v[i] = byte(rng.Uint32())
			}
			values[k] = v
			d.send = fmt.Appendf(d.send, "set %s 5 0 %d\r\n%s\r\n", k, len(v), v)
			d.want = append(d.want, "STORED\r\n"...)
		case 1:
			d.send = fmt.Appendf(d.send, "md %s\r\n", k)
			if ok {
				d.want = append(d.want, "HD\r\n"...)
			} else {
				d.want = append(d.want, "NF\r\n"...)
			}
			delete(values, k)
		case 2:
			d.send = append(d.send, "mn\r\n"...)
			d.want = append(d.want, "MN\r\n"...)
		case 3, 4, 5:
			d.send = fmt.Appendf(d.send, "mg %s v\r\n", k)
			if ok {
				d.want = fmt.Appendf(d.want, "VA %d\r\n%s\r\n", len(v), v)
			} else {
				d.want = append(d.want, "EN\r\n"...)
			}
		default:
			d.send = fmt.Appendf(d.send, "get %s %s.none\r\n", k, k)
			if ok {
				d.want = fmt.Appendf(d.want, "VALUE %s 5 %d\r\n%s\r\n", k, len(v), v)
			}
			d.want = append(d.want, "END\r\n"...)
		}
	}
	return d
}

// run sends the dialogue over c in pieces of any size, at some marks only when
// the replies so far have come; reads the replies with breaks, and compares
// them. It closes the sending side behind the last request, and expects the
// connection to end after the last reply.
func (d *dialogue) run(c net.Conn, rng *rand.Rand) error {
	if err := c.SetDeadline(time.Now().Add(3 * testTimeout)); err != nil {
		return err
	}
	var read atomic.Int64
	sent := make(chan error, 1)
	go func(rng *rand.Rand) { sent <- d.write(c, rng, &read) }(rand.New(rand.NewPCG(rng.Uint64(), 0)))
	buf := make([]byte, 64<<10)
	for got := 0; ; {
		n, err := c.Read(buf[:1+rng.IntN(len(buf))])
		if got+n > len(d.want) || !bytes.Equal(buf[:n], d.want[got:got+n]) {
			return fmt.Errorf("after %d bytes: got %.80q, want %.80q", got, buf[:n], d.want[got:])
		}
		got += n
		read.Store(int64(got))
		if err == io.EOF && got == len(d.want) {
			return <-sent
		}
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", got, len(d.want), err)
		}
		if rng.IntN(30) == 0 {
			time.Sleep(time.Duration(rng.IntN(8)) * time.Millisecond) // so that the server has to wait
		}
	}
}

// write is the sending side of run.
func (d *dialogue) write(c net.Conn, rng *rand.Rand, read *atomic.Int64) error {
	var at int
	for _, m := range append(d.marks, mark{len(d.send), len(d.want)}) {
		for at < m.send {
			n := min(m.send-at, 1+rng.IntN(1<<rng.IntN(18)))
			if _, err := c.Write(d.send[at : at+n]); err != nil {
				return err
			}
			at += n
		}
		if rng.IntN(4) > 0 {
			continue
		}
		for end := time.Now().Add(testTimeout); read.Load() < int64(m.want) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if rng.IntN(2) == 0 {
			time.Sleep(2 * asideIdle) // so that it goes back into a loop
		}
	}
	return c.(interface{ CloseWrite() error }).CloseWrite()
}

// Replies are right byte for byte, however the input is cut, whoever drives
// the connection, and also those that were pending when the peer shut down its
// sending side.
func TestPipelines(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, tt := range []struct {
		name string
		cfg  Config
	}{
		{"roomy", Config{}},
		{"short writes", Config{sendBufferBytes: smallSend}},
		{"turns", Config{ReqsPerEvent: 3}},
		{"turns and short writes", Config{ReqsPerEvent: 3, sendBufferBytes: smallSend}},
		{"rounds", Config{alwaysRounds: true}},
		{"rounds, turns and short writes", Config{alwaysRounds: true, ReqsPerEvent: 3, sendBufferBytes: smallSend}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Threads = 2
			tt.cfg.MemoryMB = 256 // nothing is evicted
			s, addr := startServer(t, tt.cfg)
			conns, requests := 8, 2000
			if raceEnabled {
				conns, requests = 4, 1500
			}
			errs := make(chan error)
			for i := range conns {
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				d := newDialogue(rng, fmt.Sprint("k", i), requests)
				c := dial(t, addr)
				go func() { errs <- d.run(c, rng) }()
			}
			for range conns {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			eventually(t, "all connections have ended", func() bool { return s.counts.current.Load() == 0 })
			eventually(t, "none is counted as aside", func() bool { return s.counts.aside.Load() == 0 })
			if tt.cfg.sendBufferBytes > 0 && s.counts.asides.Load() == 0 {
				t.Error("no connection was ever set aside")
			}
			if tt.cfg.ReqsPerEvent > 0 && s.totals.sum().yields == 0 {
				t.Error("no connection ever let others have a turn")
			}
			if tt.cfg.alwaysRounds && s.totals.sum().roundTurns == 0 {
				t.Error("no connection was ever in a round")
			}
			t.Logf("set aside %d times", s.counts.asides.Load())
		})
	}
}

// A peer that sends everything and shuts down its sending side before it reads
// gets all replies.
func TestHalfClose(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
	}{
		{"in a loop", Config{}},
		{"aside", Config{sendBufferBytes: smallSend}},
		{"waiting for a turn", Config{ReqsPerEvent: 1}},
		{"in a round", Config{alwaysRounds: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, addr := startServer(t, tt.cfg)
			c := dial(t, addr).(*net.TCPConn)
			if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
				t.Fatal(err)
			}
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
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // let the server see the end first
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes, %v, want %d", len(got), err, len(want))
			}
		})
	}
}

// rawClient is a connection without anything on the Go heap.
type rawClient int

// dialRaw opens one that is closed with the test.
func dialRaw(t testing.TB, s *Server) rawClient {
	t.Helper()
	c := openRaw(t, s)
	t.Cleanup(func() { unix.Close(int(c)) })
	return c
}

// openRaw opens one that is the caller's to close.
func openRaw(t testing.TB, s *Server) rawClient {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := unix.SockaddrInet4{Port: s.Addrs()[0].(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Connect(fd, &to); err != nil {
		t.Fatal(err)
	}
	return rawClient(fd)
}

// roundTrip sends request and reads as many bytes as buf has.
func (c rawClient) roundTrip(t testing.TB, request, buf []byte) {
	if _, err := unix.Write(int(c), request); err != nil {
		t.Fatal(err)
	}
	for len(buf) > 0 {
		n, err := unix.Read(int(c), buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			t.Fatalf("read: %d, %v", n, err)
		}
		buf = buf[n:]
	}
}

// Serving allocates nothing, values from slab memory included.
func TestServeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s, _ := startServer(t, Config{Threads: 1})
	c := dialRaw(t, s)
	for _, size := range []int{100, 4 * pinMinBytes} {
		value := bytes.Repeat([]byte("v"), size)
		set := fmt.Appendf(nil, "set k 0 0 %d\r\n%s\r\n", size, value)
		stored := make([]byte, len("STORED\r\n"))
		found := make([]byte, len(fmt.Sprintf("VALUE k 0 %d\r\n\r\nEND\r\n", size))+size)
		work := func() {
			c.roundTrip(t, set, stored)
			c.roundTrip(t, []byte("get k\r\n"), found)
		}
		const warm, rounds = 100, 2000
		for range warm {
			work()
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			work()
		}
		runtime.ReadMemStats(&after)
		if n := after.Mallocs - before.Mallocs; n > rounds/10 {
			t.Errorf("%d bytes: %d allocations in %d rounds, want none", size, n, rounds)
		}
	}
}

// An idle connection is small.
func TestIdleConnectionBytes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const conns, connBytesMax = 2000, 1200
	s, _ := startServer(t, Config{MaxConns: conns + 1})
	clients := make([]rawClient, 0, conns)
	t.Cleanup(func() {
		for _, c := range clients {
			unix.Close(int(c))
		}
	})
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	dialRaw(t, s).roundTrip(t, []byte("mn\r\n"), make([]byte, 4))
	before := heap()
	for range conns {
		c := openRaw(t, s)
		clients = append(clients, c)
		c.roundTrip(t, []byte("mn\r\n"), make([]byte, 4))
	}
	each := (heap() - before) / conns
	t.Logf("%d bytes a connection", each)
	if each > connBytesMax {
		t.Errorf("an idle connection takes %d bytes, want at most %d", each, connBytesMax)
	}
}

// The peer's reset ends the connection, and nothing else.
func TestReset(t *testing.T) {
	s, addr := startServer(t, Config{sendBufferBytes: smallSend})
	value := bytes.Repeat([]byte("v"), 100_000)
	for i := range 20 {
		c := dial(t, addr).(*net.TCPConn)
		fmt.Fprintf(c, "set k 0 0 %d\r\n%s\r\n", len(value), value)
		if i%2 == 0 {
			for range 100 {
				fmt.Fprint(c, "get k\r\n")
			}
		}
		fmt.Fprint(c, "set half 0 0 1000\r\nabc")
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		_ = c.SetLinger(0)
		c.Close()
	}
	eventually(t, "all connections have ended", func() bool { return s.counts.current.Load() == 0 })
	if err := version(dial(t, addr)); err != nil {
		t.Error(err)
	}
}
