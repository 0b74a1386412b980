package server

import (
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/VictoriaMetrics/metrics"

	"github.com/quarrycache/quarry/server/store"
)

// tenantsExposedMax bounds the tenants without a quota of their own that
// /metrics has, and the admin page with it: clients invent their names, and
// each name makes series that whoever scrapes has to keep.
const tenantsExposedMax = 20

// metricsText is what a scrape of sn gets: the metrics of the memcached
// exporter, Quarry's own, and those of the Go runtime and the process.
func (s *Server) metricsText(sn *fullSnapshot) []byte {
	e := exposition{pace: pace{stalls: s.stalls}}
	e.pace.begin("metrics")
	e.memcached(s, sn.snapshot)
	e.server(s, sn)
	e.policy(sn)
	e.memory(s, sn)
	e.pages(sn)
	e.latencies(sn)
	e.freshness(sn)
	e.hot(&s.hot)
	if s.node != nil {
		e.cluster(s.node)
	}
	if s.cfg.TLS.Enabled {
		e.tls(sn)
	}
	if s.cfg.TenantDelimiter != 0 {
		e.tenants(sn)
	}
	e.pace.yield()
	metrics.WriteGoMetrics(&e.buf)
	e.pace.yield()
	metrics.WriteProcMetrics(&e.buf)
	e.pace.yield()
	metrics.WriteFDMetrics(&e.buf)
	e.pace.end()
	return e.buf.Bytes()
}

// buildVersion is the version of the module that the program was built from.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// server writes what is so of the server and its connections.
func (e *exposition) server(s *Server, sn *fullSnapshot) {
	e.family("quarry_build_info", gaugeType, "1, with the version of the program and of Go.")
	e.num("quarry_build_info", 1, "version", buildVersion(), "go", runtime.Version())
	e.one("quarry_loops", gaugeType, "Event loops (-t).", uint64(s.cfg.Threads))
	e.one("quarry_shards", gaugeType, "Shards of the store.", uint64(sn.store.Shards))
	e.one("quarry_requests_total", counterType, "Command lines executed.", sn.counters.requests)
	e.one("quarry_meta_debug_total", counterType, "Commands me executed (cmd_meta).", sn.counters.metas)
	e.one("quarry_connections_aside", gaugeType, "Connections in no event loop now, because their peer does not take its replies.", sn.conns.Aside)
	e.one("quarry_connections_asides_total", counterType, "Times that a connection left its event loop.", sn.conns.Asides)
	e.one("quarry_rounds_total", counterType, "Rounds, in which a loop reads from all connections that are ready before it serves them.", sn.counters.rounds)
	e.one("quarry_round_turns_total", counterType, "Connections served in rounds.", sn.counters.roundTurns)
	e.one("quarry_reads_without_lock_total", counterType, "Hits that took no lock (-o optimistic_reads).", sn.store.ReadAlong)
	e.one("quarry_reads_in_vain_total", counterType, "Reads without the lock that were made again under it.", sn.store.ReadInVain)
	e.one("quarry_connections_idle_kicks_total", counterType, "Connections closed by idle_timeout.", sn.conns.IdleKicks)
	e.oneFloat("quarry_listen_disabled_seconds_total", counterType, "Time in which no connections were accepted for want of room.", float64(sn.conns.ListenDisabledMicros)/1e6)
}

// tls writes how TLS does.
func (e *exposition) tls(sn *fullSnapshot) {
	f := &sn.tls
	e.one("quarry_tls_sessions_total", counterType, "Handshakes that succeeded and resumed no session.", f.NewSessions)
	e.one("quarry_tls_handshake_errors_total", counterType, "Handshakes that did not succeed.", f.HandshakeErrors)
	e.one("quarry_tls_protocol_errors_total", counterType, "Connections that broke the rules of TLS behind their handshake.", f.ProtoErrors)
	e.one("quarry_tls_certificate_age_seconds", gaugeType, "Time since certificates were loaded.", f.RefreshedSeconds)
	e.one("quarry_tls_certificate_expiry_seconds", gaugeType, "Unix time at which the server's certificate ends.", f.ExpiresSeconds)
}

