package server

import (
	"strings"
	"testing"
)

// TestPHPMemcached runs a program that uses PHP's memcached extension.
func TestPHPMemcached(t *testing.T) {
	php := needProgram(t, "php-cli", "php")
	if out, err := runProgram(t, php, "-m"); err != nil || !strings.Contains(out, "\nmemcached\n") {
		t.Skip("skipped: php has no memcached extension (Debian package php-memcached)")
	}
	_, addr := startServer(t, Config{})
	host, port := splitAddr(t, addr)
	out := mustRun(t, php, "testdata/memcached_e2e.php", host, port)
	if !strings.Contains(out, "php-memcached: ok") {
		t.Errorf("got %s", out)
	}
}
