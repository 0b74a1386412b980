package control

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// waitLiveness asks until the answer is good.
func waitLiveness(t testing.TB, s Store, what string, good func(Liveness) bool) {
	t.Helper()
	var l Liveness
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if l, err = s.Liveness(t.Context()); err == nil && good(l) {
			return
		}
	}
	t.Fatalf("not %s: %+v, %v", what, l, err)
}

func alive(ids ...string) func(Liveness) bool {
	return func(l Liveness) bool {
		return slices.EqualFunc(l.Nodes, ids, func(p Presence, id string) bool { return p.ID == id })
	}
}

// A node is there as long as it says so, also after etcd was killed, and gone
// at once when it says goodbye.
func TestLiveness(t *testing.T) {
	d := etcdDriver(t)
	s := d.open(t)
	a, b := d.open(t), d.open(t)
	a.Announce(Presence{ID: "a", Addr: "h:1", Epoch: 7})
	b.Announce(Presence{ID: "b", Addr: "h:2", Epoch: 7})
	waitLiveness(t, s, "both there", alive("a", "b"))
	want := Presence{ID: "a", Addr: "h:1", Epoch: 8, Digest: bucket.Digest{1, 2, 3}}
	a.Announce(want)
	waitLiveness(t, s, "a at its next map", func(l Liveness) bool { return alive("a", "b")(l) && l.Nodes[0] == want })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	waitLiveness(t, s, "only a there", alive("a"))
	d.restart(t, func() { time.Sleep(time.Duration(quick.LeaseSeconds) * 2 * time.Second) })
	want.Epoch = 9
	a.Announce(want)
	waitLiveness(t, s, "a there after the restart", func(l Liveness) bool { return alive("a")(l) && l.Nodes[0] == want })
	// One that was announced while etcd was away is told when it is back.
	c := d.open(t)
	d.restart(t, func() {
		c.Announce(Presence{ID: "c", Addr: "h:3", Epoch: 9})
		time.Sleep(100 * time.Millisecond)
	})
	waitLiveness(t, s, "c there, too", alive("a", "c"))
}

// There is one active controller, and when it goes the next one takes over.
func TestLead(t *testing.T) {
	d := etcdDriver(t)
	s := d.open(t)
	leads := make(chan string, 10)
	lead := func(name string) (stop func()) {
		e := d.open(t).(*Etcd)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			e.Lead(ctx, name, func(ctx context.Context) {
				leads <- name
				<-ctx.Done()
				leads <- name + " ends"
			})
		}()
		return func() { cancel(); <-done }
	}
	expect := func(want string) {
		t.Helper()
		select {
		case got := <-leads:
			if got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nobody leads, want %s", want)
		}
	}
	stopX := lead("x")
	expect("x")
	stopY := lead("y")
	defer stopY()
	waitLiveness(t, s, "y behind x", func(l Liveness) bool { return slices.Equal(l.Controllers, []string{"x", "y"}) })
	stopX()
	expect("x ends")
	expect("y")
	waitLiveness(t, s, "y alone", func(l Liveness) bool { return slices.Equal(l.Controllers, []string{"y"}) })
	// When etcd is away for longer than the lease, nobody can know who leads.
	d.restart(t, func() { expect("y ends") })
	expect("y")
}
