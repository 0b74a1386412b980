package main

import (
	"log/slog"
	"math"
	"runtime/metrics"
)

// logRuntime says which of the Go runtime's settings are in force: they come
// from its defaults and from GOMAXPROCS, GOGC and GOMEMLIMIT.
func logRuntime() {
	samples := []metrics.Sample{
		{Name: "/sched/gomaxprocs:threads"},
		{Name: "/gc/gogc:percent"},
		{Name: "/gc/gomemlimit:bytes"},
	}
	metrics.Read(samples)
	limit := any(samples[2].Value.Uint64())
	if limit == uint64(math.MaxInt64) {
		limit = "none"
	}
	slog.Info("go runtime",
		"gomaxprocs", samples[0].Value.Uint64(),
		"gogc", samples[1].Value.Uint64(),
		"gomemlimit", limit)
}
