package server

import (
	"strconv"

	"github.com/quarrycache/quarry/server/store"
)

// ofMaintainer are the rows of stats items that memcached has with its
// lru_maintainer alone.
var ofMaintainer = map[string]bool{
	"number_hot": true, "number_warm": true, "number_cold": true, "number_temp": true,
	"age_hot": true, "age_warm": true, "evicted_active": true,
	"moves_to_cold": true, "moves_to_warm": true, "moves_within_lru": true, "direct_reclaims": true,
	"hits_to_hot": true, "hits_to_warm": true, "hits_to_cold": true, "hits_to_temp": true,
}

// appendItemStats answers stats items: each class with items in it.
func (s *Server) appendItemStats(dst []byte, sn *snapshot) []byte {
	st := &sn.store
	maintained, temporary := !s.cfg.Extended.NoLRUMaintainer, s.lru.figures().temporary
	l := statLines(dst)
	for i := range st.Classes {
		c := &st.Classes[i]
		if c.Items == 0 {
			continue
		}
		prefix := "items:" + strconv.Itoa(i+1) + ":"
		for _, row := range []struct {
			name string
			v    uint64
		}{
			{"number", c.Items},
			{"number_hot", c.Window},
			{"number_warm", c.Protected},
			{"number_cold", c.Probation},
			{"number_temp", c.Temporary},
			{"age_hot", uint64(c.AgeWindow)},
			{"age_warm", uint64(c.AgeProtected)},
			{"age", uint64(c.Age)},
			{"mem_requested", c.MemRequested},
			{"evicted", c.Evicted},
			{"evicted_nonzero", c.EvictedNonzero},
			{"evicted_time", uint64(c.EvictedTime)},
			{"outofmemory", c.OutOfMemory},
			{"tailrepairs", 0},
			{"reclaimed", c.Reclaimed},
			{"expired_unfetched", c.ExpiredUnfetched},
			{"evicted_unfetched", c.EvictedUnfetched},
			{"evicted_active", c.EvictedActive},
			{"crawler_reclaimed", c.SweepReclaimed},
			{"crawler_items_checked", c.SweepChecked},
			{"lrutail_reflocked", 0},
			{"moves_to_cold", c.MovesToCold},
			{"moves_to_warm", c.MovesToWarm},
			{"moves_within_lru", c.MovesWithin},
			{"direct_reclaims", c.DirectReclaims},
			{"hits_to_hot", c.HitsWindow},
			{"hits_to_warm", c.HitsProtected},
			{"hits_to_cold", c.HitsProbation},
			{"hits_to_temp", c.HitsTemporary},
		} {
			switch {
			case !maintained && ofMaintainer[row.name], row.name == "number_temp" && !temporary:
				continue
			}
			l.num(prefix+row.name, row.v)
		}
	}
	return append(l, statsEnd...)
}

// appendSlabStats answers stats slabs: each class with pages.
func (s *Server) appendSlabStats(dst []byte, sn *snapshot) []byte {
	st := &sn.store
	l := statLines(dst)
	active := uint64(0)
	for i := range st.Classes {
		c := &st.Classes[i]
		if c.Pages == 0 {
			continue
		}
		active++
		prefix := strconv.Itoa(i+1) + ":"
		for _, row := range []struct {
			name string
			v    uint64
		}{
			{"chunk_size", uint64(c.ChunkBytes)},
			{"chunks_per_page", uint64(c.ChunksPerPage)},
			{"total_pages", c.Pages},
			{"total_chunks", c.UsedChunks + c.FreeChunks},
			{"used_chunks", c.UsedChunks},
			{"free_chunks", c.FreeChunks},
			{"free_chunks_end", 0},
			{"get_hits", c.GetHits},
			{"cmd_set", c.CmdSet},
			{"delete_hits", c.DeleteHits},
			{"incr_hits", c.IncrHits},
			{"decr_hits", c.DecrHits},
			{"cas_hits", c.CasHits},
			{"cas_badval", c.CasBadval},
			{"touch_hits", c.TouchHits},
		} {
			l.num(prefix+row.name, row.v)
		}
	}
	l.num("active_slabs", active)
	l.num("total_malloced", uint64(st.HeldBytes))
	return append(l, statsEnd...)
}

// appendSizeStats answers stats sizes: how many items take how much.
func (s *Server) appendSizeStats(dst []byte) []byte {
	l := statLines(dst)
	sizes := s.store.Sizes()
	if sizes == nil {
		l.text("sizes_status", "disabled")
	}
	for i, n := range sizes {
		if n > 0 {
			l.num(strconv.Itoa(i*store.SizeStepBytes), n)
		}
	}
	return append(l, statsEnd...)
}
