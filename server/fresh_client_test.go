package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// freshClient is a connection for tests of versions, deadlines and grants.
type freshClient struct {
	t     testing.TB
	conn  net.Conn
	r     *bufio.Reader
	clock *testClock // of the server; nil: the system's
}

func dialFresh(t testing.TB, addr string, clock *testClock) *freshClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &freshClient{t, conn, bufio.NewReader(conn), clock}
}

// now is the server's time in ms.
func (c *freshClient) now() int64 {
	if c.clock == nil {
		return time.Now().UnixMilli()
	}
	return int64(c.clock.Now())
}

// in is a time so many ms from now.
func (c *freshClient) in(millis int64) int64 { return c.now() + millis }

func (c *freshClient) advance(millis int64) {
	c.clock.Advance(time.Duration(millis) * time.Millisecond)
}

// do sends a command with its data blocks, and reads one reply.
func (c *freshClient) do(command string, blocks ...string) meta.Reply {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, command+"\r\n"+join(blocks)); err != nil {
		c.t.Fatal(err)
	}
	return c.reply()
}

func join(blocks []string) (s string) {
	for _, b := range blocks {
		s += b + "\r\n"
	}
	return s
}

// reply reads one; it is valid for good.
func (c *freshClient) reply() meta.Reply {
	c.t.Helper()
	var buf []byte
	for {
		line, err := c.r.ReadBytes('\n')
		if err != nil {
			c.t.Fatalf("got %q and then %v", line, err)
		}
		buf = append(buf, line...)
		var rep meta.Reply
		n, need, err := rep.Parse(buf)
		if err != nil {
			c.t.Fatalf("%q: %v", buf, err)
		}
		if n > 0 {
			return rep
		}
		if more := need - len(buf); more > 0 {
			rest := make([]byte, more)
			if _, err := io.ReadFull(c.r, rest); err != nil {
				c.t.Fatal(err)
			}
			buf = append(buf, rest...)
			if n, _, err := rep.Parse(buf); n == 0 || err != nil {
				c.t.Fatalf("%q: %v", buf, err)
			}
			return rep
		}
	}
}

// want sends a command, and compares the line that comes back; a * in want
// stands for a word's rest.
func (c *freshClient) want(command, want string, blocks ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, command+"\r\n"+join(blocks)); err != nil {
		c.t.Fatal(err)
	}
	got, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("%s: got %q and then %v", command, got, err)
	}
	got = strings.TrimRight(got, "\r\n")
	if !matches(got, want) {
		c.t.Errorf("%s: got %q, want %q", command, got, want)
	}
	if size := 0; strings.HasPrefix(got, "VA ") {
		fmt.Sscanf(got, "VA %d", &size)
		if _, err := c.r.Discard(size + 2); err != nil {
			c.t.Fatal(err)
		}
	}
}

func matches(got, want string) bool {
	g, w := strings.Fields(got), strings.Fields(want)
	if len(g) != len(w) {
		return false
	}
	for i := range w {
		prefix, open := strings.CutSuffix(w[i], "*")
		if g[i] != w[i] && !(open && strings.HasPrefix(g[i], prefix)) {
			return false
		}
	}
	return true
}

// found is what a lookup was told.
type found struct {
	meta.Reply
	token string // "": no grant
	value string // of VA
}

func (f *found) hit() bool { return f.Code == meta.CodeVA }

// lookup sends mg with v and y, and what rest says.
func (c *freshClient) lookup(rest string) found {
	c.t.Helper()
	key, flags, _ := strings.Cut(rest, " ")
	rep := c.do("mg " + key + " v y " + flags)
	if rep.Code != meta.CodeVA && rep.Code != meta.CodeEN {
		c.t.Fatalf("mg %s: %+v", rest, rep)
	}
	return found{rep, string(rep.Fresh.Token()), string(rep.Value)}
}

// grant is the token of a lookup that must be granted.
func (c *freshClient) grant(key string) string {
	c.t.Helper()
	f := c.lookup(key + " G1000")
	if f.token == "" {
		c.t.Fatalf("no grant for %s: %+v", key, f.Reply)
	}
	return f.token
}

// fill stores what the source says, hard in 30 s and soft in 20 s.
func (c *freshClient) fill(key, token string, version uint64, value string) meta.Reply {
	c.t.Helper()
	now := c.now()
	return c.do(fmt.Sprintf("ms %s %d G%s Y%d A%d,%d,%d", key, len(value), token, version, now+30_000, now+20_000, now), value)
}

// wantFill is fill that must end so; reason 0 is success.
func (c *freshClient) wantFill(key, token string, version uint64, value string, reason uint8) {
	c.t.Helper()
	rep := c.fill(key, token, version, value)
	if (rep.Code == meta.CodeHD) != (reason == 0) || rep.Fresh.Reason != reason {
		c.t.Errorf("fill of %s with version %d: code %v, r%d, want r%d", key, version, rep.Code, rep.Fresh.Reason, reason)
	}
}

// wantValue looks key up without a grant.
func (c *freshClient) wantValue(key, want string) {
	c.t.Helper()
	got := c.lookup(key)
	if want == "" && got.hit() || want != "" && got.value != want {
		c.t.Errorf("%s is %q, want %q", key, got.value, want)
	}
}
