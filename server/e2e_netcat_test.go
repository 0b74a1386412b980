package server

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNetcat is the session that somebody types to see whether it works.
func TestNetcat(t *testing.T) {
	nc := needProgram(t, "netcat-openbsd", "nc")
	_, addr := startServer(t, Config{})
	host, port := splitAddr(t, addr)
	cmd := exec.Command(nc, "-w", "10", host, port)
	cmd.Stdin = strings.NewReader("set greeting 0 0 5\r\nhello\r\n" +
		"get greeting\n" + // a terminal sends \n alone
		"mg greeting s v\nversion\nquit\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nc: %v\n%s", err, out)
	}
	want := "STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\nVA 5 s5\r\nhello\r\nVERSION " + Version + "\r\n"
	if string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}
