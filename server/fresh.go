package server

import (
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// Versions, deadlines and grants: what G, Y and A of meta requests become, and
// what is answered. docs/freshness.md is the contract.

// FreshConfig bounds what versions, deadlines and grants may take.
type FreshConfig = store.FreshConfig

// VersionRange bounds the minimum versions that readers ask for.
type VersionRange = store.VersionRange

// freshGet are the flags with which a lookup says more than mg.
const freshGet = meta.Letters(1<<('G'-'A') | 1<<('Y'-'A'))

// freshDelete are the flags with which md tells something of the source.
const freshDelete = freshGet

// ask is what r, an mg with G or Y, asks of the store. It is the worker's, and
// ends with the request.
func (w *worker) ask(r *meta.Request) *store.Ask {
	w.asked = store.Ask{Min: r.Fresh.Version}
	if r.Has.Has('G') {
		w.asked.MaxMillis = int64(r.Fresh.GrantMillis)
		switch r.Fresh.GrantClass {
		case meta.GrantBackground:
			w.asked.Class = store.GrantBackground
		case meta.GrantStrong:
			w.asked.Class = store.GrantStrong
		default:
			w.asked.Class = store.GrantForeground
		}
	}
	return &w.asked
}

// askAnswer is what a lookup was told, for its reply; miss says that no value
// comes with it.
func (w *worker) askAnswer(miss bool) (a meta.Answer) {
	q := &w.asked
	switch {
	case q.Granted:
		var text [store.TokenTextMax]byte
		a.Granted = true
		a.SetToken(q.Token.AppendTo(text[:0]))
		a.Waits, a.WaitMillis = true, q.LifeMillis
	case q.Waits && miss:
		a.Waits, a.WaitMillis = true, q.WaitMillis
	case q.Denied:
		a.Denied, a.DenyMillis = true, q.WaitMillis
	}
	switch {
	case q.Absent:
		a.Absent, a.HasVersion, a.Version = true, true, q.Version
	case q.Granted && miss:
		a.HasVersion, a.Version = true, q.Floor
	}
	return a
}

// lookedUp answers an mg with G or Y that found nothing to show.
func (w *worker) lookedUp(r *meta.Request) {
	if w.asked.OutOfRange {
		w.fail(r, meta.ErrVersionRange)
		return
	}
	a := w.askAnswer(true)
	if r.Quiet && !a.Tells() {
		return
	}
	item := meta.Item{Won: w.asked.Granted, WinSent: w.asked.Waits}
	w.out.buf = r.AppendFreshReply(w.out.buf, meta.CodeEN, &item, &a)
}

// fillOf is what r, an ms with Y, says of the source. It goes into f, which is
// to live as long as the set.
func fillOf(f *store.Fill, r *meta.Request) *store.Fill {
	*f = store.Fill{Version: r.Fresh.Version, Deadlines: store.Deadlines{
		Hard: store.Time(r.Fresh.Hard),
		Soft: store.Time(r.Fresh.Soft),
		Read: store.Time(r.Fresh.Read),
	}}
	if r.Has.Has('G') {
		f.HasToken = true
		t, ok := store.ParseToken(r.Fresh.Token())
		f.Token, f.BadToken = t, !ok
	}
	f.FromOwner = r.Route.AsCopy
	switch r.Mode {
	case meta.ModeRevalidate:
		f.Kind = store.FillRevalidate
	case meta.ModeAbsent:
		f.Kind = store.FillAbsent
	}
	return f
}

// refused answers r, which was refused for why.
func (w *worker) refused(r *meta.Request, why store.Reason) {
	if r.Packet {
		w.answerPacket(r, store.Refused, nil)
		return
	}
	if !r.Verb.Meta() {
		if !r.Quiet {
			w.out.buf = meta.CodeNotStored.AppendTo(w.out.buf)
		}
		return
	}
	a := meta.Answer{Reason: uint8(why)}
	w.out.buf = r.AppendFreshReply(w.out.buf, refusalCode(r, why), nil, &a)
}

// refusalCode is the code of a refusal.
func refusalCode(r *meta.Request, why store.Reason) meta.Code {
	switch why {
	case store.ReasonIncarnation, store.ReasonOwnership, store.ReasonToken, store.ReasonExpired, store.ReasonUnequal:
		return meta.CodeNF
	case store.ReasonFloor:
		if r.Has.Has('G') {
			return meta.CodeEX
		}
	}
	return meta.CodeNS
}

// notice answers md with Y or G: a notice that the source has a newer version,
// or a grant given back.
func (s *session) notice(w *worker) {
	r := &w.req
	k := w.keyOf(r.Key)
	if r.Has.Has('Y') {
		w.answer(r, s.srv.store.NoticeObserved(k, r.Fresh.Version, !r.Has.Has('I'), w.now, w.observer), nil)
		return
	}
	t, ok := store.ParseToken(r.Fresh.Token())
	if why := s.srv.store.GiveBackObserved(k, t, ok, w.now, w.observer); why != store.ReasonNone {
		w.refused(r, why)
		return
	}
	w.answer(r, store.OK, nil)
}
