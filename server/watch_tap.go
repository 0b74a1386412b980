package server

import (
	"math/bits"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// Where records come from: the store, which tells its observers, and the ends
// of connections.

// begin begins a batch of ci, whose bytes have arrived. What watchers want to
// see of it goes into r.
func (w *worker) begin(s *Server, ci *connInfo, r *ring) { w.beginAt(s.now(), s, ci, r) }

// beginAt is begin at a moment that is known.
func (w *worker) beginAt(now store.Time, s *Server, ci *connInfo, r *ring) {
	w.now = now
	if w.hot == nil {
		w.hot = s.hot.common()
	}
	w.observer = nil
	wanted := stream(s.watch.wanted.Load())
	if wanted&streamsOfRequests == 0 {
		return
	}
	w.observer = (*requestObserver)(w)
	w.tap = tap{watch: &s.watch, ring: r, wanted: wanted, cfd: int32(ci.number)}
}

// tap is what a worker needs to let watchers see what its requests do.
type tap struct {
	watch  *watch
	ring   *ring
	wanted stream
	cfd    int32 // number of the connection whose batch it is
	rec    record
}

// requestObserver is the observer of what a request does.
type requestObserver worker

// Observe makes a record of e, if its stream is watched.
func (o *requestObserver) Observe(e *store.Event) {
	t := &o.tap
	rec := &t.rec
	*rec = record{
		class: uint16(e.Class),
		size:  uint32(e.Size),
		cfd:   t.cfd,
		text:  e.Key,
	}
	switch e.Kind {
	case store.EventLookup:
		rec.kind, rec.status = lineGet, uint8(e.Lookup)
	case store.EventStore:
		rec.kind, rec.status, rec.cmd = lineStore, uint8(e.Status), uint8(e.Mode)
		if e.Compare && (e.Mode == store.ModeSet || e.Mode == store.ModeReplace) {
			rec.cmd = uint8(storeCas)
		}
		if e.Expiry != 0 { // one that has passed is below 0, modulo 2^32, as in memcached
			rec.ttl = int64(e.Expiry - e.Now.Seconds())
		}
	case store.EventDelete:
		rec.kind = lineDelete
		if o.req.Verb == meta.VerbMetaDelete {
			rec.cmd = 1
		}
	default:
		if e.Kind < store.EventGrant {
			return
		}
		rec.observeFresh(e)
	}
	if t.wanted&rec.stream() != 0 {
		t.ring.put(rec, &t.watch.serial)
	}
}

// storeObserver is the observer of what the store does by itself.
type storeObserver watch

// Observe makes a record of e.
func (o *storeObserver) Observe(e *store.Event) {
	h := (*watch)(o)
	switch e.Kind {
	case store.EventEvict:
		rec := record{
			kind:  lineEvict,
			class: uint16(e.Class),
			size:  uint32(e.Size),
			idle:  e.IdleSeconds,
			ttl:   -1,
			text:  e.Key,
		}
		if e.Fetched {
			rec.status = 1
		}
		if e.Expiry != 0 {
			rec.ttl = int64(e.Expiry) - int64(e.Now.Seconds())
		}
		if h.wants(streamEvictions) {
			h.common().put(&rec, &h.serial)
		}
	case store.EventMove:
		line := appendNumber([]byte("type=slab_move src="), "", int64(e.Class))
		line = appendNumber(line, " dst=", int64(e.To))
		if e.Moved {
			line = append(line, " state=ok"...)
		} else {
			line = append(line, " state=fail"...)
		}
		h.tell(streamSysEvents, line)
	case store.EventSweep:
		h.tellSwept(e)
	}
}

// segmentNames are memcached's words for the segments.
var segmentNames = [...]string{
	store.SegmentWindow:    "hot",
	store.SegmentProbation: "cold",
	store.SegmentProtected: "warm",
}

// tellSwept tells of a walk of the sweeper, as memcached does of its crawler.
// The next one begins at once.
func (h *watch) tellSwept(e *store.Event) {
	if !h.wants(streamSysEvents) {
		return
	}
	n := &e.Swept
	line := appendNumber([]byte("type=lru_crawler"), " crawler=", int64(e.Class))
	line = append(append(line, " lru="...), segmentNames[e.Segment]...)
	line = appendNumber(line, " low_mark=", int64(n.Mortal/100+1)) // a hundredth, as in memcached
	line = appendNumber(line, " next_reclaims=", int64(n.Soon))
	line = append(line, " since_run=0 next_run=0"...)
	line = appendNumber(line, " elapsed=", int64(e.Seconds))
	line = appendNumber(line, " examined=", int64(n.Seen))
	h.tell(streamSysEvents, appendNumber(line, " reclaimed=", int64(n.Reclaimed)))
}

// tell makes a record of a line of stream s, if that is watched. Of a long one
// it is the beginning.
func (h *watch) tell(s stream, line []byte) {
	if !h.wants(s) {
		return
	}
	rec := record{
		kind:    lineText,
		streamI: uint8(bits.TrailingZeros32(uint32(s))),
		text:    line[:min(len(line), recordTextMax)],
	}
	h.common().put(&rec, &h.serial)
}

// tellNew tells that ci is open.
func (h *watch) tellNew(ci *connInfo) {
	if !h.wants(streamConnEvents) {
		return
	}
	line := ci.appendPeer([]byte("type=conn_new"))
	h.tell(streamConnEvents, appendNumber(line, " cfd=", int64(ci.number)))
}

// tellClose tells that ci has ended, and why.
func (h *watch) tellClose(ci *connInfo) {
	if !h.wants(streamConnEvents) {
		return
	}
	line := ci.appendPeer([]byte("type=conn_close"))
	line = append(append(line, " reason="...), ci.reason.String()...)
	h.tell(streamConnEvents, appendNumber(line, " cfd=", int64(ci.number)))
}

// tellTLS tells that TLS has failed on a connection.
func (h *watch) tellTLS(number int, err error) {
	if !h.wants(streamConnEvents) {
		return
	}
	line := appendNumber([]byte("type=conntlserr"), " fd=", int64(number))
	h.tell(streamConnEvents, append(append(line, " msg="...), err.Error()...))
}

// appendPeer appends where ci comes from.
func (ci *connInfo) appendPeer(b []byte) []byte {
	if ci.listener.transport == transportUnix {
		return append(b, " rip=unix rport=0 transport=local"...)
	}
	b = append(b, " rip="...)
	b = ci.remote.Addr().AppendTo(b)
	b = appendNumber(b, " rport=", int64(ci.remote.Port()))
	return append(b, " transport=tcp"...)
}