// policy writes how the eviction order does.
func (e *exposition) policy(sn *fullSnapshot) {
	st, t := &sn.store, &sn.store.Total
	e.family("quarry_policy_info", gaugeType, "1, with the eviction policy.")
	e.num("quarry_policy_info", 1, "policy", store.PolicyName(st.Policy))
	e.oneFloat("quarry_lru_window_percent", gaugeType, "The window's part of a class, in the mean over the shards.", st.WindowPercent)
	e.one("quarry_lru_admitted_total", counterType, "Newcomers at the window's end that stayed over an older item.", t.Admitted)
	e.one("quarry_lru_rejected_total", counterType, "Newcomers at the window's end that went.", t.Rejected)
	e.family("quarry_lru_items", gaugeType, "Items in each segment.")
	for _, g := range segmentFigures(t) {
		e.num("quarry_lru_items", g.items, "segment", g.name)
	}
	e.family("quarry_lru_hits_total", counterType, "Hits in each segment.")
	for _, g := range segmentFigures(t) {
		e.num("quarry_lru_hits_total", g.hits, "segment", g.name)
	}
	e.one("quarry_get_expired_total", counterType, "Reads that found an expired item.", st.GetExpired)
	e.one("quarry_get_flushed_total", counterType, "Reads that found a flushed item.", st.GetFlushed)
	e.one("quarry_expired_unfetched_total", counterType, "Items that expired and were never read.", t.ExpiredUnfetched)
	e.one("quarry_evicted_unfetched_total", counterType, "Items evicted that were never read.", t.EvictedUnfetched)
	e.one("quarry_evicted_active_total", counterType, "Items evicted that were read lately.", t.EvictedActive)
	e.one("quarry_chain_evictions_total", counterType, "Items evicted because too many keys collide in the index.", st.ChainEvictions)
}

// segment is one segment of the order, over all classes.
type segment struct {
	name        string
	items, hits uint64
}

func segmentFigures(t *store.ClassStats) [3]segment {
	return [3]segment{
		{"window", t.Window, t.HitsWindow},
		{"probation", t.Probation, t.HitsProbation},
		{"protected", t.Protected, t.HitsProtected},
	}
}

// memory writes what every byte is spent on.
func (e *exposition) memory(s *Server, sn *fullSnapshot) {
	st := &sn.store
	e.family("quarry_memory_bytes", gaugeType, "What memory is spent on; the uses add up to about the resident memory.")
	for _, row := range memoryRows(&st.Memory, &sn.memory) {
		e.num("quarry_memory_bytes", uint64(row.bytes), "use", row.name)
	}
	e.one("quarry_resident_bytes", gaugeType, "Memory of the process, as the system counts it.", uint64(sn.memory.resident))
	e.one("quarry_uncarved_bytes", gaugeType, "Parts of pages that are not cut into chunks yet; most of them are no memory yet.", uint64(st.Memory.UncarvedBytes))
	e.one("quarry_sending_bytes", gaugeType, "Pinned values: they are being sent from where they lie.", uint64(st.PinnedBytes))
	e.one("quarry_limit_max_bytes", gaugeType, "The highest that cache_memlimit can set.", uint64(s.store.LimitMax()))
	e.one("quarry_index_buckets", gaugeType, "Buckets of the index.", st.IndexBuckets)
	e.one("quarry_index_overflow_buckets", gaugeType, "Overflow buckets of the index in use.", st.IndexOverflow)
}

// pages writes how memory is divided among the classes, and moves.
func (e *exposition) pages(sn *fullSnapshot) {
	st := &sn.store
	e.one("quarry_page_bytes", gaugeType, "Size of a page.", uint64(st.PageBytes))
	e.one("quarry_pages_idle", gaugeType, "Pages that belong to no class.", st.IdlePages)
	e.one("quarry_pages_moved_total", counterType, "Pages moved from a class to another one, or back to the system.", st.PagesMoved)
	e.one("quarry_page_moves_running", gaugeType, "Pages being emptied now.", uint64(st.MovesUnderWay))
	e.one("quarry_page_moves_aborted_total", counterType, "Pages that stayed, because of something in them being sent or written.", st.MovesAborted)
	e.one("quarry_page_items_moved_total", counterType, "Items moved out of pages.", st.ItemsMoved)
	e.one("quarry_page_pieces_moved_total", counterType, "Pieces of large items moved out of pages.", st.PiecesMoved)
	for _, x := range []struct {
		name, help string
		kind       metricType
		value      func(*store.ClassStats) uint64
	}{
		{"quarry_slab_held_bytes", "Bytes of the class's pages.", gaugeType,
			func(c *store.ClassStats) uint64 { return c.Pages * uint64(st.PageBytes) }},
		{"quarry_slab_admitted_total", "Newcomers of the class that stayed at the window's end.", counterType,
			func(c *store.ClassStats) uint64 { return c.Admitted }},
		{"quarry_slab_rejected_total", "Newcomers of the class that went.", counterType,
			func(c *store.ClassStats) uint64 { return c.Rejected }},
	} {
		begun := false
		for i := range st.Classes {
			c := &st.Classes[i]
			if c.Pages == 0 {
				continue
			}
			if !begun {
				e.family(x.name, x.kind, x.help)
				begun = true
			}
			e.num(x.name, x.value(c), "slab", strconv.Itoa(i+1))
		}
	}
}

