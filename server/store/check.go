package store

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/quarrycache/quarry/slab"
)

// Check recounts everything: arena, order, index and items against each
// other. It is for tests and operators; it holds each shard's lock for as
// long as it takes.
//
// Invariants:
//
//  1. Every item in the order is in the index under its key's hash, once, and
//     the other way round; no two items have the same key.
//  2. Every chunk in use is an item's first chunk, a piece of one, or belongs
//     to an upload or to a pinned item.
//  3. Counters of items, bytes and explicit CAS numbers are what a count finds.
//  4. A page whose items expire is known to the sweeper in time.
//  5. What is pinned has a reader.
//  6. The rows of the tenants add up to the items charged to them.
//  7. Extra headers are counted, every record is found by its key's hash and on
//     the wheel, and the tokens that are out add up for the tenants.
//  8. Items are counted by size as they are found, if they are counted.
//  9. What Memory says of the pages adds up to what is held of the budget.
//
// 10. Every item is what a recovery would take for one, and sealed.
//
// 11. What says that an item need not be held against the marks is above them.
func (s *Store) Check() error {
	var errs []error
	for _, sh := range s.shards {
		sh.lock()
		for _, err := range sh.check() {
			errs = append(errs, fmt.Errorf("shard %d: %w", sh.id, err))
		}
		sh.unlock()
	}
	errs = append(errs, s.checkBudget())
	return errors.Join(errs...)
}

