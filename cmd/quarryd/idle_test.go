package main

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Connections that have asked something once and are silent since are to cost
// little: 2 KiB of resident memory at most. With MEMCACHED set to a program
// the same is measured of it.
func TestIdleConnections(t *testing.T) {
	const wanted, connBytesMax = 10_000, 2048
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	const others = 100 // descriptors that the test has beside
	n := min(wanted, int(lim.Cur)-others)
	if n < wanted/10 {
		t.Skipf("skipped: this process may have %d descriptors", lim.Cur)
	}
	flags := []string{"-l", "127.0.0.1", "-p", "-1", "-c", fmt.Sprint(n + 200), "-u", "root"}
	programs := []string{quarryd}
	if reference := os.Getenv("MEMCACHED"); reference != "" {
		programs = append(programs, reference)
	}
	for _, program := range programs {
		p := startProgram(t, exec.Command(program, flags...))
		to := netip.MustParseAddrPort(p.tcp(t))
		idle := openConnections(t, to, 10)
		before := residentBytes(t, p)
		idle = append(idle, openConnections(t, to, n)...)
		each := (residentBytes(t, p) - before) / n
		t.Logf("%s: %d bytes for each of %d idle connections", program, each, n)
		if program == quarryd && each > connBytesMax {
			t.Errorf("an idle connection takes %d bytes, want at most %d", each, connBytesMax)
		}
		for _, fd := range idle {
			unix.Close(fd)
		}
		p.end(t, unix.SIGTERM)
	}
}

// openConnections opens n connections, each of which has had an answer.
func openConnections(t *testing.T, to netip.AddrPort, n int) []int {
	t.Helper()
	address := unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	reply := make([]byte, len("END\r\n"))
	var fds []int
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		// At the end no port is to stay in use for minutes.
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(fd, &address); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, []byte("get k\r\n")); err != nil {
			t.Fatal(err)
		}
		if got, err := unix.Read(fd, reply); err != nil || string(reply[:got]) != "END\r\n" {
			t.Fatalf("got %q, %v", reply[:max(got, 0)], err)
		}
	}
	return fds
}

// residentBytes is what p has in memory.
func residentBytes(t *testing.T, p *process) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`Rss:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no Rss: %s", text)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
