package bench

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is what a run came to, over its measured time. An operation is one
// key that was asked for or stored; a request is one that got its own reply.
type Report struct {
	Load Setting `json:"load"`

	Seconds           float64 `json:"seconds"`
	Requests          uint64  `json:"requests"`
	Operations        uint64  `json:"operations"`
	RequestsPerSecond float64 `json:"requests_per_second"`
	OpsPerSecond      float64 `json:"ops_per_second"`

	Hits   uint64 `json:"hits"`
	Misses uint64 `json:"misses"`
	Sets   uint64 `json:"sets"`  // stored, fills included
	Fills  uint64 `json:"fills"` // stored after a miss (look-aside)

	Errors     uint64 `json:"errors"` // error replies and sets refused
	FirstError string `json:"first_error,omitempty"`
	Corrupt    uint64 `json:"corrupt"` // hits with other data than was stored (verify)
	Late       uint64 `json:"late"`    // due in the measured time, never sent (open loop)

	SentBytesPerSecond     float64 `json:"sent_bytes_per_second"`
	ReceivedBytesPerSecond float64 `json:"received_bytes_per_second"`

	Latency Latency `json:"latency"`

	// GeneratorCPU is the CPU time this process used, in cores. At 1.00 for
	// each thread the generator was the bottleneck, not the server.
	GeneratorCPU float64 `json:"generator_cpu"`

	Server *ServerUse `json:"server_use,omitempty"` // with Config.ServerPID
}

// Setting is the load that a report is about.
type Setting struct {
	Server       string       `json:"server"`
	Threads      int          `json:"threads"`
	Conns        int          `json:"conns"`
	Protocol     Protocol     `json:"protocol"`
	Pipeline     int          `json:"pipeline"`
	Multiget     int          `json:"multiget"`
	Ratio        string       `json:"ratio"`
	Keys         uint64       `json:"keys"`
	KeyBytes     int          `json:"key_bytes"`
	ValueSize    string       `json:"value_size"`
	Distribution Distribution `json:"distribution"`
	Lookaside    bool         `json:"lookaside"`
	Verify       bool         `json:"verify"`
	Rate         float64      `json:"rate"`
}

// Latency is percentiles of the time to a reply, in microseconds.
type Latency struct {
	MeanUS float64 `json:"mean_us"`
	P50US  float64 `json:"p50_us"`
	P90US  float64 `json:"p90_us"`
	P99US  float64 `json:"p99_us"`
	P999US float64 `json:"p999_us"`
	MaxUS  float64 `json:"max_us"`
}

// ServerUse is what the server's process used.
type ServerUse struct {
	PID            int     `json:"pid"`
	UserUSPerOp    float64 `json:"user_us_per_op"`
	SystemUSPerOp  float64 `json:"system_us_per_op"`
	CPUUSPerOp     float64 `json:"cpu_us_per_op"` // both, measured finer
	CPU            float64 `json:"cpu"`           // in cores
	RSSBeforeBytes uint64  `json:"rss_before_bytes"`
	RSSAfterBytes  uint64  `json:"rss_after_bytes"`
}

// report is the report on the time between two instants.
func (l *load) report(from, to instant) *Report {
	c := to.counts.minus(from.counts)
	seconds := float64(to.atNS-from.atNS) / 1e9
	latency := hdrhistogram.New(1, latencyMaxNS, latencyDigits)
	r := &Report{
		Load:                   l.config.setting(),
		Seconds:                seconds,
		Requests:               c.requests,
		Operations:             c.operations(),
		RequestsPerSecond:      ratio(float64(c.requests), seconds),
		OpsPerSecond:           ratio(float64(c.operations()), seconds),
		Hits:                   c.hits,
		Misses:                 c.misses,
		Sets:                   c.sets,
		Fills:                  c.fills,
		Errors:                 c.errors,
		Corrupt:                c.corrupt,
		SentBytesPerSecond:     ratio(float64(c.sentBytes), seconds),
		ReceivedBytesPerSecond: ratio(float64(c.receivedBytes), seconds),
		GeneratorCPU:           ratio((to.ownCPU - from.ownCPU).Seconds(), seconds),
	}
	for _, w := range l.workers {
		latency.Merge(w.latency)
		r.Late += w.late(to.atNS)
		for _, c := range w.conns {
			if r.FirstError == "" {
				r.FirstError = c.firstError
			}
		}
	}
	r.Latency = latencyOf(latency)
	if l.config.ServerPID != 0 {
		r.Server = serverUse(l.config.ServerPID, from.server, to.server, seconds, float64(r.Operations))
	}
	return r
}

