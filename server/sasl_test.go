package server

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// saslUsersFile writes a file of users, given as name:password.
func saslUsersFile(t testing.TB, logins ...string) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("# users of a test\n\n")
	for _, l := range logins {
		name, password, _ := strings.Cut(l, ":")
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(name + ":" + string(hash) + "\r\n")
	}
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func testSASLUsers(t testing.TB, logins ...string) *saslUsers {
	t.Helper()
	u, err := openUsers(saslUsersFile(t, logins...))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// loginPacket logs in.
func loginPacket(name, password string) string {
	return packet(`auth key=PLAIN value=\0` + name + `\0` + password)
}

var (
	loggedIn = packetReply("auth ok value=Authenticated")
	refused  = packetReply("auth autherror")
)

// loginScript is a bit of everything about logins.
var loginScript = strings.Join([]string{
	packet("mechs"), packet("version"), packet("auth key=CRAM-MD5"), packet("step key=PLAIN value=x"),
	packet("auth key=PLAIN"), packet("step key=PLAIN value=\\0user\\0wrong"), packet("auth key={33*x} value=abc"),
	loginPacket("user", "secret"), packet("set key=k flags=0 exp=0 value=v"), packet("get key=k"), packet("mechs"), packet("get key=k"),
}, "")

func saslPeer(t testing.TB) *testPeer {
	return newTestPeer(t, Config{SASL: true, SASLFile: saslUsersFile(t, "user:secret", "other:word")})
}

// TestSASL holds what a connection is answered before, at and after a login.
func TestSASL(t *testing.T) {
	unauthenticated := packetReply("get autherror")
	long := strings.Repeat("p", passwordMaxBytes+1)
	for _, tt := range []struct {
		name, in, want string
		closed         bool
	}{
		{"a request before it", packet("get key=k"), unauthenticated, true},
		{"a quiet one", packet("getq key=k"), packetReply("getq autherror"), true},
		{"an unknown one", packet("0x70 value=abc"), packetReply("0x70 autherror"), true},
		{"one that is wrong", packet("get"), unauthenticated, true},
		{"one with a key too long", packet("get key={300*k}"), unauthenticated, true},
		{"one that is too short", packet("get key=abc blen=1"), packetReply("get unknown"), true},
		{"quit", packet("quit"), packetReply("quit autherror"), true},
		{"noop", packet("noop"), packetReply("noop autherror"), true},
		{"version", packet("version"), packetReply("version ok value=" + Version), false},
		{"the mechanisms", packet("mechs opaque=7"), packetReply("mechs ok value=PLAIN opaque=7"), false},
		{"the mechanisms with a body", packet("mechs value=x"), packetReply("mechs invalid"), true},
		{"a login", loginPacket("user", "secret") + packet("noop"), loggedIn + packetReply("noop ok"), false},
		{"another user", loginPacket("other", "word"), loggedIn, false},
		{"acting as oneself", packet(`auth key=plain value=user\0user\0secret`), loggedIn, false},
		{"acting as another", packet(`auth key=PLAIN value=other\0user\0secret`), refused, false},
		{"a wrong password", loginPacket("user", "word"), refused, false},
		{"a beginning of the password", loginPacket("user", "secre"), refused, false},
		{"an empty password", loginPacket("user", ""), refused, false},
		{"a password too long", loginPacket("user", long), refused, false},
		{"no such user", loginPacket("nobody", "secret"), refused, false},
		{"a wrong password, then a request", loginPacket("user", "x") + packet("get key=k"), refused + unauthenticated, true},
		{"a wrong password, then the right one", loginPacket("user", "x") + loginPacket("user", "secret"), refused + loggedIn, false},
		{"a right one, then a wrong one", loginPacket("user", "secret") + loginPacket("user", "x") + packet("get key=k"),
			loggedIn + refused + unauthenticated, true},
		{"another mechanism", packet("auth key=CRAM-MD5"), refused, false},
		{"no message", packet("auth key=PLAIN value=usersecret"), refused, false},
		{"one NUL too many", packet(`auth key=PLAIN value=\0user\0secret\0`), refused, false},
		{"a step without a start", packet(`step key=PLAIN value=\0user\0secret`), packetReply("step autherror"), false},
		{"in two steps", packet("auth key=PLAIN") + packet(`step key=PLAIN value=\0user\0secret`),
			packetReply("auth continue") + packetReply("step ok value=Authenticated"), false},
		{"a step too many", packet("auth key=PLAIN") + packet(`step key=PLAIN value=\0user\0secret`) + packet("step key=PLAIN"),
			packetReply("auth continue") + packetReply("step ok value=Authenticated") + packetReply("step autherror"), false},
		{"a mechanism's name too long", packet("auth key={33*x} value=abc") + packet("version"),
			packetReply("auth invalid") + packetReply("version ok value="+Version), false},
		{"a message too long", packet("auth key=PLAIN value={1025*x}") + packet("version"),
			packetReply("auth nomemory") + packetReply("version ok value="+Version), false},
		{"the list of mechanisms ends a login", loginPacket("user", "secret") + packet("mechs") + packet("get key=k"),
			loggedIn + packetReply("mechs ok value=PLAIN") + unauthenticated, true},
		{"a line", "get something from here\r\n", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole := saslPeer(t)
			whole.s = newSession(whole.srv, &connInfo{listener: &listener{protocol: protocolBinary}})
			whole.want(tt.in, tt.want)
			if whole.closed != tt.closed {
				t.Errorf("closed %v, want %v", whole.closed, tt.closed)
			}
			bytes := whole.another()
			bytes.s = newSession(whole.srv, &connInfo{listener: &listener{protocol: protocolBinary}})
			got := ""
			for i := range len(tt.in) {
				got += bytes.send(tt.in[i : i+1])
			}
			if got != tt.want || bytes.closed != tt.closed {
				t.Errorf("byte by byte: got %s, closed %v", short(got), bytes.closed)
			}
		})
	}
}

