package store

import "github.com/quarrycache/quarry/slab"

// placing is an item on its way into the index: the bits of its hash that the
// index looks at, and its ref.
type placing struct {
	position uint32 // low half of the hash
	r        slab.Ref
	tag      uint8
}

func (p placing) hash() uint64 { return uint64(p.tag)<<32 | uint64(p.position) }

const (
	// placeBatch items go into the index together, in the order of its
	// buckets: one at a time, as they come, each waits for memory twice. It
	// bounds what the batch takes, some 24 MB.
	placeBatch = 1 << 20
	// placePartBits is the log2 of the buckets that are filled at a time: they
	// stay in the nearest cache.
	placePartBits = 9
)

// place notes that item r, with hash h, is to be put into the index.
func (ad *adoption) place(h uint64, r slab.Ref) {
	if ad.batch == nil {
		ad.batch = make([]placing, 0, placeBatch)
	}
	ad.batch = append(ad.batch, placing{uint32(h), r, uint8(tagBits(h))})
	if len(ad.batch) == cap(ad.batch) {
		ad.placeAll()
	}
}

// placeAll puts what place has noted into the index.
func (ad *adoption) placeAll() {
	x := &ad.sh.idx
	shift := max(x.level, placePartBits) - placePartBits // log2 of the parts
	partOf := func(p placing) uint32 { return p.position & (1<<x.level - 1) >> (x.level - shift) }
	ends := make([]uint32, 1<<shift+1)
	for _, p := range ad.batch {
		ends[partOf(p)+1]++
	}
	for i := range len(ends) - 1 {
		ends[i+1] += ends[i]
	}
	if len(ad.sorted) < len(ad.batch) {
		ad.sorted = make([]placing, len(ad.batch))
	}
	for _, p := range ad.batch {
		at := &ends[partOf(p)]
		ad.sorted[*at] = p
		*at++
	}
	for _, p := range ad.sorted[:len(ad.batch)] {
		ad.insert(p)
	}
	ad.batch = ad.batch[:0]
}

// insert puts an item into the index. If there is one with its key already,
// the newer one stays.
func (ad *adoption) insert(p placing) {
	sh := ad.sh
	if other := sh.sameKey(p.hash(), p.r); other != 0 {
		// A page move that was cut short leaves an item twice, alike.
		if !newer(sh.item(p.r), sh.item(other)) {
			ad.reject(sh.item(p.r))
			return
		}
		sh.idx.replace(p.hash(), other, p.r)
		ad.reject(sh.item(other))
	} else if !sh.idx.insert(p.hash(), p.r) {
		ad.reject(sh.item(p.r))
	}
}

// sameKey is the item in the index with the key of r, whose hash is h; 0 when
// there is none. The key is looked at only if the index has a candidate.
func (sh *shard) sameKey(h uint64, r slab.Ref) slab.Ref {
	b := sh.idx.bucketOf(h)
	for ok := true; ok; b, ok = sh.idx.next(b) {
		c, _ := b.match(tagBits(h))
		for i := c.next(); i >= 0; i = c.next() {
			if other := b.ref(i); other != 0 && string(sh.item(other).key()) == string(sh.item(r).key()) {
				return other
			}
		}
	}
	return 0
}

// newer reports whether a was certainly stored after b.
func newer(a, b item) bool { return (a.tag|b.tag)&explicitCAS == 0 && a.cas() > b.cas() }
