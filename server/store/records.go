package store

import (
	"fmt"
	"math/bits"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/slab"
)

// records is what a shard keeps of keys apart from their items: floors of keys
// that have none, and grants. It is a hash table with chains, off the Go heap,
// and bounded. A key is known by two hashes of 64 bits, the second with a seed
// of the store's own, so that nobody can give one key the floor of another.
//
// Every record stands on a wheel, under the time at which something is to be
// done with it: on one while its token is out, on the other under the time at
// which nothing in it is needed any more. When the table is full, the record
// goes that is first on the other.
type records struct {
	n int // records there are

	mem  *slab.Memory // records, numbered from 1
	head *slab.Memory // the first record of each chain, 4 bytes
	mask uint32       // chains, less one
	max  int
	used uint32 // numbers ever given
	free uint32 // first of the freed ones, linked by chain; 0 none

	tokens wheel // records whose tokens are out
	rest   wheel

	retention Time
	seed      uint64
	dropped   Time // the youngest raise of a floor that was dropped for room, 0 none
	nDropped  uint64
}

// wheel is records by the time at which they are due. Those of a slot are a
// list in the order in which they came.
type wheel struct {
	first  [wheelSlots]uint32 // of each slot, 0 none
	stepMs Time               // what a slot covers
	turned Time               // in steps: what is due before it was looked through
	n      int
}

// record is what is kept of a key. It has no pointers: it is off the Go heap.
type record struct {
	hash  uint64 // XXH64, seed 0
	check uint64 // XXH64, the store's seed

	floor  uint64 // 0 none
	raised Time   // when it was raised last

	grant grant

	self          uint32 // its number
	chain         uint32 // the record behind it in its chain
	after, before uint32 // its neighbours in the slot; before the first is the last
	slot          uint32 // of its wheel
	isOut         bool   // it stands on the wheel of tokens
	_             [3]byte
}

const (
	recordBytes = 112
	wheelSlots  = 64

	// tokenKept is how long an ended token is known as ended, and not only as
	// one that is not known, in milliseconds.
	tokenKept = 10_000
	// turnLooksMax bounds the records looked at in one turn of the wheels.
	turnLooksMax = 256
)

// newRecords is an empty table for at most most records. grantMax is the
// longest time that a token is out.
func newRecords(most int, retention, grantMax Time, seed uint64) (records, error) {
	rs := records{max: most, retention: retention, seed: seed}
	rs.mask = 1<<bits.Len(uint(most-1)) - 1
	rs.tokens.stepMs = stepFor(grantMax)
	rs.rest.stepMs = stepFor(max(retention, grantMax+tokenKept))
	var err error
	if rs.mem, err = slab.Reserve(int64(most+1) * recordBytes); err != nil {
		return rs, err
	}
	if rs.head, err = slab.Reserve(int64(rs.mask+1) * 4); err != nil {
		return rs, err
	}
	return rs, rs.head.Commit(int64(rs.mask+1) * 4)
}

// stepFor is what a slot covers of a wheel for times of up to longest. With two
// slots to spare, what is put in is never put where the wheel is.
func stepFor(longest Time) Time { return longest/(wheelSlots-2) + 1 }

func (rs *records) close() error {
	if err := rs.mem.Release(); err != nil {
		return err
	}
	return rs.head.Release()
}

// bytes is the memory that the table has written to, at most.
func (rs *records) bytes() int64 {
	if rs.used == 0 {
		return 0
	}
	return int64(rs.used)*recordBytes + int64(rs.mask+1)*4
}

func (rs *records) record(n uint32) *record { return slab.At[record](rs.mem, uint64(n)*recordBytes) }

func (rs *records) chainOf(h uint64) uint64 { return uint64(uint32(h)&rs.mask) * 4 }

// checkOf is the second hash of a key.
func (rs *records) checkOf(key []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(rs.seed)
	d.Write(key)
	return d.Sum64()
}

// find is the record of k, nil if there is none. It is valid until a record is
// added or the wheel turns.
func (rs *records) find(k Key) *record {
	if rs.n == 0 {
		return nil
	}
	check := rs.checkOf(k.Bytes)
	for n := rs.head.U32(rs.chainOf(k.Hash)); n != 0; {
		r := rs.record(n)
		if r.hash == k.Hash && r.check == check {
			return r
		}
		n = r.chain
	}
	return nil
}

// add is the record of k, a new one if it has none. nil: all there can be are
// needed for tokens that are out, or the system gives no memory.
func (rs *records) add(k Key, now Time, ended func(r *record)) *record {
	if r := rs.find(k); r != nil {
		return r
	}
	return rs.insert(k.Hash, rs.checkOf(k.Bytes), now, ended)
}

