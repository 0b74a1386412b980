package server

import (
	"os/exec"
	"testing"
)

// pythonWith is a Python that has the module: Debian's, or that on PATH.
func pythonWith(t *testing.T, module string) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import "+module).Run() == nil {
			return python
		}
	}
	t.Skipf("skipped: no python3 has %s (Debian package python3-%s)", module, module)
	return ""
}

// TestPymemcache runs a program that uses pymemcache's clients.
func TestPymemcache(t *testing.T) {
	clientOver(t, allThree, pythonWith(t, "pymemcache"), "-B", "testdata/pymemcache_e2e.py")
}
