package server

import (
	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
)

// routed says what is to become of a request for a key.
type routed uint8

const (
	routeHere  routed = iota // this node answers it
	routeMoved               // the client is told where the key is
	routeRelay               // the owner is asked for it
	routeWait                // the same, but where the session may wait
)

// routeOf decides about r, whose key is given. v is the map by which, and b the
// bucket.
func (s *session) routeOf(w *worker, r *meta.Request, key []byte) (v *view, b int, to routed) {
	n := s.srv.node
	v = n.now.Load()
	if v == nil {
		return nil, 0, routeHere // as long as there is no map, this is one server
	}
	b = bucket.Of(key)
	t := &r.Route
	if t.Known && t.Epoch > uint64(v.m.Epoch) {
		n.hint(t.Epoch)
	}
	switch role := v.roles[b]; {
	case role == roleOwner:
		if t.Copy && t.Numbered {
			return v, b, routeMoved // it is told as a copy: by whoever owns the bucket by another map
		}
		return v, b, routeHere
	case t.Known && t.Copy && role == roleCopy && r.Op == meta.OpGet:
		n.copyReads.Add(1)
		t.AsCopy = true
		return v, b, routeHere
	case t.Known && t.Copy && t.Numbered && role == roleCopy && (r.Op == meta.OpSet || r.Op == meta.OpDelete):
		if t.Epoch < uint64(v.m.Buckets[b].Since) {
			return v, b, routeMoved // whoever says it is the owner no more
		}
		n.copies.received(b, t)
		t.AsCopy = true
		return v, b, routeHere
	case t.Known && t.Copy && role == roleCopy && r.Op == meta.OpDelete && r.Has.Has('Y'):
		// A notice of a client's, which need not wait for the owner's stream: it
		// raises a floor, and that is right whoever says it.
		return v, b, routeHere
	case t.Known:
		return v, b, routeMoved
	}
	switch n.cfg.Misrouted {
	case MisroutedLocal:
		return v, b, routeHere
	case MisroutedRefuse:
		return v, b, routeMoved
	}
	switch {
	case s.conn.overUDP(): // a datagram is answered at once, or not
		return v, b, routeMoved
	case !w.mayWait:
		return v, b, routeWait
	}
	return v, b, routeRelay
}

// route takes a request with one key elsewhere, if it belongs there. rest is
// the input behind its line or head. done says that it is answered, or will be
// when the output is written; used is what was taken of rest then.
func (s *session) route(w *worker, rest []byte) (used int, done bool) {
	r := &w.req
	v, b, to := s.routeOf(w, r, r.Key)
	switch to {
	case routeHere:
		t := &r.Route
		if v == nil || !t.Known {
			return 0, false
		}
		if t.Epoch < uint64(v.m.Epoch) {
			t.Newer = uint64(v.m.Epoch)
		}
		if r.Op == meta.OpGet {
			t.Copies = s.srv.hot.hint(r.Key)
		}
		if len(v.m.Splits) > 0 && r.ChangesPlain() {
			if _, split := v.m.SplitOf(r.Key); split {
				return s.refuseSplit(w), true
			}
		}
		return 0, false
	case routeMoved:
		s.srv.node.moved.Add(1)
		s.answerMoved(w, v, b)
		if r.Op == meta.OpSet {
			s.skipBytes(r.ValueLen + r.BlockTail())
		}
		return 0, true
	case routeWait:
		s.phase = phaseRelay
		return 0, true
	}
	return s.relay(w, v, b, rest), true
}

// refuseSplit answers a client that knows the map and would write to a key that
// is split, where no reader looks.
func (s *session) refuseSplit(w *worker) (used int) {
	r := &w.req
	s.srv.node.splitRefused.Add(1)
	w.fail(r, meta.ErrSplit)
	if r.Op == meta.OpSet {
		s.skipBytes(r.ValueLen + r.BlockTail())
	}
	return 0
}

// answerMoved tells where a key is. A client that knows no map is not told
// where: it would not know what to do with it.
func (s *session) answerMoved(w *worker, v *view, b int) {
	r := &w.req
	if !r.Route.Known {
		w.fail(r, meta.ErrNotOwner)
		return
	}
	w.out.buf = r.AppendMoved(w.out.buf, &meta.Moved{Epoch: uint64(v.m.Epoch), Bucket: b, Addr: v.m.OwnerOf(b).Addr})
}

// legacyConfig answers a key that is none: what older auto-discovery clients
// ask for the node list with.
func (s *session) legacyConfig(w *worker, key []byte) bool {
	v := s.srv.node.now.Load()
	if v == nil || string(key) != legacyKey {
		return false
	}
	w.out.buf = meta.AppendValueHeader(w.out.buf, key, 0, len(v.legacy))
	w.out.buf = append(append(w.out.buf, v.legacy...), "\r\n"...)
	return true
}

// routeKey is route for a key of a get line.
func (s *session) routeKey(w *worker, key []byte) routed {
	r := &w.req
	r.Route = meta.Route{} // the request may be that of another batch
	v, b, to := s.routeOf(w, r, key)
	if to == routeRelay {
		s.relayKey(w, v, b, key)
	}
	return to
}
