package server

import "testing"

// perlWith is a Perl that has the module.
func perlWith(t *testing.T, module, pkg string) string {
	t.Helper()
	perl := needProgram(t, "perl", "perl")
	if _, err := runProgram(t, perl, "-M"+module, "-e", "1"); err != nil {
		t.Skipf("skipped: perl has no %s (Debian package %s)", module, pkg)
	}
	return perl
}

// TestPerlMemcached runs a program that uses Cache::Memcached, the oldest
// client that there is.
func TestPerlMemcached(t *testing.T) {
	perl := perlWith(t, "Cache::Memcached", "libcache-memcached-perl")
	clientOver(t, tcpAndUnix, perl, "testdata/cache_memcached_e2e.pl", "Cache::Memcached")
}

// TestPerlMemcachedFast runs the same program with Cache::Memcached::Fast,
// which is written in C.
func TestPerlMemcachedFast(t *testing.T) {
	perl := perlWith(t, "Cache::Memcached::Fast", "libcache-memcached-fast-perl")
	clientOver(t, tcpAndUnix, perl, "testdata/cache_memcached_e2e.pl", "Cache::Memcached::Fast")
}

// TestPerlLibmemcached runs a program that uses libmemcached in Perl.
func TestPerlLibmemcached(t *testing.T) {
	perl := perlWith(t, "Memcached::libmemcached", "libmemcached-libmemcached-perl")
	for _, protocol := range []string{"text", "binary"} { // it cannot log in
		t.Run(protocol, func(t *testing.T) { clientOver(t, tcpAndUnix, perl, "testdata/libmemcached_e2e.pl", protocol) })
	}
}
