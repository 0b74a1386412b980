package server

import (
	"bytes"

	"github.com/quarrycache/quarry/meta"
)

// packetStats answers the packet stat: a packet for each statistic, and an
// empty one. It knows fewer words than the command stats, and no short forms
// of them; some may have anything behind them.
func (s *session) packetStats(w *worker) {
	r := &w.req
	w.publish(s.srv) // what this batch counted so far is to be seen
	word := r.Key
	var lines []byte
	switch {
	case len(word) == 0:
		lines = s.srv.appendStats(nil, s.srv.snapshot(w.now))
	case bytes.HasPrefix(word, []byte("reset")):
		s.srv.resetStats()
	case bytes.HasPrefix(word, []byte("settings")):
		lines = s.srv.appendSettings(nil)
	case bytes.HasPrefix(word, []byte("detail")):
		s.packetDetail(w, word[len("detail"):])
		return
	case string(word) == "items":
		lines = s.srv.appendItemStats(nil, s.srv.snapshot(w.now))
	case string(word) == "slabs":
		lines = s.srv.appendSlabStats(nil, s.srv.snapshot(w.now))
	case string(word) == "memory":
		lines = s.srv.appendMemoryStats(nil, s.srv.snapshot(w.now))
	case string(word) == "sizes":
		lines = s.srv.appendSizeStats(nil)
	case string(word) == "tenants" && s.srv.cfg.TenantDelimiter != 0:
		lines = s.srv.appendTenantStats(nil)
	default:
		w.out.buf = r.AppendPacketStatus(w.out.buf, meta.PacketNotFound)
		return
	}
	w.out.buf = r.AppendPacketStats(w.out.buf, lines)
}

// packetDetail answers the packet stat detail: word is what stands behind
// detail.
func (s *session) packetDetail(w *worker, word []byte) {
	r := &w.req
	prefixes := &s.srv.prefixes
	switch {
	case s.srv.cfg.NoDump:
		w.fail(r, meta.ErrStatsDetailNotAllow)
		return
	case bytes.HasPrefix(word, []byte(" dump")):
		w.out.buf = r.AppendPacketStat(w.out.buf, []byte("detailed"), prefixes.appendTo(nil))
	case bytes.HasPrefix(word, []byte(" on")):
		prefixes.on.Store(true)
	case bytes.HasPrefix(word, []byte(" off")):
		prefixes.on.Store(false)
	default:
		w.fail(r, meta.ErrStatsDetailUsage)
		return
	}
	w.out.buf = r.AppendPacketStats(w.out.buf, nil)
}
