//go:build debug

package server

import (
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// debugState is what the commands of a debug build change: memcached's
// debugtime and debugitem, which its own tests use.
type debugState struct {
	mu     sync.Mutex // all below
	base   Clock      // the clock without debugtime
	moved  store.Time // by debugtime
	paused bool
	at     store.Time // of base, while paused

	pins map[*connInfo]store.Pin // the last item that a connection has a reference to
	more []store.Pin             // those that it had before
	held map[string]store.Pin    // debugitem lock
}

// newDebugState makes the clocks of a server that c is for ones that debugtime
// can move.
func newDebugState(c *Config) *debugState {
	d := &debugState{base: c.Clock, pins: map[*connInfo]store.Pin{}, held: map[string]store.Pin{}}
	wall := c.Wall
	if d.base == nil {
		d.base = SystemClock()
		wall = func() store.Time { return store.Time(time.Now().UnixMilli()) }
	}
	c.Clock = func() store.Time { return d.now(d.base) }
	if wall != nil {
		c.Wall = func() store.Time { return d.now(wall) }
	}
	return d
}

// now is what clock shows, moved. Both clocks stop at what base shows.
func (d *debugState) now(clock Clock) store.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused {
		return d.at + d.moved
	}
	return clock() + d.moved
}

// claim does what memcached's environment variable for its tests does: so many
// bytes count as taken from the start.
func (*debugState) claim(s *store.Store) {
	if n, err := strconv.ParseInt(os.Getenv("T_MEMD_INITIAL_MALLOC"), 10, 64); err == nil {
		s.Claim(n)
	}
}

// debugTime answers debugtime: p stops the clock, r lets it run, and a number
// moves it by so many seconds.
func (s *session) debugTime(w *worker) {
	r, d := &w.req, s.srv.debug
	if r.NArgs < 2 {
		w.fail(r, meta.ErrUnknown)
		return
	}
	word := r.Args[1]
	d.mu.Lock()
	switch {
	case abbreviates(word, "p"):
		if !d.paused {
			d.paused, d.at = true, d.base()
		}
	case abbreviates(word, "r"):
		d.paused = false
	default:
		seconds, ok := meta.ParseInt32(word)
		if !ok {
			d.mu.Unlock()
			w.fail(r, meta.ErrUnknown)
			return
		}
		d.moved += store.Time(seconds) * 1000
	}
	d.mu.Unlock()
	w.now = s.srv.clock()
	w.ok()
}

// debugItem answers debugitem: it takes a reference to an item, or gives it
// back. A lock is a reference here that nobody waits for.
func (s *session) debugItem(w *worker) {
	r, d := &w.req, s.srv.debug
	if r.NArgs < 3 {
		w.fail(r, meta.ErrUnknown)
		return
	}
	word, key := r.Args[1], string(r.Args[2])
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case abbreviates(word, "lock"):
		if pin, ok := s.debugPin(w, key); ok {
			d.held[key] = pin
		}
	case abbreviates(word, "unlock"):
		pin := d.held[key]
		pin.Release()
		delete(d.held, key)
	case abbreviates(word, "ref"):
		pin, ok := s.debugPin(w, key)
		if !ok {
			w.out.buf = append(w.out.buf, "MISS\r\n"...)
			return
		}
		d.more = append(d.more, d.pins[s.conn])
		d.pins[s.conn] = pin
	case abbreviates(word, "unref"):
		pin := d.pins[s.conn]
		pin.Release()
		delete(d.pins, s.conn)
	default:
		w.fail(r, meta.ErrUnknown)
		return
	}
	w.ok()
}

// debugPinner pins the item that it is shown.
type debugPinner struct {
	pin store.Pin
	ok  bool
}

// VisitItem pins it.
func (p *debugPinner) VisitItem(it *store.Item) { p.pin, p.ok = it.PinForTest(), true }

func (s *session) debugPin(w *worker, key string) (store.Pin, bool) {
	var p debugPinner
	s.srv.store.PeekObserved(store.KeyOf([]byte(key)), w.now, &p, w.observer)
	return p.pin, p.ok
}

// close gives all references back.
func (d *debugState) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.pins {
		p.Release()
	}
	for _, p := range d.held {
		p.Release()
	}
	for i := range d.more {
		d.more[i].Release()
	}
}
