package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/quarrycache/quarry/cluster"
)

// ClusterReport is what a run through clients came to, over its measured time.
// An operation is one key that was asked for, stored or changed.
type ClusterReport struct {
	Load ClusterSetting `json:"load"`

	Seconds      float64 `json:"seconds"`
	Requests     uint64  `json:"requests"`
	Operations   uint64  `json:"operations"`
	OpsPerSecond float64 `json:"ops_per_second"`
	Late         uint64  `json:"late"` // due in the measured time, never sent (open loop)

	Latency Latency `json:"latency"`

	Outcomes Outcomes `json:"outcomes"`
	From     Origins  `json:"from"`
	Merged   uint64   `json:"merged"` // Fetches that waited for the answer of another one

	Sets       uint64 `json:"sets"`
	Fills      uint64 `json:"fills"`  // of them, after a miss (look-aside)
	Errors     uint64 `json:"errors"` // of sets
	FirstError string `json:"first_error,omitempty"`
	Corrupt    uint64 `json:"corrupt"` // reads with what the key never had (verify)

	Source *SourceUse `json:"source,omitempty"` // of Fetch

	// Nodes are what the clients sent to them, the busiest first.
	Nodes          []NodeUse `json:"nodes"`
	ReadsPerSecond float64   `json:"node_reads_per_second"` // of all nodes: what the near caches and flights let through
	Moved          uint64    `json:"moved"`                 // answers that named another node

	// GeneratorCPU is the CPU time this process used, in cores: the clients'
	// own is in it.
	GeneratorCPU float64 `json:"generator_cpu"`
}

// ClusterSetting is the load that a report is about.
type ClusterSetting struct {
	Seeds         []string     `json:"seeds"`
	Clients       int          `json:"clients"`
	Goroutines    int          `json:"goroutines"`
	NearMS        float64      `json:"near_ms"`
	Copies        bool         `json:"copies"`
	Fetch         bool         `json:"fetch"`
	SplitRandom   bool         `json:"split_random"`
	SourceMS      float64      `json:"source_ms"`
	SourceErrors  float64      `json:"source_errors"`
	SourceAbsent  float64      `json:"source_absent"`
	Multiget      int          `json:"multiget"`
	Ratio         string       `json:"ratio"`
	Keys          uint64       `json:"keys"`
	KeyBytes      int          `json:"key_bytes"`
	ValueSize     string       `json:"value_size"`
	Distribution  Distribution `json:"distribution"`
	Lookaside     bool         `json:"lookaside"`
	Verify        bool         `json:"verify"`
	RatePerSecond float64      `json:"rate"`
}

// Outcomes are reads by what they found.
type Outcomes struct {
	Hit         uint64 `json:"hit"`
	Stale       uint64 `json:"stale"`
	Negative    uint64 `json:"negative"`
	Miss        uint64 `json:"miss"`
	Unavailable uint64 `json:"unavailable"`
}

func (o *Outcomes) sum() uint64 { return o.Hit + o.Stale + o.Negative + o.Miss + o.Unavailable }

// Origins are reads that found something, by where it came from.
type Origins struct {
	Near   uint64 `json:"near"`
	Owner  uint64 `json:"owner"`
	Copy   uint64 `json:"copy"`
	Source uint64 `json:"source"`
}

// SourceUse is what reached the source.
type SourceUse struct {
	Loads          int64   `json:"loads"`
	LoadsPerSecond float64 `json:"loads_per_second"`
	Failed         int64   `json:"failed"`
	AtOnceMax      int64   `json:"at_once_max"`
}

// NodeUse is what reached a node.
type NodeUse struct {
	Addr           string  `json:"addr"`
	Reads          uint64  `json:"reads"`
	ReadsPerSecond float64 `json:"reads_per_second"`
	Share          float64 `json:"share"` // of the reads of all nodes
	Failures       uint64  `json:"failures"`
	Rejected       uint64  `json:"rejected"` // not sent, since the node was left alone
}

// clusterStats are sums over the clients.
type clusterStats struct {
	merged, moved uint64
	nodes         map[string]cluster.NodeStats
}

func (l *clusterLoad) stats() clusterStats {
	sum := clusterStats{nodes: make(map[string]cluster.NodeStats)}
	for _, c := range l.clients {
		s := c.Stats()
		sum.merged += s.Merged
		sum.moved += s.Moved
		for _, n := range s.Nodes {
			x := sum.nodes[n.Addr]
			x.Reads += n.Reads
			x.Failures += n.Failures
			x.Rejected += n.Rejected
			sum.nodes[n.Addr] = x
		}
	}
	return sum
}

