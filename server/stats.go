package server

import (
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/quarrycache/quarry/server/store"
)

// The answers to stats: memcached's keys in memcached's order. What Quarry
// does not have shows as it would in a memcached where it never happened.

// statLines appends lines of statistics.
type statLines []byte

func (l *statLines) key(name string) {
	*l = append(append(*l, "STAT "...), name...)
	*l = append(*l, ' ')
}

func (l *statLines) num(name string, v uint64) {
	l.key(name)
	*l = append(strconv.AppendUint(*l, v, 10), "\r\n"...)
}

func (l *statLines) text(name, v string) {
	l.key(name)
	*l = append(append(*l, v...), "\r\n"...)
}

// fixed is a number with so many digits behind the point.
func (l *statLines) fixed(name string, v float64, digits int) {
	l.key(name)
	*l = append(strconv.AppendFloat(*l, v, 'f', digits, 64), "\r\n"...)
}

func (l *statLines) yes(name string, v bool) {
	if v {
		l.text(name, "yes")
	} else {
		l.text(name, "no")
	}
}

// flag is a switch that memcached prints as a number.
func (l *statLines) flag(name string, v bool) {
	if v {
		l.num(name, 1)
	} else {
		l.num(name, 0)
	}
}

// zeros are keys of what never happens here.
func (l *statLines) zeros(names ...string) {
	for _, name := range names {
		l.num(name, 0)
	}
}

const statsEnd = "END\r\n"

// appendStats answers stats.
func (s *Server) appendStats(dst []byte, sn *snapshot) []byte {
	st, t, n, c := &sn.store, &sn.store.Total, &sn.counters, &sn.conns

	l := statLines(dst)
	l.num("pid", uint64(sn.pid))
	l.num("uptime", s.uptimeSeconds(sn.now))
	l.num("time", uint64(sn.now.Seconds()))
	l.text("version", Version)
	l.text("libevent", eventLibrary())
	l.num("pointer_size", strconv.IntSize)
	l.seconds("rusage_user", sn.usage.Utime)
	l.seconds("rusage_system", sn.usage.Stime)
	l.num("max_connections", uint64(s.cfg.MaxConns))
	l.num("curr_connections", c.Current)
	l.num("total_connections", c.Total)
	if !s.cfg.NoMaxConnsFast {
		l.num("rejected_connections", c.Rejected)
	}
	l.num("connection_structures", c.Structures)
	b := &sn.buffers
	l.num("response_obj_oom", b.RepliesRefused)
	l.num("response_obj_count", b.RepliesWaiting)
	l.num("response_obj_bytes", b.WaitingBytes)
	l.num("read_buf_count", b.Count)
	l.num("read_buf_bytes", b.Bytes)
	l.num("read_buf_bytes_free", b.FreeBytes)
	l.num("read_buf_oom", b.Refused)
	l.num("reserved_fds", uint64(spareDescriptors+descriptorsEachLoop*s.cfg.Threads))
	l.num("cmd_get", t.GetHits+st.GetMisses)
	l.num("cmd_set", t.CmdSet)
	l.num("cmd_flush", n.flushes)
	l.num("cmd_touch", t.TouchHits+st.TouchMisses)
	l.num("cmd_meta", n.metas)
	l.num("get_hits", t.GetHits)
	l.num("get_misses", st.GetMisses)
	l.num("get_expired", st.GetExpired)
	l.num("get_flushed", st.GetFlushed)
	l.num("delete_misses", st.DeleteMisses)
	l.num("delete_hits", t.DeleteHits)
	l.num("incr_misses", st.IncrMisses)
	l.num("incr_hits", t.IncrHits)
	l.num("decr_misses", st.DecrMisses)
	l.num("decr_hits", t.DecrHits)
	l.num("cas_misses", st.CasMisses)
	l.num("cas_hits", t.CasHits)
	l.num("cas_badval", t.CasBadval)
	l.num("touch_hits", t.TouchHits)
	l.num("touch_misses", st.TouchMisses)
	l.num("store_too_large", st.TooLarge)
	l.num("store_no_memory", st.NoMemory)
	l.num("auth_cmds", n.authCmds)
	l.num("auth_errors", n.authErrors)
	if s.cfg.IdleSeconds > 0 {
		l.num("idle_kicks", c.IdleKicks)
	}
	l.num("bytes_read", n.bytesRead)
	l.num("bytes_written", n.bytesWritten)
	l.num("limit_maxbytes", uint64(st.LimitBytes))
	l.num("accepting_conns", c.Accepting)
	l.num("listen_disabled_num", c.ListenDisabled)
	l.num("time_in_listen_disabled_us", c.ListenDisabledMicros)
	l.num("threads", uint64(s.cfg.Threads))
	l.num("conn_yields", n.yields)
	l.num("hash_power_level", hashPower(st.IndexItemsMax, s.cfg.Extended.HashPower))
	l.num("hash_bytes", uint64(st.IndexBytes))
	l.num("hash_is_expanding", 0) // a bucket at a time, with an insert
	if !s.cfg.Extended.NoSlabReassign {
		l.num("slab_reassign_rescues", st.ItemsMoved)
		l.num("slab_reassign_chunk_rescues", st.PiecesMoved)
		l.num("slab_reassign_inline_reclaim", 0)
		l.num("slab_reassign_busy_items", st.MovesAborted)
		l.num("slab_reassign_busy_deletes", 0)
		l.num("slab_reassign_busy_nomem", st.MovesWithoutRoom)
		l.text("slab_reassign_last_busy_status", abortNames[st.LastAbort])
		l.num("slab_reassign_running", uint64(min(st.MovesUnderWay, 1)))
		l.num("slabs_moved", st.PagesMoved)
	}
	if cr := s.crawler.figures(); cr.on {
		l.flag("lru_crawler_running", cr.running)
		l.num("lru_crawler_starts", cr.starts)
	}
	maintained := !s.cfg.Extended.NoLRUMaintainer
	if maintained {
		l.num("lru_maintainer_juggles", st.Looks)
	}
	l.zeros("malloc_fails")
	l.num("log_worker_dropped", sn.watch.Dropped)
	l.num("log_worker_written", sn.watch.Written)
	l.num("log_watcher_skipped", sn.watch.Skipped)
	l.num("log_watcher_sent", sn.watch.Sent)
	l.num("log_watchers", sn.watch.Watchers)
	l.tls(&s.cfg.TLS, &sn.tls)
	l.zeros("unexpected_napi_ids", "round_robin_fallback")
	l.num("bytes", t.MemRequested)
	l.num("curr_items", t.Items)
	l.num("total_items", st.TotalItems)
	l.num("slab_global_page_pool", st.IdlePages)
	l.num("expired_unfetched", t.ExpiredUnfetched)
	l.num("evicted_unfetched", t.EvictedUnfetched)
	if maintained {
		l.num("evicted_active", t.EvictedActive)
	}
	l.num("evictions", t.Evicted)
	l.num("reclaimed", t.Reclaimed)
	l.num("crawler_reclaimed", t.SweepReclaimed)
	l.num("crawler_items_checked", t.SweepChecked)
	l.num("lrutail_reflocked", 0)
	if maintained {
		l.num("moves_to_cold", t.MovesToCold)
		l.num("moves_to_warm", t.MovesToWarm)
		l.num("moves_within_lru", t.MovesWithin)
		l.num("direct_reclaims", t.DirectReclaims)
		l.num("lru_bumps_dropped", 0)
	}
	return append(l, statsEnd...)
}

