package slab

import (
	"fmt"
	"math/bits"
)

const (
	// ChunkMinBytes is the smallest chunk: a tag, two links, and something.
	ChunkMinBytes = 32
	// ownFirstBytes is the smallest chunk of Quarry's own table: an item's
	// header and 12 bytes of key and value. memcached's first class has most
	// of what is in ours, and its number is what people ask for.
	ownFirstBytes = 40
	// chunkAlignBytes is what a Ref counts in.
	chunkAlignBytes = 8
	// fineStepsToBytes is where Quarry's own table goes over from steps of
	// 8 bytes to stepsPerDoubling.
	fineStepsToBytes = 512
	stepsPerDoubling = 8
	// ClassesMax bounds a table. Class numbers fit in a byte.
	ClassesMax = 200
	// chunksPerPageMin is how many of the largest chunks a page holds. With
	// fewer, the rest of each page is a waste too large; with more, items
	// are cut into more pieces than they need.
	chunksPerPageMin = 8
)

// Classes is a table of chunk sizes, rising. It does not change once made
// and may be shared by arenas.
type Classes struct {
	pageBytes int
	bytes     []uint32
	tailBytes int
	// bySize[n] is the smallest class whose chunk holds 8n bytes.
	bySize []uint8
}

// OwnClasses is Quarry's table for pages of pageBytes: from 40 bytes in steps
// of 8 to 512, then 8 sizes a doubling, each stretched to what a page holds of it,
// up to an eighth of the page. It rounds sizes of 100 to 2048 bytes up by
// 4.5 % in the mean, where memcached's factor of 1.25 takes 11 %.
func OwnClasses(pageBytes int) *Classes {
	most := pageBytes / chunksPerPageMin
	var sizes []uint32
	for n := ownFirstBytes; n <= min(fineStepsToBytes, most); n += chunkAlignBytes {
		sizes = append(sizes, uint32(n))
	}
	for from := fineStepsToBytes; from < most; from *= 2 {
		for i := 1; i <= stepsPerDoubling; i++ {
			n := min(from+from*i/stepsPerDoubling, most)
			fitted := pageBytes / (pageBytes / n) &^ (chunkAlignBytes - 1)
			if last := sizes[len(sizes)-1]; uint32(fitted) > last && fitted <= most {
				sizes = append(sizes, uint32(fitted))
			}
		}
	}
	return newClasses(pageBytes, sizes)
}

// FactorClasses is memcached's rule (-f, -n): chunks grow by factor from
// first bytes, up to an eighth of the page.
func FactorClasses(pageBytes, first int, factor float64) *Classes {
	most := pageBytes / chunksPerPageMin
	var sizes []uint32
	n := max(first, ChunkMinBytes)
	for len(sizes) < ClassesMax-1 {
		n = (n + chunkAlignBytes - 1) &^ (chunkAlignBytes - 1)
		if n > int(float64(most)/factor) {
			break
		}
		sizes = append(sizes, uint32(n))
		n = max(int(float64(n)*factor), n+1)
	}
	return newClasses(pageBytes, append(sizes, uint32(most)))
}

// ListClasses is a table of the sizes that are given, rising (-o slab_sizes),
// as far as they fit a page, and of an eighth of the page at its end.
func ListClasses(pageBytes int, given []int) *Classes {
	most := pageBytes / chunksPerPageMin
	var sizes []uint32
	last := 0
	for _, n := range given {
		n = (max(n, ChunkMinBytes) + chunkAlignBytes - 1) &^ (chunkAlignBytes - 1)
		if n >= most || len(sizes) == ClassesMax-1 {
			break
		}
		if n > last {
			sizes = append(sizes, uint32(n))
			last = n
		}
	}
	return newClasses(pageBytes, append(sizes, uint32(most)))
}

// memcachedClassesMax is how many classes MemcachedClasses makes at most, the
// largest chunk not counted. Source: MAX_NUMBER_OF_SLAB_CLASSES is 64, and 0 is
// no class.
const memcachedClassesMax = 62

// MemcachedClasses is memcached's table (-f, -n, slab_chunk_max, slab_sizes):
// chunks grow by factor from first bytes, or have the sizes given, and the
// largest has most bytes.
func MemcachedClasses(pageBytes, first int, factor float64, sizes []int, most int) *Classes {
	var chunks []uint32
	n := first
	for len(chunks) < memcachedClassesMax {
		if len(sizes) > 0 {
			if len(chunks) == len(sizes) {
				break
			}
			n = sizes[len(chunks)]
		} else if float64(n) >= float64(most)/factor {
			break
		}
		n = (n + chunkAlignBytes - 1) &^ (chunkAlignBytes - 1)
		chunks = append(chunks, uint32(n))
		n = int(float64(n) * factor)
	}
	return newClasses(pageBytes, append(chunks, uint32(most)))
}

func newClasses(pageBytes int, sizes []uint32) *Classes {
	if bits.OnesCount(uint(pageBytes)) != 1 || pageBytes < ChunkMinBytes*chunksPerPageMin {
		panic(fmt.Sprintf("slab: page of %d bytes: want a power of two, at least %d",
			pageBytes, ChunkMinBytes*chunksPerPageMin))
	}
	if len(sizes) > ClassesMax {
		panic(fmt.Sprintf("slab: %d classes, at most %d", len(sizes), ClassesMax))
	}
	t := &Classes{pageBytes: pageBytes, bytes: sizes}
	t.bySize = make([]uint8, int(sizes[len(sizes)-1])/chunkAlignBytes+1)
	class := 0
	for i := range t.bySize {
		for int(sizes[class]) < i*chunkAlignBytes {
			class++
		}
		t.bySize[i] = uint8(class)
	}
	return t
}

// WithTail is a table with the same chunks, of which the last n bytes are the
// user's: For, Room and Largest leave them out.
func (t *Classes) WithTail(n int) *Classes {
	with := *t
	with.tailBytes = n
	return &with
}

// Len is the number of classes.
func (t *Classes) Len() int { return len(t.bytes) }

// PageBytes is the size of the pages that the table was made for.
func (t *Classes) PageBytes() int { return t.pageBytes }

// Bytes is the chunk size of class c.
func (t *Classes) Bytes(c int) int { return int(t.bytes[c]) }

// PerPage is the number of chunks of class c in a page.
func (t *Classes) PerPage(c int) int { return t.pageBytes / int(t.bytes[c]) }

// TailBytes is how much at the end of each chunk is the user's.
func (t *Classes) TailBytes() int { return t.tailBytes }

// Room is what a chunk of class c holds beside its tail.
func (t *Classes) Room(c int) int { return int(t.bytes[c]) - t.tailBytes }

// Largest is the most that a chunk holds beside its tail, in bytes.
func (t *Classes) Largest() int { return t.Room(len(t.bytes) - 1) }

// For is the smallest class with room for n bytes; n is at most Largest.
func (t *Classes) For(n int) int {
	return int(t.bySize[(n+t.tailBytes+chunkAlignBytes-1)/chunkAlignBytes])
}
