package slab

import (
	"fmt"
	"os"
	"sync/atomic"
)

// commitStepBytes is the least that is made accessible at a time, so that
// small pages do not cost a system call each.
const commitStepBytes = 1 << 20

// Reserve takes n bytes of address space. It costs no memory until it is
// committed and written to.
func Reserve(n int64) (*Memory, error) {
	n = (n + commitStepBytes - 1) / commitStepBytes * commitStepBytes
	raw, err := reserve(n)
	if err != nil {
		return nil, fmt.Errorf("slab: reserve %d bytes of address space: %w", n, err)
	}
	m := &Memory{reserved: n, committed: committedAtOnce(n)}
	m.setBase(raw)
	return m, nil
}

// Reserved is the size of the address space in bytes.
func (m *Memory) Reserved() int64 { return m.reserved }

// Committed is the number of bytes, from offset 0, that may be used.
func (m *Memory) Committed() int64 { return m.committed }

// Holds reports whether n bytes at off may be read. It may be asked while
// another goroutine commits more: what may be read stays so until Release.
func (m *Memory) Holds(off, n uint64) bool {
	return off+n <= uint64(atomic.LoadInt64(&m.committed))
}

// Commit makes at least the first n bytes usable. It fails when n is more
// than was reserved, or the system refuses.
func (m *Memory) Commit(n int64) error {
	if n <= m.committed {
		return nil
	}
	if n > m.reserved {
		return fmt.Errorf("slab: commit %d bytes: %d are reserved", n, m.reserved)
	}
	to := min((n+commitStepBytes-1)/commitStepBytes*commitStepBytes, m.reserved)
	if err := commit(m.raw[m.committed:to]); err != nil {
		return fmt.Errorf("slab: commit %d bytes: %w", to, err)
	}
	atomic.StoreInt64(&m.committed, to) // for Holds
	return nil
}

// Back makes sure that there is space for [off, off+n), where memory comes
// from a file: it fails when the file system is full.
func (m *Memory) Back(off, n int64) error {
	if m.file == nil {
		return nil
	}
	if err := m.file.back(m.fileOff+off, n); err != nil {
		return fmt.Errorf("slab: %d bytes of the memory file: %w", n, err)
	}
	return nil
}

// Populate reads [off, off+n) from the file, if memory comes from one, all at
// once instead of bit by bit with the first accesses.
func (m *Memory) Populate(off, n int64) {
	size := int64(os.Getpagesize())
	if from, to := off/size*size, min((off+n+size-1)/size*size, m.reserved); m.file != nil && from < to {
		populate(m.raw[from:to])
	}
}

// Discard gives the memory behind [off, off+n) back to the system, as far as
// it covers whole pages of the system's. What the range holds afterwards is
// not defined.
func (m *Memory) Discard(off, n int64) {
	size := int64(os.Getpagesize())
	from, to := (off+size-1)/size*size, (off+n)/size*size
	if from >= to {
		return
	}
	if m.file != nil {
		m.file.punch(m.fileOff+from, to-from)
	}
	discard(m.raw[from:to])
}

// Release ends the memory. Every view of it is invalid from then on.
func (m *Memory) Release() error {
	raw := m.raw
	*m = Memory{}
	return release(raw)
}

func outOfRange(off, n uint64, committed int64) string {
	return fmt.Sprintf("slab: %d bytes at offset %d: %d are committed", n, off, committed)
}
