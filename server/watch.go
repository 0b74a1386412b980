package server

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// Watching: what happens in the server, as lines to those connections that
// have said watch.
//
//	loops ─────► ring each ─┐
//	the store ─┐            ├─► carry ──► watcher ──► its connection
//	aside ─────┴► ring ─────┘   makes lines, in the order of their numbers
//
// Who sees something happen puts a record into a ring and goes on. When the
// ring is full, the record is dropped and counted. A goroutine makes lines of
// the records and gives them to the watchers that want them; where a watcher's
// buffer is full, its lines are skipped, counted, and the watcher is told. So
// no one waits for a watcher. With no watcher, nothing is put anywhere: the
// streams that are wanted are looked at once a batch.

// stream is a set of the things that can be watched: bit i is streamNames[i].
type stream uint32

const (
	streamRawCmds stream = 1 << iota
	streamEvictions
	streamFetchers
	streamMutations
	streamSysEvents
	streamConnEvents
	streamProxyReqs
	streamProxyEvents
	streamProxyUser
	streamDeletions
	streamFreshness // Quarry's own

	streamsOfRequests = streamFetchers | streamMutations | streamDeletions | streamFreshness
	streamsOfStore    = streamEvictions | streamSysEvents
)

// streamNames are the words behind watch, in the order in which an abbreviation
// is compared with them. Those of a proxy, and rawcmds, stay silent, as in a
// memcached without one. Source: memcached's process_watch_command.
var streamNames = [...]string{
	"rawcmds", "evictions", "fetchers", "mutations", "sysevents", "connevents",
	"proxyreqs", "proxyevents", "proxyuser", "deletions", "freshness",
}

const (
	// watchersMax bounds the watchers. Source: memcached's WATCHER_LIMIT.
	watchersMax = 20

	// carryStep is how many lines are made before other goroutines have their
	// turn: some 50 µs.
	carryStep = 64

	// The rings are looked at again after a pause, the longer, the longer they
	// were empty.
	carryPauseMin = time.Millisecond
	carryPauseMax = 16 * time.Millisecond
)

// watch is all that watching needs.
type watch struct {
	store *store.Store // set when it is open

	wanted  atomic.Uint32 // streams that anyone watches
	serial  atomic.Uint64 // gid of the last record
	sent    atomic.Uint64 // lines given to watchers
	skipped atomic.Uint64 // lines that a watcher had no room for

	mu    sync.Mutex // held by who changes the list
	list  atomic.Pointer[[]*watcher]
	rings []*ring // the common one, and one for each loop

	begun        chan struct{} // there is a watcher again
	watcherBytes int           // of the buffer of a watcher

	line []byte // of carry
}

// init makes h ready for a number of loops.
func (h *watch) init(loops int, x *Extended) {
	h.begun = make(chan struct{}, 1)
	h.watcherBytes = x.WatcherBufferBytes
	for range 1 + loops {
		h.rings = append(h.rings, &ring{capacity: max(x.WorkerBufferBytes, recordMaxBytes)})
	}
	h.list.Store(new([]*watcher))
}

// common is the ring of all that is not the doing of a loop.
func (h *watch) common() *ring { return h.rings[0] }

// wants reports whether anyone watches one of the streams.
func (h *watch) wants(s stream) bool { return stream(h.wanted.Load())&s != 0 }

// add makes ci a watcher of streams, who sees what happens from now on. It is nil
// when there are too many.
func (h *watch) add(ci *connInfo, streams stream) *watcher {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := *h.list.Load()
	if len(list) == watchersMax {
		return nil
	}
	for _, r := range h.rings {
		r.open()
	}
	w := newWatcher(ci, streams, h.serial.Add(1), h.watcherBytes)
	h.set(append(list[:len(list):len(list)], w))
	select {
	case h.begun <- struct{}{}:
	default:
	}
	return w
}

// remove ends w's watching.
func (h *watch) remove(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []*watcher
	for _, o := range *h.list.Load() {
		if o != w {
			list = append(list, o)
		}
	}
	h.set(list)
}

// set makes list the watchers. The lock is held.
func (h *watch) set(list []*watcher) {
	var wanted stream
	for _, w := range list {
		wanted |= w.streams
	}
	before := stream(h.wanted.Swap(uint32(wanted)))
	switch now := wanted&streamsOfStore != 0; {
	case now == (before&streamsOfStore != 0):
	case now:
		h.store.Observe((*storeObserver)(h))
	default:
		h.store.Observe(nil)
	}
	h.list.Store(&list)
}

// watchFigures are the figures of watching in `stats`.
type watchFigures struct{ Dropped, Written, Skipped, Sent, Watchers uint64 }

func (h *watch) stats() watchFigures {
	f := watchFigures{
		Skipped:  h.skipped.Load(),
		Sent:     h.sent.Load(),
		Watchers: uint64(len(*h.list.Load())),
	}
	for _, r := range h.rings {
		f.Dropped += r.dropped.Load()
		f.Written += r.written.Load()
	}
	return f
}

// resetStats zeroes what was counted.
func (h *watch) resetStats() {
	h.skipped.Store(0)
	h.sent.Store(0)
	for _, r := range h.rings {
		r.dropped.Store(0)
		r.written.Store(0)
	}
}

// run carries records to watchers until stop is closed.
func (h *watch) run(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-h.begun:
		}
		for pause := carryPauseMin; len(*h.list.Load()) > 0; {
			if h.carry() > 0 {
				pause = carryPauseMin
			} else {
				pause = min(2*pause, carryPauseMax)
			}
			timer.Reset(pause)
			select {
			case <-stop:
				return
			case <-timer.C:
			}
		}
	}
}

// carry gives the watchers all that had happened when it was called, in the
// order in which it happened, and returns how many records that were. What
// happens meanwhile waits for the next time.
func (h *watch) carry() (records int) {
	watchers, last := *h.list.Load(), h.serial.Load()
	for _, w := range watchers {
		w.stuck = false
	}
	for _, r := range h.rings {
		r.settle() // all up to last are there now
	}
	for {
		var first *ring
		for _, r := range h.rings {
			if r.peek() && r.next.gid <= last && (first == nil || r.next.gid < first.next.gid) {
				first = r
			}
		}
		if first == nil {
			return records
		}
		h.deliver(&first.next, watchers)
		first.take()
		if records++; records%carryStep == 0 {
			runtime.Gosched()
		}
	}
}

// deliver gives the line of rec to those who want it.
func (h *watch) deliver(rec *record, watchers []*watcher) {
	h.line = h.line[:0]
	for _, w := range watchers {
		if w.streams&rec.stream() == 0 || rec.gid < w.since {
			continue
		}
		if len(h.line) == 0 {
			h.line = rec.appendLine(h.line)
		}
		if w.offer(h.line) {
			h.sent.Add(1)
		} else {
			h.skipped.Add(1)
		}
	}
}