// restore adds a record for a floor that was written down, if it is still
// needed.
func (rs *records) restore(f floorMeta, now Time, ended func(r *record)) {
	if f.raised+rs.retention <= now {
		return
	}
	r := rs.insert(f.hash, f.check, now, ended)
	if r == nil {
		rs.lost(f.raised)
		return
	}
	r.floor, r.raised = f.floor, f.raised
	rs.changed(r)
}

// insert is a new record for the key with these hashes, which has none.
func (rs *records) insert(hash, check uint64, now Time, ended func(r *record)) *record {
	n := rs.take(now, ended)
	if n == 0 {
		return nil
	}
	r := rs.record(n)
	chain := rs.chainOf(hash)
	*r = record{hash: hash, check: check, self: n, chain: rs.head.U32(chain)}
	rs.head.PutU32(chain, n)
	rs.n++
	rs.file(r, now)
	return r
}

// take is the number of a record that is free, 0 if there is none.
func (rs *records) take(now Time, ended func(r *record)) uint32 {
	if rs.turn(now, ended); rs.n >= rs.max && !rs.drop(now) {
		return 0
	}
	if n := rs.free; n != 0 {
		rs.free = rs.record(n).chain
		return n
	}
	n := rs.used + 1
	if rs.mem.Commit(int64(n+1)*recordBytes) != nil {
		return 0
	}
	rs.used = n
	return n
}

// dueAt is when something is to be done with r: its token ends, or nothing in
// it is needed any more.
func (rs *records) dueAt(r *record) Time {
	if r.grant.counted {
		return r.grant.ends
	}
	t := r.grant.next
	if r.grant.pause != 0 {
		// So that loaders that go on failing are held back.
		t = max(t, r.grant.ends) + tokenKept
	}
	if r.floor != 0 {
		t = max(t, r.raised+rs.retention)
	}
	if r.grant.sequence != 0 {
		t = max(t, r.grant.ends+tokenKept)
	}
	return t
}

// changed puts r, in which something was changed, where it belongs.
func (rs *records) changed(r *record) {
	rs.unfile(r)
	rs.file(r, 0)
}

// wheelOf is the wheel that r stands on.
func (rs *records) wheelOf(r *record) *wheel {
	if r.isOut {
		return &rs.tokens
	}
	return &rs.rest
}

// file puts r on its wheel, which begins to turn at now if it is empty.
func (rs *records) file(r *record, now Time) {
	r.isOut = r.grant.counted
	w := rs.wheelOf(r)
	if w.n == 0 {
		w.turned = max(w.turned, now/w.stepMs)
	}
	rs.place(w, r, w.turned)
}

// place puts r into a slot of w, not before that of step least.
func (rs *records) place(w *wheel, r *record, least Time) {
	w.n++
	r.slot = uint32(min(max(rs.dueAt(r)/w.stepMs, least), w.turned+wheelSlots-1) % wheelSlots)
	first := w.first[r.slot]
	if first == 0 {
		w.first[r.slot], r.before, r.after = r.self, r.self, 0
		return
	}
	f := rs.record(first)
	r.before, r.after = f.before, 0
	rs.record(f.before).after = r.self
	f.before = r.self
}

func (rs *records) unfile(r *record) {
	w := rs.wheelOf(r)
	w.n--
	first := w.first[r.slot]
	switch {
	case r.self == first:
		w.first[r.slot] = r.after
	default:
		rs.record(r.before).after = r.after
	}
	switch {
	case r.after != 0:
		rs.record(r.after).before = r.before
	case r.self != first:
		rs.record(first).before = r.before
	}
}

// turn looks through the slots that the time has left, a bounded number of
// records at a time: it shows ended each whose token's time has passed, and
// takes out what is needed no more.
func (rs *records) turn(now Time, ended func(r *record)) {
	looks := turnLooksMax
	for _, w := range [...]*wheel{&rs.tokens, &rs.rest} {
		end := now / w.stepMs
		// When it stood still for longer, it is enough to look at each slot once.
		w.turned = max(w.turned, end-wheelSlots)
		for ; w.turned < end && w.n > 0; w.turned++ {
			// What is not due yet is put behind, and met again in its time.
			for n := w.first[w.turned%wheelSlots]; n != 0; n = w.first[w.turned%wheelSlots] {
				if looks--; looks < 0 {
					return
				}
				r := rs.record(n)
				if r.grant.counted && r.grant.ends <= now {
					ended(r)
				}
				rs.unfile(r)
				if rs.dueAt(r) <= now {
					rs.unchain(r)
					continue
				}
				if r.isOut = r.grant.counted; rs.wheelOf(r) == w {
					rs.place(w, r, w.turned+1)
				} else {
					rs.file(r, now)
				}
			}
		}
		if w.n == 0 {
			w.turned = max(w.turned, end)
		}
	}
}

