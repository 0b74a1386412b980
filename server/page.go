package server

import (
	"embed"
	"encoding/json"
	"net/http"
	"runtime/metrics"

	"github.com/quarrycache/quarry/server/store"
)

// pageFiles are the admin page. It has no build step, and asks nobody but this
// server for anything.
//
//go:embed page/index.html page/page.css page/page.js page/icon.svg
var pageFiles embed.FS

// file answers with a file of the page.
func (a *admin) file(name, contentType string) http.HandlerFunc {
	text, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic("server: the page lacks " + name)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(text) // who asked may be gone
	}
}

// figures is a snapshot as the page gets it. Counters count since the start or
// the last stats reset; the page makes rates of them.
type figures struct {
	Version       string   `json:"version"`
	PID           int      `json:"pid"`
	Addresses     []string `json:"addresses"`
	State         string   `json:"state"`
	TimeMillis    int64    `json:"time_ms"`
	UptimeSeconds uint64   `json:"uptime_seconds"`
	Loops         int      `json:"loops"`
	Shards        int      `json:"shards"`

	Requests    uint64 `json:"requests"`
	GetHits     uint64 `json:"get_hits"`
	GetMisses   uint64 `json:"get_misses"`
	Sets        uint64 `json:"sets"`
	Deletes     uint64 `json:"deletes"`
	Ariths      uint64 `json:"ariths"`
	Touches     uint64 `json:"touches"`
	Evictions   uint64 `json:"evictions"`
	Expirations uint64 `json:"expirations"` // seen by the sweeper, or for room
	TooLarge    uint64 `json:"too_large"`
	NoMemory    uint64 `json:"no_memory"`

	BytesRead    uint64      `json:"bytes_read"`
	BytesWritten uint64      `json:"bytes_written"`
	Connections  connsFigure `json:"connections"`

	Policy        string          `json:"policy"`
	WindowPercent float64         `json:"window_percent"`
	Admitted      uint64          `json:"admitted"`
	Rejected      uint64          `json:"rejected"`
	Segments      []segmentFigure `json:"segments"`

	Items         uint64         `json:"items"`
	LimitBytes    int64          `json:"limit_bytes"`
	HeldBytes     int64          `json:"held_bytes"`
	UncarvedBytes int64          `json:"uncarved_bytes"`
	SendingBytes  int64          `json:"sending_bytes"`
	ResidentBytes int64          `json:"resident_bytes"`
	Memory        []memoryFigure `json:"memory"`
	Classes       []classFigure  `json:"classes"`
	PagesMoved    uint64         `json:"pages_moved"`
	SweepChecked  uint64         `json:"sweep_checked"`

	CPUSeconds float64         `json:"cpu_seconds"`
	GCCycles   uint64          `json:"gc_cycles"`
	Latency    []latencyFigure `json:"latency"`
	Tenants    []tenantFigure  `json:"tenants,omitempty"`   // none without --tenant-delimiter
	Freshness  *freshFacts     `json:"freshness,omitempty"` // none while nobody uses it
}

type freshFacts struct {
	Grants          uint64 `json:"grants"`
	Background      uint64 `json:"grants_background"`
	Waits           uint64 `json:"waits"`
	Denials         uint64 `json:"denials"`
	Filled          uint64 `json:"filled"`
	Refused         uint64 `json:"refused"`
	Notices         uint64 `json:"notices"`
	Inflight        int    `json:"in_flight"`
	InflightMax     int    `json:"in_flight_max"`
	Versioned       uint64 `json:"versioned_items"`
	Records         int    `json:"records"`
	RecordsMax      int    `json:"records_max"`
	FillMillis      int64  `json:"fill_ms"`
	ClockDistrusted bool   `json:"clock_distrusted"`
}

// freshFacts are the figures of freshness, nil while nobody uses it.
func (sn *snapshot) freshFacts() *freshFacts {
	f := &sn.store.Fresh
	facts := &freshFacts{
		Grants:     f.GrantsForeground + f.GrantsBackground + f.GrantsStrong,
		Background: f.GrantsBackground,
		Waits:      f.Waits, Denials: f.Denials,
		Filled:   f.Fills + f.Revalidations + f.Absences + f.VersionedWrites,
		Notices:  f.Notices + f.Takedowns,
		Inflight: f.Inflight, InflightMax: f.InflightMax,
		Versioned: f.Versioned, Records: f.Records, RecordsMax: f.RecordsMax,
		FillMillis: f.FillMillis, ClockDistrusted: sn.clock.Distrusted,
	}
	for _, n := range f.Refused {
		facts.Refused += n
	}
	if facts.Grants+facts.Filled+facts.Refused+facts.Notices+facts.Versioned == 0 && facts.Records == 0 && !facts.ClockDistrusted {
		return nil
	}
	return facts
}

type connsFigure struct {
	Current   uint64 `json:"current"`
	Max       int    `json:"max"`
	Total     uint64 `json:"total"`
	Rejected  uint64 `json:"rejected"`
	Aside     uint64 `json:"aside"`
	Asides    uint64 `json:"asides"`
	IdleKicks uint64 `json:"idle_kicks"`
}

type segmentFigure struct {
	Name  string `json:"name"`
	Items uint64 `json:"items"`
	Hits  uint64 `json:"hits"`
}

type memoryFigure struct {
	Use   string `json:"use"`
	Bytes int64  `json:"bytes"`
}

