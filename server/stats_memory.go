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
func (s *Server) appendMemoryStats(dst []byte, sn *snapshot) []byte {
	st, t, m := &sn.store, &sn.store.Total, &sn.store.Memory
	p := readProcessMemory()

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

	for _, row := range memoryRows(m, &p) {
		l.num(row.name+"_bytes", uint64(row.bytes))
	}
	l.num("total_bytes", uint64(m.Sum()+p.goHeap+p.goOther+p.program))
	l.num("rss_bytes", uint64(p.resident))
	return append(l, statsEnd...)
}

// memoryRow is one use that memory is put to.
type memoryRow struct {
	name  string
	bytes int64
}

// memoryRows say what every byte of the process is spent on.
func memoryRows(m *store.Memory, p *processMemory) []memoryRow {
	return []memoryRow{
		{"key_value", m.KeyValueBytes},
		{"header", m.HeaderBytes},
		{"rounding", m.RoundingBytes},
		{"free_chunk", m.FreeBytes},
		{"idle_page", m.IdleBytes},
		{"pinned", m.PinnedBytes},
		{"upload", m.UploadBytes},
		{"index", m.IndexBytes},
		{"index_overflow", m.OverflowBytes},
		{"sketch", m.SketchBytes},
		{"record", m.RecordBytes},
		{"go_heap", p.goHeap},
		{"go_other", p.goOther},
		{"program", p.program},
	}
}

// processMemory is what the process has of memory beside the store's.
type processMemory struct {
	goHeap, goOther   int64 // see goMemory
	resident, program int64 // see residentMemory
}

func readProcessMemory() (p processMemory) {
	p.goHeap, p.goOther = goMemory()
	p.resident, p.program = residentMemory()
	return p
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
