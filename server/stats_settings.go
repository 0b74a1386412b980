package server

import (
	"cmp"
	"net"
	"strconv"
	"strings"
)

// appendSettings answers stats settings: what the flags said, and for what
// Quarry has no flag, what memcached's default says or what is so here.
func (s *Server) appendSettings(dst []byte) []byte {
	c, x := &s.cfg, &s.cfg.Extended
	automove, automoveWindow, automoveRatio, automoveFreeRatio := s.automove.get()
	l := statLines(dst)
	l.num("maxbytes", uint64(s.store.LimitBytes()))
	l.num("maxconns", uint64(c.MaxConns))
	l.num("tcpport", uint64(s.tcpPort()))
	l.num("udpport", uint64(s.udpPort()))
	l.text("inter", orNull(strings.Join(c.Listen, ",")))
	l.num("verbosity", uint64(s.verbosity.Load()))
	l.num("oldest", s.oldest())
	l.on("evictions", !c.NoEvict)
	l.text("domain_socket", orNull(c.UnixSocket))
	l.text("umask", strconv.FormatUint(uint64(c.UnixMask), 8))
	l.yes("shutdown_command", c.EnableShutdown)
	l.fixed("growth_factor", s.store.GrowthFactor(), 2) // 0 is Quarry's own table
	l.num("chunk_size", uint64(c.ChunkMin))
	l.num("num_threads", uint64(c.Threads))
	l.num("num_threads_per_udp", 1)
	l.text("stat_key_prefix", string([]byte{c.PrefixDelim}))
	l.yes("detail_enabled", s.prefixes.on.Load())
	l.num("reqs_per_event", uint64(c.ReqsPerEvent)) // 0: bounded by bytes alone
	l.yes("cas_enabled", !c.NoCAS)
	l.num("tcp_backlog", uint64(c.Backlog))
	l.text("binding_protocol", c.protocol().String())
	l.yes("auth_enabled_sasl", c.SASL)
	l.text("auth_enabled_ascii", cmp.Or(c.AuthFile, "no"))
	l.num("item_size_max", uint64(c.ItemMaxBytes))
	l.yes("maxconns_fast", !c.NoMaxConnsFast)
	l.num("hashpower_init", uint64(x.HashPower))
	l.yes("slab_reassign", !x.NoSlabReassign)
	l.num("slab_automove", uint64(automove))
	l.fixed("slab_automove_ratio", automoveRatio, 2)
	l.num("slab_automove_window", uint64(automoveWindow))
	l.num("slab_chunk_max", uint64(x.SlabChunkMaxBytes))
	crawler := s.crawler.figures()
	l.yes("lru_crawler", crawler.on)
	l.num("lru_crawler_sleep", uint64(crawler.sleepMicros))
	l.num("lru_crawler_tocrawl", uint64(crawler.itemsMax))
	l.num("tail_repair_time", uint64(x.TailRepairSeconds))
	l.yes("flush_enabled", !c.FlushDisabled)
	l.yes("dump_enabled", !c.NoDump)
	l.text("hash_algorithm", x.HashAlgorithm)
	l.yes("lru_maintainer_thread", !x.NoLRUMaintainer)
	order := s.lru.figures()
	l.yes("lru_segmented", !order.flat)
	l.num("hot_lru_pct", uint64(order.hotPct))
	l.num("warm_lru_pct", uint64(order.warmPct))
	l.fixed("hot_max_factor", order.hotAge, 2)
	l.fixed("warm_max_factor", order.warmAge, 2)
	l.yes("temp_lru", order.temporary)
	l.num("temporary_ttl", uint64(order.temporarySeconds))
	l.num("idle_timeout", uint64(c.IdleSeconds))
	l.num("watcher_logbuf_size", uint64(x.WatcherBufferBytes))
	l.num("worker_logbuf_size", uint64(x.WorkerBufferBytes))
	l.num("read_buf_mem_limit", uint64(x.ReadBufferMaxBytes))
	l.yes("track_sizes", x.TrackSizes)
	l.yes("inline_ascii_response", false)
	l.fixed("slab_automove_freeratio", automoveFreeRatio, 3)
	l.tlsSettings(&c.TLS)
	l.num("num_napi_ids", 0)
	l.text("memory_file", orNull(c.MemoryFile))
	l.num("client_flags_size", 4)
	if x.OptimisticReads {
		l.yes("optimistic_reads", s.store.HasReaders())
	}
	return append(l, statsEnd...)
}

// on is a switch that memcached prints as on or off.
func (l *statLines) on(name string, v bool) {
	if v {
		l.text(name, "on")
	} else {
		l.text(name, "off")
	}
}

// orNull is v, or what memcached prints for a text that was not set.
func orNull(v string) string {
	if v == "" {
		return "NULL"
	}
	return v
}

// oldest is the moment of the last flush in seconds of memcached's clock, the
// one before which items are gone; 0 if there was none.
func (s *Server) oldest() uint64 {
	at := s.flushedAt.Load()
	if at == 0 {
		return 0
	}
	return uint64(at-s.started.Seconds()) + clockStart - 1
}

// tcpPort is the port that the server was told to listen on, or where that was
// any free one, the port it got.
func (s *Server) tcpPort() int {
	if s.cfg.TCPOff {
		return 0
	}
	if s.cfg.Port > 0 {
		return s.cfg.Port
	}
	for _, ln := range s.listeners {
		if tcp, ok := ln.Addr().(*net.TCPAddr); ok {
			return tcp.Port
		}
	}
	return 0
}

// udpPort is the same for UDP, and 0 if it is off.
func (s *Server) udpPort() int {
	if s.cfg.UDPPort < 0 && len(s.udp) > 0 {
		return int(s.udp[0].local.Port())
	}
	return max(s.cfg.UDPPort, 0)
}
