package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Table is what a replay has counted: a line for each row, in it a result
// for each column.
type Table struct {
	Columns   []string // what the rows were replayed against
	Lines     []Line
	Reference *Table // of an earlier run, nil for none
}

// Line is a row of a Table.
type Line struct {
	Row
	AllBytes uint64   // of all objects with their keys
	Results  []Result // by column
}

func newTable(c *ReplayConfig) *Table {
	t := &Table{Reference: c.Reference}
	for _, column := range c.Columns {
		if column == columnServer {
			column = c.ServerName
		}
		t.Columns = append(t.Columns, column)
	}
	for _, row := range c.Rows {
		t.Lines = append(t.Lines, Line{Row: row, Results: make([]Result, len(c.Columns))})
	}
	return t
}

// The heads of the columns of a TSV that tell the row; those of a result have
// the name of what was replayed against before them.
const (
	headTrace     = "trace"
	headMean      = "mean_bytes"
	headMemory    = "memory_mib"
	headWrites    = "write_percent" // it and the next are absent where all rows only read
	headWritten   = "written_percent"
	headAllBytes  = "all_bytes"
	headRequests  = "requests"
	headRequested = "requested_bytes"

	headMissPercent = "_miss_percent" // for readers: ReadTable takes the misses
	headMisses      = "_misses"
	headMissedBytes = "_missed_bytes"
	headEvictions   = "_evictions"
	headRefused     = "_refused"
	headCPUMS       = "_cpu_ms"
)

// WriteTSV writes all that was counted, with a comment above it.
func (t *Table) WriteTSV(w io.Writer, comment string) error {
	var text []byte
	for line := range strings.Lines(comment) {
		text = append(append(text, "# "...), strings.TrimSuffix(line, "\n")...)
		text = append(text, '\n')
	}
	heads := []string{headTrace, headMean, headMemory}
	writes := t.hasWrites()
	if writes {
		heads = append(heads, headWrites, headWritten)
	}
	text = append(text, strings.Join(append(heads, headAllBytes, headRequests, headRequested), "\t")...)
	for _, column := range t.Columns {
		for _, head := range []string{headMissPercent, headMisses, headMissedBytes, headEvictions, headRefused, headCPUMS} {
			text = append(append(append(text, '\t'), column...), head...)
		}
	}
	text = append(text, '\n')
	for _, l := range t.Lines {
		requested := l.Results[0].Bytes
		text = fmt.Appendf(text, "%s\t%d\t%d", l.Trace, l.MeanBytes, l.MemoryMiB)
		if writes {
			text = fmt.Appendf(text, "\t%d\t%d", l.WritePercent, l.WrittenPercent)
		}
		text = fmt.Appendf(text, "\t%d\t%d\t%d", l.AllBytes, l.Results[0].Requests, requested)
		for _, res := range l.Results {
			text = fmt.Appendf(text, "\t%.3f\t%d\t%d\t%d\t%d\t%d",
				res.MissPercent(), res.Misses, res.MissedBytes, res.Evictions, res.Refused, res.CPU.Milliseconds())
		}
		text = append(text, '\n')
	}
	_, err := w.Write(text)
	return err
}

// hasWrites reports whether a row asks for writes.
func (t *Table) hasWrites() bool {
	return slices.ContainsFunc(t.Lines, func(l Line) bool { return l.WritePercent > 0 || l.WrittenPercent > 0 })
}

// memoryPercent is the memory in percent of all objects' bytes.
func (l *Line) memoryPercent() float64 {
	return 100 * ratio(float64(l.MemoryMiB)*(1<<20), float64(l.AllBytes))
}

// WriteText writes the table for people: misses in percent, beside them the
// first column's as a ratio to the reference's, and how much of the way from
// LRU to Belady it is if both are there; then the rest of what was counted;
// below it what the rows say together.
func (t *Table) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	text := []byte("trace\tmean\t-m\t%\t")
	if t.hasWrites() {
		text = append(text, "writes\twritten\t"...)
	}
	if t.Reference != nil {
		text = fmt.Appendf(text, "%s\tratio\t", t.Reference.Columns[0])
	}
	for _, column := range t.Columns {
		text = fmt.Appendf(text, "%s\t", column)
	}
	if lru, _ := t.bounds(); lru > 0 {
		text = append(text, "way\t"...)
	}
	text = append(text, "|\t"...)
	for _, column := range t.Columns {
		text = fmt.Appendf(text, "%s bytes\tevictions\t", column)
		if t.hasCPU(column) {
			text = append(text, "us\t"...)
		}
	}
	text = append(text, '\n')
	for i := range t.Lines {
		text = t.appendLine(text, &t.Lines[i])
	}
	if _, err := tw.Write(text); err != nil {
		return err
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return t.writeSummary(w)
}

