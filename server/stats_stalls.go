package server

import (
	"math"
	"runtime/metrics"
	"strconv"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// runtimePauses are histograms of the Go runtime that stats stalls shows, since
// the start of the program.
var runtimePauses = []struct{ key, name string }{
	{"goroutine_wait", "/sched/latencies:seconds"}, // of one wait in 8
	{"gc_pause", "/sched/pauses/total/gc:seconds"},
	{"other_pause", "/sched/pauses/total/other:seconds"},
}

// appendStalls answers stats stalls, which memcached does not have: how many
// stalls there were of each cause, what the Go runtime knows of its own pauses,
// and the longest stalls, longest first. docs/scaling.md explains them.
func (s *Server) appendStalls(dst []byte) []byte {
	list, counts := s.stalls.Longest()

	l := statLines(dst)
	for c, n := range counts {
		l.num(store.StallCause(c).String(), n)
	}
	samples := make([]metrics.Sample, len(runtimePauses)+1)
	for i, p := range runtimePauses {
		samples[i].Name = p.name
	}
	samples[len(runtimePauses)].Name = "/gc/cycles/total:gc-cycles"
	metrics.Read(samples)
	l.num("gc_cycles", samples[len(runtimePauses)].Value.Uint64())
	for i, p := range runtimePauses {
		long, longest := longPauses(samples[i].Value.Float64Histogram())
		l.num(p.key+"_1ms", long)
		l.num(p.key+"_longest_us", uint64(longest*1e6))
	}
	for i := range list {
		l.stall(&list[i], strconv.Itoa(i+1))
	}
	return append(l, statsEnd...)
}

// longPauses is how many in h are of 1 ms or more, and the beginning of the last
// bucket that has one.
func longPauses(h *metrics.Float64Histogram) (long uint64, longest float64) {
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		from := h.Buckets[i]
		if math.IsInf(from, 0) {
			from = 0
		}
		longest = from
		if from >= time.Millisecond.Seconds() {
			long += n
		}
	}
	return long, longest
}

// stall is a line of a stall, in pairs of a name and a value.
func (l *statLines) stall(st *store.Stall, number string) {
	l.key("stall:" + number)
	b := append(append(*l, "cause="...), st.Cause.String()...)
	micros := func(name string, d time.Duration) {
		b = strconv.AppendInt(append(b, name...), d.Microseconds(), 10)
	}
	micros(" us=", st.Length)
	micros(" cpu_us=", st.CPU)
	micros(" others_us=", st.Others)
	b = append(append(b, " doing="...), st.Doing...)
	if st.By != "" {
		b = append(append(b, " by="...), st.By...)
	}
	if st.Requests > 0 || st.BytesIn > 0 || st.BytesOut > 0 {
		b = strconv.AppendUint(append(b, " requests="...), st.Requests, 10)
		b = strconv.AppendUint(append(b, " in="...), st.BytesIn, 10)
		b = strconv.AppendUint(append(b, " out="...), st.BytesOut, 10)
	}
	b = strconv.AppendInt(append(b, " at_ms="...), st.At.UnixMilli(), 10)
	*l = append(b, "\r\n"...)
}
