package server

import "testing"

// TestPylibmc runs a program that uses pylibmc, which is libmemcached in
// Python.
func TestPylibmc(t *testing.T) {
	python := pythonWith(t, "pylibmc")
	clientInBoth(t, tcpAndUnix, python, "-B", "testdata/pylibmc_e2e.py")
	needLibsaslPlain(t)
	clientOver(t, saslOnly, python, "-B", "testdata/pylibmc_e2e.py", "binary")
}
