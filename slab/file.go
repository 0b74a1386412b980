package slab

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// File is a file that memory is mapped from: what is written there is still
// there when the process is gone, however it went. It is sparse: what is not
// backed takes no space. One process at a time has it.
//
// Under the race detector memory is on the Go heap all the same, and the file
// is a copy of it that Sync brings up to date.
type File struct {
	f    *os.File
	maps []*Memory
}

// ErrFileInUse: another process has the file open.
var ErrFileInUse = errors.New("slab: another process uses it")

// OpenFile opens the file at path, or makes an empty one.
func OpenFile(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("slab: memory file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrFileInUse
		}
		return nil, fmt.Errorf("slab: memory file %s: %w", path, err)
	}
	return &File{f: f}, nil
}

// ReadAt reads what the file has at off, before it is mapped.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, err
}

// Size is the size of the file in bytes, holes included.
func (f *File) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, fmt.Errorf("slab: memory file: %w", err)
	}
	return info.Size(), nil
}

// Resize makes the file n bytes long. What is new is zero and takes no space.
func (f *File) Resize(n int64) error {
	if err := f.f.Truncate(n); err != nil {
		return fmt.Errorf("slab: memory file: %w", err)
	}
	return nil
}

// Map gives the n bytes of the file at off as memory, all of them committed.
// They may be read and written where they are backed. Both numbers are
// multiples of FileAlignBytes, and the file is as long as that.
func (f *File) Map(off, n int64) (*Memory, error) {
	raw, err := f.mapRange(off, n)
	if err != nil {
		return nil, fmt.Errorf("slab: map %d bytes of the memory file: %w", n, err)
	}
	m := &Memory{reserved: n, committed: n, file: f, fileOff: off}
	m.setBase(raw)
	f.maps = append(f.maps, m)
	return m, nil
}

// FileAlignBytes is what ranges that are mapped begin and end at.
const FileAlignBytes = 1 << 20

// Close closes the file, and lets others have it. What was mapped must have
// been released.
func (f *File) Close() error { return f.f.Close() }

// back makes sure that n bytes at off have space of their own: without it the
// process would die of writing there when the file system is full.
func (f *File) back(off, n int64) error {
	err := unix.Fallocate(int(f.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// The file system cannot promise space, but what is written it has.
	zeros := make([]byte, n)
	_, err = f.f.WriteAt(zeros, off)
	return err
}

// punch gives the space of n bytes at off back. On a file system that cannot
// do that it stays.
func (f *File) punch(off, n int64) {
	_ = unix.Fallocate(int(f.f.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, off, n)
}
