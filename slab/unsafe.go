package slab

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// All of the module's unsafe is in this file: loads and stores at offsets in
// memory that the Go runtime does not know, views of it as slices, and the
// system call that writes many of them.

// Memory is a range of reserved address space. Offsets below Committed may
// be read and written; the rest is not accessible yet. It has no pointers in
// it, and its bytes are zero until written.
//
// The accessors do not check their offsets (the chunks and buckets of the
// callers are aligned and in range by construction; with -tags debug or
// -race they do).
type Memory struct {
	base      unsafe.Pointer
	reserved  int64
	committed int64
	raw       []byte // what was mapped, for Release

	file    *File // nil: none
	fileOff int64 // where in the file it begins
}

func (m *Memory) at(off, n uint64) unsafe.Pointer {
	if checked && off+n > uint64(m.committed) {
		panic(outOfRange(off, n, m.committed))
	}
	return unsafe.Add(m.base, off)
}

// U8 loads the byte at off.
func (m *Memory) U8(off uint64) uint8 { return *(*uint8)(m.at(off, 1)) }

// U32 loads the 32-bit number at off.
func (m *Memory) U32(off uint64) uint32 { return *(*uint32)(m.at(off, 4)) }

// U64 loads the 64-bit number at off.
func (m *Memory) U64(off uint64) uint64 { return *(*uint64)(m.at(off, 8)) }

// PutU8 stores the byte at off.
func (m *Memory) PutU8(off uint64, v uint8) { *(*uint8)(m.at(off, 1)) = v }

// PutU32 stores the 32-bit number at off.
func (m *Memory) PutU32(off uint64, v uint32) { *(*uint32)(m.at(off, 4)) = v }

// PutU64 stores the 64-bit number at off.
func (m *Memory) PutU64(off uint64, v uint64) { *(*uint64)(m.at(off, 8)) = v }

// Bytes is a view of n bytes at off. It is valid as long as the memory is,
// but what it shows belongs to whoever owns the chunk.
func (m *Memory) Bytes(off uint64, n int) []byte {
	return unsafe.Slice((*byte)(m.at(off, uint64(n))), n)
}

// Prefetch begins to bring the cache line at off into the cache, for an access
// that follows soon. It does not wait, and says nothing about off.
func (m *Memory) Prefetch(off uint64) { prefetch(uintptr(m.base) + uintptr(off)) }

func (m *Memory) setBase(raw []byte) {
	m.raw = raw
	m.base = unsafe.Pointer(unsafe.SliceData(raw))
}

// WritevMax and ReadvMax are the most pieces that one Writev and one Readv take.
const (
	WritevMax = 64
	ReadvMax  = 4
)

// Writev writes the pieces, none of them empty and at most WritevMax of them,
// to the descriptor fd, which must not block, with one system call, and returns
// how many bytes of them it took. x/sys's own allocates when there are more
// than 8.
//
// The Go runtime is not told of the call. If it were, it would find after 20 us
// that it takes long, and give the thread's place to another one, which costs a
// tenth of writing 1 MB. So a stop of the world waits until the bytes are
// copied, some 200 us for 1 MB.
func Writev(fd int, pieces [][]byte) (int, error) {
	var iov [WritevMax]unix.Iovec
	return vectored(unix.SYS_WRITEV, fd, iov[:], pieces)
}

// Readv reads into the pieces, none of them empty and at most ReadvMax of them,
// one after the other, from the descriptor fd, which must not block. It returns
// how many bytes it read, 0 at the end. The runtime is not told, as with Writev.
func Readv(fd int, pieces [][]byte) (int, error) {
	var iov [ReadvMax]unix.Iovec
	return vectored(unix.SYS_READV, fd, iov[:], pieces)
}

func vectored(call uintptr, fd int, iov []unix.Iovec, pieces [][]byte) (int, error) {
	for i, p := range pieces {
		iov[i].Base = unsafe.SliceData(p)
		iov[i].SetLen(len(p))
	}
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(pieces)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// At is the T at off, in place: a T without Go pointers, at an offset that its
// alignment divides. It is valid as long as the memory is.
func At[T any](m *Memory, off uint64) *T {
	var t T
	return (*T)(m.at(off, uint64(unsafe.Sizeof(t))))
}
