package server

import (
	"strconv"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// arith answers incr, decr and ma, and the packets incr and decr.
func (s *session) arith(w *worker) {
	r := &w.req
	o := store.ArithOptions{
		Decr:         r.Decr,
		Vivify:       r.Has.Has('N'),
		Touch:        r.Has.Has('T'),
		Compare:      r.Has.Has('C'),
		HasNewCAS:    r.Has.Has('E'),
		Expiry:       store.Expiry(int64(r.TTL), w.now),
		VivifyExpiry: store.Expiry(int64(r.VivifyTTL), w.now),
		Delta:        r.Delta,
		Initial:      r.Initial,
		CompareCAS:   r.CompareCAS,
		NewCAS:       r.NewCAS,
		Observer:     w.observer,
	}
	if r.Before('N', 'T') {
		o.VivifyExpiry = o.Expiry // the last one counts
	}
	if st := s.srv.store.Arith(w.keyOf(r.Key), &o, w.now, (*numberShower)(w)); st != store.OK {
		w.answer(r, st, nil)
	}
}

// numberShower shows the new number to incr, decr and ma.
type numberShower worker

// VisitItem appends the reply.
func (v *numberShower) VisitItem(it *store.Item) {
	w := (*worker)(v)
	r := &w.req
	if r.Quiet {
		return
	}
	switch {
	case r.Packet:
		w.out.buf = r.AppendPacketNumber(w.out.buf, it.Number, it.CAS)
		return
	case r.Verb != meta.VerbMetaArith:
		w.out.buf = append(strconv.AppendUint(w.out.buf, it.Number, 10), "\r\n"...)
		return
	}
	item := w.itemFor(r, it)
	if !r.Has.Has('v') {
		w.out.buf = r.AppendMetaReply(w.out.buf, meta.CodeHD, &item)
		return
	}
	var digits [20]byte
	number := strconv.AppendUint(digits[:0], it.Number, 10)
	item.Size = len(number)
	w.out.buf = r.AppendMetaReply(w.out.buf, meta.CodeVA, &item)
	w.out.buf = append(append(w.out.buf, number...), "\r\n"...)
}
