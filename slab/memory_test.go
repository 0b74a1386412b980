//go:build !race

package slab

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Memory that is locked is given back, too.
func TestDiscardLocked(t *testing.T) {
	m, err := Reserve(commitStepBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	if err := m.Commit(commitStepBytes); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mlock(m.raw); err != nil {
		t.Skipf("skipped: memory cannot be locked: %v", err)
	}
	if err := unix.Madvise(m.raw[:4096], madvDontNeedLocked); err != nil {
		t.Skipf("skipped: this kernel keeps locked memory: %v", err)
	}
	for i := range m.raw {
		m.raw[i] = 1
	}
	m.Discard(0, commitStepBytes)
	for i, b := range m.raw {
		if b != 0 {
			t.Fatalf("byte %d is still there", i)
		}
	}
}

func TestUseLargePages(t *testing.T) {
	m, err := Reserve(4 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Release()
	if err := m.UseLargePages(); err != nil {
		t.Skipf("skipped: %v", err)
	}
	if m.Committed() != m.Reserved() {
		t.Errorf("%d bytes of %d are committed", m.Committed(), m.Reserved())
	}
	m.raw[len(m.raw)-1] = 1
}