// TestSASLCounts: logins and those that fail are counted.
func TestSASLCounts(t *testing.T) {
	p := saslPeer(t)
	p.send(loginPacket("user", "x") + packet("auth key=PLAIN") + packet("step key=PLAIN value=x") + packet("auth key={40*x}") +
		loginPacket("user", "secret"))
	if n := p.srv.totals.sum(); n.authCmds != 3 || n.authErrors != 2 {
		t.Errorf("auth_cmds %d, auth_errors %d: want 3 and 2", n.authCmds, n.authErrors)
	}
}

// TestSASLWaits: a password that was not right before is not tried in a loop,
// and one that was is not tried again.
func TestSASLWaits(t *testing.T) {
	p := saslPeer(t)
	in := []byte(loginPacket("user", "secret"))
	if n, v := p.s.feed(&p.w, in); n != len(in) || v != verdictWait || p.w.out.pending() > 0 {
		t.Fatalf("took %d of %d, verdict %d, %d bytes answered: want it to wait", n, len(in), v, p.w.out.pending())
	}
	p.want("", loggedIn)
	q := p.another()
	if n, v := q.s.feed(&q.w, in); n != len(in) || v != verdictMore {
		t.Errorf("known: took %d of %d, verdict %d", n, len(in), v)
	}
	q.drain()
	if got := string(q.got); got != loggedIn {
		t.Errorf("known: got %q", got)
	}
	if n, v := q.s.feed(&q.w, []byte(loginPacket("user", "secreT"))); v != verdictWait {
		t.Errorf("wrong: took %d, verdict %d", n, v)
	}
}

