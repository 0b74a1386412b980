package slab

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// What Writev writes comes out of Readv, in whatever pieces; a descriptor that
// has no more says so, and its end is 0 bytes.
func TestVectored(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := fds[0], fds[1]
	defer unix.Close(r)
	text := bytes.Repeat([]byte("0123456789"), 500)
	pieces := func(n, limit int) (list [][]byte, total int) {
		for i := range limit {
			list = append(list, make([]byte, 1+i*n))
			total += 1 + i*n
		}
		return list, total
	}
	out, total := pieces(2, WritevMax)
	if total > len(text) {
		t.Fatal("too long for the text")
	}
	at := 0
	for _, p := range out {
		at += copy(p, text[at:])
	}
	if n, err := Writev(w, out); n != total || err != nil {
		t.Fatalf("wrote %d, %v, want %d", n, err, total)
	}
	in, room := pieces(3000, ReadvMax)
	if room < total {
		t.Fatal("too little room")
	}
	if n, err := Readv(r, in); n != total || err != nil {
		t.Fatalf("read %d, %v, want %d", n, err, total)
	}
	if got := bytes.Join(in, nil)[:total]; !bytes.Equal(got, text[:total]) {
		t.Errorf("read %q", got)
	}
	if n, err := Readv(r, in); n != 0 || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("of an empty pipe %d, %v", n, err)
	}
	unix.Close(w)
	if n, err := Readv(r, in); n != 0 || err != nil {
		t.Errorf("at the end %d, %v", n, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = Readv(r, in); _, _ = Writev(w, out) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
