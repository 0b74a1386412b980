package store

import (
	"strconv"

	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// numberDigitsMax is the longest number, and the longest value that arith
// takes for one: 2^64-1 has 20 digits.
const numberDigitsMax = 20

// Arith adds to the number under key k, or takes from it. Additions wrap at
// 2^64, subtractions stop at 0. OK, Miss, Exists, NonNumeric or NoMemory; on
// OK v, unless nil, was shown the item, with its Number.
func (s *Store) Arith(k Key, o *ArithOptions, now Time, v Visitor) Status {
	sh := s.lock(k, now)
	defer sh.unlock()
	it, found := sh.live(k, now, o.Observer)
	if !found {
		return sh.arithMiss(k, o, now, v)
	}
	value, ok := sh.number(it)
	switch {
	case it.tag&chained != 0 || it.valueLen() == 0:
		return NonNumeric
	case o.Compare && o.CompareCAS != 0 && o.CompareCAS != it.cas():
		return Exists
	case !ok:
		return NonNumeric
	}
	n := &sh.classes[sh.orderClass(it)]
	switch {
	case !o.Decr:
		n.incrHits++
		value += o.Delta
	case o.Delta > value:
		n.decrHits++
		value = 0
	default:
		n.decrHits++
		value -= o.Delta
	}
	var buf [numberDigitsMax]byte
	digits := strconv.AppendUint(buf[:0], value, 10)
	oldTTL := sh.ttlOf(it, now)
	if it, ok = sh.writeNumber(it, k, digits, o, now); !ok {
		sh.missWrite(k, now)
		return NoMemory
	}
	if o.Touch {
		sh.setExpiry(it, o.Expiry)
	}
	sh.showNumber(it, value, oldTTL, false, now, v)
	return OK
}

func (sh *shard) arithMiss(k Key, o *ArithOptions, now Time, v Visitor) Status {
	if !o.Vivify {
		sh.missWrite(k, now)
		if o.Decr {
			sh.n.decrMisses++
		} else {
			sh.n.incrMisses++
		}
		return Miss
	}
	var buf [numberDigitsMax]byte
	digits := strconv.AppendUint(buf[:0], o.Initial, 10)
	it, ok := sh.vivify(k, digits, o.VivifyExpiry, o.HasNewCAS, o.NewCAS, now)
	if !ok {
		sh.missWrite(k, now)
		sh.n.noMemory++
		return NoMemory
	}
	if o.Observer != nil { // memcached stores it with an add
		sh.tellLookup(o.Observer, k, LookupMiss, item{}, now)
		sh.tellStore(&SetOptions{Mode: ModeAdd, Observer: o.Observer}, OK, it, now)
	}
	sh.showNumber(it, o.Initial, -1, true, now, v)
	return OK
}

func (sh *shard) showNumber(it item, value uint64, oldTTL int64, vivified bool, now Time, v Visitor) {
	if v == nil {
		return
	}
	view := sh.show(it, now)
	view.Number = value
	view.OldTTL = oldTTL
	view.Vivified = vivified
	v.VisitItem(view)
}

// writeNumber makes digits the value of it: in place where they fit, padded
// with spaces as memcached pads them; else in a new item, which has the old
// one's flags and TTL.
func (sh *shard) writeNumber(it item, k Key, digits []byte, o *ArithOptions, now Time) (item, bool) {
	if len(digits) <= it.valueLen() && (len(sh.pins) == 0 || sh.pins[it.r] == 0) {
		// Where a file could be all that is left, a number that is half
		// written must not look like an item.
		state := it.tag.State()
		if sh.s.file != nil {
			it.setTag(it.tag.WithState(slab.StatePending))
		}
		b := sh.a.Bytes(it.valueOff(), it.valueLen())
		for i := copy(b, digits); i < len(b); i++ {
			b[i] = ' '
		}
		sh.seal(it)
		if sh.usesFresh() {
			sh.unversion(it, k, now)
		}
		sh.renewCAS(&it, o.HasNewCAS, o.NewCAS)
		if sh.s.file != nil {
			it.setTag(it.tag.WithState(state))
		}
		it.setAccess(now.Seconds())
		return it, true
	}
	sh.pins[it.r]++
	defer sh.unpin(it.r)
	flags, expiry, binary := it.flags(), it.expiry(), it.tag&keyBinary
	l := sh.s.layoutFor(len(k.Bytes), len(digits), flags, sh.needsExtra(k))
	r := sh.alloc(l.class, now)
	if r == 0 {
		return item{}, false
	}
	grown := sh.init(r, l, k.Bytes, len(digits), flags, expiry, now.Seconds())
	grown.setTag(grown.tag | binary)
	copy(sh.a.Bytes(grown.valueOff(), len(digits)), digits)
	sh.seal(grown)
	if sh.usesFresh() {
		sh.supersede(k, grown, now)
		sh.inherit(grown, it)
	}
	if t := sh.a.Tag(it.r); t.State() >= slab.StateItem {
		grown.setTag(grown.tag | lru.Heir(t))
		sh.unlink(sh.item(it.r), k.Hash)
	}
	sh.link(grown, k.Hash, o.HasNewCAS, o.NewCAS, now)
	return sh.item(r), true
}

// number reads a value as memcached does, which uses strtoull: spaces, a sign,
// decimal digits, ended by a space, a zero byte or the value's end.
func (sh *shard) number(it item) (uint64, bool) {
	if it.tag&chained != 0 {
		return 0, false
	}
	b := sh.a.Bytes(it.valueOff(), it.valueLen())
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	negative := false
	if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		negative = b[0] == '-'
		b = b[1:]
	}
	var n uint64
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		d := uint64(b[i] - '0')
		if n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	if negative {
		if n = -n; int64(n) < 0 {
			return 0, false
		}
	}
	return n, i > 0 && (i == len(b) || isSpace(b[i]) || b[i] == 0) // a C string ends there
}

// isSpace is C's isspace.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