// checkBudget compares what the arenas hold with what the budget has granted.
// Pages may go from one to another while they are added up, so a difference
// counts only if it stays.
func (s *Store) checkBudget() error {
	var held int64
	for range 100 {
		held = 0
		for _, sh := range s.shards {
			sh.lock()
			held += sh.a.HeldBytes()
			sh.unlock()
		}
		if held == s.budget.Taken() {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("store: arenas hold %d bytes, the budget has granted %d", held, s.budget.Taken())
}

func (sh *shard) check() []error {
	errs := sh.a.Check()
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	if want := sh.highestMark(); sh.marked != want {
		bad("the highest mark is %d, want %d", sh.marked, want)
	}

	ordered := make(map[slab.Ref]bool)
	errs = append(errs, sh.order.Check(func(_ int, r slab.Ref) { ordered[r] = true })...)

	indexed := make(map[slab.Ref]bool)
	keys := make(map[string]slab.Ref)
	for p := range sh.idx.buckets() {
		b := bucket{sh.idx.mem, uint64(p) * bucketBytes}
		for _, r := range sh.idx.refs(b, nil) {
			if indexed[r] {
				bad("item %d is in the index twice", r)
			}
			indexed[r] = true
			if !ordered[r] {
				bad("item %d is in the index, not in the order", r)
				continue
			}
			it := sh.item(r)
			key := it.key()
			if h := KeyOf(key).Hash; sh.idx.position(h) != p {
				bad("item %d with key %q is in bucket %d, want %d", r, key, p, sh.idx.position(h))
			}
			if other, ok := keys[string(key)]; ok {
				bad("key %q is stored twice, as item %d and %d", key, other, r)
			}
			keys[string(bytes.Clone(key))] = r
		}
	}
	if len(indexed) != sh.idx.items || len(indexed) != len(ordered) {
		bad("%d items counted in the index, %d found, %d in the order", sh.idx.items, len(indexed), len(ordered))
	}

	items := make([]uint64, len(sh.classes))
	mem := make([]uint64, len(sh.classes))
	payload := make([]uint64, len(sh.classes))
	var pieceBytes, goneBytes int64
	explicit, nExtra := 0, 0
	var sized sizes
	owned := make(map[slab.Ref]slab.Ref) // piece: its item
	for n := uint32(1); n < sh.a.Pages(); n++ {
		chunks := sh.a.Page(n)
		for i := range chunks.N {
			it := sh.item(chunks.At(i))
			switch state := it.tag.State(); {
			case state == slab.StateFree, state == slab.StatePiece:
				continue
			case state == slab.StatePinned:
				if sh.pins[it.r] == 0 {
					bad("item %d waits for readers, but has none", it.r)
				}
				goneBytes += it.chunkBytes()
			case state >= slab.StateItem:
				if !indexed[it.r] {
					bad("item %d with key %q is not in the index", it.r, it.key())
				}
				sized.add(sh.footprint(it))
				if _, ok := sh.sound(it); !ok || !sh.sealed(it) {
					bad("item %d with key %q: sound %t, sealed %t", it.r, it.key(), ok, sh.sealed(it))
				}
				items[sh.orderClass(it)]++
				mem[sh.orderClass(it)] += uint64(sh.footprint(it))
				payload[sh.orderClass(it)] += uint64(it.payload())
				if it.tag&chained != 0 {
					for p := it.firstPiece(); p != 0; p = sh.a.Next(p) {
						pieceBytes += pieceHeaderBytes
					}
				}
				if it.tag&explicitCAS != 0 {
					explicit++
				}
				if it.tag&hasExtra != 0 {
					nExtra++
				}
				if e := it.expiry(); e != 0 && !sh.sweeperKnows(n, e) {
					bad("item %d in page %d expires at %d, and the sweeper does not know", it.r, n, e)
				}
			}
			sh.checkPieces(it, owned, bad)
		}
	}
	for n := uint32(1); n < sh.a.Pages(); n++ {
		chunks := sh.a.Page(n)
		for i := range chunks.N {
			if r := chunks.At(i); sh.a.Tag(r).State() == slab.StatePiece && owned[r] == 0 {
				bad("piece %d belongs to no item", r)
			}
		}
	}
	for c := range sh.classes {
		if got := &sh.classes[c]; got.items != items[c] || got.memRequested != mem[c] || got.payload != payload[c] {
			bad("class %d: %d items of %d bytes, %d of them keys and values, counted; %d, %d, %d found",
				c, got.items, got.memRequested, got.payload, items[c], mem[c], payload[c])
		}
	}
	for i, n := range sh.sizes {
		found := uint32(0)
		if i < len(sized) {
			found = sized[i]
		}
		if n != found {
			bad("%d items of at most %d bytes counted, %d found", n, i*SizeStepBytes, found)
		}
	}
	errs = append(errs, sh.checkTenants()...)
	errs = append(errs, sh.checkRecords()...)
	if nExtra != sh.nExtra {
		bad("%d extra headers counted, %d found", sh.nExtra, nExtra)
	}
	if pieceBytes != sh.pieceBytes || goneBytes != sh.goneBytes {
		bad("%d bytes of piece headers and %d of gone items counted, %d and %d found",
			sh.pieceBytes, sh.goneBytes, pieceBytes, goneBytes)
	}
	var m Memory
	m.add(sh)
	if got := m.usedBytes + m.tailBytes + m.FreeBytes + m.IdleBytes + m.UncarvedBytes; got != sh.a.HeldBytes() {
		bad("chunks, rests of pages and idle pages are %d bytes, %d are held", got, sh.a.HeldBytes())
	}
	if explicit != sh.explicit {
		bad("%d explicit CAS counted, %d found", sh.explicit, explicit)
	}
	return errs
}

// sweeperKnows reports whether page n will be looked at when e comes. The
// page being walked is known by the sweeper itself.
func (sh *shard) sweeperKnows(n, e uint32) bool {
	if n == sh.sweep.page && sh.sweep.chunk > 0 {
		return true
	}
	return n < uint32(len(sh.earliest)) && sh.earliest[n] <= e
}

// checkPieces walks the pieces of an item.
func (sh *shard) checkPieces(it item, owned map[slab.Ref]slab.Ref, bad func(string, ...any)) {
	if it.tag&chained == 0 {
		if n := it.footprint(); n > sh.a.Room(it.r) {
			bad("item %d has %d bytes in a chunk for %d", it.r, n, sh.a.Room(it.r))
		}
		return
	}
	room := it.inFirst()
	for p := it.firstPiece(); p != 0; p = sh.a.Next(p) {
		if owned[p] != 0 {
			bad("piece %d belongs to item %d and to %d", p, owned[p], it.r)
			return
		}
		owned[p] = it.r
		if s := sh.a.Tag(p).State(); s != slab.StatePiece {
			bad("piece %d of item %d has state %d", p, it.r, s)
			return
		}
		if got := sh.a.Prev(p); got != it.r {
			bad("piece %d of item %d says it belongs to %d", p, it.r, got)
		}
		room += sh.a.Room(p) - pieceHeaderBytes
	}
	if it.tag.State() != slab.StatePending && room < it.valueLen() {
		bad("item %d has %d value bytes in pieces for %d", it.r, it.valueLen(), room)
	}
}
