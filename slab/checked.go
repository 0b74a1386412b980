//go:build race || debug

package slab

// checked turns on the range checks of Memory and the poisoning of freed
// chunks.
const checked = true
