package server

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"

	"github.com/quarrycache/quarry/server/store"
)

// appendMemoryStats answers stats memory, which memcached does not have: what
// the policy does, and what every byte of the process is spent on. The rows
// from key_value_bytes to program_bytes add up to total_bytes, which is about
// rss_bytes. docs/memory.md explains them.
func (s *Server) appendMemoryStats(dst []byte, now store.Time) []byte {
	var st store.Stats
	s.store.Snapshot(now, &st)
	t, m := &st.Total, &st.Memory
	goHeap, goOther := goMemory()
	rss, program := residentMemory()

	l := statLines(dst)
	l.text("policy", store.PolicyName(st.Policy))
	l.fixed("window_percent", st.WindowPercent, 2)
	l.num("admitted", t.Admitted)
	l.num("rejected", t.Rejected)
	l.num("items_window", t.Window)
	l.num("items_probation", t.Probation)
	l.num("items_protected", t.Protected)
	l.num("hits_window", t.HitsWindow)
	l.num("hits_probation", t.HitsProbation)
	l.num("hits_protected", t.HitsProtected)
	l.num("chain_evictions", st.ChainEvictions)

	l.num("shards", uint64(st.Shards))
	l.num("page_bytes", uint64(st.PageBytes))
	l.num("limit_bytes", uint64(st.LimitBytes))
	l.num("limit_max_bytes", uint64(s.store.LimitMax()))
	l.num("held_bytes", uint64(st.HeldBytes))
	l.num("uncarved_bytes", uint64(m.UncarvedBytes))
	l.num("sending_bytes", uint64(st.PinnedBytes))

	for _, row := range []struct {
		name  string
		bytes int64
	}{
		{"key_value_bytes", m.KeyValueBytes},
		{"header_bytes", m.HeaderBytes},
		{"rounding_bytes", m.RoundingBytes},
		{"free_chunk_bytes", m.FreeBytes},
		{"idle_page_bytes", m.IdleBytes},
		{"pinned_bytes", m.PinnedBytes},
		{"upload_bytes", m.UploadBytes},
		{"index_bytes", m.IndexBytes},
		{"index_overflow_bytes", m.OverflowBytes},
		{"sketch_bytes", m.SketchBytes},
		{"go_heap_bytes", goHeap},
		{"go_other_bytes", goOther},
		{"program_bytes", program},
		{"total_bytes", m.Sum() + goHeap + goOther + program},
		{"rss_bytes", rss},
	} {
		l.num(row.name, uint64(row.bytes))
	}
	return append(l, statsEnd...)
}

// goMemory is what the Go runtime has from the system: its heap, and its
// stacks and tables. Item memory is not part of it.
func goMemory() (heap, other int64) {
	heapNames := []string{
		"/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/unused:bytes",
		"/memory/classes/heap/free:bytes",
	}
	samples := make([]metrics.Sample, 0, len(heapNames)+2)
	for _, name := range append(heapNames, "/memory/classes/heap/released:bytes", "/memory/classes/total:bytes") {
		samples = append(samples, metrics.Sample{Name: name})
	}
	metrics.Read(samples)
	value := func(i int) int64 { return int64(samples[i].Value.Uint64()) }
	for i := range heapNames {
		heap += value(i)
	}
	released, total := value(len(heapNames)), value(len(heapNames)+1)
	return heap, total - released - heap
}

// residentMemory is how much of the process is in memory, and how much of
// that are files: the program itself. Both are 0 where /proc does not say.
func residentMemory() (rss, program int64) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(b) // size resident shared ..., in pages of the system
	if len(fields) < 3 {
		return 0, 0
	}
	page := int64(os.Getpagesize())
	resident, err1 := strconv.ParseInt(string(fields[1]), 10, 64)
	shared, err2 := strconv.ParseInt(string(fields[2]), 10, 64)
	if err1 != nil || err2 != nil {
		return 0, 0
	}
	return resident * page, shared * page
}
