package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/server/store"
)

// testStart is when the clock of the tests starts.
const testStart = store.Time(1_700_000_000_000)

// testPeer is a client without a socket: it feeds a session directly, as a
// loop does, with a clock that it moves itself.
type testPeer struct {
	t   testing.TB
	srv *Server
	s   *session
	w   worker
	now *store.Time
	got []byte // replies so far
	// closed says that the session wants no more.
	closed bool
}

// newTestPeer opens a server that does not listen, and a session on it. The
// store is checked at the end.
func newTestPeer(t testing.TB, c Config) *testPeer {
	t.Helper()
	now := testStart
	if c.MemoryMB == 0 {
		c.MemoryMB = 2
	}
	if c.Threads == 0 {
		c.Threads = 1
	}
	c.Clock = func() store.Time { return now }
	c.Logger = slog.New(slog.DiscardHandler)
	srv, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.store.Check(); err != nil {
			t.Error(err)
		}
		if err := srv.store.Close(); err != nil {
			t.Error(err)
		}
	})
	srv.aheadItemsMin = 0
	p := &testPeer{t: t, srv: srv, now: &now}
	p.s = newSession(srv, &connInfo{listener: new(listener)})
	t.Cleanup(p.s.end)
	return p
}

// another is a second connection to p's server.
func (p *testPeer) another() *testPeer {
	q := &testPeer{t: p.t, srv: p.srv, now: p.now}
	q.s = newSession(p.srv, &connInfo{listener: new(listener)})
	p.t.Cleanup(q.s.end)
	return q
}

// sleep moves the clock.
func (p *testPeer) sleep(seconds int) { *p.now += store.Time(seconds) * 1000 }

// feed gives the session in, writes what it answers, and goes on until all is
// taken or the session closes.
func (p *testPeer) feed(in []byte) {
	p.t.Helper()
	for round := 0; !p.closed; round++ {
		p.w.begin(p.srv, p.s.conn, p.srv.watch.common())
		n, v := p.s.feed(&p.w, in)
		if n < 0 || n > len(in) || v == verdictMore && n != len(in) {
			p.t.Fatalf("feed(%d bytes) took %d, verdict %d", len(in), n, v)
		}
		if max := outHighBytes + copyMaxBytes + 4096; p.w.out.pending() > max {
			p.t.Fatalf("%d bytes pending: want at most %d", p.w.out.pending(), max)
		}
		p.drain()
		in = in[n:]
		p.closed = v == verdictClose || v == verdictWatch
		p.w.mayWait = v == verdictWait
		if v == verdictMore {
			return
		}
		if v == verdictFull && round > 1<<20 {
			p.t.Fatal("the session does not come to an end")
		}
	}
}

// drain takes the output of the worker, as writing it would.
func (p *testPeer) drain() {
	o := &p.w.out
	from := 0
	for i := range o.cuts {
		c := &o.cuts[i]
		p.got = append(p.got, o.buf[from:c.at]...)
		from = c.at
		for c.pin.Len() > 0 {
			var views [4][]byte
			for _, b := range c.pin.Peek(views[:0]) {
				p.got = append(p.got, b...)
				c.pin.Advance(len(b))
			}
		}
		c.pin.Release()
	}
	p.got = append(p.got, o.buf[from:]...)
	o.buf, o.cuts, o.pinned = o.buf[:0], o.cuts[:0], 0
	p.w.publish(p.srv)
}

// send feeds in as a whole and returns what is answered.
func (p *testPeer) send(in string) string {
	p.t.Helper()
	p.got = p.got[:0]
	p.feed([]byte(in))
	return string(p.got)
}

// want sends in and compares the reply.
func (p *testPeer) want(in, want string) {
	p.t.Helper()
	if got := p.send(in); got != want {
		p.t.Errorf("sent %s\n got %s\nwant %s", short(in), short(got), short(want))
	}
}

