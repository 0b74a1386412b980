package server

import "github.com/quarrycache/quarry/meta"

// startWatch answers watch: from now on the connection is told what happens,
// and asks for nothing any more.
func (s *session) startWatch(w *worker) {
	r := &w.req
	if s.srv.cfg.NoWatch {
		w.fail(r, meta.ErrWatchNotAllowed)
		return
	}
	if w.out.pending() > 0 {
		w.fail(r, meta.ErrWatchPipelined)
		return
	}
	streams := streamFetchers
	if r.NArgs > 1 {
		streams = 0
	}
	for _, word := range r.Args[1:max(r.NArgs, 1)] {
		one := streamOf(word)
		if one == 0 {
			w.fail(r, meta.ErrUnknown)
			return
		}
		streams |= one
	}
	if s.watcher = s.srv.watch.add(s.conn, streams); s.watcher == nil {
		w.fail(r, meta.ErrWatchersMax)
		return
	}
	s.phase = phaseWatch
}

// streamOf is the stream with that name, 0 if there is none.
func streamOf(word []byte) stream {
	for i, name := range streamNames {
		if abbreviates(word, name) {
			return 1 << i
		}
	}
	return 0
}
