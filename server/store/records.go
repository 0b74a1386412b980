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
// Every record stands in a slot of a wheel, under the time at which nothing in
// it is needed any more. When the table is full, the record goes whose time
// comes first.
type records struct {
	mem  *slab.Memory // records, numbered from 1
	head *slab.Memory // the first record of each chain, 4 bytes
	mask uint32       // chains, less one
	max  int
	used uint32 // numbers ever given
	free uint32 // first of the freed ones, linked by chain; 0 none
	n    int    // records there are

	wheel  [wheelSlots]uint32 // first record of each slot
	stepMs Time               // what a slot covers
	turned Time               // in steps: what is due before it was looked through

	retention Time
	seed      uint64
	dropped   Time // the youngest raise of a floor that was dropped for room, 0 none
	nDropped  uint64
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
	after, before uint32 // its neighbours in the slot of the wheel
	slot          uint32 // of the wheel
	_             uint32
}

const (
	recordBytes = 112
	wheelSlots  = 64

	// tokenKept is how long an ended token is known as ended, and not only as
	// one that is not known, in milliseconds.
	tokenKept = 10_000
	// dropLooksMax bounds the records looked at to find one to drop, and the
	// steps of one turn of the wheel.
	dropLooksMax = 256
)

// newRecords is an empty table for at most most records. longest is the
// longest time that a record is needed for.
func newRecords(most int, retention, longest Time, seed uint64) (records, error) {
	rs := records{max: most, retention: retention, seed: seed}
	rs.mask = 1<<bits.Len(uint(most-1)) - 1
	// With two slots to spare, what is put in is never put where the wheel is.
	rs.stepMs = longest/(wheelSlots-2) + 1
	var err error
	if rs.mem, err = slab.Reserve(int64(most+1) * recordBytes); err != nil {
		return rs, err
	}
	if rs.head, err = slab.Reserve(int64(rs.mask+1) * 4); err != nil {
		return rs, err
	}
	return rs, rs.head.Commit(int64(rs.mask+1) * 4)
}

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
	if rs.n == 0 {
		rs.turned = now / rs.stepMs
	}
	rs.n++
	rs.file(r, rs.turned)
	return r
}

// take is the number of a record that is free, 0 if there is none.
func (rs *records) take(now Time, ended func(r *record)) uint32 {
	if rs.n >= rs.max && !rs.drop(now, ended) {
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
		t += tokenKept // so that loaders that go on failing are held back
	}
	if r.floor != 0 {
		t = max(t, r.raised+rs.retention)
	}
	if r.grant.sequence != 0 {
		t = max(t, r.grant.ends+tokenKept)
	}
	return t
}

// changed puts r, in which something was changed, where it belongs on the
// wheel.
func (rs *records) changed(r *record) {
	rs.unfile(r)
	rs.file(r, rs.turned)
}

// file puts r on the wheel, not before step least.
func (rs *records) file(r *record, least Time) {
	step := min(max(rs.dueAt(r)/rs.stepMs, least), rs.turned+wheelSlots-1)
	r.slot = uint32(step % wheelSlots)
	r.before, r.after = 0, rs.wheel[r.slot]
	if r.after != 0 {
		rs.record(r.after).before = r.self
	}
	rs.wheel[r.slot] = r.self
}

func (rs *records) unfile(r *record) {
	if r.before != 0 {
		rs.record(r.before).after = r.after
	} else {
		rs.wheel[r.slot] = r.after
	}
	if r.after != 0 {
		rs.record(r.after).before = r.before
	}
}

// turn looks through the slots that the time has left, a bounded number of
// records at a time: it shows ended each whose token's time has passed, and
// takes out what is needed no more.
func (rs *records) turn(now Time, ended func(r *record)) {
	looks := dropLooksMax
	for ; rs.turned < now/rs.stepMs && rs.n > 0; rs.turned++ {
		for n := rs.wheel[rs.turned%wheelSlots]; n != 0; {
			if looks--; looks < 0 {
				return
			}
			r := rs.record(n)
			n = r.after
			if r.grant.counted && r.grant.ends <= now {
				ended(r)
			}
			if rs.dueAt(r) <= now {
				rs.remove(r)
				continue
			}
			rs.unfile(r)
			rs.file(r, rs.turned+1)
		}
	}
}

// drop makes room: the record goes whose time comes first and whose token is
// not out. It reports whether there is one.
func (rs *records) drop(now Time, ended func(r *record)) bool {
	looks := dropLooksMax
	for i := range Time(wheelSlots) {
		for n := rs.wheel[(rs.turned+i)%wheelSlots]; n != 0; {
			if looks--; looks < 0 {
				return false
			}
			r := rs.record(n)
			if !r.grant.counted || r.grant.ends <= now {
				if r.floor != 0 && r.raised+rs.retention > now {
					rs.lost(r.raised)
				}
				ended(r)
				rs.remove(r)
				return true
			}
			n = r.after
		}
	}
	return false
}

// remove frees a record.
func (rs *records) remove(r *record) {
	rs.unfile(r)
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

// oldestFloor is how long ago the oldest floor in the first slots that have one
// was raised, 0 when there is none.
func (rs *records) oldestFloor(now Time) (age Time) {
	looks := dropLooksMax
	for i := range Time(wheelSlots) {
		for n := rs.wheel[(rs.turned+i)%wheelSlots]; n != 0 && looks > 0; looks-- {
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
	for slot := range rs.wheel {
		for n := rs.wheel[slot]; n != 0; {
			r := rs.record(n)
			f(r)
			n = r.after
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
	for slot := range rs.wheel {
		before := uint32(0)
		for n := rs.wheel[slot]; n != 0; n = rs.record(n).after {
			r := rs.record(n)
			if filed[n] || r.before != before || int(r.slot) != slot {
				bad("record %d: slot %d says %d, before it %d says %d", n, slot, r.slot, before, r.before)
				break
			}
			filed[n] = true
			before = n
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
