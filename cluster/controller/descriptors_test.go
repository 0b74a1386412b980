package controller

import (
	"errors"
	"os"
	"testing"

	"github.com/quarrycache/quarry/cluster/control"
)

// descriptors counts what this process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("what is open is counted where there is /proc: ", err)
	}
	return len(open)
}

// A controller that a client is connected to gives back every descriptor: sockets,
// the files of its etcd, and the lock of its folder.
func TestCloseGivesBackDescriptors(t *testing.T) {
	run := func(t *testing.T) {
		k, _ := start(t, Config{Data: t.TempDir()})
		s := open(t, k, control.Options{})
		if _, err := s.Get(t.Context()); !errors.Is(err, control.ErrNoMap) {
			t.Errorf("got %v, want %v", err, control.ErrNoMap)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Run("before", run) // what the program opens once
	before := descriptors(t)
	t.Run("counted", run)
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, and were %d before", after, before)
	}
}
