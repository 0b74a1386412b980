package bucket

import "math"

// splitWritesPart: each write of a split key goes to all its places, and each
// read to one of them. A key is split into so many at most that the writes of a
// place stay below this part of its reads.
const splitWritesPart = 0.1

// SplitLimit is into how many places a key may be split, SplitMax at most, that is
// read and written so often a second. Below 2 it is written too much to be split
// at all.
func SplitLimit(reads, writes float64) int {
	if writes <= 0 {
		return SplitMax
	}
	return int(math.Floor(min(reads*splitWritesPart/writes, SplitMax)))
}
