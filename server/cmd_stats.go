package server

import (
	"github.com/quarrycache/quarry/meta"
)

// stats answers stats and its sub-commands. Most of their words may be
// abbreviated, and the order of the cases decides between them.
func (s *session) stats(w *worker) {
	r := &w.req
	w.publish(s.srv) // what this batch counted so far is to be seen
	if r.NArgs < 2 {
		w.out.buf = s.srv.appendStats(w.out.buf, s.srv.snapshot(w.now))
		return
	}
	switch word := r.Args[1]; {
	case abbreviates(word, "reset"):
		s.srv.resetStats()
		w.out.buf = meta.CodeReset.AppendTo(w.out.buf)
	case abbreviates(word, "detail"):
		if s.srv.cfg.NoDump {
			w.fail(r, meta.ErrStatsDetailNotAllow)
			return
		}
		s.statsDetail(w)
	case abbreviates(word, "settings"):
		w.out.buf = s.srv.appendSettings(w.out.buf)
	case abbreviates(word, "cachedump"):
		s.startCachedump(w)
	case abbreviates(word, "conns"):
		w.out.buf = s.srv.appendConnStats(w.out.buf, s.conn, w.now)
	case string(word) == "items":
		w.out.buf = s.srv.appendItemStats(w.out.buf, s.srv.snapshot(w.now))
	case string(word) == "slabs":
		w.out.buf = s.srv.appendSlabStats(w.out.buf, s.srv.snapshot(w.now))
	case string(word) == "memory":
		w.out.buf = s.srv.appendMemoryStats(w.out.buf, s.srv.snapshot(w.now))
	case string(word) == "freshness":
		w.out.buf = s.srv.appendFreshStats(w.out.buf, s.srv.snapshot(w.now))
	case string(word) == "sizes":
		w.out.buf = s.srv.appendSizeStats(w.out.buf)
	case string(word) == "tenants" && s.srv.cfg.TenantDelimiter != 0:
		w.out.buf = s.srv.appendTenantStats(w.out.buf)
	case string(word) == "hotkeys":
		w.out.buf = s.srv.appendHotKeys(w.out.buf)
	case string(word) == "stalls" && s.srv.stalls != nil:
		w.out.buf = s.srv.appendStalls(w.out.buf)
	case string(word) == "cluster" && s.srv.node != nil:
		w.out.buf = s.srv.appendClusterStats(w.out.buf)
	default:
		w.fail(r, meta.ErrUnknown)
	}
}

// statsDetail answers stats detail: the counts of key prefixes.
func (s *session) statsDetail(w *worker) {
	r := &w.req
	prefixes := &s.srv.prefixes
	var word []byte
	if r.NArgs > 2 {
		word = r.Args[2]
	}
	switch {
	case abbreviates(word, "on"):
		prefixes.on.Store(true)
		w.ok()
	case abbreviates(word, "off"):
		prefixes.on.Store(false)
		w.ok()
	case abbreviates(word, "dump"):
		w.out.buf = prefixes.appendTo(w.out.buf)
	default:
		w.fail(r, meta.ErrStatsDetailUsage)
	}
}