// TestSASLReload: the users are read again, and stay as they are when that fails.
func TestSASLReload(t *testing.T) {
	p := saslPeer(t)
	path := p.srv.saslUsers.path
	p.want(loginPacket("user", "secret"), loggedIn)
	known := p.srv.saslUsers
	replace := func(from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.srv.Reload()
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	replace(saslUsersFile(t, "other:changed", "new:one"))
	p.want(loginPacket("user", "secret"), refused)
	p.want(loginPacket("new", "one"), loggedIn)
	p.want(loginPacket("other", "changed"), loggedIn)
	p.want(loginPacket("other", "word"), refused)

	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.srv.Reload()
	p.want(loginPacket("new", "one"), loggedIn)

	if err := os.WriteFile(path, before, 0o600); err != nil {
		t.Fatal(err)
	}
	p.srv.Reload()
	p.want(loginPacket("user", "secret"), loggedIn)
	p.srv.Reload() // whose hash is the same stays known
	if !known.knows([]byte("user"), []byte("secret")) {
		t.Error("a user is not known any more although the line is the same")
	}
}

// TestParseSASLUsers holds which files are taken, and what is said about others.
func TestParseSASLUsers(t *testing.T) {
	hash := "$2y$05$" + strings.Repeat("a", 53)
	slow := "$2b$15$" + strings.Repeat("a", 53)
	for _, tt := range []struct{ text, err string }{
		{"a:" + hash, ""},
		{"# c\n\na:" + hash + "\r\nb:" + hash + "\n", ""},
		{"", "no users"},
		{"a", "line 1: want user:hash"},
		{"\n:" + hash, "line 2: want user:hash"},
		{"a:secret", "line 1: the password of a is no bcrypt hash: make one with quarry passwd"},
		{"a:" + hash + "x", "line 1: the password of a is no bcrypt hash: make one with quarry passwd"},
		{"a:" + slow, "line 1: the hash of a has the cost 15, which takes too long: 14 at most"},
		{"a:" + hash + "\na:" + hash, "line 2: a second a"},
		{strings.Repeat("#\n", usersMaxBytes), "more than 1048576 bytes"},
	} {
		got := ""
		if _, _, err := parseUsers(tt.text); err != nil {
			got = err.Error()
		}
		if got != tt.err {
			t.Errorf("%s: got %q, want %q", short(tt.text), got, tt.err)
		}
	}
}

// FuzzParseSASLUsers reads any text as a file of users. It never panics, and what
// it takes can be tried.
func FuzzParseSASLUsers(f *testing.F) {
	f.Add("user:$2a$04$" + strings.Repeat("a", 53))
	f.Add("# c\n\r\na:b:c\n:\n$2a$")
	f.Fuzz(func(t *testing.T, text string) {
		table, _, err := parseUsers(text)
		if err != nil {
			return
		}
		for name, u := range table {
			if cost, err := bcrypt.Cost(u.hash); name == "" || err != nil || cost > hashCostMax {
				t.Errorf("%q: %q: cost %d, %v", name, u.hash, cost, err)
			}
		}
	})
}

// TestSASLOverTheNetwork logs in over a socket, where the connection leaves
// its loop for it and comes back.
func TestSASLOverTheNetwork(t *testing.T) {
	s, addr := startServer(t, Config{SASL: true, SASLFile: saslUsersFile(t, "user:secret")})
	for range 3 {
		r := &runner{tg: &target{dial: func() (net.Conn, error) { return net.Dial("tcp", addr) }, timeout: transcriptTimeout}}
		if err := r.connect(); err != nil {
			t.Fatal(err)
		}
		r.conn.SetDeadline(time.Now().Add(transcriptTimeout))
		r.write([]byte(loginPacket("user", "wrong") + loginPacket("user", "secret") + packet("noop")))
		for _, want := range []string{refused, loggedIn, packetReply("noop ok")} {
			if got, err := r.readPacket(); string(got) != want || err != nil {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
		r.drop()
	}
	n := s.totals.sum()
	for deadline := time.Now().Add(transcriptTimeout); n.authCmds < 6 && time.Now().Before(deadline); n = s.totals.sum() {
		time.Sleep(time.Millisecond) // they are published behind the reply
	}
	if n.authCmds != 6 || n.authErrors != 3 {
		t.Errorf("auth_cmds %d, auth_errors %d: want 6 and 3", n.authCmds, n.authErrors)
	}
}
