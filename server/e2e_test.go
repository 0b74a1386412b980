package server

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// End-to-end tests: clients and proxies that others wrote, against a server in
// this process or against the program quarryd. Each says what it skips when
// the program it needs is not installed; scripts/test installs them all.

// commandTimeout bounds a program that the tests run to its end.
const commandTimeout = 2 * time.Minute

// runProgram runs a program to its end and gives what it printed.
func runProgram(t testing.TB, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	timer := time.AfterFunc(commandTimeout, func() { cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustRun is runProgram that fails the test when the program does.
func mustRun(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := runProgram(t, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// buildQuarryd gives the path of the program quarryd, built for the test.
func buildQuarryd(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quarryd")
	mustRun(t, "go", "build", "-o", path, "../cmd/quarryd")
	return path
}

// startQuarryd starts the program at path on a port of its choice, which it
// tells in the file that memcached tells it in.
func startQuarryd(t testing.TB, path string, flags ...string) (p *process, addr string) {
	t.Helper()
	portFile := filepath.Join(t.TempDir(), "port")
	cmd := exec.Command(path, append([]string{"-p", "-1"}, flags...)...)
	cmd.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+portFile)
	p = startProcess(t, cmd)
	p.await(t, "its port", func() bool {
		data, err := os.ReadFile(portFile)
		_, rest, ok := strings.Cut(string(data), "TCP INET: ")
		port, _, _ := strings.Cut(rest, "\n")
		addr = net.JoinHostPort("127.0.0.1", port)
		return err == nil && ok
	})
	return p, addr
}

// socketPath is a path for a unix socket: short enough for one, whatever the
// name of the test.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "q")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// splitAddr is host and port of addr.
func splitAddr(t testing.TB, addr string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}
