package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// lockedLog keeps what is logged.
type lockedLog struct {
	mu  sync.Mutex // buf
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// messages are the lines of the log without what slog puts around them.
func (l *lockedLog) messages() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for _, m := range regexp.MustCompile(`msg=("(?:[^"\\\\]|\\\\.)*"|\S+)`).FindAllStringSubmatch(l.buf.String(), -1) {
		all = append(all, strings.Trim(m[1], `"`))
	}
	return strings.Join(all, "\n")
}

// The log shows commands and what answers them, and no value or password.
func TestVerbose(t *testing.T) {
	log := new(lockedLog)
	s, addr := startServer(t, Config{
		Verbosity: verboseCommands, Threads: 1, Logger: slog.New(slog.NewTextHandler(log, nil)),
		AuthFile: writeUsers(t, "ann:secret\n"),
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := answer(t, c, "set x 0 0 10\r\nann secret\r\nset k 0 0 12\r\nsecr\netstuff\r\nget k none\r\nb\x1bg\r\nquit\r\n")
	if want := "STORED\r\nSTORED\r\nVALUE k 0 12\r\nsecr\netstuff\r\nEND\r\nERROR\r\n"; got != want {
		t.Fatalf("got %q want %q", got, want)
	}
	eventually(t, "the end", func() bool { return strings.Contains(log.messages(), "connection closed") })
	text := log.messages()
	fd := regexp.MustCompile(`<(\d+) new ascii client`).FindStringSubmatch(text)
	if fd == nil {
		t.Fatalf("no new connection: %s", text)
	}
	for _, want := range []string{
		fmt.Sprintf("<%d server listening (ascii)", s.listeners[0].fd),
		"slab class   1: chunk size",
		"<" + fd[1] + " set x 0 0 10\n>" + fd[1] + " STORED (8 bytes)\n",
		"<" + fd[1] + " set k 0 0 12\n>" + fd[1] + " STORED (8 bytes)\n",
		"<" + fd[1] + " get k none\n>" + fd[1] + " VALUE k 0 12 (33 bytes)\n",
		"<" + fd[1] + ` b\\x1bg`,
		"<" + fd[1] + " quit\n<" + fd[1] + " connection closed (normal).",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "stuff") {
		t.Errorf("too much is told:\n%s", text)
	}
}

// Telling changes no answer, however the input is cut.
func TestVerboseAnswersTheSame(t *testing.T) {
	for _, piece := range []int{1, 3, 1000, len(sessionScript)} {
		quiet, loud := newTestPeer(t, Config{}), newTestPeer(t, Config{})
		loud.srv.verbosity.Store(verboseCommands)
		c := &conn{srv: loud.srv, session: loud.s}
		want, got := "", ""
		for rest := sessionScript; rest != "" && !quiet.closed; {
			in := rest[:min(piece, len(rest))]
			rest = rest[len(in):]
			want += quiet.send(in)
			loud.got = loud.got[:0]
			for p := []byte(in); ; {
				loud.w.now = loud.srv.now()
				n, v := c.feed(&loud.w, p)
				p = p[n:]
				loud.drain()
				if v == verdictMore || v == verdictClose {
					break
				}
			}
			got += string(loud.got)
		}
		if got != want {
			t.Errorf("in pieces of %d: got %s want %s", piece, short(got), short(want))
		}
	}
}
