//go:build debug

package store

// Claim makes the store n bytes fuller than it is, for memcached's own tests.
// Check does not know of it.
func (s *Store) Claim(n int64) { s.budget.Claim(n) }

// PinForTest is Pin without its bound.
func (v *Item) PinForTest() Pin {
	sh, r := v.sh, v.it.r
	if sh.pins[r] == 0 {
		sh.s.pinnedBytes.Add(int64(v.Size))
	}
	sh.pins[r]++
	return Pin{sh: sh, r: r, size: v.Size, p: v.it.pieces()}
}
