package cluster

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// prefixesMax bounds the prefixes that have statistics of their own; those that
// come later are counted together, as OtherPrefixes.
const prefixesMax = 256

// OtherPrefixes stands for the prefixes beyond the bound in Stats.
const OtherPrefixes = "*"

// counters are what the client counts of itself.
type counters struct {
	mapFetches, mapFailures, mapsAdopted atomic.Uint64
	moved, lost                          atomic.Uint64
	copyReads, expired, disagreed        atomic.Uint64

	loads, loadErrors, loadsLate, refreshes atomic.Uint64
	fillsRefused, fillErrors                atomic.Uint64
	directLoads, directDenied               atomic.Uint64
	shadowSame, shadowOlder, shadowDiffers  atomic.Uint64
	bypassed, bypassDenied                  atomic.Uint64
}

// prefixCounters are those of the keys that begin alike.
type prefixCounters struct {
	outcomes [outcomes]atomic.Uint64
	near     atomic.Uint64 // hits beside them, from the near cache
	source   atomic.Uint64 // of them, from the source
	latency  histogram     // of reads that went further than the near cache
	lag      histogram     // from the commit of a change until all have heard
}

// prefixTable finds the counters of a prefix without a lock.
type prefixTable struct {
	mu  sync.Mutex // changes
	now atomic.Pointer[map[string]*prefixCounters]
}

// prefixOf is what stands before the first ':' of a key: its namespace.
func prefixOf(key string) string {
	if i := strings.IndexByte(key, ':'); i >= 0 {
		return key[:i]
	}
	return ""
}

