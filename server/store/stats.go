package store

import (
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// counts are a shard's counters that belong to no class.
type counts struct {
	totalItems                                        uint64
	getMisses, getExpired, getFlushed                 uint64
	touchMisses, deleteMisses, incrMisses, decrMisses uint64
	casMisses, tooLarge, noMemory                     uint64
	chainEvictions, pagesMoved, movesAborted          uint64
	itemsMoved, piecesMoved, movesWithoutRoom         uint64
}

// classCounts are a shard's counters and gauges of one class.
type classCounts struct {
	items, memRequested, payload uint64 // gauges; payload is keys and values alone

	getHits, cmdSet, deleteHits, incrHits, decrHits uint64
	casHits, casBadval, touchHits                   uint64
	evicted, evictedNonzero, evictedUnfetched       uint64
	evictedActive, directReclaims, outOfMemory      uint64
	reclaimed, expiredUnfetched, sweepReclaimed     uint64
	sweepChecked                                    uint64
	evictedTime                                     uint32
}

// ClassStats is one slab class over all shards: what `stats items` and
// `stats slabs` show. Counters count since the start or the last reset.
type ClassStats struct {
	ChunkBytes, ChunksPerPage     int
	Pages, UsedChunks, FreeChunks uint64

	Items                        uint64
	Window, Probation, Protected uint64 // items in each segment
	Temporary                    uint64 // items beside the segments
	AgeWindow, AgeProtected, Age uint32 // seconds since the last access of each segment's last item
	MemRequested                 uint64 // bytes of headers, keys and values

	GetHits, CmdSet, DeleteHits, IncrHits, DecrHits uint64
	CasHits, CasBadval, TouchHits                   uint64

	Evicted, EvictedNonzero, EvictedUnfetched uint64
	EvictedActive, DirectReclaims             uint64
	EvictedTime                               uint32 // seconds that the last evicted item had not been accessed
	OutOfMemory                               uint64
	Reclaimed                                 uint64 // expired items that made room
	ExpiredUnfetched                          uint64
	SweepReclaimed                            uint64 // expired items that the sweeper or a crawl freed
	SweepChecked                              uint64 // items that they looked at

	MovesToCold, MovesToWarm, MovesWithin    uint64
	HitsWindow, HitsProbation, HitsProtected uint64
	HitsTemporary                            uint64
	Admitted, Rejected                       uint64 // by TinyLFU, of those at the end of the window
}

// Stats is a snapshot of a store.
type Stats struct {
	Classes []ClassStats // by class number, less one
	Total   ClassStats   // their sums; its sizes and ages are of no meaning

	TotalItems, GetMisses, GetExpired, GetFlushed     uint64
	TouchMisses, DeleteMisses, IncrMisses, DecrMisses uint64
	CasMisses, TooLarge, NoMemory                     uint64
	ChainEvictions, Looks                             uint64 // Looks of Background
	ReadAlong, ReadInVain                             uint64 // hits without the lock, and what had to be read again under it

	PagesMoved    uint64 // from a class to another one, or back to the budget
	ItemsMoved    uint64 // out of such a page, to a chunk elsewhere
	PiecesMoved   uint64 // of large items, the same
	MovesAborted  uint64 // because of something in the page that was being sent or written
	LastAbort     Abort  // why the last of them was
	MovesUnderWay int

	MovesWithoutRoom uint64 // items evicted as there was nowhere to move what was in such a page

	Policy        Policy
	WindowPercent float64 // the window's part of a class, in the mean over the shards

	Shards     int
	PageBytes  int
	LimitBytes int64
	HeldBytes  int64 // pages taken, of the limit
	IdlePages  uint64

	IndexBuckets  uint64
	IndexBytes    int64
	IndexOverflow uint64 // overflow buckets in use
	IndexItemsMax uint64 // items beyond which it grows
	PinnedBytes   int64  // values being sent, whether their items are still there or not
	UploadBytes   int64  // chunks of values on their way in

	Memory Memory
	Fresh  FreshStats
}

// Snapshot fills st; its Classes are reused.
func (s *Store) Snapshot(now Time, st *Stats) {
	classes := st.Classes
	*st = Stats{
		Shards:      len(s.shards),
		PageBytes:   s.cfg.PageBytes,
		LimitBytes:  s.budget.Limit(),
		HeldBytes:   s.budget.Taken(),
		PinnedBytes: s.pinnedBytes.Load(),
		UploadBytes: s.uploadBytes.Load(),
		LastAbort:   Abort(s.lastAbort.Load()),
		Looks:       s.looks.Load(),
		Policy:      s.cfg.Policy,
	}
	if len(classes) != s.table.Len() {
		classes = make([]ClassStats, s.table.Len())
	}
	clear(classes)
	for c := range classes {
		classes[c].ChunkBytes = s.table.Bytes(c)
		classes[c].ChunksPerPage = s.table.PerPage(c)
	}
	st.Classes = classes
	for _, sh := range s.shards {
		sh.addTo(st, now)
	}
	s.readers.addTo(st)
	s.settleFresh(&st.Fresh, now)
	for c := range classes {
		st.Total.add(&classes[c])
	}
	st.IndexItemsMax = st.IndexBuckets * loadMax
	st.WindowPercent /= float64(len(s.shards))
	st.Memory.settle(st)
}

func (sh *shard) addTo(st *Stats, now Time) {
	sh.lockToRead()
	defer sh.unlock()
	step := sh.beginStep("snapshot")
	defer sh.endStep(&step)
	sh.enter(now)
	n := &sh.n
	st.TotalItems += n.totalItems
	st.GetMisses += n.getMisses
	st.GetExpired += n.getExpired
	st.GetFlushed += n.getFlushed
	st.TouchMisses += n.touchMisses
	st.DeleteMisses += n.deleteMisses
	st.IncrMisses += n.incrMisses
	st.DecrMisses += n.decrMisses
	st.CasMisses += n.casMisses
	st.TooLarge += n.tooLarge
	st.NoMemory += n.noMemory
	st.ChainEvictions += n.chainEvictions
	st.PagesMoved += n.pagesMoved
	st.MovesAborted += n.movesAborted
	st.ItemsMoved += n.itemsMoved
	st.PiecesMoved += n.piecesMoved
	st.MovesWithoutRoom += n.movesWithoutRoom
	if sh.move.page != 0 {
		st.MovesUnderWay++
	}
	st.WindowPercent += sh.order.WindowPct()
	st.IdlePages += uint64(sh.a.IdlePages())
	st.IndexBuckets += uint64(sh.idx.buckets())
	st.IndexBytes += sh.idx.bytes()
	st.IndexOverflow += uint64(sh.idx.nOver)
	for c := range sh.classes {
		// Chained items are of the last slab class, whatever their order class.
		sh.addClass(c, &st.Classes[min(c, len(st.Classes)-1)], now)
	}
	st.Memory.add(sh)
	sh.addFresh(&st.Fresh, now)
}

func (sh *shard) addClass(c int, t *ClassStats, now Time) {
	n := &sh.classes[c]
	var use slab.ClassUse
	if c < sh.s.table.Len() {
		use = sh.a.Use(c)
	}
	m := sh.order.Moves(c)
	one := ClassStats{
		Pages: uint64(use.Pages), UsedChunks: uint64(use.Used), FreeChunks: uint64(use.Free),
		Items:        n.items,
		Window:       uint64(sh.order.Len(c, lru.Window)),
		Probation:    uint64(sh.order.Len(c, lru.Probation)),
		Protected:    uint64(sh.order.Len(c, lru.Protected)),
		Temporary:    uint64(sh.order.Len(c, lru.Temporary)),
		MemRequested: n.memRequested,
		GetHits:      n.getHits, CmdSet: n.cmdSet, DeleteHits: n.deleteHits,
		IncrHits: n.incrHits, DecrHits: n.decrHits,
		CasHits: n.casHits, CasBadval: n.casBadval, TouchHits: n.touchHits,
		Evicted: n.evicted, EvictedNonzero: n.evictedNonzero, EvictedUnfetched: n.evictedUnfetched,
		EvictedActive: n.evictedActive, DirectReclaims: n.directReclaims,
		OutOfMemory: n.outOfMemory, Reclaimed: n.reclaimed,
		ExpiredUnfetched: n.expiredUnfetched, SweepReclaimed: n.sweepReclaimed,
		SweepChecked: n.sweepChecked,
		MovesToCold:  m.ToProbation, MovesToWarm: m.ToProtected, MovesWithin: m.Within,
		HitsWindow: m.HitsIn[lru.Window], HitsProbation: m.HitsIn[lru.Probation], HitsProtected: m.HitsIn[lru.Protected],
		HitsTemporary: m.HitsIn[lru.Temporary],
		Admitted:      m.Admitted, Rejected: m.Rejected,
	}
	t.add(&one)
	t.EvictedTime = max(t.EvictedTime, n.evictedTime)
	t.AgeWindow = max(t.AgeWindow, sh.age(c, lru.Window, now))
	t.AgeProtected = max(t.AgeProtected, sh.age(c, lru.Protected, now))
	t.Age = max(t.Age, sh.age(c, lru.Probation, now))
}

// age is how long the last item of a segment has not been accessed.
func (sh *shard) age(c int, s lru.Segment, now Time) uint32 {
	r := sh.order.Tail(c, s)
	if r == 0 {
		return 0
	}
	return sh.item(r).idleSeconds(now.Seconds())
}

// add adds the counters and gauges of o to t, but not sizes and ages.
func (t *ClassStats) add(o *ClassStats) {
	t.Pages += o.Pages
	t.UsedChunks += o.UsedChunks
	t.FreeChunks += o.FreeChunks
	t.Items += o.Items
	t.Window += o.Window
	t.Probation += o.Probation
	t.Protected += o.Protected
	t.Temporary += o.Temporary
	t.MemRequested += o.MemRequested
	t.GetHits += o.GetHits
	t.CmdSet += o.CmdSet
	t.DeleteHits += o.DeleteHits
	t.IncrHits += o.IncrHits
	t.DecrHits += o.DecrHits
	t.CasHits += o.CasHits
	t.CasBadval += o.CasBadval
	t.TouchHits += o.TouchHits
	t.Evicted += o.Evicted
	t.EvictedNonzero += o.EvictedNonzero
	t.EvictedUnfetched += o.EvictedUnfetched
	t.EvictedActive += o.EvictedActive
	t.DirectReclaims += o.DirectReclaims
	t.OutOfMemory += o.OutOfMemory
	t.Reclaimed += o.Reclaimed
	t.ExpiredUnfetched += o.ExpiredUnfetched
	t.SweepReclaimed += o.SweepReclaimed
	t.SweepChecked += o.SweepChecked
	t.MovesToCold += o.MovesToCold
	t.MovesToWarm += o.MovesToWarm
	t.MovesWithin += o.MovesWithin
	t.HitsWindow += o.HitsWindow
	t.HitsProbation += o.HitsProbation
	t.HitsProtected += o.HitsProtected
	t.HitsTemporary += o.HitsTemporary
	t.Admitted += o.Admitted
	t.Rejected += o.Rejected
}

// ResetStats sets all counters to zero; gauges stay.
func (s *Store) ResetStats() {
	for _, sh := range s.shards {
		sh.lockToRead()
		sh.n = counts{}
		for c := range sh.classes {
			n := &sh.classes[c]
			*n = classCounts{items: n.items, memRequested: n.memRequested, payload: n.payload}
		}
		sh.fresh, sh.records.nDropped = FreshStats{}, 0
		sh.order.ResetMoves()
		if sh.tenants != nil {
			sh.tenants.resetCounts()
		}
		sh.unlock()
	}
	s.readers.reset()
	s.lastAbort.Store(uint32(AbortNone))
}
