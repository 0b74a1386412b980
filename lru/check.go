package lru

import (
	"fmt"

	"github.com/quarrycache/quarry/slab"
)

// Check recounts the lists and returns every fault that it finds. seen, if
// not nil, is called for each item in the order.
func (o *Order) Check(seen func(c int, r slab.Ref)) []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("lru: "+format, args...)) }
	total := 0
	for c := range o.classes {
		for s := range nSegments {
			l := &o.classes[c].seg[s]
			n, prev := uint32(0), slab.Ref(0)
			for r := l.head; r != 0; prev, r = r, o.a.Next(r) {
				if n++; n > l.n {
					bad("class %d segment %d: more than the %d items counted", c, s, l.n)
					break
				}
				if got := o.a.Tag(r).State(); got != s.state() {
					bad("class %d segment %d: item %d has state %d", c, s, r, got)
				}
				if got := o.a.Prev(r); got != prev {
					bad("class %d segment %d: item %d has prev %d, want %d", c, s, r, got, prev)
				}
				if seen != nil {
					seen(c, r)
				}
			}
			if n != l.n {
				bad("class %d segment %d: %d items counted, list has %d", c, s, l.n, n)
			}
			if l.tail != prev && n <= l.n {
				bad("class %d segment %d: tail %d, want %d", c, s, l.tail, prev)
			}
			total += int(n)
		}
	}
	if total != o.n || o.inAll[Window]+o.inAll[Probation]+o.inAll[Protected]+o.inAll[Temporary] != o.n {
		bad("%d items counted, %v in the segments, lists have %d", o.n, o.inAll, total)
	}
	return errs
}
