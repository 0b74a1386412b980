package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What the package brings is held against the program here.

// TestPackagedConf starts from the file that the package brings, as it is and
// with each of its suggestions.
func TestPackagedConf(t *testing.T) {
	text, err := os.ReadFile("../../packaging/quarryd.conf")
	if err != nil {
		t.Fatal(err)
	}
	suggested := strings.ReplaceAll(string(text), "\n# -", "\n-")
	for name, text := range map[string]string{"as it is": string(text), "suggested": suggested} {
		t.Run(name, func(t *testing.T) {
			f := new(flags)
			if _, err := f.parse([]string{"quarryd", "--memcached-conf", writeConf(t, text)}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := f.config(); err != nil {
				t.Fatal(err)
			}
			if f.Memory != 64 || len(f.Listen) != 1 || (f.UnixSocket == "") != (name == "as it is") {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// TestPackagedUnit lets systemd judge the unit, with the program in its place.
func TestPackagedUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("skipped: systemd-analyze is not installed (Debian package systemd)")
	}
	text, err := os.ReadFile("../../packaging/quarryd.service")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "quarryd.service")
	unit := strings.Replace(string(text), "=/usr/bin/quarryd ", "="+quarryd+" ", 1)
	if err := os.WriteFile(path, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestTellsSystemd listens where systemd would.
func TestTellsSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(patience))
	told := func() string {
		buf := make([]byte, 100)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	t.Setenv("NOTIFY_SOCKET", path)
	p := start(t, "-p", "-1")
	if got := told(); got != "READY=1" {
		t.Errorf("got %q want READY=1", got)
	}
	if reply := ask(t, "tcp", p.tcp(t), "version"); !strings.HasPrefix(reply, "VERSION ") {
		t.Errorf("ready, and answers %q", reply)
	}
	p.end(t, unix.SIGUSR1)
	if got := told(); got != "STOPPING=1" {
		t.Errorf("got %q want STOPPING=1", got)
	}
}
