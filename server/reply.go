package server

import (
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// answer answers r, whose outcome is st: its code, classic word or status, or
// its error. What noreply and q hide is hidden here. Only the replies that an
// item's value or number belongs to come from elsewhere. it may be nil except
// for an ms or a packet that has stored something.
func (w *worker) answer(r *meta.Request, st store.Status, it *meta.Item) {
	if e := errorOf(r, st); e != meta.ErrNone {
		w.fail(r, e)
		return
	}
	if r.Packet {
		w.answerPacket(r, st, it)
		return
	}
	if r.Verb.Meta() {
		code := metaCode(r, st)
		if !r.Quiet || code != meta.CodeHD && code != meta.CodeEN {
			w.out.buf = r.AppendMetaReply(w.out.buf, code, it)
		}
		return
	}
	if !r.Quiet {
		w.out.buf = classicCode(r, st).AppendTo(w.out.buf)
	}
}

// fail answers e, unless r hides its errors: noreply does, q does not.
func (w *worker) fail(r *meta.Request, e meta.Error) {
	switch {
	case r.Packet: // a quiet opcode hides no error either
		w.out.buf = r.AppendPacketError(w.out.buf, e)
	case !r.HideErrors:
		w.out.buf = e.AppendTo(w.out.buf)
	}
}

// ok answers OK to a request without a key.
func (w *worker) ok() {
	switch {
	case w.req.Quiet:
	case w.req.Packet:
		w.out.buf = w.req.AppendPacketOK(w.out.buf, 0)
	default:
		w.out.buf = meta.CodeOK.AppendTo(w.out.buf)
	}
}

// errorOf is the error line of an outcome, if it has one.
func errorOf(r *meta.Request, st store.Status) meta.Error {
	switch st {
	case store.OK, store.Miss, store.NotStored, store.Exists:
		return meta.ErrNone
	case store.NonNumeric:
		return meta.ErrNonNumeric
	}
	switch {
	case r.Op == meta.OpArith && r.Has.Has('N'):
		return meta.ErrNewItemNoMemory
	case r.Op != meta.OpSet: // memcached tells no more there
		return meta.ErrNoMemory
	case st == store.TooLarge:
		return meta.ErrTooLarge
	case st == store.ReadNoMemory:
		return meta.ErrReadNoMemory
	}
	return meta.ErrStoreNoMemory
}

// metaCode is the code of an outcome that is no error.
func metaCode(r *meta.Request, st store.Status) meta.Code {
	switch st {
	case store.OK:
		return meta.CodeHD
	case store.NotStored:
		return meta.CodeNS
	case store.Exists:
		return meta.CodeEX
	}
	if r.Op == meta.OpGet || r.Op == meta.OpDebug {
		return meta.CodeEN
	}
	return meta.CodeNF
}

// classicCode is the classic word for an outcome that is no error.
func classicCode(r *meta.Request, st store.Status) meta.Code {
	switch st {
	case store.Miss:
		return meta.CodeNotFound
	case store.NotStored:
		return meta.CodeNotStored
	case store.Exists:
		return meta.CodeExists
	}
	switch r.Op {
	case meta.OpGet:
		return meta.CodeTouched
	case meta.OpDelete:
		return meta.CodeDeleted
	}
	return meta.CodeStored
}
