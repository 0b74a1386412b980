package server

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server/store"
	"golang.org/x/sys/unix"
)

// pinner pins the item that it is shown.
type pinner struct {
	pin store.Pin
	ok  bool
}

func (p *pinner) VisitItem(it *store.Item) { p.pin, p.ok = it.Pin() }

// What is appended and pinned goes out in order, whatever the peer takes at a
// time, and also when it is moved to another worker in between.
func TestOutputWrite(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	st, err := store.Open(store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	now := SystemClock()()
	for i := range 4 {
		v := bytes.Repeat([]byte{byte('a' + i)}, pinMinBytes+rng.IntN(100_000))
		if res := st.Set(store.KeyOf(fmt.Appendf(nil, "k%d", i)), v, &store.SetOptions{}, now); res.Status != store.OK {
			t.Fatal(res.Status)
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if err := unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 4096); err != nil {
		t.Fatal(err)
	}
	out, other := new(output), new(output)
	buf := make([]byte, 64<<10)
	for range 30 {
		var want, got []byte
		for range rng.IntN(12) {
			if text := bytes.Repeat([]byte{'-'}, rng.IntN(50)); rng.IntN(2) == 0 {
				out.buf = append(out.buf, text...)
				want = append(want, text...)
				continue
			}
			key := store.KeyOf(fmt.Appendf(nil, "k%d", rng.IntN(4)))
			var p pinner
			if st.Get(key, &store.GetOptions{}, now, &p) != store.OK || !p.ok {
				t.Fatal("no pin")
			}
			for _, piece := range p.pin.Peek(make([][]byte, 0, 1000)) {
				want = append(want, piece...)
			}
			out.addPin(p.pin)
		}
		if out.pending() != len(want) {
			t.Fatalf("pending: got %d, want %d", out.pending(), len(want))
		}
		for len(got) < len(want) {
			limit := 1 + rng.IntN(writeTurnBytes)
			before := out.pending()
			n, _, err := out.write(fds[0], limit)
			if err != nil || out.pending() != before-n {
				t.Fatalf("write: %v; %d pending after %d of %d", err, out.pending(), n, before)
			}
			if rng.IntN(10) == 0 {
				other.takeFrom(out)
				out, other = other, out
			}
			if n, err = unix.Read(fds[1], buf[:1+rng.IntN(len(buf))]); err == nil {
				got = append(got, buf[:n]...)
			} else if err != unix.EAGAIN {
				t.Fatal(err)
			}
		}
		if out.pending() != 0 || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes are pending; got %d bytes, want %d", out.pending(), len(got), len(want))
		}
	}
	// What is dropped is given back: nothing stays pinned.
	var p pinner
	st.Get(store.KeyOf([]byte("k0")), &store.GetOptions{}, now, &p)
	out.buf = append(out.buf, "x"...)
	out.addPin(p.pin)
	out.reset()
	if out.pending() != 0 {
		t.Errorf("pending after reset: %d", out.pending())
	}
	var stats store.Stats
	st.Snapshot(now, &stats)
	if stats.PinnedBytes != 0 {
		t.Errorf("%d bytes are pinned", stats.PinnedBytes)
	}
	if err := st.Check(); err != nil {
		t.Error(err)
	}
}
