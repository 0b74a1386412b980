//go:build !race

package slab

import "golang.org/x/sys/unix"

// Reserved but uncommitted space is PROT_NONE: it counts against no limit of
// the system, not even with vm.overcommit_memory=2.

func reserve(n int64) ([]byte, error) {
	return unix.Mmap(-1, 0, int(n), unix.PROT_NONE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
}

func committedAtOnce(int64) int64 { return 0 }

func commit(b []byte) error { return unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE) }

// discard: an error of madvise leaves the memory as it was, which is no
// fault of the caller's, only a page that stays resident. Memory that is
// locked (-k) has an advice of its own.
func discard(b []byte) {
	if unix.Madvise(b, unix.MADV_DONTNEED) == unix.EINVAL {
		_ = unix.Madvise(b, madvDontNeedLocked)
	}
}

// madvDontNeedLocked is MADV_DONTNEED_LOCKED, since Linux 5.18.
const madvDontNeedLocked = 24

func adviseLarge(b []byte) error { return unix.Madvise(b, unix.MADV_HUGEPAGE) }

func release(b []byte) error { return unix.Munmap(b) }
