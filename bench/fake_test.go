package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// TestMain finds leaks. gnet's pool of goroutines begins with the program, when
// a test has a real server in it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// fake is a server that speaks just what bench sends: get, set, mg, ms, mn.
type fake struct {
	// before is called with the number of each request, from 1, ahead of
	// its reply. A reply other than "" is sent in place of the true one.
	before func(n int) (reply string)

	mu       sync.Mutex // all below
	values   map[string][]byte
	requests int
}

// newFake serves f until the test ends and returns its address, which is a
// unix socket's if network is unix.
func newFake(t testing.TB, f *fake, network string) (address string) {
	t.Helper()
	leakless(t)
	listenOn := "127.0.0.1:0"
	if network == "unix" {
		listenOn = filepath.Join(t.TempDir(), "s")
	}
	address, stop := f.start(network, listenOn)
	t.Cleanup(stop)
	if network == "unix" {
		return "unix:" + address
	}
	return address
}

// start serves until stop is called.
func (f *fake) start(network, listenOn string) (address string, stop func()) {
	f.values = map[string][]byte{}
	l, err := net.Listen(network, listenOn)
	if err != nil {
		panic(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				f.serve(c)
			})
		}
	})
	return l.Addr().String(), func() {
		l.Close()
		served.Wait()
	}
}

func (f *fake) serve(c net.Conn) {
	in, out := bufio.NewReader(c), bufio.NewWriter(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			return // a stranger: the port was somebody else's before
		}
		var data []byte
		if words[0] == "set" || words[0] == "ms" {
			length := words[2]
			if words[0] == "set" {
				length = words[4]
			}
			n, err := strconv.Atoi(length)
			if err != nil {
				return
			}
			data = make([]byte, n+2)
			if _, err := io.ReadFull(in, data); err != nil {
				return
			}
			data = data[:n]
		}
		reply := f.answer(words, data)
		if reply == "close" {
			return
		}
		out.WriteString(reply)
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

func (f *fake) answer(words []string, data []byte) string {
	f.mu.Lock()
	f.requests++
	n := f.requests
	f.mu.Unlock()
	if f.before != nil {
		if reply := f.before(n); reply != "" {
			return reply
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var reply strings.Builder
	switch words[0] {
	case "set":
		f.values[words[1]] = data
		return "STORED\r\n"
	case "ms":
		f.values[words[1]] = data
		return "HD\r\n"
	case "mn":
		return "MN\r\n"
	case "get":
		for _, key := range words[1:] {
			if value, ok := f.values[key]; ok {
				fmt.Fprintf(&reply, "VALUE %s 0 %d\r\n%s\r\n", key, len(value), value)
			}
		}
		reply.WriteString("END\r\n")
	case "mg":
		quiet := len(words) > 3
		value, ok := f.values[words[1]]
		switch {
		case ok && quiet:
			fmt.Fprintf(&reply, "VA %d k%s\r\n%s\r\n", len(value), words[1], value)
		case ok:
			fmt.Fprintf(&reply, "VA %d\r\n%s\r\n", len(value), value)
		case !quiet:
			reply.WriteString("EN\r\n")
		}
	default:
		return "ERROR\r\n"
	}
	return reply.String()
}
