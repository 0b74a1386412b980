package server

import (
	"os/exec"
	"strings"
	"testing"
)

// pythonWithPymemcache is a Python that has the module: Debian's, or that on
// PATH.
func pythonWithPymemcache(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import pymemcache").Run() == nil {
			return python
		}
	}
	t.Skip("skipped: no python3 has pymemcache (Debian package python3-pymemcache)")
	return ""
}

// TestPymemcache runs a program that uses pymemcache's clients.
func TestPymemcache(t *testing.T) {
	python := pythonWithPymemcache(t)
	run := func(t *testing.T, addr string) {
		out := mustRun(t, python, "-B", "testdata/pymemcache_e2e.py", addr)
		if !strings.Contains(out, "pymemcache: ok") {
			t.Errorf("got %s", out)
		}
	}
	t.Run("tcp", func(t *testing.T) {
		_, addr := startServer(t, Config{})
		run(t, addr)
	})
	t.Run("unix", func(t *testing.T) {
		path := socketPath(t)
		startServer(t, Config{UnixSocket: path})
		run(t, path)
	})
}
