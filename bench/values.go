package bench

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/cespare/xxhash/v2"
)

// Values are made of a pool of random bytes: a value is the hash of its key,
// then the pool from a place that the hash chooses.
//
//	0        8
//	│ hash   │ pool[hash mod poolStarts ...] │
const (
	valueHashBytes = 8
	poolStarts     = 1 << 12
)

// values gives each key its value. It is read-only: all workers share one.
type values struct {
	sizes Sizes
	pool  []byte
}

func newValues(sizes Sizes) *values {
	v := &values{sizes: sizes, pool: make([]byte, poolStarts+sizes.max())}
	random := rand.NewPCG(1, 2) // fixed: values are the same in each run
	for i := range v.pool {
		v.pool[i] = byte(random.Uint64())
	}
	return v
}

// hash is what decides the size and the bytes of the value of key k.
func (v *values) hash(k uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], k)
	return xxhash.Sum64(b[:])
}

// size is the size in bytes of the value of key k.
func (v *values) size(k uint64) int { return v.sizes.of(v.hash(k)) }

// append appends the value of key k.
func (v *values) append(dst []byte, k uint64) []byte {
	hash := v.hash(k)
	size := v.sizes.of(hash)
	var head [valueHashBytes]byte
	binary.LittleEndian.PutUint64(head[:], hash)
	if size <= len(head) {
		return append(dst, head[:size]...)
	}
	dst = append(dst, head[:]...)
	start := hash % poolStarts
	return append(dst, v.pool[start:][:size-len(head)]...)
}

// is reports whether value is the value of key k.
func (v *values) is(k uint64, value []byte) bool {
	return len(value) == v.size(k) && v.holds(k, 0, value)
}

// holds reports whether part is what stands at offset in the value of key k.
func (v *values) holds(k uint64, offset int, part []byte) bool {
	hash := v.hash(k)
	if offset+len(part) > v.sizes.of(hash) {
		return false
	}
	var head [valueHashBytes]byte
	binary.LittleEndian.PutUint64(head[:], hash)
	if offset < len(head) {
		n := min(len(part), len(head)-offset)
		if string(part[:n]) != string(head[offset:offset+n]) {
			return false
		}
		part, offset = part[n:], offset+n
	}
	if len(part) == 0 {
		return true
	}
	start := int(hash%poolStarts) + offset - len(head)
	return string(part) == string(v.pool[start:start+len(part)])
}
