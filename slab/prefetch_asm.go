//go:build (amd64 || arm64) && !purego

package slab

// prefetch begins to bring the cache line at addr into the cache. It does not
// wait, and no address is bad. The compiler has such an intrinsic for the
// runtime alone.
//
//go:noescape
func prefetch(addr uintptr)