// report is the report on the time between two instants, when all have ended.
func (l *clusterLoad) report(from, to clusterInstant) *ClusterReport {
	seconds := float64(to.atNS-from.atNS) / 1e9
	var c clusterCounts
	r := &ClusterReport{Load: l.config.setting(), Seconds: seconds}
	for _, a := range l.askers {
		c.add(&a.counts)
		r.Late += a.late(to.atNS)
	}
	r.Requests, r.Operations = c.requests, c.operations()
	r.OpsPerSecond = ratio(float64(r.Operations), seconds)
	r.Latency = latencyOf(l.latency)
	r.Outcomes = Outcomes{c.outcomes[cluster.Hit], c.outcomes[cluster.Stale], c.outcomes[cluster.Negative], c.outcomes[cluster.Miss], c.outcomes[cluster.Unavailable]}
	r.From = Origins{c.origins[cluster.FromNear], c.origins[cluster.FromOwner], c.origins[cluster.FromCopy], c.origins[cluster.FromSource]}
	r.Merged, r.Moved = to.stats.merged-from.stats.merged, to.stats.moved-from.stats.moved
	r.Sets, r.Fills, r.Errors, r.FirstError, r.Corrupt = c.sets, c.fills, c.errors, c.firstError, c.corrupt
	if l.source != nil {
		loads := to.loads - from.loads
		r.Source = &SourceUse{loads, ratio(float64(loads), seconds), to.failed - from.failed, l.source.underMax.Load()}
	}
	reads := uint64(0)
	for addr, n := range to.stats.nodes {
		was := from.stats.nodes[addr]
		u := NodeUse{Addr: addr, Reads: n.Reads - min(was.Reads, n.Reads), Failures: n.Failures - min(was.Failures, n.Failures), Rejected: n.Rejected - min(was.Rejected, n.Rejected)}
		u.ReadsPerSecond = ratio(float64(u.Reads), seconds)
		reads += u.Reads
		r.Nodes = append(r.Nodes, u)
	}
	for i := range r.Nodes {
		r.Nodes[i].Share = ratio(float64(r.Nodes[i].Reads), float64(reads))
	}
	slices.SortFunc(r.Nodes, func(a, b NodeUse) int { return cmp.Or(cmp.Compare(b.Reads, a.Reads), cmp.Compare(a.Addr, b.Addr)) })
	r.ReadsPerSecond = ratio(float64(reads), seconds)
	r.GeneratorCPU = ratio((to.ownCPU - from.ownCPU).Seconds(), seconds)
	return r
}

func (c *ClusterConfig) setting() ClusterSetting {
	return ClusterSetting{
		Seeds: c.Client.Seeds, Clients: c.Clients, Goroutines: c.Goroutines, NearMS: c.Near.Seconds() * 1000, Copies: c.Copies,
		Fetch: c.Fetch, SplitRandom: c.Client.SplitChoice == cluster.SplitRandom,
		SourceMS: c.Source.Latency.Seconds() * 1000, SourceErrors: c.Source.Errors, SourceAbsent: c.Source.Absent,
		Multiget: c.Multiget, Ratio: c.Ratio.String(), Keys: c.Keys, KeyBytes: c.KeyBytes, ValueSize: c.Sizes.String(),
		Distribution: c.Distribution, Lookaside: c.Lookaside, Verify: c.Verify, RatePerSecond: c.Rate,
	}
}

// WriteJSON writes r as JSON, one field a line.
func (r *ClusterReport) WriteJSON(w io.Writer) error { return writeIndented(w, r) }

// WriteText writes r for people.
func (r *ClusterReport) WriteText(w io.Writer) error {
	o, f := &r.Outcomes, &r.From
	share := func(n uint64) float64 { return 100 * ratio(float64(n), float64(o.sum())) }
	text := fmt.Appendf(nil, "%.0f ops/s over %.2f s\n", r.OpsPerSecond, r.Seconds)
	text = fmt.Appendf(text, "reads     %d: hit %.2f %%, stale %.2f %%, negative %.2f %%, miss %.2f %%, unavailable %.2f %%\n",
		o.sum(), share(o.Hit), share(o.Stale), share(o.Negative), share(o.Miss), share(o.Unavailable))
	text = fmt.Appendf(text, "from      near cache %.2f %%, owner %.2f %%, copy %.2f %%, source %.2f %%\n", share(f.Near), share(f.Owner), share(f.Copy), share(f.Source))
	if r.Load.Fetch {
		text = fmt.Appendf(text, "merged    %.2f %% waited for the answer of another\n", share(r.Merged))
	}
	text = fmt.Appendf(text, "sets      %d, of them %d after a miss; %d errors\n", r.Sets, r.Fills, r.Errors)
	if r.FirstError != "" {
		text = fmt.Appendf(text, "error     %q, the first\n", r.FirstError)
	}
	if r.Load.Verify {
		text = fmt.Appendf(text, "corrupt   %d\n", r.Corrupt)
	}
	if r.Load.RatePerSecond > 0 {
		text = fmt.Appendf(text, "late      %d requests due and never sent\n", r.Late)
	}
	text = fmt.Appendf(text, "latency   p50 %.1f us, p90 %.1f, p99 %.1f, p99.9 %.1f, max %.0f, mean %.1f\n",
		r.Latency.P50US, r.Latency.P90US, r.Latency.P99US, r.Latency.P999US, r.Latency.MaxUS, r.Latency.MeanUS)
	if s := r.Source; s != nil {
		text = fmt.Appendf(text, "source    %.1f loads/s (%d), %d failed, at most %d at once\n", s.LoadsPerSecond, s.Loads, s.Failed, s.AtOnceMax)
	}
	text = fmt.Appendf(text, "nodes     %.1f reads/s, %d answers that named another node\n", r.ReadsPerSecond, r.Moved)
	for _, n := range r.Nodes {
		text = fmt.Appendf(text, "          %-21s %.1f reads/s (%.1f %%)", n.Addr, n.ReadsPerSecond, 100*n.Share)
		if n.Failures+n.Rejected > 0 {
			text = fmt.Appendf(text, ", %d failed, %d not sent", n.Failures, n.Rejected)
		}
		text = append(text, '\n')
	}
	text = fmt.Appendf(text, "generator %.2f cores, clients included\n", r.GeneratorCPU)
	_, err := w.Write(text)
	return err
}
