package server

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const loginUsers = "foo:bar\nbaaaz:quux\nsp:two words\n:\n"

// writeUsers makes a file for -Y.
func writeUsers(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newLoginPeer is newTestPeer with users, of whom the peer is none yet.
func newLoginPeer(t *testing.T, users string) *testPeer {
	t.Helper()
	p := newTestPeer(t, Config{AuthFile: writeUsers(t, users)})
	if err := p.srv.loadCredentials(); err != nil {
		t.Fatal(err)
	}
	return p.another()
}

// loginCases are what connections say before they have logged in.
var loginCases = []struct {
	name, in, want string
	closed         bool
	ours           bool // memcached answers otherwise, or not always the same
}{
	{name: "good", in: "set foo 0 0 7\r\nfoo bar\r\n", want: "STORED\r\n"},
	{name: "any key, flags and exptime", in: "set whatever x -9 10\r\nbaaaz quux\r\n", want: "STORED\r\n"},
	{name: "a password with spaces", in: "set foo 0 0 12\r\nsp two words\r\n", want: "STORED\r\n"},
	{name: "an empty user with an empty password", in: "set foo 0 0 1\r\n \r\n", want: "STORED\r\n"},
	{name: "noreply is a word like others", in: "set foo 0 0 7 noreply\r\nfoo bar\r\n", want: "STORED\r\n"},
	{name: "a bare line end", in: "set foo 0 0 7\nfoo bar\r\n", want: "STORED\r\n", ours: true},
	{name: "wrong password", in: "set foo 0 0 7\r\nfoo bab\r\n", want: "CLIENT_ERROR authentication failure\r\n"},
	{name: "another's password", in: "set foo 0 0 8\r\nfoo quux\r\n", want: "CLIENT_ERROR authentication failure\r\n"},
	{name: "the beginning of a password", in: "set foo 0 0 6\r\nfoo ba\r\n", want: "CLIENT_ERROR authentication failure\r\n"},
	{name: "a colon does not end the user", in: "set foo 0 0 7\r\nfoo:bar\r\n", want: "CLIENT_ERROR bad authentication token format\r\n"},
	{name: "no space", in: "set foo 0 0 6\r\nfoobar\r\n", want: "CLIENT_ERROR bad authentication token format\r\n"},
	{name: "empty token", in: "set foo 0 0 0\r\n\r\n", want: "CLIENT_ERROR bad authentication token format\r\n"},
	{name: "token not ended", in: "set foo 0 0 7\r\nfoo barxx", want: "CLIENT_ERROR bad command line termination\r\n"},
	{name: "get", in: "get foo\r\n", want: "CLIENT_ERROR unauthenticated\r\n"},
	{name: "add", in: "add foo 0 0 7\r\n", want: "CLIENT_ERROR unauthenticated\r\n"},
	{name: "too few words", in: "set foo 0 7\r\n", want: "CLIENT_ERROR unauthenticated\r\n"},
	{name: "a length that is none", in: "set foo 0 0 7x\r\n", want: "CLIENT_ERROR unauthenticated\r\n"},
	{name: "too long a token", in: "set foo 0 0 16385\r\n", want: "CLIENT_ERROR auth token too long\r\n"},
	{name: "far too long a token", in: "set foo 0 0 2147483646\r\n", want: "CLIENT_ERROR auth token too long\r\n"},
	{name: "the longest token", in: "set foo 0 0 16380\r\nfoo " + strings.Repeat("x", 16376) + "\r\n",
		want: "CLIENT_ERROR authentication failure\r\n"},
	{name: "binary bytes are text", in: "\x80\x0bxxxxxx\r\n", want: "CLIENT_ERROR unauthenticated\r\n"},
	{name: "a line under six bytes", in: "quit\r\n", closed: true},
	{name: "an empty line", in: "\r\n\r\n", closed: true},
	{name: "no line end", in: strings.Repeat("x", lineMax+1), closed: true},
	{name: "again", in: "set foo 0 0 3\r\nx y\r\nget foo\r\nset foo 0 0 7\r\nfoo bar\r\nset k 0 0 1\r\nv\r\nget k\r\n",
		want: "CLIENT_ERROR authentication failure\r\nCLIENT_ERROR unauthenticated\r\nSTORED\r\nSTORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n",
		ours: true}, // memcached's replies before the login overwrite each other
}

func TestLogin(t *testing.T) {
	for _, tt := range loginCases {
		t.Run(tt.name, func(t *testing.T) {
			for _, piece := range []int{len(tt.in), 1, 7} {
				p := newLoginPeer(t, loginUsers)
				var got string
				for rest := tt.in; rest != ""; {
					n := min(piece, len(rest))
					got += p.send(rest[:n])
					rest = rest[n:]
				}
				if got != tt.want || p.closed != tt.closed {
					t.Errorf("in pieces of %d: got %s, closed %v, want %s, %v", piece, short(got), p.closed, short(tt.want), tt.closed)
				}
				if p.s.line != nil && !strings.HasPrefix(tt.in, "xxx") {
					t.Errorf("in pieces of %d: the session keeps a buffer", piece)
				}
			}
		})
	}
}

// What TestLogin expects is what memcached does.
func TestLoginJustified(t *testing.T) {
	tg := &target{dial: startMemcached(t, []string{"-Y", writeUsers(t, loginUsers)})}
	conn, err := tg.dial()
	if err != nil {
		t.Fatal(err)
	}
	if got := answer(t, conn, "set foo 0 0 7\r\nfoo bar\r\nversion\r\n"); got != "STORED\r\nVERSION "+Version+"\r\n" {
		t.Skipf("skipped: another memcached (%q)", got)
	}
	for _, tt := range loginCases {
		if tt.ours {
			continue
		}
		conn, err := tg.dial()
		if err != nil {
			t.Fatal(err)
		}
		if got := answer(t, conn, tt.in); got != tt.want {
			t.Errorf("%s: memcached: got %q want %q", tt.name, got, tt.want)
		}
	}
}

// answer sends in, and nothing more, and gives all that comes back.
func answer(t *testing.T, conn net.Conn, in string) string {
	t.Helper()
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(transcriptTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, in); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestLoginCounts(t *testing.T) {
	p := newLoginPeer(t, loginUsers)
	p.send("get a\r\nset a 0 0 3\r\na b\r\nset a 0 0 1\r\na\r\nset a 0 0 7\r\nfoo bar\r\n")
	for key, want := range map[string]string{"auth_cmds": "2", "auth_errors": "1"} {
		if got := p.stat("", key); got != want {
			t.Errorf("%s: got %s want %s", key, got, want)
		}
	}
	if got := p.stat("settings", "auth_enabled_ascii"); got != p.srv.cfg.AuthFile {
		t.Errorf("auth_enabled_ascii: got %s", got)
	}
	if got := p.stat("settings", "binding_protocol"); got != "ascii" {
		t.Errorf("binding_protocol: got %s", got)
	}
}

// A login that goes wrong takes the place of a request: others have a turn.
func TestLoginYields(t *testing.T) {
	p := newTestPeer(t, Config{AuthFile: writeUsers(t, loginUsers), ReqsPerEvent: 2})
	if err := p.srv.loadCredentials(); err != nil {
		t.Fatal(err)
	}
	p = p.another()
	in := []byte(strings.Repeat("get aaa\r\n", 3))
	if n, v := p.s.feed(&p.w, in); v != verdictYield || n != len(in)/3*2 {
		t.Errorf("got %d bytes, verdict %d", n, v)
	}
}
