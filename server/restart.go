package server

import (
	"context"
	"fmt"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// openStore opens the store: an empty one, or with -e what was left in the
// file.
func (s *Server) openStore() error {
	d := &s.cfg
	policy, err := store.ParsePolicy(d.Extended.LRUPolicy)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	start := time.Now()
	st, err := store.Open(store.Config{
		LimitBytes:   int64(d.MemoryMB) << 20,
		Loops:        d.Threads,
		ItemMaxBytes: d.ItemMaxBytes,
		NoEvict:      d.NoEvict,
		NoCAS:        d.NoCAS,
		GrowthFactor: d.GrowthFactor,
		ChunkMin:     d.ChunkMin,
		TrackSizes:   d.Extended.TrackSizes,
		ChunkSizes:   d.Extended.SlabSizes,

		CompatSlabs:   d.Extended.CompatSlabs,
		ChunkMaxBytes: d.Extended.SlabChunkMaxBytes,

		Tenants: store.TenantConfig{
			Delimiter:  d.TenantDelimiter,
			Quotas:     d.TenantQuotas,
			Default:    d.TenantDefault,
			TrackedMax: d.TenantsTracked,
		},
		Fresh:         d.Fresh,
		FirstCAS:      s.firstCAS(),
		Policy:        policy,
		LargePages:    d.LargePages,
		ReadAlong:     d.Extended.OptimisticReads,
		File:          d.MemoryFile,
		Recover:       d.Recover,
		ItemChecksums: d.ItemChecksums && d.MemoryFile != "",
		Now:           s.clock(),
		Stalls:        s.stalls,
	})
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	s.store, s.watch.store = st, st
	if d.Extended.OptimisticReads && !st.HasReaders() {
		s.log.Warn("-o optimistic_reads has no effect: it is for amd64, and for stores without tenants")
	}
	s.debug.claim(st)
	s.guard.store, s.guard.skew = st, store.Time(st.FreshLimits().SkewMaxMillis)
	s.obeyAutomove()
	s.store.Tune(s.lru.tuning())
	s.enableCrawler(!d.Extended.NoLRUCrawler)
	rs := st.Restart()
	if !rs.Warm() {
		st.LoseFloors(s.started)
	}
	if s.node != nil {
		s.node.opened(rs.Found)
	}
	if d.MemoryFile == "" {
		return nil
	}
	log := s.log.Info
	if rs.Lost() {
		log = s.log.Warn
	}
	log(rs.String(), "memory_file", d.MemoryFile, "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// CloseGracefully is Close, but with -e the items outlive the server: what the
// next start needs to go on with them is written before it returns.
func (s *Server) CloseGracefully(ctx context.Context) error {
	s.saving.Store(true)
	return s.Close(ctx)
}

// closeStore is the last thing that a server does.
func (s *Server) closeStore() {
	if s.store == nil {
		return // Start has failed before it came so far
	}
	if s.cfg.MemoryFile != "" && s.saving.Load() && s.serving.Load() {
		start := time.Now()
		if err := s.store.Save(); err != nil {
			s.log.Error("memory file not saved: the next start will find nothing to go on with", "error", err)
		} else {
			s.log.Info("memory file saved", "memory_file", s.cfg.MemoryFile, "took", time.Since(start).Round(time.Millisecond))
		}
	}
	if err := s.store.Close(); err != nil {
		s.log.Warn("store closed", "error", err)
	}
}
