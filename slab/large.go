package slab

import "fmt"

// UseLargePages has the system back the memory with large pages where it can:
// fewer look-ups of addresses, for memory that is taken 2 MiB at a time. All of
// the address space is committed then, as only such space can be one page; it
// costs nothing before it is written to.
func (m *Memory) UseLargePages() error {
	if err := m.Commit(m.reserved); err != nil {
		return err
	}
	if err := adviseLarge(m.raw); err != nil {
		return fmt.Errorf("slab: large pages: %w", err)
	}
	return nil
}
