package server

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestDeadConnectionsLeaveNoMemory sends halves of values and lets the
// connections die: all chunks that they took are free again afterwards.
func TestDeadConnectionsLeaveNoMemory(t *testing.T) {
	_, addr := startServer(t, Config{})
	control := dialText(t, addr)
	before, open := control.memory(t), control.stat(t, "stats", "curr_connections")
	opened := control.stat(t, "stats", "total_connections")

	const nRounds, nConns = 3, 40
	for round := range nRounds {
		var conns []net.Conn
		for i := range nConns {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conns = append(conns, conn)
			// Small ones, those of one chunk, and those of many.
			size := []int{10, 1000, 30000, 200000, 1000000}[i%5]
			command := []string{"set", "add", "append"}[i%3]
			fmt.Fprintf(conn, "%s half-%d-%d 0 0 %d\r\n", command, round, i, size)
			if _, err := conn.Write(bytes.Repeat([]byte("x"), size/2)); err != nil {
				t.Fatal(err)
			}
		}
		for i, conn := range conns {
			if i%2 == 0 {
				conn.(*net.TCPConn).SetLinger(0) // dies with a reset
			}
			conn.Close()
		}
	}
	waitFor(t, "the connections to have come", func() bool {
		return control.stat(t, "stats", "total_connections") == opened+nRounds*nConns
	})
	waitFor(t, "the connections to be gone", func() bool {
		return control.stat(t, "stats", "curr_connections") == open
	})
	if after := control.memory(t); after != before {
		t.Errorf("got %+v, want %+v as before", after, before)
	}
	control.say(t, "get half-0-0 half-0-1 half-1-4", "END")
}

// TestPinnedValuesLeaveNoMemory deletes values while they are being sent to
// peers that do not read, and then lets those die.
func TestPinnedValuesLeaveNoMemory(t *testing.T) {
	_, addr := startServer(t, Config{sendBufferBytes: 8 << 10})
	control := dialText(t, addr)
	before, open := control.memory(t), control.stat(t, "stats", "curr_connections")

	value := strings.Repeat("v", 200000)
	var conns []net.Conn
	for i := range 20 {
		key := fmt.Sprintf("pinned-%d", i)
		control.say(t, fmt.Sprintf("set %s 0 0 %d\r\n%s", key, len(value), value), "STORED")
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.(*net.TCPConn).SetReadBuffer(8 << 10)
		conns = append(conns, conn)
		fmt.Fprintf(conn, "%s\r\n", "get"+strings.Repeat(" "+key, 50))
		if _, err := bufio.NewReader(conn).ReadByte(); err != nil {
			t.Fatal(err)
		}
		control.say(t, "delete "+key, "DELETED")
	}
	for _, conn := range conns {
		conn.Close()
	}
	waitFor(t, "the connections to be gone", func() bool {
		return control.stat(t, "stats", "curr_connections") == open
	})
	waitFor(t, "the memory", func() bool { return control.memory(t) == before })
}

// waitFor polls until ok, with a bound that only a hanging server reaches.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// textConn speaks the text protocol line by line.
type textConn struct {
	conn net.Conn
	r    *bufio.Reader
}

func dialText(t testing.TB, addr string) *textConn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &textConn{conn, bufio.NewReader(conn)}
}

// line reads one line of a reply.
func (c *textConn) line(t testing.TB) string {
	t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(line, "\r\n")
}

// say sends a command and compares the first line of the reply.
func (c *textConn) say(t testing.TB, command, want string) {
	t.Helper()
	fmt.Fprintf(c.conn, "%s\r\n", command)
	if got := c.line(t); got != want {
		t.Fatalf("%s: got %q, want %q", shorten([]byte(command)), got, want)
	}
}

// stats gives the answer to a stats command.
func (c *textConn) stats(t testing.TB, command string) map[string]string {
	t.Helper()
	fmt.Fprintf(c.conn, "%s\r\n", command)
	all := map[string]string{}
	for {
		line := c.line(t)
		if line == "END" {
			return all
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "STAT "), " ")
		if !ok {
			t.Fatalf("%s: got %q", command, line)
		}
		all[name] = value
	}
}

// stat gives one number of a stats command.
func (c *textConn) stat(t testing.TB, command, name string) int {
	t.Helper()
	n, err := strconv.Atoi(c.stats(t, command)[name])
	if err != nil {
		t.Fatalf("%s %s: %v", command, name, err)
	}
	return n
}

// memoryInUse is what items take.
type memoryInUse struct{ items, bytes, usedChunks int }

// memory asks how much memory items take now.
func (c *textConn) memory(t testing.TB) memoryInUse {
	t.Helper()
	m := memoryInUse{items: c.stat(t, "stats", "curr_items"), bytes: c.stat(t, "stats", "bytes")}
	for name, value := range c.stats(t, "stats slabs") {
		if strings.HasSuffix(name, ":used_chunks") {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			m.usedChunks += n
		}
	}
	return m
}
