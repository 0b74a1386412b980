package server

import (
	"sync"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
	"golang.org/x/sys/unix"
)

// Bounds of one connection. Together with what a session keeps of a broken
// line (lineMax) they bound what a peer can make the server hold for it.
const (
	// outHighBytes of pending replies end a batch: they are written before
	// another request is executed.
	outHighBytes = 256 << 10

	// pinMinBytes is the size from which a value is written from slab memory
	// instead of being copied into the reply buffer. Source: CPU for a get of
	// 10 KB is 0.92 of a copy's one at a time, and 0.97 at pipeline 16; of
	// 5 KB it is the same either way.
	pinMinBytes = 8 << 10

	// outKeepBytes is the most memory for replies that a worker of a loop
	// keeps for the next batch, and pooledKeepBytes one in the pool.
	outKeepBytes    = 2 * outHighBytes
	pooledKeepBytes = 32 << 10

	// writeTurnBytes is the most that is written before others have their
	// turn.
	writeTurnBytes = 1 << 20
)

// verdict is what a session says after it was fed.
type verdict uint8

const (
	// verdictMore: all input was taken; the session waits for more.
	verdictMore verdict = iota
	// verdictFull: the output has reached outHighBytes. Write it, then feed
	// the rest of the input.
	verdictFull
	// verdictYield: -R requests were executed. Write the output, let other
	// connections have a turn, then feed the rest of the input.
	verdictYield
	// verdictWait: the next request takes long. Write the output, then feed
	// the rest of the input where the session may wait: with worker.mayWait.
	verdictWait
	// verdictClose: write the output, then close. No more input is taken.
	verdictClose
	// verdictWatch: the session is a watcher's. It takes no more input, and
	// what it sends is lines from elsewhere.
	verdictWatch
)

// worker is what a batch needs and a connection does not keep: the request
// being decoded, the replies, the time. Each loop has one; a connection that
// is aside has one unless it waits for input.
type worker struct {
	req meta.Request
	out output

	reader *store.Reader // nil: all reads take the shard's lock
	mark   int           // of out.buf, where the reply to the read being executed begins

	now store.Time // read once a batch, after its bytes have arrived

	relays relays // holes in out

	hot     *hotTable // counts samples of keys
	hotWait uint32    // keys until the next one

	mayWait bool // the session may take its time: it is driven by a goroutine of its own

	asked     store.Ask          // of the lookup being executed
	fill      store.Fill         // of the set being executed
	freshness meta.ItemFreshness // of the item being shown

	observer store.Observer // of what requests do; nil: nobody watches
	tap      tap

	ahead ahead // of the requests of this batch

	noRoom bool // the value just asked for could neither be pinned nor copied

	n      counters // of this batch; published when it ends
	sample sample
}

// workerPool lends connections that are aside their workers.
var workerPool = sync.Pool{New: func() any { return new(worker) }}

func takeWorker() *worker { return workerPool.Get().(*worker) }

// returnWorker gives back a worker whose output is empty.
func returnWorker(w *worker) {
	if cap(w.out.buf) > pooledKeepBytes {
		w.out.buf = nil
	}
	w.mayWait = false
	w.ahead.forget()
	w.observer, w.tap = nil, tap{}
	w.hot = nil
	w.reader = nil
	w.relays.drop()
	workerPool.Put(w)
}

// output is the replies of a batch in order: bytes, and pinned values that
// go out straight from slab memory between them.
type output struct {
	buf    []byte
	off    int // buf[:off] was written
	cuts   []cut
	gone   int // cuts[:gone] were written
	pinned int // bytes of the other pins
	pieces [store.WritevMax][]byte
}

// cut puts a pinned value before buf[at].
type cut struct {
	at  int
	pin store.Pin
}

// addPin puts a pinned value behind all that was appended to buf so far.
func (o *output) addPin(p store.Pin) {
	o.cuts = append(o.cuts, cut{len(o.buf), p})
	o.pinned += p.Len()
}

// pending is the number of bytes to write, pinned ones included.
func (o *output) pending() int { return len(o.buf) - o.off + o.pinned }

// write writes what is pending to fd, which must not block, until all is
// written, limit bytes are, or no more can be now: then it is blocked.
func (o *output) write(fd, limit int) (n int, blocked bool, err error) {
	for n < limit && o.pending() > 0 {
		var k int
		if o.pinned == 0 {
			k, err = unix.Write(fd, o.buf[o.off:])
		} else {
			k, err = store.Writev(fd, o.next())
		}
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return n, true, nil
		default:
			return n, false, err
		}
		o.advance(k)
		n += k
	}
	if o.pending() == 0 {
		o.reset()
	}
	return n, false, nil
}

// next gives the pieces to be written next.
func (o *output) next() [][]byte {
	pieces, at := o.pieces[:0], o.off
	for i := o.gone; i < len(o.cuts) && len(pieces) < len(o.pieces); i++ {
		c := &o.cuts[i]
		if at < c.at {
			pieces = append(pieces, o.buf[at:c.at])
			at = c.at
		}
		pieces = c.pin.Peek(pieces)
	}
	if len(pieces) < len(o.pieces) && at < len(o.buf) {
		pieces = append(pieces, o.buf[at:])
	}
	return pieces
}

// advance says that n bytes more were written.
func (o *output) advance(n int) {
	for n > 0 {
		end := len(o.buf)
		if o.gone < len(o.cuts) {
			end = o.cuts[o.gone].at
		}
		if k := min(n, end-o.off); k > 0 {
			o.off += k
			n -= k
			continue
		}
		pin := &o.cuts[o.gone].pin
		k := min(n, pin.Len())
		pin.Advance(k)
		o.pinned -= k
		if n -= k; pin.Len() == 0 {
			pin.Release()
			o.gone++
		}
	}
}

// reset drops what is pending.
func (o *output) reset() {
	for i := o.gone; i < len(o.cuts); i++ {
		o.cuts[i].pin.Release()
	}
	o.forget()
}

// forget makes o empty; its pins are released or someone else's.
func (o *output) forget() {
	if cap(o.buf) > outKeepBytes {
		o.buf = nil
	}
	if len(o.cuts) > 0 {
		clear(o.cuts)
		clear(o.pieces[:])
	}
	o.buf, o.cuts = o.buf[:0], o.cuts[:0]
	o.off, o.gone, o.pinned = 0, 0, 0
}

// takeFrom moves what is pending in from to o, which is empty.
func (o *output) takeFrom(from *output) {
	o.buf = append(o.buf, from.buf[from.off:]...)
	for _, c := range from.cuts[from.gone:] {
		o.cuts = append(o.cuts, cut{c.at - from.off, c.pin})
	}
	o.pinned = from.pinned
	from.forget()
}
