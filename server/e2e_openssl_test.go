package server

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenSSL talks to the program through openssl s_client, and has it renew
// its certificate by a command and by a signal.
func TestOpenSSL(t *testing.T) {
	openssl := needProgram(t, "openssl", "openssl")
	ca := newTestCA(t, "ca")
	files := ca.server(t)
	p, addr := startQuarryd(t, buildQuarryd(t), "-Z",
		"-o", "ssl_chain_cert="+files.ChainCert+",ssl_key="+files.Key+",ssl_ca_cert="+ca.path+",ssl_session_cache")
	session := t.TempDir() + "/session"
	// talk gives what s_client printed: the certificate's subject and whether
	// the session was resumed among it.
	talk := func(send string, args ...string) string {
		t.Helper()
		args = append([]string{"s_client", "-connect", addr, "-CAfile", ca.path, "-verify_return_error", "-ign_eof"}, args...)
		cmd := exec.Command(openssl, args...)
		cmd.Stdin = strings.NewReader(send + "quit\r\n")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.ReplaceAll(string(out), " = ", "=") // as versions of OpenSSL differ
	}
	expect := func(out string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Fatalf("no %q in\n%s", want, out)
			}
		}
	}
	renew := func(name string) {
		t.Helper()
		cert, key := ca.issue(t, name)
		copyFile(t, files.ChainCert, cert)
		copyFile(t, files.Key, key)
	}
	for _, version := range []string{"-tls1_2", "-tls1_3"} {
		expect(talk("set k 0 0 5\r\nhello\r\nget k\r\n", version, "-sess_out", session), "STORED", "VALUE k 0 5", "hello", "CN=server", "New, TLS")
		expect(talk("get k\r\n", version, "-sess_in", session), "hello", "Reused, TLS")
	}
	renew("second")
	expect(talk("refresh_certs\r\n"), "CN=server", "OK")
	expect(talk("get k\r\n"), "CN=second", "hello")
	renew("third")
	if err := p.cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.await(t, "the third certificate", func() bool { return strings.Contains(talk(""), "CN=third") })
	copyFile(t, files.Key, ca.path)
	expect(talk("refresh_certs\r\n"), "Error loading the key: "+files.Key+" : no private key in it")
	if err := p.cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.await(t, "a word about the bad key", func() bool {
		return strings.Contains(p.out.String(), "Could not reload TLS certificates on SIGHUP")
	})
	expect(talk("get k\r\n"), "CN=third", "hello")
}