// drop makes room: the record goes that is due first of those whose tokens are
// not out. It reports whether there is one.
func (rs *records) drop(now Time) bool {
	w := &rs.rest
	for i := range Time(wheelSlots) {
		if n := w.first[(w.turned+i)%wheelSlots]; n != 0 {
			r := rs.record(n)
			if r.floor != 0 && r.raised+rs.retention > now {
				rs.lost(r.raised)
			}
			rs.unfile(r)
			rs.unchain(r)
			return true
		}
	}
	return false
}

// unchain frees a record that stands on no wheel any more.
func (rs *records) unchain(r *record) {
	if chain := rs.chainOf(r.hash); rs.head.U32(chain) == r.self {
		rs.head.PutU32(chain, r.chain)
	} else {
		p := rs.record(rs.head.U32(chain))
		for p.chain != r.self {
			p = rs.record(p.chain)
		}
		p.chain = r.chain
	}
	n := r.self
	*r = record{chain: rs.free}
	rs.free = n
	rs.n--
}

// lost notes that a floor that was raised then is not kept.
func (rs *records) lost(raised Time) {
	rs.dropped = max(rs.dropped, raised)
	rs.nDropped++
}

// unknownUntil is when the floors that were dropped would not be kept any
// more, had there been room.
func (rs *records) unknownUntil() Time {
	if rs.dropped == 0 {
		return 0
	}
	return rs.dropped + rs.retention
}

// oldestFloor is how long ago the oldest floor in the first slot that has one
// was raised, 0 when there is none. Keys whose tokens are out are left out.
func (rs *records) oldestFloor(now Time) (age Time) {
	looks := turnLooksMax
	for i := range Time(wheelSlots) {
		for n := rs.rest.first[(rs.rest.turned+i)%wheelSlots]; n != 0 && looks > 0; looks-- {
			r := rs.record(n)
			if r.floor != 0 {
				age = max(age, now-r.raised)
			}
			n = r.after
		}
		if age > 0 || looks == 0 {
			break
		}
	}
	return age
}

// each shows f every record.
func (rs *records) each(f func(r *record)) {
	for _, w := range [...]*wheel{&rs.tokens, &rs.rest} {
		for slot := range w.first {
			for n := w.first[slot]; n != 0; {
				r := rs.record(n)
				f(r)
				n = r.after
			}
		}
	}
}

// checkRecords recounts the records, and the tokens of tenants.
func (sh *shard) checkRecords() []error {
	errs := sh.records.recount()
	out := make(map[uint32]int)
	sh.records.each(func(r *record) {
		if g := &r.grant; g.counted && g.tenant != 0 {
			out[g.tenant-1]++
		}
	})
	for row, n := range out {
		// A row may have changed hands, and begun with 0.
		if t := &sh.tenants.rows[row]; n < t.inflight || int(row) <= sh.tenants.nNamed && n != t.inflight {
			errs = append(errs, fmt.Errorf("store: tenant %q: %d tokens out counted, %d found", t.name, t.inflight, n))
		}
	}
	return errs
}

// recount checks the table against itself.
func (rs *records) recount() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	filed := make(map[uint32]bool)
	for _, w := range [...]*wheel{&rs.tokens, &rs.rest} {
		n := len(filed)
		for slot := range w.first {
			rs.recountSlot(w, slot, filed, bad)
		}
		if n = len(filed) - n; n != w.n {
			bad("%d records counted on a wheel, %d found", w.n, n)
		}
	}
	chained := 0
	for c := range uint64(rs.mask) + 1 {
		for n := rs.head.U32(c * 4); n != 0; n = rs.record(n).chain {
			if chained++; chained > rs.n || !filed[n] || rs.chainOf(rs.record(n).hash) != c*4 {
				bad("record %d in chain %d: filed %t, hash %#x", n, c, filed[n], rs.record(n).hash)
				break
			}
		}
	}
	if chained != rs.n || len(filed) != rs.n || rs.n > rs.max {
		bad("%d records counted, at most %d; %d in chains, %d on the wheel", rs.n, rs.max, chained, len(filed))
	}
	return errs
}

// recountSlot adds the records of a slot to filed.
func (rs *records) recountSlot(w *wheel, slot int, filed map[uint32]bool, bad func(string, ...any)) {
	first := w.first[slot]
	if first == 0 {
		return
	}
	before := rs.record(first).before
	if last := rs.record(before); last.after != 0 {
		bad("record %d, the last in slot %d, has %d behind it", before, slot, last.after)
	}
	for n := first; n != 0; n = rs.record(n).after {
		r := rs.record(n)
		if filed[n] || r.before != before || int(r.slot) != slot || rs.wheelOf(r) != w || r.isOut != r.grant.counted {
			bad("record %d: slot %d says %d, before it %d says %d, its token is out %t says %t",
				n, slot, r.slot, before, r.before, r.grant.counted, r.isOut)
			return
		}
		filed[n] = true
		before = n
	}
}
