package server

import (
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// delete answers delete, md and the packet delete.
func (s *session) delete(w *worker) {
	r := &w.req
	if r.Verb == meta.VerbDelete && s.srv.prefixes.on.Load() {
		s.srv.prefixes.delete(r.Key)
	}
	if r.Has&freshDelete != 0 {
		s.notice(w)
		return
	}
	o := store.DeleteOptions{
		Compare:     r.Has.Has('C'),
		Invalidate:  r.Has.Has('I'),
		RemoveValue: r.Has.Has('x'),
		CompareCAS:  r.CompareCAS,
		Observer:    w.observer,
	}
	if o.Invalidate || o.RemoveValue { // else the item is gone
		o.Touch, o.Expiry = r.Has.Has('T'), store.Expiry(int64(r.TTL), w.now)
		o.HasNewCAS, o.NewCAS = r.Has.Has('E'), r.NewCAS
		o.Flags = r.ClientFlags
	}
	st := s.srv.store.Delete(w.keyOf(r.Key), &o, w.now)
	w.answer(r, st, nil)
}
