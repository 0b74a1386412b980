//go:build !race && !debug

package slab

const checked = false