// of are the counters of a key.
func (t *prefixTable) of(key string) *prefixCounters {
	prefix := prefixOf(key)
	m := t.now.Load()
	if m != nil {
		if p := (*m)[prefix]; p != nil {
			return p
		}
		if len(*m) >= prefixesMax {
			return (*m)[OtherPrefixes]
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	next := map[string]*prefixCounters{OtherPrefixes: new(prefixCounters)}
	if m := t.now.Load(); m != nil {
		for k, p := range *m {
			next[k] = p
		}
	}
	prefix = strings.Clone(prefix) // not to hold the key
	if next[prefix] == nil && len(next) >= prefixesMax {
		prefix = OtherPrefixes
	}
	if next[prefix] == nil {
		next[prefix] = new(prefixCounters)
	}
	t.now.Store(&next)
	return next[prefix]
}

// read counts a read that went further than the near cache.
func (p *prefixCounters) read(r *Result, took time.Duration) {
	p.outcomes[r.Outcome].Add(1)
	if r.From == FromSource {
		p.source.Add(1)
	}
	p.latency.add(took)
}

// histogram counts durations by their µs: each power of two in four steps.
type histogram struct{ n [4 * 30]atomic.Uint64 }

// step is the step of a duration of us µs. Below 8 each has one of its own.
func step(us uint64) int {
	e := max(bits.Len64(us)-3, 0) // bits that are dropped
	return 4*e + int(us>>e)
}

// upTo is the first µs behind a step.
func upTo(step int) uint64 {
	if step < 8 {
		return uint64(step) + 1
	}
	e := step/4 - 1
	return uint64(step-4*e+1) << e
}

func (h *histogram) add(d time.Duration) {
	h.n[min(step(uint64(max(d.Microseconds(), 0))), len(h.n)-1)].Add(1)
}

// quantile is the duration that a part q of all are below.
func (h *histogram) quantile(q float64) time.Duration {
	var counts [len(h.n)]uint64
	total := uint64(0)
	for i := range h.n {
		counts[i] = h.n[i].Load()
		total += counts[i]
	}
	left := uint64(q * float64(total))
	for i, n := range counts {
		if n > left {
			return time.Duration(upTo(i)) * time.Microsecond
		}
		left -= n
	}
	return 0
}

// Stats are the figures of a client since it was made.
type Stats struct {
	Epoch                          uint64 // of the map, 0 without one
	MapFetches, MapFailures        uint64
	Moved                          uint64 // answers that named another node
	Lost                           uint64 // requests that no node took for its own
	CopyReads                      uint64 // that copies answered
	Expired                        uint64 // values that were past their hard deadline
	Disagreed                      uint64 // places of split keys that were behind
	Merged                         uint64 // Fetches that waited for another one's result
	Loads, LoadErrors, LoadsLate   uint64
	Refreshes                      uint64 // loads that nobody waited for
	FillsRefused, FillErrors       uint64
	DirectLoads, DirectDenied      uint64 // loads past the cache, and those that there was no budget for
	NoticesRetried, NoticesDropped uint64
	ShadowSame, ShadowOlder        uint64 // Options.Rollout: what the cache would have answered
	ShadowDiffers                  uint64
	RolloutBypassed, RolloutDenied uint64
	Nodes                          []NodeStats
	Prefixes                       []PrefixStats
}

// NodeStats are those of a node.
type NodeStats struct {
	Addr     string
	Requests uint64
	Reads    uint64 // of them, of keys
	Failures uint64 // of them, without an answer
	Rejected uint64 // not sent, since the node is left alone
	Opened   uint64 // times that the node was left alone
	Open     bool   // it is, now
	Dials    uint64
}

// PrefixStats are those of the keys with a prefix: what stands before the first
// ':'.
type PrefixStats struct {
	Prefix string

	Hits, Stale, Negative, Misses, Unavailable uint64
	Near, Source                               uint64 // of them, by where they came from

	// P50 and P99 are of reads that went further than the near cache; LagP99
	// of notices, from the commit of the change that InvalidateSince was told.
	P50, P99, LagP99 time.Duration
}

// HitRatio is the part of the reads that found a value, stale or not, or that
// the source has none, without asking the source.
func (p *PrefixStats) HitRatio() float64 {
	found := p.Hits + p.Stale + p.Negative
	all := found + p.Misses + p.Unavailable
	if all == 0 {
		return 0
	}
	return float64(found-min(p.Source, found)) / float64(all)
}

// Stats are the client's figures now.
func (c *Client) Stats() Stats {
	n := &c.counters
	s := Stats{
		MapFetches: n.mapFetches.Load(), MapFailures: n.mapFailures.Load(), Moved: n.moved.Load(), Lost: n.lost.Load(),
		CopyReads: n.copyReads.Load(), Expired: n.expired.Load(), Disagreed: n.disagreed.Load(), Merged: c.flights.merged.Load(),
		Loads: n.loads.Load(), LoadErrors: n.loadErrors.Load(), LoadsLate: n.loadsLate.Load(), Refreshes: n.refreshes.Load(),
		FillsRefused: n.fillsRefused.Load(), FillErrors: n.fillErrors.Load(),
		DirectLoads: n.directLoads.Load(), DirectDenied: n.directDenied.Load(),
		NoticesRetried: c.retry.again.Load(), NoticesDropped: c.retry.dropped.Load(),
		ShadowSame: n.shadowSame.Load(), ShadowOlder: n.shadowOlder.Load(), ShadowDiffers: n.shadowDiffers.Load(),
		RolloutBypassed: n.bypassed.Load(), RolloutDenied: n.bypassDenied.Load(),
	}
	if v := c.view.Load(); v != nil {
		s.Epoch = v.epoch
		for _, x := range v.nodes {
			ns := NodeStats{Addr: x.addr, Requests: x.requests.Load(), Reads: x.reads(), Failures: x.failures.Load(), Rejected: x.rejected.Load(),
				Opened: x.opened.Load(), Open: x.shut.Load()}
			for _, l := range x.links {
				ns.Dials += l.Stats().Dials
			}
			s.Nodes = append(s.Nodes, ns)
		}
	}
	if m := c.prefixes.now.Load(); m != nil {
		for prefix, p := range *m {
			s.Prefixes = append(s.Prefixes, p.stats(prefix))
		}
	}
	slices.SortFunc(s.Prefixes, func(a, b PrefixStats) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return s
}

func (p *prefixCounters) stats(prefix string) PrefixStats {
	near := p.near.Load()
	return PrefixStats{
		Prefix: prefix, Near: near, Source: p.source.Load(),
		Hits: p.outcomes[Hit].Load() + near, Stale: p.outcomes[Stale].Load(), Negative: p.outcomes[Negative].Load(),
		Misses: p.outcomes[Miss].Load(), Unavailable: p.outcomes[Unavailable].Load(),
		P50: p.latency.quantile(0.5), P99: p.latency.quantile(0.99), LagP99: p.lag.quantile(0.99),
	}
}
