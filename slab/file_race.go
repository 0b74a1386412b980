//go:build race

package slab

import (
	"bytes"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// copyBytes is how much is copied between heap and file at a time.
const copyBytes = 16 << 10

// mapRange copies what the file has there, and skips its holes.
func (f *File) mapRange(off, n int64) ([]byte, error) {
	b := make([]byte, n)
	for at := off; at < off+n; {
		data, err := unix.Seek(int(f.f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= off+n {
			break
		} else if err != nil {
			return nil, err
		}
		hole, err := unix.Seek(int(f.f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		at = min(hole, off+n)
		if _, err := f.f.ReadAt(b[data-off:at-off], data); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Sync writes what the memories hold to the file.
func (f *File) Sync() error {
	zeros := make([]byte, copyBytes)
	for _, m := range f.maps {
		for at := 0; at < len(m.raw); at += copyBytes {
			b := m.raw[at:min(at+copyBytes, len(m.raw))]
			off := m.fileOff + int64(at)
			if bytes.Equal(b, zeros[:len(b)]) {
				f.punch(off, int64(len(b)))
			} else if _, err := f.f.WriteAt(b, off); err != nil {
				return fmt.Errorf("slab: sync memory file: %w", err)
			}
		}
	}
	return nil
}

func populate([]byte) {}
