package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clientOver runs a program of testdata, which uses a client library of its
// language, against a server of its own over each transport: "tcp", "unix",
// "tls", or "sasl", which is TCP with -S. The program gets the server's address
// as its last argument, host:port or a path, for TLS in QUARRY_CA the path of
// the certificate that signed the server's, and for SASL in QUARRY_USER and
// QUARRY_PASSWORD what to log in with. What only this side can do it asks for
// in a line on its output, and waits for one on its input:
//
//	advance N   the server's clock moves N seconds on
//	restart     the server ends, and an empty one begins at the same address
//
// It prints ok in the end, or says on stderr what was different.
func clientOver(t *testing.T, transports []string, program string, args ...string) {
	t.Helper()
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			h := newClientHost(t, transport)
			h.run(t, program, append(args, h.addr)...)
		})
	}
}

// clientInBoth is clientOver in the text protocol and in the binary one: the
// program's last argument before the address says which.
func clientInBoth(t *testing.T, transports []string, program string, args ...string) {
	t.Helper()
	args = args[:len(args):len(args)]
	t.Run("text", func(t *testing.T) { clientOver(t, transports, program, append(args, "text")...) })
	t.Run("binary", func(t *testing.T) { clientOver(t, transports, program, append(args, "binary")...) })
}

// needLibsaslPlain skips a test whose client logs in with libsasl, unless that
// has its part for PLAIN.
func needLibsaslPlain(t *testing.T) {
	t.Helper()
	if found, _ := filepath.Glob("/usr/lib/*/sasl2/libplain.so"); len(found) == 0 {
		t.Skip("skipped: libsasl has no PLAIN (Debian package libsasl2-modules)")
	}
}

// Transports of clientOver.
var (
	tcpOnly    = []string{"tcp"}
	tcpAndUnix = []string{"tcp", "unix"}
	allThree   = []string{"tcp", "unix", "tls"}
	saslOnly   = []string{"sasl"}
)

// clientHost is the server that a client's program is run against.
type clientHost struct {
	cfg    Config
	clock  *testClock
	server *Server
	addr   string
	ca     *testCA  // of "tls"
	env    []string // the program's, beside our own
}

func newClientHost(t *testing.T, transport string) *clientHost {
	h := &clientHost{clock: newTestClock()}
	h.cfg.Clock = h.clock.Now
	switch transport {
	case "unix":
		h.cfg.UnixSocket = socketPath(t)
	case "tls":
		h.ca = newTestCA(t, "ca")
		h.cfg.TLS = h.ca.server(t)
		h.env = []string{"QUARRY_CA=" + h.ca.path}
	case "sasl":
		h.cfg.SASL, h.cfg.SASLFile = true, saslUsersFile(t, "someone:a secret")
		h.env = []string{"QUARRY_USER=someone", "QUARRY_PASSWORD=a secret"}
	}
	h.server, h.addr = startServer(t, h.cfg)
	return h
}

// restart puts an empty server in the place of the one that is there.
func (h *clientHost) restart(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := h.server.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if tcp, ok := h.server.Addrs()[0].(*net.TCPAddr); ok {
		h.cfg.Port = tcp.Port
	}
	h.server, h.addr = startServer(t, h.cfg)
}

// run runs the program to its end and does what it asks for.
func (h *clientHost) run(t *testing.T, program string, args ...string) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), h.env...)
	timer := time.AfterFunc(commandTimeout, func() { cmd.Process.Kill() })
	defer timer.Stop()
	var complaint lockedBuffer
	cmd.Stderr = &complaint
	answers, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	asked, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ok := false
	for lines := bufio.NewScanner(asked); lines.Scan(); {
		line, seconds := lines.Text(), 0
		switch n, _ := fmt.Sscanf(line, "advance %d", &seconds); {
		case n == 1:
			h.clock.Advance(time.Duration(seconds) * time.Second)
		case line == "restart":
			h.restart(t)
		case line == "ok":
			ok = true
		default:
			t.Errorf("the program asked for %q", line)
		}
		if _, err := fmt.Fprintln(answers, "done"); err != nil && !ok {
			break // it has ended: Wait says how
		}
	}
	if err := cmd.Wait(); err != nil || !ok {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(args, " "), err, complaint.String())
	}
}
