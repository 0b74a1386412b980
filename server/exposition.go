package server

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// metricType is the type of a metric as Prometheus calls it.
type metricType string

const (
	counterType   metricType = "counter"
	gaugeType     metricType = "gauge"
	histogramType metricType = "histogram"
)

// linesAStep is how many lines are written before other goroutines have their
// turn: some 50 µs of them, where what they are made of is in no cache. A scrape
// must not hold up an event loop.
const linesAStep = 16

// exposition is the text that a scrape gets.
type exposition struct {
	buf   bytes.Buffer
	lines int
	pace  pace
}

// family begins a metric; its values follow.
func (e *exposition) family(name string, t metricType, help string) {
	e.buf.WriteString("# HELP " + name + " " + help + "\n# TYPE " + name + " " + string(t) + "\n")
}

// num writes a value of the metric name, whose labels are pairs of a name and
// a value.
func (e *exposition) num(name string, v uint64, labels ...string) {
	metrics.WriteGaugeUint64(&e.buf, name+labelText(labels), v)
	e.step()
}

// float is num for any number.
func (e *exposition) float(name string, v float64, labels ...string) {
	metrics.WriteGaugeFloat64(&e.buf, name+labelText(labels), v)
	e.step()
}

// text is num for a number as stats shows it.
func (e *exposition) text(name, v string, labels ...string) {
	if n, err := strconv.ParseUint(v, 10, 64); err == nil {
		e.num(name, n, labels...)
	} else if f, err := strconv.ParseFloat(v, 64); err == nil {
		e.float(name, f, labels...)
	}
}

func (e *exposition) step() {
	if e.lines++; e.lines%linesAStep == 0 {
		e.pace.yield()
	}
}

// one is a metric with one value.
func (e *exposition) one(name string, t metricType, help string, v uint64) {
	e.family(name, t, help)
	e.num(name, v)
}

// oneFloat is one for any number.
func (e *exposition) oneFloat(name string, t metricType, help string, v float64) {
	e.family(name, t, help)
	e.float(name, v)
}

// labelEscapes are what the text format asks for in values of labels. Tenants
// are named by clients.
var labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// labelText writes labels as {name="value",...}.
func labelText(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(labels); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(labels[i] + `="`)
		_, _ = labelEscapes.WriteString(&b, labels[i+1]) // a Builder takes everything
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
