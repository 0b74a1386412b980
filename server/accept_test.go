package server

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testTimeout is when a test gives up waiting for what must come.
const testTimeout = time.Minute

// dial connects to addr; the connection is closed with the test.
func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to this: %s", what)
		}
	}
}

func TestConnLimit(t *testing.T) {
	s, addr := startServer(t, Config{MaxConns: 3})
	var conns []net.Conn
	for range 3 {
		c := dial(t, addr)
		if err := version(c); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	got, err := io.ReadAll(dial(t, addr))
	if err != nil || string(got) != tooManyLine {
		t.Errorf("over -c: got %q, %v, want %q", got, err, tooManyLine)
	}
	st := s.connStats()
	listeners := uint64(len(s.listeners))
	if want := 3 + listeners - 1; st.Rejected != 1 || st.Current != want {
		t.Errorf("got %d rejected and %d current, want 1 and %d", st.Rejected, st.Current, want)
	}
	conns[0].Close()
	eventually(t, "a place is free", func() bool { return s.counts.current.Load() == 2 })
	if err := version(dial(t, addr)); err != nil {
		t.Error(err)
	}
	if st = s.connStats(); st.Total != 4+listeners || st.Structures != 3+listeners {
		t.Errorf("got %d total and %d structures, want 4 and 3 and the listeners, %d", st.Total, st.Structures, listeners)
	}
}

func TestConnLimitWaits(t *testing.T) {
	s, addr := startServer(t, Config{MaxConns: 1, NoMaxConnsFast: true, Listen: []string{"127.0.0.1"}})
	first := dial(t, addr)
	if err := version(first); err != nil {
		t.Fatal(err)
	}
	second := dial(t, addr)
	eventually(t, "accepting is off", func() bool { return s.connStats().Accepting == 0 })
	first.Close()
	if err := version(second); err != nil {
		t.Fatal(err)
	}
	st := s.connStats()
	if st.Accepting != 1 || st.ListenDisabled != 1 || st.ListenDisabledMicros == 0 || st.Rejected != 0 {
		t.Errorf("got %+v, want it to accept again after one pause", st)
	}
}

// Out of descriptors, the server waits and then goes on.
func TestAcceptOutOfDescriptors(t *testing.T) {
	s, _ := startServer(t, Config{Listen: []string{"127.0.0.1"}})
	to := s.Addrs()[0].(*net.TCPAddr)
	var clients [3]int
	for i := range clients {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		clients[i] = fd
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &old)
	next, err := unix.FcntlInt(uintptr(clients[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(next) // the lowest that is free; all below it are taken
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	for _, fd := range clients {
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "accepting is off", func() bool { return s.connStats().Accepting == 0 })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	for _, fd := range clients {
		if _, err := unix.Write(fd, []byte("mn\r\n")); err != nil {
			t.Fatal(err)
		}
		var buf [16]byte
		n, err := unix.Read(fd, buf[:])
		if err != nil || string(buf[:n]) != "MN\r\n" {
			t.Errorf("got %q, %v, want MN", buf[:n], err)
		}
	}
	st := s.connStats()
	if st.Accepting != 1 || st.ListenDisabled == 0 || st.ListenDisabledMicros == 0 {
		t.Errorf("got %+v, want it to accept again after a pause", st)
	}
}
