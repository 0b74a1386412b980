package cluster

import (
	"cmp"
	"crypto/md5"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// Ring says which of several servers without a map has which keys.
type Ring uint8

const (
	// RingJump is jump consistent hashing (Lamping and Veach) of XXH64 of the
	// key over the servers in the order given: even, and a server added at the
	// end takes 1/n of the keys and moves no others. A server taken out of the
	// middle moves many.
	RingJump Ring = iota

	// RingKetama is the ring that libmemcached and twemproxy make of servers
	// of equal weight with "ketama": 160 points a server, from MD5. It is for
	// keys that other clients write, too.
	RingKetama
)

// ring is the servers' ring.
type ring struct {
	kind   Ring
	n      int
	points []ringPoint // ketama, by hash
}

type ringPoint struct {
	hash   uint32
	server int
}

// ketamaDigests is how many digests of each server are in the ring, and
// ketamaPoints how many points each of them is.
const (
	ketamaDigests = 40
	ketamaPoints  = 4
)

func newRing(kind Ring, servers []string) *ring {
	r := &ring{kind: kind, n: len(servers)}
	if kind != RingKetama {
		return r
	}
	for i, server := range servers {
		// libmemcached's names: a server at the standard port goes without.
		name := strings.TrimSuffix(server, ":11211")
		for d := range ketamaDigests {
			sum := md5.Sum([]byte(name + "-" + strconv.Itoa(d)))
			for p := range ketamaPoints {
				r.points = append(r.points, ringPoint{binary.LittleEndian.Uint32(sum[4*p:]), i})
			}
		}
	}
	slices.SortStableFunc(r.points, func(a, b ringPoint) int { return cmp.Compare(a.hash, b.hash) })
	return r
}

// of is the index of the server that has key, whose XXH64 is h.
func (r *ring) of(key string, h uint64) int {
	switch {
	case r.n == 1:
		return 0
	case r.kind == RingJump:
		return jump(h, r.n)
	}
	sum := md5.Sum([]byte(key))
	hash := binary.LittleEndian.Uint32(sum[:])
	i, _ := slices.BinarySearchFunc(r.points, hash, func(p ringPoint, h uint32) int { return cmp.Compare(p.hash, h) })
	if i == len(r.points) {
		i = 0
	}
	return r.points[i].server
}

// jump is the bucket, of n, of a hash by jump consistent hashing: as n grows,
// a hash stays where it is or moves to a new bucket.
func jump(h uint64, n int) int {
	b, j := int64(-1), int64(0)
	for j < int64(n) {
		b = j
		h = h*2862933555777941757 + 1
		j = int64(float64(b+1) * (float64(1<<31) / float64(h>>33+1)))
	}
	return int(b)
}
