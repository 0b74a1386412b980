package server

import (
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// command executes the request in line, which ends with its \n; rest is what
// came after it. It returns the bytes taken of both. Of rest it takes the
// data block of a set, as far as it is there. Of a get line it takes the word
// alone: the keys are read as input.
func (s *session) command(w *worker, line, rest []byte) (lineUsed, restUsed int) {
	w.n.requests++
	r := &w.req
	body := line[:len(line)-1]
	if e := r.ParseLine(body); e != meta.ErrNone {
		s.reject(w, e)
		return len(line), 0
	}
	if w.sample.on {
		w.sample.commands[classOf(r)]++
	}
	if s.srv.node != nil && len(r.Key) > 0 {
		if used, done := s.route(w, rest); done {
			return len(line), used
		}
	}
	if len(r.Key) > 0 {
		w.sampleKey(r.Key, r.Op != meta.OpGet)
	}
	switch r.Op {
	case meta.OpGet:
		switch r.Verb {
		case meta.VerbMetaGet:
			s.metaGet(w)
		case meta.VerbTouch:
			s.touch(w)
		default:
			s.startKeys(r.Has, store.Expiry(int64(r.TTL), w.now))
			return len(trimCR(body)) - len(r.Rest), 0
		}
	case meta.OpSet:
		return len(line), s.store(w, rest)
	case meta.OpDelete:
		s.delete(w)
	case meta.OpArith:
		s.arith(w)
	case meta.OpDebug:
		s.debug(w)
	default:
		s.admin(w)
	}
	return len(line), 0
}

// reject answers a line that is no good request.
func (s *session) reject(w *worker, e meta.Error) {
	r := &w.req
	if r.Op == meta.OpFlushAll {
		w.n.flushes++ // as memcached, which counts before it looks
		if s.srv.cfg.FlushDisabled {
			e = meta.ErrFlushNotAllowed
		}
	}
	if e == meta.ErrUnknown && s.conn.overUDP() {
		return // it may be an answer of another server
	}
	w.fail(r, e)
	switch {
	case e.Closes():
		s.close(closeError)
	case r.Swallow > 0:
		s.skipBytes(r.Swallow)
	}
}