type classFigure struct {
	Class          int    `json:"class"`
	ChunkBytes     int    `json:"chunk_bytes"`
	Pages          uint64 `json:"pages"`
	HeldBytes      uint64 `json:"held_bytes"`
	RequestedBytes uint64 `json:"requested_bytes"`
	Items          uint64 `json:"items"`
	Hits           uint64 `json:"hits"`
	Evictions      uint64 `json:"evictions"`
}

type latencyFigure struct {
	Class   string      `json:"class"`
	Buckets [][2]uint64 `json:"buckets"` // end in nanoseconds, commands; those with none are left out
}

type tenantFigure struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Items      uint64 `json:"items"`
	Bytes      uint64 `json:"bytes"`
	QuotaBytes int64  `json:"quota_bytes"`
	Hits       uint64 `json:"hits"`
	Misses     uint64 `json:"misses"`
	Evicted    uint64 `json:"evicted"`
	Refused    uint64 `json:"refused"`
}

// figures answers /stats.json.
func (a *admin) figures(w http.ResponseWriter, _ *http.Request) {
	var f figures
	if !a.look(func(s *Server, now store.Time) {
		s.fillFigures(&f, s.fullSnapshot(now, tenantsExposedMax))
	}) {
		respond(w, http.StatusServiceUnavailable, stateStopping)
		return
	}
	f.State = a.state()
	w.Header().Set("Content-Type", "application/json")
	p := pace{stalls: a.srv.stalls}
	p.begin("page")
	_ = json.NewEncoder(w).Encode(&f) // who asked may be gone
	p.end()
}

// fillFigures puts sn into f.
func (s *Server) fillFigures(f *figures, sn *fullSnapshot) {
	st, t, c := &sn.store, &sn.store.Total, &sn.conns
	*f = figures{
		Version: Version, PID: sn.pid, TimeMillis: int64(sn.now), UptimeSeconds: s.uptimeSeconds(sn.now),
		Loops: s.cfg.Threads, Shards: st.Shards,

		Requests: sn.counters.requests,
		GetHits:  t.GetHits, GetMisses: st.GetMisses, Sets: t.CmdSet,
		Deletes:   t.DeleteHits + st.DeleteMisses,
		Ariths:    t.IncrHits + st.IncrMisses + t.DecrHits + st.DecrMisses,
		Touches:   t.TouchHits + st.TouchMisses,
		Evictions: t.Evicted, Expirations: t.Reclaimed + t.SweepReclaimed,
		TooLarge: st.TooLarge, NoMemory: st.NoMemory,

		BytesRead: sn.counters.bytesRead, BytesWritten: sn.counters.bytesWritten,
		Connections: connsFigure{
			Current: c.Current, Max: s.cfg.MaxConns, Total: c.Total, Rejected: c.Rejected,
			Aside: c.Aside, Asides: c.Asides, IdleKicks: c.IdleKicks,
		},

		Policy: store.PolicyName(st.Policy), WindowPercent: st.WindowPercent,
		Admitted: t.Admitted, Rejected: t.Rejected,

		Items: t.Items, LimitBytes: st.LimitBytes, HeldBytes: st.HeldBytes,
		UncarvedBytes: st.Memory.UncarvedBytes, SendingBytes: st.PinnedBytes,
		ResidentBytes: sn.memory.resident, PagesMoved: st.PagesMoved, SweepChecked: st.Total.SweepChecked,

		CPUSeconds: seconds(sn.usage.Utime) + seconds(sn.usage.Stime), GCCycles: gcCycles(),
	}
	for _, addr := range s.Addrs() {
		f.Addresses = append(f.Addresses, addr.String())
	}
	for _, g := range segmentFigures(t) {
		f.Segments = append(f.Segments, segmentFigure{g.name, g.items, g.hits})
	}
	for _, row := range memoryRows(&st.Memory, &sn.memory) {
		f.Memory = append(f.Memory, memoryFigure{row.name, row.bytes})
	}
	f.Classes = []classFigure{}
	for i := range st.Classes {
		if c := &st.Classes[i]; c.Pages > 0 {
			f.Classes = append(f.Classes, classFigure{
				Class: i + 1, ChunkBytes: c.ChunkBytes, Pages: c.Pages, HeldBytes: c.Pages * uint64(st.PageBytes),
				RequestedBytes: c.MemRequested, Items: c.Items, Hits: c.GetHits, Evictions: c.Evicted,
			})
		}
	}
	for i := range sn.latencies {
		f.Latency = append(f.Latency, latencyFigure{commandClassNames[i], sn.latencies[i].used()})
	}
	f.Freshness = sn.freshFacts()
	if s.cfg.TenantDelimiter != 0 {
		for _, r := range sn.tenantRows() {
			f.Tenants = append(f.Tenants, tenantFigure{
				Name: r.t.Name, Kind: r.kind, Items: r.t.Items, Bytes: r.t.Bytes, QuotaBytes: r.t.Quota.MemoryBytes,
				Hits: r.t.Hits, Misses: r.t.Misses, Evicted: r.t.Evicted,
				Refused: r.t.RefusedMemory + r.t.RefusedRate + r.t.RefusedValue,
			})
		}
	}
}

// used are the buckets with something in them.
func (c *latencyCounts) used() [][2]uint64 {
	pairs := [][2]uint64{}
	for i, n := range c.buckets {
		if n > 0 {
			pairs = append(pairs, [2]uint64{latencyEnd(i), n})
		}
	}
	return pairs
}

// gcCycles is how often Go's collector ran.
func gcCycles() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
