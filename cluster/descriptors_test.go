package cluster

import (
	"context"
	"os"
	"testing"
	"time"
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

// A client that has used all its nodes, and one that is closed in the middle of
// requests to a node that does not answer, give back every descriptor.
func TestCloseGivesBackDescriptors(t *testing.T) {
	list, m := startFakes(t, 3, 1)
	run := func() {
		c, err := New(Options{Seeds: seeds(list), Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			if err := c.Set(bg, &Item{Key: ownedBy(m, i, "k"), Value: []byte("v")}); err != nil {
				t.Error(err)
			}
		}
		heard := list[0].configs.Load() + list[0].gets.Load()
		list[0].mute.Store(true)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			ctx, cancel := context.WithCancel(bg)
			defer cancel()
			c.Get(ctx, ownedBy(m, 0, "k"))
		}()
		waitFor(t, "a request that is not answered", func() bool { return list[0].configs.Load()+list[0].gets.Load() > heard })
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		<-ended
		list[0].mute.Store(false)
		waitFor(t, "the nodes' ends", func() bool {
			return list[0].open.Load()+list[1].open.Load()+list[2].open.Load() == 0
		})
	}
	run() // what the program opens once
	before := descriptors(t)
	run()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors are open, and were %d before", after, before)
	}
}
