//go:build !race

package slab

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func (f *File) mapRange(off, n int64) ([]byte, error) {
	return unix.Mmap(int(f.f.Fd()), off, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// Sync returns when what was written to the memories is on the medium.
func (f *File) Sync() error {
	if err := unix.Fdatasync(int(f.f.Fd())); err != nil {
		return fmt.Errorf("slab: sync memory file: %w", err)
	}
	return nil
}

// populate reads b from the file in few system calls, where the system can.
func populate(b []byte) { _ = unix.Madvise(b, unix.MADV_POPULATE_WRITE) }