// Bounds of the buckets that /metrics has of a latency: a doubling each.
const (
	exposedMinBits = 10 // 1.024 µs
	exposedMaxBits = 30 // 1.07 s
)

// latencies writes how long commands took.
func (e *exposition) latencies(sn *fullSnapshot) {
	const name = "quarry_command_duration_seconds"
	e.family(name, histogramType, "How long commands were in the server's hands, by class; of one batch in "+
		strconv.Itoa(sampleBatches)+".")
	for c := range sn.latencies {
		l := &sn.latencies[c]
		class := commandClassNames[c]
		below, i := uint64(0), 0
		for exponent := exposedMinBits; exponent <= exposedMaxBits; exponent++ {
			for ; i < latencyBuckets-1 && latencyEnd(i) <= 1<<exponent; i++ {
				below += l.buckets[i]
			}
			end := strconv.FormatFloat(float64(uint64(1)<<exponent)/1e9, 'g', -1, 64)
			e.num(name+"_bucket", below, "class", class, "le", end)
		}
		e.num(name+"_bucket", l.count(), "class", class, "le", "+Inf")
		e.float(name+"_sum", float64(l.sumNanos)/1e9, "class", class)
		e.num(name+"_count", l.count(), "class", class)
	}
}

// tenantRow is an account, and what it is of: a tenant with a quota, one
// without, or all that are left.
type tenantRow struct {
	kind string
	t    *store.TenantStats
}

func (sn *fullSnapshot) tenantRows() []tenantRow {
	rows := make([]tenantRow, 0, len(sn.tenants)+1)
	for i := range sn.tenants {
		kind := "tracked"
		if sn.tenants[i].Named {
			kind = "quota"
		}
		rows = append(rows, tenantRow{kind, &sn.tenants[i]})
	}
	return append(rows, tenantRow{"other", &sn.other})
}

// tenants writes the accounts of tenants.
func (e *exposition) tenants(sn *fullSnapshot) {
	rows := sn.tenantRows()
	for _, x := range []struct {
		name, help string
		kind       metricType
		value      func(*store.TenantStats) uint64
	}{
		{"quarry_tenant_items", "Items of the tenant.", gaugeType, func(t *store.TenantStats) uint64 { return t.Items }},
		{"quarry_tenant_bytes", "Bytes of headers, keys and values of the tenant.", gaugeType, func(t *store.TenantStats) uint64 { return t.Bytes }},
		{"quarry_tenant_quota_bytes", "The tenant's quota of memory; 0 is none.", gaugeType, func(t *store.TenantStats) uint64 { return uint64(t.Quota.MemoryBytes) }},
		{"quarry_tenant_hits_total", "Reads of the tenant that found their item.", counterType, func(t *store.TenantStats) uint64 { return t.Hits }},
		{"quarry_tenant_misses_total", "Reads of the tenant that did not.", counterType, func(t *store.TenantStats) uint64 { return t.Misses }},
		{"quarry_tenant_sets_total", "Values of the tenant that no quota refused.", counterType, func(t *store.TenantStats) uint64 { return t.Sets }},
		{"quarry_tenant_evicted_total", "Live items of the tenant lost for room.", counterType, func(t *store.TenantStats) uint64 { return t.Evicted }},
		{"quarry_tenant_evicted_own_total", "Of them, for the tenant's own quota.", counterType, func(t *store.TenantStats) uint64 { return t.EvictedOwn }},
	} {
		e.family(x.name, x.kind, x.help)
		for _, r := range rows {
			e.num(x.name, x.value(r.t), "tenant", r.t.Name, "kind", r.kind)
		}
	}
	const refused = "quarry_tenant_refused_total"
	e.family(refused, counterType, "What the tenant's quota refused, by reason.")
	for _, r := range rows {
		e.num(refused, r.t.RefusedMemory, "tenant", r.t.Name, "kind", r.kind, "reason", "memory")
		e.num(refused, r.t.RefusedRate, "tenant", r.t.Name, "kind", r.kind, "reason", "rate")
		e.num(refused, r.t.RefusedValue, "tenant", r.t.Name, "kind", r.kind, "reason", "value")
	}
}
