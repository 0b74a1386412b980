package server

// Extended is what the sub-options of -o say, those that have a field in
// Config excepted. The zero value is memcached's defaults; numbers are
// defaults when 0 and, where memcached takes a 0, 0 when negative.
//
// `stats settings` shows all of them, also those that say how memcached is to
// do what this server does in another way.
type Extended struct {
	HashPower     int    // hashpower; 0 is not given
	HashAlgorithm string // hash_algorithm

	NoSlabReassign        bool    // no_slab_reassign: pages move only where a class has nothing to give
	NoSlabAutomove        bool    // no_slab_automove, slab_automove=0
	SlabAutomove          int     // slab_automove: 1 or 2, which are the same here
	SlabAutomoveRatio     float64 // slab_automove_ratio
	SlabAutomoveFreeRatio float64 // slab_automove_freeratio
	SlabAutomoveWindow    int     // slab_automove_window
	SlabChunkMaxBytes     int     // slab_chunk_max
	SlabSizes             []int   // slab_sizes; none is -f's table

	NoLRUCrawler          bool // no_lru_crawler
	LRUCrawlerSleepMicros int  // lru_crawler_sleep
	LRUCrawlerItemsMax    int  // lru_crawler_tocrawl; 0 is all
	TailRepairSeconds     int  // tail_repair_time; 0 is never

	NoLRUMaintainer     bool    // no_lru_maintainer
	LRUFlat             bool    // no_lru_maintainer: one list a class
	LRUPolicy           string  // lru_policy, Quarry's own: tinylfu, which is also "", or segmented
	HotLRUPercent       int     // hot_lru_pct
	WarmLRUPercent      int     // warm_lru_pct
	HotMaxFactor        float64 // hot_max_factor
	WarmMaxFactor       float64 // warm_max_factor
	TempLRU             bool    // temporary_ttl was given
	TemporaryTTLSeconds int     // temporary_ttl

	WatcherBufferBytes int  // watcher_logbuf_size
	WorkerBufferBytes  int  // worker_logbuf_size
	ReadBufferMaxBytes int  // read_buf_mem_limit; 0 is no limit
	TrackSizes         bool // track_sizes

	CompatSlabs     bool // compat_slabs, Quarry's own: memcached's pages and classes
	OptimisticReads bool // optimistic_reads, Quarry's own: hits without the shard's lock
	Stalls          bool // stalls, Quarry's own: stats stalls shows what took long
}

// Defaults of the sub-options. Source: memcached 1.6.45.
const (
	defaultHashAlgorithm         = "murmur3"
	defaultSlabAutomove          = 1
	defaultSlabAutomoveRatio     = 0.8
	defaultSlabAutomoveFreeRatio = 0.01
	defaultSlabAutomoveWindow    = 10
	defaultSlabChunkMaxBytes     = 512 << 10
	defaultLRUCrawlerSleepMicros = 100
	defaultHotLRUPercent         = 20
	defaultWarmLRUPercent        = 40
	defaultHotMaxFactor          = 0.2
	defaultWarmMaxFactor         = 2.0
	defaultTemporaryTTLSeconds   = 61
	defaultWatcherBufferBytes    = 256 << 10
	defaultWorkerBufferBytes     = 64 << 10
)

// withDefaults is x with all that was not given filled in: what it holds is
// then what `stats settings` shows.
func (x Extended) withDefaults() Extended {
	fill := func(v *int, value int) {
		switch {
		case *v == 0:
			*v = value
		case *v < 0:
			*v = 0
		}
	}
	fillFloat := func(v *float64, value float64) {
		if *v == 0 {
			*v = value
		}
	}
	if x.HashAlgorithm == "" {
		x.HashAlgorithm = defaultHashAlgorithm
	}
	if x.NoSlabAutomove {
		x.SlabAutomove = -1
	}
	fill(&x.SlabAutomove, defaultSlabAutomove)
	fillFloat(&x.SlabAutomoveRatio, defaultSlabAutomoveRatio)
	fillFloat(&x.SlabAutomoveFreeRatio, defaultSlabAutomoveFreeRatio)
	fill(&x.SlabAutomoveWindow, defaultSlabAutomoveWindow)
	fill(&x.SlabChunkMaxBytes, defaultSlabChunkMaxBytes)
	fill(&x.LRUCrawlerSleepMicros, defaultLRUCrawlerSleepMicros)
	fill(&x.HotLRUPercent, defaultHotLRUPercent)
	fill(&x.WarmLRUPercent, defaultWarmLRUPercent)
	fillFloat(&x.HotMaxFactor, defaultHotMaxFactor)
	fillFloat(&x.WarmMaxFactor, defaultWarmMaxFactor)
	fill(&x.TemporaryTTLSeconds, defaultTemporaryTTLSeconds)
	fill(&x.WatcherBufferBytes, defaultWatcherBufferBytes)
	fill(&x.WorkerBufferBytes, defaultWorkerBufferBytes)
	return x
}