func (t *Table) appendLine(text []byte, l *Line) []byte {
	mean := "own"
	if l.MeanBytes > 0 {
		mean = strconv.Itoa(l.MeanBytes)
	}
	text = fmt.Appendf(text, "%s\t%s\t%d\t%.1f\t", l.Trace, mean, l.MemoryMiB, l.memoryPercent())
	if t.hasWrites() {
		text = fmt.Appendf(text, "%d\t%d\t", l.WritePercent, l.WrittenPercent)
	}
	if t.Reference != nil {
		if ref := t.Reference.find(l.Row); ref != nil {
			percent := ref.Results[0].MissPercent()
			text = fmt.Appendf(text, "%.2f\t%.3f\t", percent, ratio(l.Results[0].MissPercent(), percent))
		} else {
			text = append(text, "-\t-\t"...)
		}
	}
	for _, res := range l.Results {
		text = fmt.Appendf(text, "%.2f\t", res.MissPercent())
	}
	if lru, belady := t.bounds(); lru > 0 {
		from, to := l.Results[lru].MissPercent(), l.Results[belady].MissPercent()
		text = fmt.Appendf(text, "%.0f %%\t", 100*ratio(from-l.Results[0].MissPercent(), from-to))
	}
	text = append(text, "|\t"...)
	for j, res := range l.Results {
		text = fmt.Appendf(text, "%.2f\t%d\t", res.ByteMissPercent(), res.Evictions)
		if t.hasCPU(t.Columns[j]) {
			text = fmt.Appendf(text, "%.2f\t", res.CPUUSPerRequest())
		}
	}
	return append(text, '\n')
}

// bounds are the columns of LRU and Belady that charge the same; 0 if they are
// not both there behind the first column.
func (t *Table) bounds() (lru, belady int) {
	for i, column := range t.Columns {
		overhead, ok := strings.CutPrefix(column, "lru")
		if j := slices.Index(t.Columns, "belady"+overhead); ok && i > 0 && j > 0 {
			return i, j
		}
	}
	return 0, 0
}

// hasCPU reports whether a column is something else than a simulator.
func (t *Table) hasCPU(column string) bool {
	_, _, err := splitPolicy(column)
	return err != nil
}

// find is the line of a row, nil if there is none.
func (t *Table) find(row Row) *Line {
	for i := range t.Lines {
		if t.Lines[i].Row == row {
			return &t.Lines[i]
		}
	}
	return nil
}

// writeSummary compares the first column with the reference and with each
// other column, and tells of values that were refused.
func (t *Table) writeSummary(w io.Writer) error {
	if t.Reference != nil {
		if err := t.compare(w, t.Reference.Columns[0], func(l *Line) *Result {
			if ref := t.Reference.find(l.Row); ref != nil {
				return &ref.Results[0]
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for j, column := range t.Columns[1:] {
		if err := t.compare(w, column, func(l *Line) *Result { return &l.Results[j+1] }); err != nil {
			return err
		}
	}
	for j, column := range t.Columns {
		var refused uint64
		for _, l := range t.Lines {
			refused += l.Results[j].Refused
		}
		if refused > 0 {
			if _, err := fmt.Fprintf(w, "%s refused %d values\n", column, refused); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare writes how the first column's misses compare with others.
func (t *Table) compare(w io.Writer, name string, other func(*Line) *Result) error {
	var sum float64
	n, above := 0, 0
	worst, worstPoints := math.Inf(-1), math.Inf(-1)
	var worstRow, worstPointsRow Row
	for i := range t.Lines {
		l := &t.Lines[i]
		o := other(l)
		if o == nil || o.MissPercent() == 0 {
			continue
		}
		mine, theirs := l.Results[0].MissPercent(), o.MissPercent()
		n++
		sum += mine / theirs
		if mine > theirs {
			above++
		}
		if mine/theirs > worst {
			worst, worstRow = mine/theirs, l.Row
		}
		if mine-theirs > worstPoints {
			worstPoints, worstPointsRow = mine-theirs, l.Row
		}
	}
	if n == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "%s / %s: mean of the ratios %.4f over %d rows, %d above 1; worst %.3f (%v), %+.2f points (%v)\n",
		t.Columns[0], name, sum/float64(n), n, above, worst, worstRow, worstPoints, worstPointsRow)
	return err
}

// ReadTable reads what WriteTSV wrote.
func ReadTable(r io.Reader) (*Table, error) {
	t := &Table{}
	var heads []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		if heads == nil {
			heads = fields
			for _, head := range heads {
				if column, ok := strings.CutSuffix(head, headMisses); ok {
					t.Columns = append(t.Columns, column)
				}
			}
			if len(t.Columns) == 0 {
				return nil, fmt.Errorf("bench: table has no column that ends in %s", headMisses)
			}
			continue
		}
		if len(fields) != len(heads) {
			return nil, fmt.Errorf("bench: table line %q: %d fields, want %d", line, len(fields), len(heads))
		}
		l, err := t.parseLine(heads, fields)
		if err != nil {
			return nil, fmt.Errorf("bench: table line %q: %w", line, err)
		}
		t.Lines = append(t.Lines, l)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if heads == nil {
		return nil, errors.New("bench: table is empty")
	}
	return t, nil
}

func (t *Table) parseLine(heads, fields []string) (Line, error) {
	text := map[string]string{}
	for i, head := range heads {
		text[head] = fields[i]
	}
	var errs []error
	number := func(head string) uint64 {
		n, err := strconv.ParseUint(text[head], 10, 63)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", head, err))
		}
		return n
	}
	l := Line{
		AllBytes: number(headAllBytes),
		Row:      Row{Trace: text[headTrace], MeanBytes: int(number(headMean)), MemoryMiB: int(number(headMemory))},
	}
	if text[headWrites] != "" {
		l.WritePercent, l.WrittenPercent = int(number(headWrites)), int(number(headWritten))
	}
	for _, column := range t.Columns {
		l.Results = append(l.Results, Result{
			Requests: number(headRequests), Misses: number(column + headMisses),
			Bytes: number(headRequested), MissedBytes: number(column + headMissedBytes),
			Evictions: number(column + headEvictions), Refused: number(column + headRefused),
			CPU: time.Duration(number(column+headCPUMS)) * time.Millisecond,
		})
	}
	return l, errors.Join(errs...)
}
