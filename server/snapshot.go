package server

import (
	"os"
	"syscall"

	"github.com/quarrycache/quarry/server/store"
)

// snapshot is the server at one moment. stats, /metrics and the admin page are
// three ways to show it, so they cannot disagree.
type snapshot struct {
	pid      int
	now      store.Time
	store    store.Stats
	counters counters
	conns    connFigures
	buffers  bufferFigures
	tls      tlsFigures
	watch    watchFigures
	clock    clockFigures
	usage    syscall.Rusage // of the process
}

// snapshot takes one.
func (s *Server) snapshot(now store.Time) *snapshot {
	sn := &snapshot{
		pid:      os.Getpid(),
		now:      now,
		counters: s.totals.sum(),
		conns:    s.connStats(),
		buffers:  s.bufferStats(),
		tls:      s.tlsStats(now),
		watch:    s.watch.stats(),
		clock:    s.guard.stats(),
	}
	s.store.Snapshot(now, &sn.store)
	if syscall.Getrusage(syscall.RUSAGE_SELF, &sn.usage) != nil {
		sn.usage = syscall.Rusage{}
	}
	return sn
}

// seconds is a time of a Rusage.
func seconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// fullSnapshot is what admin HTTP shows: a snapshot, and what costs more than
// a command may.
type fullSnapshot struct {
	*snapshot
	memory    processMemory
	latencies [commandClasses]latencyCounts
	tenants   []store.TenantStats // see Store.Tenants
	other     store.TenantStats
}

// fullSnapshot takes one, with at most tenantsMax tenants that have no quota
// of their own.
func (s *Server) fullSnapshot(now store.Time, tenantsMax int) *fullSnapshot {
	p := pace{stalls: s.stalls}
	p.begin("figures")
	sn := &fullSnapshot{snapshot: s.snapshot(now)}
	p.yield()
	sn.memory = readProcessMemory()
	p.yield()
	s.latencies.counts(&sn.latencies)
	p.yield()
	sn.tenants, sn.other = s.store.Tenants(tenantsMax)
	p.end()
	return sn
}
