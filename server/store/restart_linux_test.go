package store

import (
	"os"
	"syscall"
	"testing"
)

// blocks is the space that the memory file of s takes.
func blocks(t testing.TB, s *Store) int64 {
	t.Helper()
	if err := s.file.f.Sync(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.file.path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}