// hashPowerMin is what memcached's table begins with, log2 of its buckets.
// Source: HASHPOWER_DEFAULT.
const hashPowerMin = 16

// hashPower is the log2 of the buckets of a memcached whose table has grown as
// far as our index has, whose buckets are others: it doubles when there are
// 1.5 items a bucket.
func hashPower(itemsMax uint64, first int) uint64 {
	power := uint64(hashPowerMin)
	if first > 0 {
		power = uint64(first)
	}
	for itemsMax > 3<<power/2 {
		power++
	}
	return power
}

// abortNames are memcached's words for why a page did not move.
var abortNames = [...]string{
	store.AbortNone:      "none",
	store.AbortSending:   "busy_active",
	store.AbortUploading: "busy_uploading",
	store.AbortGone:      "busy_floating",
}

// uptimeSeconds is how long the server has run at now, as memcached counts.
func (s *Server) uptimeSeconds(now store.Time) uint64 {
	return uint64(now.Seconds()-s.started.Seconds()) + uptimeStart
}

func (l *statLines) seconds(name string, t syscall.Timeval) {
	l.key(name)
	*l = append(strconv.AppendInt(*l, int64(t.Sec), 10), '.')
	micros := strconv.AppendInt(nil, 1_000_000+int64(t.Usec), 10) // a 1 that keeps the zeros
	*l = append(append(*l, micros[1:]...), "\r\n"...)
}

// eventLibrary names what stands where libevent does in memcached.
func eventLibrary() string {
	const path, name = "github.com/panjf2000/gnet/v2", "gnet"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path && len(m.Version) > 1 {
				return name + "-" + m.Version[1:]
			}
		}
	}
	return name
}

// resetStats makes all counters 0. What is a state, not a count, stays.
func (s *Server) resetStats() {
	s.totals.reset()
	s.latencies.reset()
	s.prefixes.reset()
	s.store.ResetStats()
	s.resetConnStats()
	s.buffers.reset()
	s.crawler.reset()
	s.tls.reset()
	s.guard.resetStats()
	s.watch.resetStats()
	if s.stalls != nil {
		s.stalls.Reset()
	}
}
