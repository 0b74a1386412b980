package store

import (
	"math/rand/v2"
	"testing"

	"github.com/quarrycache/quarry/slab"
	"pgregory.net/rapid"
)

func slabRef(i int) slab.Ref { return slab.Ref(i + 1) }

// 7.7 to 8.3 bytes an item at every size, overflow buckets
// included, and a lookup reads little more than one cache line.
func TestIndexDensity(t *testing.T) {
	const itemsMax = 400_000
	x, err := newIndex(itemsMax)
	if err != nil {
		t.Fatal(err)
	}
	defer x.close()
	rng := rand.New(rand.NewPCG(3, 4))
	hashes := make([]uint64, itemsMax)
	worst, best := 0.0, 100.0
	for i := range hashes {
		hashes[i] = rng.Uint64()
		if !x.insert(hashes[i], slabRef(i)) {
			t.Fatalf("chain full after %d items", i)
		}
		if x.wantsSplit() {
			x.splitOne(func(r slab.Ref) uint64 { return hashes[r-1] })
		}
		if i > 20_000 && i%997 == 0 {
			perItem := float64(x.bytes()) / float64(x.items)
			worst, best = max(worst, perItem), min(best, perItem)
		}
	}
	t.Logf("%.2f to %.2f bytes an item", best, worst)
	if worst > 8.4 {
		t.Errorf("%.2f bytes an item, want at most 8.4", worst)
	}
	lines := 0
	for i, h := range hashes {
		found := false
		b := x.bucketOf(h)
		for ok := true; ok && !found; b, ok = x.next(b) {
			lines++
			c, _ := b.match(tagBits(h))
			for j := c.next(); j >= 0; j = c.next() {
				found = found || b.ref(j) == slabRef(i)
			}
		}
		if !found {
			t.Fatalf("item %d is not found", i)
		}
	}
	t.Logf("%.3f buckets read for a hit", float64(lines)/itemsMax)
	for i, h := range hashes {
		x.remove(h, slabRef(i))
	}
	if x.items != 0 || x.nOver != 0 {
		t.Errorf("%d items and %d overflow buckets are left", x.items, x.nOver)
	}
}

// Random inserts and removals, of hashes of which many collide, against a
// map: every ref is found, chains stay dense, none is lost in a split.
func TestIndexModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, err := newIndex(1 << 16)
		if err != nil {
			t.Fatal(err)
		}
		defer x.close()
		hashes := map[slab.Ref]uint64{}
		next := slab.Ref(1)
		collide := rapid.Uint64Range(1, 64).Draw(t, "buckets hit")
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				for range rapid.IntRange(1, 400).Draw(t, "n") {
					// Low bits from a small set, high bits of the position free.
					h := uint64(next)%collide | uint64(next)*0x9e3779b97f4a7c15<<indexLevelMin
					if !x.insert(h, next) {
						if n := len(x.chain(h, nil)); n != chainEntriesMax {
							t.Fatalf("a chain of %d took no more", n)
						}
						break
					}
					hashes[next] = h
					next++
					if x.wantsSplit() {
						x.splitOne(func(r slab.Ref) uint64 { return hashes[r] })
					}
				}
			},
			"splitMore": func(t *rapid.T) {
				for range rapid.IntRange(1, 300).Draw(t, "n") {
					x.splitOne(func(r slab.Ref) uint64 { return hashes[r] })
				}
			},
			"remove": func(t *rapid.T) {
				from := slab.Ref(rapid.IntRange(1, int(next)).Draw(t, "from"))
				for r := from; r < from+200; r++ {
					if h, ok := hashes[r]; ok {
						x.remove(h, r)
						delete(hashes, r)
					}
				}
			},
			"": func(t *rapid.T) {
				if x.items != len(hashes) {
					t.Fatalf("%d items counted, want %d", x.items, len(hashes))
				}
				for r, h := range hashes {
					x.find(h, r) // panics if it is not there
				}
				n, over := 0, 0
				for p := range x.buckets() {
					b := bucket{x.mem, uint64(p) * bucketBytes}
					for ok := true; ok; {
						n += b.len()
						var next bucket
						if next, ok = x.next(b); ok {
							over++
							if b.len() != bucketEntries {
								t.Fatalf("bucket %d goes on behind %d entries", p, b.len())
							}
						}
						b = next
					}
				}
				if n != len(hashes) || over != x.nOver {
					t.Fatalf("%d entries and %d overflow buckets found, want %d and %d", n, over, len(hashes), x.nOver)
				}
			},
		})
	})
}
