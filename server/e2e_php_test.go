package server

import (
	"strings"
	"testing"
)

// TestPHPMemcached runs a program that uses PHP's memcached extension, which
// is libmemcached.
func TestPHPMemcached(t *testing.T) {
	php := needProgram(t, "php-cli", "php")
	if out, err := runProgram(t, php, "-m"); err != nil || !strings.Contains(out, "\nmemcached\n") {
		t.Skip("skipped: php has no memcached extension (Debian package php-memcached)")
	}
	clientInBoth(t, tcpAndUnix, php, "testdata/php_memcached_e2e.php")
	needLibsaslPlain(t)
	clientOver(t, saslOnly, php, "testdata/php_memcached_e2e.php", "binary")
}