// short is s for a message.
func short(s string) string {
	if len(s) > 400 {
		return fmt.Sprintf("%q... (%d bytes)", s[:400], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// stat is the value of a key in the answer to stats and word.
func (p *testPeer) stat(word, key string) string {
	p.t.Helper()
	for line := range strings.Lines(p.send(strings.TrimRight("stats "+word, " ") + "\r\n")) {
		if rest, ok := strings.CutPrefix(line, "STAT "+key+" "); ok {
			return strings.TrimRight(rest, "\r\n")
		}
	}
	p.t.Errorf("stats %s has no %s", word, key)
	return ""
}

// sessionScript is a bit of everything whose answers do not depend on the clock or on
// what was before.
var sessionScript = "" +
	"set a 5 0 3\r\nabc\r\nget a\r\nget a b a\r\ngets b\r\nget  a \r\n" +
	"set noreply 0 0 2 noreply\r\nxy\r\nget noreply\r\n" +
	"add a 0 0 1\r\nx\r\nreplace b 0 0 1\r\nx\r\nappend a 0 0 3\r\ndef\r\nprepend a 1 1 3\r\n123\r\nget a\r\n" +
	"cas zz 0 0 1 5\r\nx\r\nset n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 6\r\ndecr n 100 noreply\r\nget n\r\nincr a 1\r\nincr x 1\r\n" +
	"touch a 0\r\ntouch q 10\r\ngat 0 a n\r\ndelete n\r\ndelete n\r\ndelete n noreply\r\n" +
	"mn\r\nmg a v\r\nmg a s t f k Oabc v\r\nmg miss\r\nmg miss q\r\nmg miss q k O1\r\nmn\r\n" +
	"ms b 2 T0 F7\r\nhi\r\nms b 2 q\r\nho\r\nms b 2 MA k s Oq\r\nxx\r\nms c 2 MR\r\nxx\r\nms c 2 ME\r\nxx\r\nmg b f v\r\n" +
	"ma b\r\nma num N0 J5 v\r\nma num D3 v q\r\nma num MD D1 v k\r\nma nope\r\nmd num q\r\nmd num\r\nmd c q Ox\r\n" +
	"bogus\r\n\r\nset\r\nset a 0 0 x\r\nset a 0 0 2\r\nabcd\r\nset a x 0 2\r\nab\r\nms b 2 S100 S100\r\nhi\r\nms b 2 I I\r\nhi\r\n" +
	"get\r\nget " + longKey + "\r\nget a " + longKey + " b\r\nset " + longKey + " 0 0 2\r\nab\r\n" +
	"mg " + longKey + "\r\ntouch a x\r\nincr n x\r\ngat x a\r\nflush_all x\r\nverbosity\r\nverbosity 1\r\n" +
	"version\r\nms YQ== 2 b\r\nab\r\nmg YQ== b k v\r\nmg a k v\r\nset  s  0  0  1  \r\n1\r\nget s\r\n" +
	"stats detail\r\nstats bogus\r\nshutdown\r\nslabs\r\nmg a\nmn\nget a\nset l 0 0 1\n1\r\nget l\r\n" +
	"flush_all\r\nget a b c\r\nquit\r\nget a\r\n"

var longKey = strings.Repeat("k", 251)

// TestSplits cuts the script in two at every place, and gives it byte by byte:
// the answers are always the same.
func TestSplits(t *testing.T) {
	want := newTestPeer(t, Config{}).send(sessionScript)
	if n := strings.Count(want, "\r\n"); n < 100 {
		t.Fatalf("%d lines of reply to the script: %s", n, want)
	}
	p := newTestPeer(t, Config{})
	for i := range len(sessionScript) {
		q := p.another()
		q.feed([]byte(sessionScript[:i]))
		q.feed([]byte(sessionScript[i:]))
		if string(q.got) != want {
			t.Fatalf("cut at %d (%q | %q): got\n%s\nwant\n%s", i, sessionScript[max(i-10, 0):i], sessionScript[i:min(i+10, len(sessionScript))], q.got, want)
		}
		p.w.now = *p.now
		p.srv.store.FlushAll(0, *p.now)
	}
	q := p.another()
	for i := range len(sessionScript) {
		q.feed([]byte(sessionScript[i : i+1]))
	}
	if string(q.got) != want {
		t.Fatalf("byte by byte: got\n%s\nwant\n%s", q.got, want)
	}
}

// TestLongGet gives get lines over lineMax in pieces of every size.
func TestLongGet(t *testing.T) {
	p := newTestPeer(t, Config{})
	var line, want bytes.Buffer
	line.WriteString("get")
	for i := range 600 {
		key := fmt.Sprintf("key-%d", i)
		if i%3 == 0 {
			p.want("set "+key+" 0 0 2\r\nab\r\n", "STORED\r\n")
			fmt.Fprintf(&want, "VALUE %s 0 2\r\nab\r\n", key)
		}
		fmt.Fprintf(&line, " %s", key)
		if i == 300 {
			line.WriteString(strings.Repeat(" ", 700))
		}
	}
	line.WriteString("\r\nmn\r\n")
	want.WriteString("END\r\nMN\r\n")
	for _, size := range []int{1, 2, 3, 7, 250, 251, 252, 253, 2047, 2048, 2049, 1 << 20} {
		p.got = p.got[:0]
		for rest := line.Bytes(); len(rest) > 0; {
			n := min(size, len(rest))
			p.feed(rest[:n])
			rest = rest[n:]
		}
		if string(p.got) != want.String() {
			t.Fatalf("pieces of %d: got %s", size, short(string(p.got)))
		}
		if p.s.line != nil {
			t.Fatalf("pieces of %d: a line of %d bytes is kept", size, len(*p.s.line))
		}
	}
}

// TestLongLines holds the session to its bounds.
func TestLongLines(t *testing.T) {
	spaces := func(n int) string { return strings.Repeat(" ", n) }
	keys := strings.Repeat("kkkkkkkkk ", 300)
	for _, tc := range []struct {
		name, in, want string
		closed         bool
	}{
		{"no line end", strings.Repeat("x", lineMax+1), "", true},
		{"not yet too long", strings.Repeat("x", lineMax), "", false},
		{"gat", "gat 0 " + keys, "", true},
		{"get", "get " + keys + "\r\n", "END\r\n", false},
		{"gets", "gets " + keys + "\r\n", "END\r\n", false},
		{"spaces before get", spaces(100) + "get " + keys + "\r\nmn\r\n", "ERROR\r\nMN\r\n", false},
		{"more spaces before get", spaces(101) + "get " + keys, "", true},
		{"no key", "get " + spaces(3000) + "\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n", false},
		{"key too long", "get " + keys + longKey + " x\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n", false},
		{"key much too long", "get " + strings.Repeat("k", 5000) + "\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n", false},
		{"key of 250", "get " + keys + longKey[1:] + "\r\n", "END\r\n", false},
		{"key ends in \\r", "get " + keys + longKey[1:] + "\rx\r\nmn\r\n", "CLIENT_ERROR bad command line format\r\nMN\r\n", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newTestPeer(t, Config{})
			for i := range len(tc.in) {
				p.feed([]byte(tc.in[i : i+1]))
			}
			if string(p.got) != tc.want || p.closed != tc.closed {
				t.Errorf("got %q, closed %v; want %q, closed %v", p.got, p.closed, tc.want, tc.closed)
			}
		})
	}
}

// TestHTTP closes on a web browser.
func TestHTTP(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("mn\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "MN\r\n")
	if !p.closed || p.s.conn.reason != closeError {
		t.Errorf("closed %v for reason %v", p.closed, p.s.conn.reason)
	}
}

// TestLongKeyKeepsEarlierReplies decides SURFACE 13.1: one error, no empty
// line, and only this command's values are lost.
func TestLongKeyKeepsEarlierReplies(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("set a 0 0 1\r\nx\r\n", "STORED\r\n")
	p.want("get a\r\nget a "+longKey+" a\r\nget a\r\n",
		"VALUE a 0 1\r\nx\r\nEND\r\nCLIENT_ERROR bad command line format\r\nVALUE a 0 1\r\nx\r\nEND\r\n")
}

// TestFull stops at outHighBytes, between requests and between the keys of
// one, and goes on where it stopped.
func TestFull(t *testing.T) {
	p := newTestPeer(t, Config{})
	value := strings.Repeat("v", 8000)  // copied
	large := strings.Repeat("w", 40000) // pinned
	p.want("set v 0 0 8000\r\n"+value+"\r\nset w 0 0 40000\r\n"+large+"\r\n", "STORED\r\nSTORED\r\n")
	one := "VALUE v 0 8000\r\n" + value + "\r\n"
	two := "VALUE w 0 40000\r\n" + large + "\r\n"
	const n = 100
	want := strings.Repeat(one+two, n) + "END\r\nMN\r\n"
	p.want("get"+strings.Repeat(" v w", n)+"\r\nmn\r\n", want)
	p.want(strings.Repeat("get v w\r\n", n)+"mn\r\n", strings.Repeat(one+two+"END\r\n", n)+"MN\r\n")

	// The same where the line is broken, so that the session keeps it.
	line := "get" + strings.Repeat(" v w", n) + "\r\nmn\r\n"
	for i := range len(line) {
		p.got = p.got[:0]
		p.feed([]byte(line[:i]))
		p.feed([]byte(line[i:]))
		if string(p.got) != want {
			t.Fatalf("cut at %d: got %s", i, short(string(p.got)))
		}
	}
}

// TestFullVerdict looks at one batch.
func TestFullVerdict(t *testing.T) {
	p := newTestPeer(t, Config{})
	value := strings.Repeat("v", 8000)
	p.want("set v 0 0 8000\r\n"+value+"\r\n", "STORED\r\n")
	in := []byte("get" + strings.Repeat(" v", 1000) + "\r\n")
	n, v := p.s.feed(&p.w, in)
	if pending := p.w.out.pending(); v != verdictFull || pending < outHighBytes || pending > outHighBytes+9000 {
		t.Fatalf("took %d, verdict %d, %d pending", n, v, pending)
	}
	again, v := p.s.feed(&p.w, in[n:])
	if again != 0 || v != verdictFull {
		t.Fatalf("while full: took %d, verdict %d", again, v)
	}
}

// TestYield gives others a turn after -R requests, and counts it.
func TestYield(t *testing.T) {
	p := newTestPeer(t, Config{ReqsPerEvent: 3})
	in := []byte(strings.Repeat("mn\r\n", 7))
	for i, want := range []int{12, 12, 4} {
		n, v := p.s.feed(&p.w, in)
		in = in[n:]
		if n != want || (v == verdictYield) != (i < 2) {
			t.Errorf("turn %d: took %d, verdict %d", i, n, v)
		}
	}
	p.drain()
	if got := p.stat("", "conn_yields"); got != "2" {
		t.Errorf("conn_yields %s", got)
	}
}

// TestDeadConnection ends sessions in the middle of a value: no chunk, no byte
// and no buffer stays behind.
func TestDeadConnection(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("set a 0 0 1\r\nx\r\n", "STORED\r\n")
	before := p.send("stats slabs\r\n")
	for _, n := range []int{1, 100, 20000, 300000, 1000000} {
		for _, sent := range []int{0, 1, n / 2, n, n + 1} {
			q := p.another()
			q.feed([]byte(fmt.Sprintf("set a 0 0 %d\r\n", n)))
			q.feed(bytes.Repeat([]byte("y"), min(sent, n)))
			if sent > n {
				q.feed([]byte("\r"))
			}
			if q.s.block == nil {
				t.Fatalf("%d of %d: no value on its way", sent, n)
			}
			q.s.end()
			q.s.end()
			if q.s.block != nil || q.s.line != nil {
				t.Errorf("%d of %d: the session keeps something", sent, n)
			}
		}
	}
	p.want("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n")
	used := func(stats string) (n int) {
		for line := range strings.Lines(stats) {
			if name, v, _ := strings.Cut(strings.TrimSpace(line[len("STAT "):]), " "); strings.HasSuffix(name, ":used_chunks") {
				var k int
				fmt.Sscan(v, &k)
				n += k
			}
		}
		return n
	}
	if a, b := used(strings.TrimSuffix(before, "END\r\n")), used(strings.TrimSuffix(p.send("stats slabs\r\n"), "END\r\n")); a != b {
		t.Errorf("%d chunks before, %d after", a, b)
	}
}
