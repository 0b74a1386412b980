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

	some atomic.Bool   // there have been any
	lost atomic.Uint64 // floors that went before their time

	mu    sync.Mutex // all below
	table map[string]floor
	ring  []raised // in the order of time, from head on
	head  int
	n     int
}

type floor struct {
	version uint64
	at      time.Time // raised last
}

type raised struct {
	key string
	at  time.Time
}

// mark is a moment: how many floors had been lost then.
type mark uint64

// floorsMax bounds the floors.
const floorsMax = 8192

func newFloors(keep time.Duration, now func() time.Time, overflow func()) *floors {
	return &floors{keep: keep, now: now, overflow: overflow, table: make(map[string]floor), ring: make([]raised, floorsMax)}
}

// mark is to be taken before something is asked for that allow is asked about.
func (f *floors) mark() mark { return mark(f.lost.Load()) }

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
	return version >= f.of(key) && f.mark() == m
}

// raise raises the floor of a key.
func (f *floors) raise(key string, version uint64) {
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
	f.table[key] = floor{max(version, old.version), now}
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
