package server

import (
	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// copyMaxBytes is the largest value that is copied into the output when there
// are too many pinned bytes already. A larger one is not sent then.
const copyMaxBytes = 1 << 20

// get answers one key of get, gets, gat or gats: nothing on a miss. It is
// false when there was no room for the answer.
func (s *session) get(w *worker, key []byte) bool {
	var o store.GetOptions
	o.Touch, o.Expiry = s.has.Has('T'), s.expiry
	o.NoWin = true
	o.Observer = w.observer
	w.noRoom = false
	st := w.read(s.srv.store, key, &o, (*valueShower)(w))
	if s.srv.prefixes.on.Load() {
		s.srv.prefixes.get(key, st == store.OK)
	}
	return !w.noRoom
}

// A value that is pinned is not read without the lock: what is read so may be
// shown twice, and the first time is undone by cutting the buffer short.
var _ [pinMinBytes - store.AlongMaxBytes - 1]struct{}

// read reads the item with key. v begins its reply at w.mark, anew each time
// that it is called.
func (w *worker) read(from *store.Store, key []byte, o *store.GetOptions, v store.Visitor) store.Status {
	w.mark = len(w.out.buf)
	o.Reader = w.reader
	st := from.Get(w.keyOf(key), o, w.now, v)
	if st != store.OK {
		w.out.buf = w.out.buf[:w.mark] // what was read without the lock, and was no longer so
	}
	return st
}

// valueShower shows an item to get, gets, gat and gats.
type valueShower worker

// VisitItem appends the item's line and value.
func (v *valueShower) VisitItem(it *store.Item) {
	w := (*worker)(v)
	mark := w.mark
	w.out.buf = w.out.buf[:mark]
	if w.req.Has.Has('c') {
		w.out.buf = meta.AppendValueHeaderCAS(w.out.buf, it.Key, it.Flags, it.Size, it.CAS)
	} else {
		w.out.buf = meta.AppendValueHeader(w.out.buf, it.Key, it.Flags, it.Size)
	}
	w.appendValue(it, mark)
}

// appendValue puts the value of it and a line end behind its line, or takes
// that line back, to mark, when there is no room.
func (w *worker) appendValue(it *store.Item, mark int) {
	if it.Size < pinMinBytes {
		w.out.buf = append(it.AppendValue(w.out.buf), "\r\n"...)
		return
	}
	if w.appendLarge(it, mark) {
		w.out.buf = append(w.out.buf, "\r\n"...)
	}
}

// appendLarge puts a value that is worth a pin behind its header, or takes that
// back, to mark, when there is no room.
func (w *worker) appendLarge(it *store.Item, mark int) bool {
	if pin, ok := it.Pin(); ok {
		w.out.addPin(pin)
		return true
	}
	if it.Size > copyMaxBytes {
		w.out.buf = w.out.buf[:mark]
		w.noRoom = true
		return false
	}
	w.out.buf = it.AppendValue(w.out.buf)
	return true
}

// touch answers touch.
func (s *session) touch(w *worker) {
	r := &w.req
	o := store.GetOptions{
		Touch: true, NoWin: true, Expiry: store.Expiry(int64(r.TTL), w.now),
		Observer: w.observer,
	}
	st := s.srv.store.Get(w.keyOf(r.Key), &o, w.now, nil)
	w.answer(r, st, nil)
}

// metaGet answers mg.
func (s *session) metaGet(w *worker) {
	r := &w.req
	o := store.GetOptions{NoBump: r.Has.Has('u'), NoWin: r.Route.Plain, Observer: w.observer}
	if r.Has&metaGetRare != 0 {
		rareOptions(&o, r, w.now)
	}
	if r.Has&freshGet != 0 {
		o.Ask = w.ask(r)
		if n := s.srv.node; n != nil {
			o.Ask.NoGrant = r.Route.AsCopy || !n.grantsFor(bucket.Of(r.Key))
		}
	}
	w.noRoom = false
	st := w.read(s.srv.store, r.Key, &o, (*metaShower)(w))
	switch {
	case st != store.OK && o.Ask != nil:
		w.lookedUp(r)
	case st != store.OK:
		w.answer(r, st, nil)
	case w.noRoom:
		w.fail(r, meta.ErrGetNoMemory)
	}
}

// metaGetRare are the flags of mg that change the item.
const metaGetRare = meta.Letters(1<<('T'-'A') | 1<<('N'-'A') | 1<<('R'-'A') | 1<<('E'-'A'))

// rareOptions puts the flags of metaGetRare into o.
func rareOptions(o *store.GetOptions, r *meta.Request, now store.Time) {
	o.Touch, o.Expiry = r.Has.Has('T'), store.Expiry(int64(r.TTL), now)
	o.Vivify, o.VivifyExpiry = r.Has.Has('N'), store.Expiry(int64(r.VivifyTTL), now)
	o.Recache, o.RecacheBefore = r.Has.Has('R'), store.Expiry(int64(r.RecacheTTL), now)
	o.RecacheFirst = r.Before('R', 'T')
	o.HasNewCAS, o.NewCAS = r.Has.Has('E'), r.NewCAS
	if r.Before('N', 'T') {
		o.VivifyExpiry = o.Expiry // the last one counts
	}
}

// metaShower shows an item to mg.
type metaShower worker

// VisitItem appends the reply, and the value unless it was not asked for or
// the caller has it.
func (v *metaShower) VisitItem(it *store.Item) {
	w := (*worker)(v)
	r := &w.req
	mark := w.mark
	w.out.buf = w.out.buf[:mark]
	item := w.itemFor(r, it)
	code := meta.CodeVA
	if !r.Has.Has('v') || r.Has.Has('C') && it.CAS == r.CompareCAS {
		code = meta.CodeHD
	}
	if r.Has&freshGet != 0 {
		a := w.askAnswer(false)
		w.out.buf = r.AppendFreshReply(w.out.buf, code, &item, &a)
	} else {
		w.out.buf = r.AppendMetaReply(w.out.buf, code, &item)
	}
	if code == meta.CodeHD {
		return
	}
	w.appendValue(it, mark)
}

// debug answers me.
func (s *session) debug(w *worker) {
	w.n.metas++
	if st := s.srv.store.PeekObserved(store.KeyOf(w.req.Key), w.now, (*debugShower)(w), w.observer); st != store.OK {
		w.answer(&w.req, st, nil)
	}
}

// debugShower shows an item to me.
type debugShower worker

// VisitItem appends what me tells.
func (v *debugShower) VisitItem(it *store.Item) {
	w := (*worker)(v)
	item := w.itemFor(&w.req, it)
	w.out.buf = meta.AppendDebug(w.out.buf, it.Key, &item)
}

// itemFor is it as r is told of it.
func (w *worker) itemFor(r *meta.Request, it *store.Item) meta.Item {
	item := meta.Item{
		CAS:         it.CAS,
		ClientFlags: it.Flags,
		Size:        it.Size,
		TTL:         it.TTL,
		LastAccess:  it.LastAccess,
		HitBefore:   it.HitBefore,
		Won:         it.Won,
		Stale:       it.Stale,
		WinSent:     it.WinSent,
		Binary:      it.Binary,
		Number:      it.Number,
		Class:       it.Class,
		Footprint:   it.Footprint,
		Expiry:      it.TTL,
	}
	if f := it.Fresh; f != nil {
		w.freshness = meta.ItemFreshness{
			Version:   f.Version,
			Floor:     f.Floor,
			Deadlines: meta.Deadlines{Hard: uint64(f.Hard), Soft: uint64(f.Soft), Read: uint64(f.Read)},
			Absent:    f.Absent,
		}
		item.Fresh = &w.freshness
	}
	// Flags work in their order: t tells what was so when its turn came.
	switch {
	case it.Vivified && r.Has.Has('t'):
		item.TTL = vivifiedTTL(r, w.now)
	case r.Before('t', 'T'):
		item.TTL = it.OldTTL
	}
	return item
}

// vivifiedTTL is what t tells of an item that r made.
func vivifiedTTL(r *meta.Request, now store.Time) int64 {
	expiry := uint32(0)
	for _, c := range r.Flags[:r.NFlags] {
		switch c {
		case 'N':
			expiry = store.Expiry(int64(r.VivifyTTL), now)
		case 'T':
			expiry = store.Expiry(int64(r.TTL), now)
		case 't':
			if expiry == 0 {
				return -1
			}
			return int64(expiry) - int64(now.Seconds())
		}
	}
	return -1
}
