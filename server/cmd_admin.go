package server

import (
	"bytes"
	"errors"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// Version is the version that clients are told: that of the memcached whose
// surface this server has.
const Version = "1.6.45"

// verbosityMax is the highest level. Source: memcached's MAX_VERBOSITY_LEVEL.
const verbosityMax = 2

// admin answers the commands without a key. Those of memcached that Quarry
// does not have are unknown commands.
func (s *session) admin(w *worker) {
	r := &w.req
	switch r.Op {
	case meta.OpQuit, meta.OpWatch, meta.OpCrawler:
		if s.conn.overUDP() { // there is no connection to close, nor to write to later
			w.fail(r, meta.ErrUnknown)
			return
		}
	}
	switch r.Op {
	case meta.OpNoop:
		w.out.buf = meta.CodeMN.AppendTo(w.out.buf)
	case meta.OpVersion:
		w.out.buf = append(w.out.buf, "VERSION "+Version+"\r\n"...)
	case meta.OpVerbosity:
		s.srv.verbosity.Store(int32(min(r.Delta, verbosityMax)))
		w.ok()
	case meta.OpQuit:
		s.close(closeNormal)
	case meta.OpFlushAll:
		s.flushAll(w)
	case meta.OpStats:
		s.stats(w)
	case meta.OpShutdown:
		s.shutdown(w)
	case meta.OpCacheMemlimit:
		s.memlimit(w)
	case meta.OpSlabs:
		s.slabs(w)
	case meta.OpConfig:
		s.configCommand(w)
	case meta.OpRefreshCerts:
		s.refreshCerts(w)
	case meta.OpLRU:
		s.lruCommand(w)
	case meta.OpCrawler:
		s.crawlerCommand(w)
	case meta.OpDebugTime:
		s.debugTime(w)
	case meta.OpDebugItem:
		s.debugItem(w)
	case meta.OpWatch:
		s.startWatch(w)
	default:
		w.fail(r, meta.ErrUnknown)
	}
}

// flushAll answers flush_all: all items stored so far are gone, now or when
// the moment has come.
func (s *session) flushAll(w *worker) {
	r := &w.req
	if !r.Packet || !s.srv.cfg.FlushDisabled { // as memcached, which counts at different moments
		w.n.flushes++
	}
	if s.srv.cfg.FlushDisabled {
		w.fail(r, meta.ErrFlushNotAllowed)
		return
	}
	at := w.now.Seconds()
	if r.TTL > 0 {
		at = store.Expiry(int64(r.TTL), w.now)
	}
	s.srv.store.FlushAll(at, w.now)
	s.srv.flushedAt.Store(at)
	w.ok()
}

// shutdown answers shutdown: the connection is closed, and the server ends. What
// graceful adds is that the items outlive it, with -e.
func (s *session) shutdown(w *worker) {
	r := &w.req
	if !s.srv.cfg.EnableShutdown {
		w.fail(r, meta.ErrShutdownNotEnabled)
		return
	}
	graceful := r.NArgs == 2 && abbreviates(r.Args[1], "graceful")
	if r.NArgs > 1 && !graceful {
		w.fail(r, meta.ErrShutdownMode)
		return
	}
	s.close(closeShutdown)
	s.srv.askShutdown(graceful)
}

// refreshCerts answers refresh_certs: OK, or what is wrong with the new files.
func (s *session) refreshCerts(w *worker) {
	err := s.srv.RefreshCerts()
	if err == nil {
		w.ok()
		return
	}
	text := err.Error()
	var ce *ConfigError
	if errors.As(err, &ce) {
		text = ce.Line
	}
	w.out.buf = append(append(w.out.buf, text...), "\r\n"...)
}

// abbreviates reports whether word is name or a beginning of it: memcached
// compares most words behind a command no further than they go.
func abbreviates(word []byte, name string) bool {
	return len(word) > 0 && bytes.HasPrefix([]byte(name), word)
}
