package server

import (
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// Packets: the requests of the binary protocol. A session speaks it from its
// first byte to its end, or never. A packet is executed as soon as its head is
// there; the value of a set goes into its chunks as it arrives, as that of a
// set line does. What is kept of a broken head is no longer than authHeadMax.

// start takes the first byte of a connection, which chooses its protocol.
func (s *session) start(first byte) {
	if first == meta.PacketMagic {
		s.home = phasePacket
	}
	s.phase = s.home
}

// readPacket takes a packet, or what is there of it, and returns the bytes of
// in that were taken, those of its value included.
func (s *session) readPacket(w *worker, in []byte) (n int) {
	head := in
	if s.line != nil || len(in) < meta.PacketHeaderBytes {
		n = s.keepHead(in, meta.PacketHeaderBytes)
		if head = *s.line; len(head) < meta.PacketHeaderBytes {
			return n
		}
	}
	r := &w.req
	size, e := r.ParsePacket(head)
	e = s.guard(r, e)
	if e.Closes() {
		return n + s.badPacket(head, size, in[n:], e)
	}
	for whole := false; ; whole = true {
		if len(head) < size {
			n += s.keepHead(in[n:], size)
			if head = *s.line; len(head) < size {
				return n
			}
			r.ParsePacket(head)
		}
		if whole || !s.authIsWhole(r, e) {
			break
		}
		size += r.ValueLen
	}
	if s.line == nil {
		n = size
	}
	w.n.requests++
	n += s.packet(w, e, head[:size], in[n:])
	if s.phase == phaseRelay {
		if s.line == nil {
			s.keepHead(head[:size], size)
		}
		return n
	}
	if s.phase != phaseAuth {
		s.dropLine()
	}
	return n
}

// keepHead keeps the head of a packet, up to size bytes of it, and returns the
// bytes of in that were taken.
func (s *session) keepHead(in []byte, size int) (n int) {
	if s.line == nil {
		s.line, s.at = linePool.Get().(*[]byte), 0
	}
	n = min(len(in), max(size-len(*s.line), 0))
	*s.line = append(*s.line, in[:n]...)
	return n
}

// badPacket ends the connection for e, whose reply is due when the head of
// size bytes has come. head is what is there of it, kept or at the start of
// in. It returns the bytes of in that were taken.
func (s *session) badPacket(head []byte, size int, in []byte, e meta.Error) (n int) {
	if e == meta.ErrPacketMagic {
		s.dropLine()
		s.close(closeError)
		return 0
	}
	if s.line == nil {
		n = s.keepHead(in, meta.PacketHeaderBytes)
	}
	s.phase, s.after = phaseBadPacket, e
	s.skip = size - len(*s.line)
	return n
}

// failPacket answers a packet that closes the connection.
func (s *session) failPacket(w *worker) {
	w.req.ParsePacket(*s.line)
	w.fail(&w.req, s.after)
	s.dropLine()
	s.close(closeError)
}

// packet executes the packet in w.req, or answers e to it. head is the whole
// of it but for a value; the value, as far as it is there, begins rest. It
// returns the bytes of rest that were taken.
func (s *session) packet(w *worker, e meta.Error, head, rest []byte) (n int) {
	r := &w.req
	if e != meta.ErrNone {
		w.fail(r, e)
		s.skipBytes(r.Swallow)
		return 0
	}
	if s.srv.node != nil && len(r.Key) > 0 {
		if used, done := s.route(w, rest); done {
			return used
		}
	}
	if len(r.Key) > 0 {
		w.sampleKey(r.Key, r.Op != meta.OpGet)
	}
	switch r.Op {
	case meta.OpGet:
		s.packetGet(w)
	case meta.OpSet:
		return s.storePacket(w, rest)
	case meta.OpDelete:
		s.delete(w)
	case meta.OpArith:
		s.arith(w)
	case meta.OpNoop:
		w.out.buf = r.AppendPacketOK(w.out.buf, 0)
	case meta.OpVersion:
		w.out.buf = r.AppendPacketText(w.out.buf, meta.PacketOK, Version)
	case meta.OpQuit:
		w.ok()
		s.close(closeNormal)
	case meta.OpFlushAll:
		s.flushAll(w)
	case meta.OpStats:
		s.packetStats(w)
	case meta.OpAuthList:
		s.authList(w)
	case meta.OpAuthStart, meta.OpAuthStep:
		s.auth(w, head)
	}
	return 0
}

// packetGet answers get, getk, touch, gat, gatk and their quiet forms.
func (s *session) packetGet(w *worker) {
	r := &w.req
	var o store.GetOptions
	o.NoWin = true
	o.Observer = w.observer
	if r.Has.Has('T') {
		o.Touch, o.Expiry = true, store.Expiry(r.TTL, w.now)
	}
	w.noRoom = false
	st := s.srv.store.Get(w.keyOf(r.Key), &o, w.now, (*packetShower)(w))
	switch {
	case st != store.OK:
		w.answer(r, st, nil)
	case w.noRoom:
		w.fail(r, meta.ErrGetNoMemory)
	}
	if s.srv.prefixes.on.Load() {
		s.srv.prefixes.get(r.Key, st == store.OK)
	}
}

// packetShower shows an item to a packet that gets or touches it.
type packetShower worker

// VisitItem appends the reply.
func (v *packetShower) VisitItem(it *store.Item) {
	w := (*worker)(v)
	r := &w.req
	mark := len(w.out.buf)
	item := meta.Item{CAS: it.CAS, ClientFlags: it.Flags, Size: it.Size}
	w.out.buf = r.AppendPacketHit(w.out.buf, &item)
	switch {
	case !r.Has.Has('v'):
	case it.Size >= pinMinBytes:
		w.appendLarge(it, mark)
	default:
		w.out.buf = it.AppendValue(w.out.buf)
	}
}

// storePacket stores the value of w.req, as far as it is in in, and returns
// the bytes taken.
func (s *session) storePacket(w *worker, in []byte) (n int) {
	r := &w.req
	if r.Has.Has('C') {
		switch {
		case s.srv.cfg.NoCAS: // memcached has no place for it then
			r.Has &^= meta.Letter('C')
		case r.Mode == meta.ModeAdd: // with a CAS it is a cas, as a set is
			r.Mode = meta.ModeSet
		}
	}
	if s.srv.prefixes.on.Load() {
		s.srv.prefixes.set(r.Key)
	}
	var o store.SetOptions
	setOptions(&o, r, w.now)
	o.Observer = w.observer
	if n = r.ValueLen; len(in) >= n {
		w.stored(r, s.srv.store.Set(w.keyOf(r.Key), in[:n], &o, w.now))
		return n
	}
	s.beginBlock(w, &o)
	return 0
}

// answerPacket is answer for packets.
func (w *worker) answerPacket(r *meta.Request, st store.Status, it *meta.Item) {
	status := meta.PacketNotStored
	switch st {
	case store.OK:
		if !r.Quiet {
			cas := uint64(0)
			if it != nil {
				cas = it.CAS
			}
			w.out.buf = r.AppendPacketOK(w.out.buf, cas)
		}
		return
	case store.Miss:
		if r.Op == meta.OpGet {
			if !r.Quiet {
				w.out.buf = r.AppendPacketMiss(w.out.buf)
			}
			return
		}
		status = meta.PacketNotFound
	case store.Exists:
		status = meta.PacketExists
	case store.NotStored:
		switch r.Mode {
		case meta.ModeAdd:
			status = meta.PacketExists
		case meta.ModeReplace:
			status = meta.PacketNotFound
		}
	}
	w.out.buf = r.AppendPacketStatus(w.out.buf, status)
}
