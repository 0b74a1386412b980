package cluster

import (
	"sync"
	"sync/atomic"
	"time"
)

// floors are the lowest versions that this process may still use, of keys that
// it has invalidated itself. Near cache and flights obey them. A floor is kept
// as long as anything older can still be on its way; the table is bounded, and
// when a floor has to go before its time, all that is on its way then is not to
// be kept.
type floors struct {
	keep     time.Duration
	now      func() time.Time
	overflow func() // a floor went before its time

	some   atomic.Bool   // there have been any
	marked atomic.Bool   // mark was called
	lost   atomic.Uint64 // floors that went before their time
	plain  atomic.Uint64 // calls of forbid

	mu    sync.Mutex // all below
	table map[string]floor
	ring  []raised // in the order of time, from head on
	head  int
	n     int
}

type floor struct {
	version uint64
	plain   uint64    // the last forbid of the key
	at      time.Time // of the last change
}

type raised struct {
	key string
	at  time.Time
}

// mark is a moment: how many floors had been lost and how many plain writes had
// been done then.
type mark struct{ lost, plain uint64 }

// floorsMax bounds the floors.
const floorsMax = 8192

func newFloors(keep time.Duration, now func() time.Time, overflow func()) *floors {
	return &floors{keep: keep, now: now, overflow: overflow, table: make(map[string]floor), ring: make([]raised, floorsMax)}
}

// mark is to be taken before something is asked for that allow is asked about.
func (f *floors) mark() mark {
	f.marked.Store(true)
	return mark{f.lost.Load(), f.plain.Load()}
}

// of is the floor of a key, 0 if there is none.
func (f *floors) of(key string) uint64 {
	if !f.some.Load() {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table[key].version
}

// allow reports whether a version of a key may be kept that was asked for since
// m.
func (f *floors) allow(key string, version uint64, m mark) bool {
	if f.lost.Load() != m.lost {
		return false
	}
	if !f.some.Load() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fl := f.table[key]
	return version >= fl.version && fl.plain <= m.plain
}

// forbid keeps out what was asked for before now, whatever its version: the key
// was written plainly.
func (f *floors) forbid(key string) {
	if f.marked.Load() {
		f.change(key, floor{plain: f.plain.Add(1)})
	}
}

// raise raises the floor of a key.
func (f *floors) raise(key string, version uint64) { f.change(key, floor{version: version}) }

func (f *floors) change(key string, to floor) {
	f.some.Store(true)
	now := f.now()
	f.mu.Lock()
	lost := false
	if f.n == len(f.ring) {
		lost = f.pop(now)
	}
	for f.n > 0 && now.Sub(f.ring[f.head].at) > f.keep {
		f.pop(now)
	}
	old := f.table[key]
	f.table[key] = floor{max(to.version, old.version), max(to.plain, old.plain), now}
	f.ring[(f.head+f.n)%len(f.ring)] = raised{key, now}
	f.n++
	f.mu.Unlock()
	if lost {
		f.lost.Add(1)
		f.overflow()
	}
}

// pop takes the oldest entry, and reports whether its floor went before its
// time.
func (f *floors) pop(now time.Time) (lost bool) {
	r := f.ring[f.head]
	f.ring[f.head] = raised{}
	f.head = (f.head + 1) % len(f.ring)
	f.n--
	if fl, ok := f.table[r.key]; ok && fl.at.Equal(r.at) {
		delete(f.table, r.key)
		return now.Sub(r.at) <= f.keep
	}
	return false
}
