package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// Programs that the tests start: each is ended by its own process id, on a
// port that it chose itself or in a temporary folder.

// processTimeout bounds the start of a program.
const processTimeout = time.Minute

// findProgram gives the path of the first of names that is installed. The
// folders of system programs count too, wherever PATH ends.
func findProgram(names ...string) (string, bool) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
		for _, dir := range []string{"/usr/sbin", "/sbin"} {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, true
			}
		}
	}
	return "", false
}

// needProgram is findProgram that skips the test when nothing is found.
func needProgram(t testing.TB, pkg string, names ...string) string {
	t.Helper()
	path, ok := findProgram(names...)
	if !ok {
		t.Skipf("skipped: %s is not installed (Debian package %s)", names[0], pkg)
	}
	return path
}

// process is a running program.
type process struct {
	cmd  *exec.Cmd
	out  lockedBuffer
	done chan struct{} // closed when it has ended
}

// lockedBuffer keeps what a program prints.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startProcess starts cmd, and ends it with the test.
func startProcess(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	go func() {
		cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the program at once.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// await polls until ready, the end of the program, or processTimeout.
func (p *process) await(t testing.TB, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(processTimeout); !ready(); {
		select {
		case <-p.done:
			t.Fatalf("%s ended before %s: %s", p.cmd.Path, what, p.out.String())
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: no %s after %v: %s", p.cmd.Path, what, processTimeout, p.out.String())
		}
	}
}

// accepts reports whether something listens at addr.
func accepts(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// freePort is a TCP port that nobody used a moment ago, for programs that
// cannot choose one themselves.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// startMemcachedTarget gives a real memcached to justify transcripts: the one
// at the address in QUARRY_MEMCACHED, or one started from the program that
// MEMCACHED names, or else from the memcached on PATH. A debug build lets its
// clock be moved; with QUARRY_MEMCACHED_WAIT set, the others are waited for.
func startMemcachedTarget(t testing.TB, flags []string) *target {
	t.Helper()
	tg := &target{slack: slackSeconds, timeout: transcriptTimeout}
	if addr := os.Getenv("QUARRY_MEMCACHED"); addr != "" {
		if len(flags) > 0 {
			t.Skipf("skipped: the memcached at %s was not started with %v", addr, flags)
		}
		tg.dial = func() (net.Conn, error) { return net.Dial("tcp", addr) }
	} else {
		tg.dial = startMemcached(t, flags)
	}
	if slices.Contains(flags, "binary") { // it understands no lines
		tg.version = tg.askPacketVersion(t)
		tg.name = "memcached " + tg.version
		tg.now = func() (int64, error) { return time.Now().Unix(), nil }
		return tg
	}
	reply, err := tg.ask("version")
	if err != nil {
		t.Fatal(err)
	}
	tg.version = strings.TrimPrefix(reply, "VERSION ")
	tg.name = "memcached " + tg.version
	tg.now = func() (int64, error) {
		reply, err := tg.ask("stats")
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(reply, "STAT time ")
		num, _, _ := strings.Cut(rest, "\r")
		return strconv.ParseInt(num, 10, 64)
	}
	if reply, _ := tg.ask("debugtime p"); reply == "OK" {
		tg.slack, tg.debug = 0, true
		moved := int64(0) // the debug build adds all moves so far again
		tg.advance = func(d time.Duration) error {
			n := int64(d / time.Second)
			reply, err := tg.ask(fmt.Sprintf("debugtime %d", n-moved))
			if err == nil && reply != "OK" {
				err = fmt.Errorf("debugtime: got %q", reply)
			}
			moved = n
			return err
		}
	} else if os.Getenv("QUARRY_MEMCACHED_WAIT") != "" {
		tg.advance = func(d time.Duration) error {
			time.Sleep(d + time.Second)
			return nil
		}
	}
	return tg
}

// startMemcached starts one on a port of its choice.
func startMemcached(t testing.TB, flags []string) func() (net.Conn, error) {
	t.Helper()
	bin := os.Getenv("MEMCACHED")
	if bin == "" {
		bin = needProgram(t, "memcached", "memcached")
	}
	portFile := filepath.Join(t.TempDir(), "port")
	args := append([]string{"-l", "127.0.0.1", "-p", "-1", "-U", "0", "-t", "2"}, flags...)
	if os.Geteuid() == 0 {
		args = append(args, "-u", "root")
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+portFile)
	p := startProcess(t, cmd)
	var addr string
	p.await(t, "its port", func() bool {
		data, err := os.ReadFile(portFile)
		_, port, ok := strings.Cut(string(data), "TCP INET: ")
		port, _, _ = strings.Cut(port, "\n")
		addr = "127.0.0.1:" + port
		return err == nil && ok
	})
	return func() (net.Conn, error) { return net.Dial("tcp", addr) }
}

// askPacketVersion asks for the version with a packet.
func (tg *target) askPacketVersion(t testing.TB) string {
	t.Helper()
	r := &runner{tg: tg}
	if err := r.connect(); err != nil {
		t.Fatal(err)
	}
	defer r.drop()
	r.conn.SetDeadline(time.Now().Add(transcriptTimeout))
	ask, err := parsePacket("version", false)
	if err != nil {
		t.Fatal(err)
	}
	packet, _ := ask.fill(nil)
	r.write(packet)
	reply, err := r.readPacket()
	if err != nil {
		t.Fatal(err)
	}
	return string(reply[meta.PacketHeaderBytes:])
}

// ask sends one command on a connection of its own and gives the first line
// of the reply without its end, or for stats all of it.
func (tg *target) ask(command string) (string, error) {
	conn, err := tg.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(transcriptTimeout))
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	var all strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("%s: %w", command, err)
		}
		if !strings.HasPrefix(line, "STAT ") {
			if all.Len() == 0 {
				return strings.TrimRight(line, "\r\n"), nil
			}
			return all.String(), nil
		}
		all.WriteString(line)
	}
}