func (c Config) setting() Setting {
	return Setting{
		Server: c.Server, Threads: c.Threads, Conns: c.Conns,
		Protocol: c.Protocol, Pipeline: c.Pipeline, Multiget: c.Multiget, Ratio: c.Ratio.String(),
		Keys: c.Keys, KeyBytes: c.KeyBytes, ValueSize: c.Sizes.String(), Distribution: c.Distribution,
		Lookaside: c.Lookaside, Verify: c.Verify, Rate: c.Rate,
	}
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	us := func(percentile float64) float64 { return float64(h.ValueAtQuantile(percentile)) / 1000 }
	return Latency{
		MeanUS: h.Mean() / 1000,
		P50US:  us(50),
		P90US:  us(90),
		P99US:  us(99),
		P999US: us(99.9),
		MaxUS:  float64(h.Max()) / 1000,
	}
}

func serverUse(pid int, from, to procUse, seconds, operations float64) *ServerUse {
	user, system := (to.user - from.user).Seconds(), (to.system - from.system).Seconds()
	return &ServerUse{
		PID:           pid,
		UserUSPerOp:   ratio(user*1e6, operations),
		SystemUSPerOp: ratio(system*1e6, operations),
		CPUUSPerOp:    ratio((to.cpu-from.cpu).Seconds()*1e6, operations),
		CPU:           ratio((to.cpu - from.cpu).Seconds(), seconds),
		RSSAfterBytes: to.rssBytes,
	}
}

// WriteJSON writes r as JSON, one field a line.
func (r *Report) WriteJSON(w io.Writer) error { return writeIndented(w, r) }

func writeIndented(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// WriteText writes r for people.
func (r *Report) WriteText(w io.Writer) error {
	text := fmt.Appendf(nil, "%.0f ops/s, %.0f requests/s over %.2f s\n", r.OpsPerSecond, r.RequestsPerSecond, r.Seconds)
	text = fmt.Appendf(text, "hits      %d of %d (%.2f %%)\n", r.Hits, r.Hits+r.Misses,
		100*ratio(float64(r.Hits), float64(r.Hits+r.Misses)))
	text = fmt.Appendf(text, "sets      %d, of them %d after a miss\n", r.Sets, r.Fills)
	text = fmt.Appendf(text, "errors    %d", r.Errors)
	if r.FirstError != "" {
		text = fmt.Appendf(text, ", the first: %q", r.FirstError)
	}
	text = append(text, '\n')
	if r.Load.Verify {
		text = fmt.Appendf(text, "corrupt   %d\n", r.Corrupt)
	}
	if r.Load.Rate > 0 {
		text = fmt.Appendf(text, "late      %d requests due and never sent\n", r.Late)
	}
	text = fmt.Appendf(text, "latency   p50 %.0f us, p90 %.0f, p99 %.0f, p99.9 %.0f, max %.0f, mean %.0f\n",
		r.Latency.P50US, r.Latency.P90US, r.Latency.P99US, r.Latency.P999US, r.Latency.MaxUS, r.Latency.MeanUS)
	text = fmt.Appendf(text, "network   %.1f MB/s sent, %.1f MB/s received\n", r.SentBytesPerSecond/1e6, r.ReceivedBytesPerSecond/1e6)
	text = fmt.Appendf(text, "generator %.2f cores\n", r.GeneratorCPU)
	if s := r.Server; s != nil {
		text = fmt.Appendf(text, "server    %.2f cores, %.3f us an operation (%.3f user + %.3f system), RSS %.1f MiB before, %.1f after\n",
			s.CPU, s.CPUUSPerOp, s.UserUSPerOp, s.SystemUSPerOp, float64(s.RSSBeforeBytes)/(1<<20), float64(s.RSSAfterBytes)/(1<<20))
	}
	_, err := w.Write(text)
	return err
}
