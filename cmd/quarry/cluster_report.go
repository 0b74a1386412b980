package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
)

// planReport is what a change of the map does.
type planReport struct {
	Store   string       `json:"store"`
	Cluster string       `json:"cluster"`
	From    bucket.Epoch `json:"from"`
	To      bucket.Epoch `json:"to"`
	Nodes   []planNode   `json:"nodes"`

	Moved int `json:"moved"` // buckets that change their owner
	Anew  int `json:"anew"`  // buckets that stay and begin empty all the same

	// What is expected to be lost with them, and read from the source again.
	Items int64 `json:"items"`
	Bytes int64 `json:"bytes"`
	Known bool  `json:"known"` // all nodes that give buckets have told what they hold

	Changes   []string `json:"changes,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	Published bool     `json:"published"`
}

// planNode is what it does to a node.
type planNode struct {
	bucket.Node
	Before int   `json:"before"` // buckets
	After  int   `json:"after"`
	Gains  int   `json:"gains"`
	Gives  int   `json:"gives"` // to others, or begins anew with them
	Copies int   `json:"copies"`
	Items  int64 `json:"items"` // -1 is unknown
	Bytes  int64 `json:"bytes"`
}

func newPlanReport(store string, stock *control.Stock, next *bucket.Map) *planReport {
	base := stock.Base
	p := &planReport{
		Store: store, Cluster: next.Cluster, From: base.Epoch, To: next.Epoch,
		Changes: changes(base, next), Warnings: warnings(stock),
	}
	first := base == next
	if first {
		p.From = 0
	}
	byID := make(map[string]*planNode)
	for _, m := range []*bucket.Map{next, base} {
		for _, n := range m.Nodes {
			if byID[n.ID] == nil {
				byID[n.ID] = &planNode{Node: n}
			}
		}
	}
	for b := range next.Buckets {
		is := byID[next.OwnerOf(b).ID]
		is.After++
		for _, c := range next.Buckets[b].Copies {
			byID[next.Nodes[c].ID].Copies++
		}
		if first {
			is.Gains++
			continue
		}
		was := byID[base.OwnerOf(b).ID]
		was.Before++
		switch {
		case was != is:
			p.Moved++
			was.Gives++
			is.Gains++
		case next.Buckets[b].Since != base.Buckets[b].Since:
			p.Anew++
			was.Gives++
		}
	}
	for _, id := range sortedKeys(byID) {
		p.Nodes = append(p.Nodes, *byID[id])
	}
	return p
}

// expect asks the nodes how much is in the buckets that they give.
func (p *planReport) expect(ctx context.Context, f *wireFlags) {
	p.Known = true
	var wg sync.WaitGroup
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.Gives == 0 {
			continue
		}
		wg.Go(func() {
			s, err := f.statsOf(ctx, n.Addr)
			if err != nil || n.Before == 0 {
				n.Items, n.Bytes = -1, -1
				return
			}
			share := float64(n.Gives) / float64(n.Before)
			n.Items = int64(math.Round(share * s.number("curr_items")))
			n.Bytes = int64(math.Round(share * s.number("bytes")))
		})
	}
	wg.Wait()
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Items >= 0 {
			p.Items += n.Items
			p.Bytes += n.Bytes
		} else {
			p.Known = false
		}
	}
}

// write is the plan for people.
func (p *planReport) write(w io.Writer) {
	for _, line := range p.Warnings {
		fmt.Fprintln(w, "warning:", line)
	}
	if p.From == 0 {
		fmt.Fprintf(w, "The first map of cluster %s, %s\n\n", p.Cluster, p.To)
	} else {
		fmt.Fprintf(w, "Cluster %s, map %s after %s\n\n", p.Cluster, p.To, p.From)
	}
	t := newTable(w)
	t.row("NODE", "ADDRESS", "ZONE", "WEIGHT", "BUCKETS", "GAINS", "GIVES", "COPIES", "ITEMS", "BYTES")
	for i := range p.Nodes {
		n := &p.Nodes[i]
		buckets := fmt.Sprint(n.After)
		if p.From != 0 && n.Before != n.After {
			buckets = fmt.Sprintf("%d → %d", n.Before, n.After)
		}
		t.row(n.ID, n.Addr, dash(n.Zone), fmt.Sprint(n.Weight), buckets, dashZero(n.Gains), dashZero(n.Gives), dashZero(n.Copies),
			expected(n.Gives, n.Items, strconv.FormatInt(n.Items, 10)), expected(n.Gives, n.Bytes, byteText(n.Bytes)))
	}
	t.flush()
	fmt.Fprintln(w)
	for _, line := range p.Changes {
		fmt.Fprintln(w, line)
	}
	if p.From == 0 {
		return
	}
	if p.Moved > 0 {
		fmt.Fprintf(w, "%d of %d buckets (%.1f %%) change their owner.\n", p.Moved, bucket.Count, percent(p.Moved))
	} else {
		fmt.Fprintln(w, "No bucket changes its owner.")
	}
	if p.Anew > 0 {
		fmt.Fprintf(w, "%d buckets (%.1f %%) stay and begin empty, since maps that nobody knows, or another one of the same epoch, may have moved them.\n", p.Anew, percent(p.Anew))
	}
	if p.Moved+p.Anew > 0 {
		more := ""
		if !p.Known {
			more = " or more: some nodes did not say"
		}
		fmt.Fprintf(w, "This is a cold switch: what these buckets hold, about %d items and %s%s, is not taken along but read from the source again.\n",
			p.Items, byteText(p.Bytes), more)
	}
}

// changes are those that are not in the table.
func changes(base, next *bucket.Map) []string {
	var lines []string
	for _, n := range next.Nodes {
		if i, ok := base.NodeOf(n.ID); ok && base.Nodes[i].Addr != n.Addr {
			lines = append(lines, fmt.Sprintf("Node %s: %s → %s.", n.ID, base.Nodes[i].Addr, n.Addr))
		}
	}
	if base.CopiesWanted != next.CopiesWanted {
		lines = append(lines, fmt.Sprintf("Copies of each bucket: %d → %d.", base.CopiesWanted, next.CopiesWanted))
	}
	if base.Budget != next.Budget {
		lines = append(lines, fmt.Sprintf("Budget: %s → %s.", budgetText(base.Budget), budgetText(next.Budget)))
	}
	for _, s := range next.Splits {
		was, _ := base.SplitOf([]byte(s.Key))
		if was != s {
			lines = append(lines, fmt.Sprintf("Key %s is split into %d%s.", s.Key, s.N, formerText(s)))
		}
	}
	for _, s := range base.Splits {
		if _, ok := next.SplitOf([]byte(s.Key)); !ok {
			lines = append(lines, fmt.Sprintf("Key %s is not split any more.", s.Key))
		}
	}
	return lines
}

func formerText(s bucket.Split) string {
	if s.Former == 0 {
		return ""
	}
	return fmt.Sprintf("; the %d places of before are invalidated, too, until quarry cluster settle", s.Former)
}

func budgetText(b bucket.Budget) string {
	rate := func(n int) string {
		if n == 0 {
			return "no limit"
		}
		return fmt.Sprintf("%d/s", n)
	}
	return fmt.Sprintf("foreground %s, background %s, direct loads %s", rate(b.Foreground), rate(b.Background), rate(b.DirectLoads))
}

// warnings are what the operator should know before publishing.
func warnings(k *control.Stock) []string {
	if k.Base == nil {
		return nil
	}
	var lines []string
	if k.Behind() && k.Stored != nil {
		lines = append(lines, fmt.Sprintf("the store has map %s and is behind its nodes, which know %s: was it restored from a backup? quarry cluster rebalance publishes what they know", k.Stored.Epoch, k.Base.Epoch))
	}
	for _, n := range k.Contested() {
		lines = append(lines, fmt.Sprintf("node %s at %s has another map %s: with the next one, buckets that differ begin empty", n.Node.ID, n.Node.Addr, n.Map.Epoch))
	}
	return append(lines, silence(k)...)
}

// silence lists the nodes that do not answer.
func silence(k *control.Stock) []string {
	var lines []string
	for _, n := range k.Nodes {
		if n.Err != nil {
			lines = append(lines, fmt.Sprintf("node %s does not answer: %s", n.Node.ID, strings.TrimPrefix(n.Err.Error(), "quarry: ")))
		}
	}
	return lines
}

// showReport is a map, and how its nodes are.
type showReport struct {
	Store       string         `json:"store"`
	Cluster     string         `json:"cluster"`
	Epoch       bucket.Epoch   `json:"epoch"`
	Digest      bucket.Digest  `json:"digest"`
	NodeSet     uint32         `json:"node_set"`
	Copies      int            `json:"copies"`
	Budget      bucket.Budget  `json:"budget"`
	Nodes       []showNode     `json:"nodes"`
	Splits      []bucket.Split `json:"splits,omitempty"`
	Strangers   []string       `json:"strangers,omitempty"` // nodes with a lease that are not in the map
	Controllers []string       `json:"controllers,omitempty"`
	Leases      bool           `json:"leases"` // whether the store knows who is alive
	Warnings    []string       `json:"warnings,omitempty"`
}

type showNode struct {
	bucket.Node
	Buckets int               `json:"buckets"`
	Copies  int               `json:"copies"`
	Answers string            `json:"answers"` // when it is asked for its map
	Map     bucket.Epoch      `json:"map,omitzero"`
	Lease   control.NodeState `json:"lease,omitempty"`
}

func newShowReport(store string, stock *control.Stock, l control.Liveness, leases bool) *showReport {
	m := stock.Stored
	r := &showReport{
		Store: store, Cluster: m.Cluster, Epoch: m.Epoch, Digest: m.Digest(), NodeSet: m.NodeSet,
		Copies: m.CopiesWanted, Budget: m.Budget, Splits: m.Splits,
		Controllers: l.Controllers, Leases: leases, Warnings: warnings(stock),
	}
	owned := m.Owned()
	copies := make([]int, len(m.Nodes))
	for b := range m.Buckets {
		for _, c := range m.Buckets[b].Copies {
			copies[c]++
		}
	}
	// What each says is held against the map in the store, as its lease is.
	var said control.Liveness
	for _, n := range stock.Nodes {
		if n.Map != nil {
			said.Nodes = append(said.Nodes, control.Presence{ID: n.Node.ID, Epoch: n.Map.Epoch, Digest: n.Map.Digest()})
		}
	}
	for i, n := range m.Nodes {
		s := showNode{Node: n, Buckets: owned[i], Copies: copies[i]}
		if leases {
			s.Lease = l.StateOf(m, n.ID)
		}
		if at := slices.IndexFunc(stock.Nodes, func(k control.NodeStock) bool { return k.Node.ID == n.ID }); at >= 0 {
			switch k := &stock.Nodes[at]; {
			case k.Err != nil:
				s.Answers = "no answer"
			case k.Map == nil:
				s.Answers = "no map"
			default:
				s.Answers, s.Map = string(said.StateOf(m, n.ID)), k.Map.Epoch
			}
		}
		r.Nodes = append(r.Nodes, s)
	}
	for _, p := range l.Nodes {
		if _, ok := m.NodeOf(p.ID); !ok {
			r.Strangers = append(r.Strangers, p.ID)
		}
	}
	return r
}

func (r *showReport) write(w io.Writer) error {
	for _, line := range r.Warnings {
		fmt.Fprintln(w, "warning:", line)
	}
	fmt.Fprintf(w, "Cluster %s, map %s, node set %d, in %s\n", r.Cluster, r.Epoch, r.NodeSet, r.Store)
	fmt.Fprintf(w, "Copies of each bucket: %d. Budget: %s.\n\n", r.Copies, budgetText(r.Budget))
	t := newTable(w)
	head := []string{"NODE", "ADDRESS", "ZONE", "WEIGHT", "BUCKETS", "COPIES", "MAP", "STATE"}
	if r.Leases {
		head = append(head, "LEASE")
	}
	t.row(head...)
	for _, n := range r.Nodes {
		serves := "-"
		if n.Map != 0 {
			serves = n.Map.String()
		}
		row := []string{n.ID, n.Addr, dash(n.Zone), fmt.Sprint(n.Weight), fmt.Sprint(n.Buckets), dashZero(n.Copies), serves, n.Answers}
		if r.Leases {
			row = append(row, string(n.Lease))
		}
		t.row(row...)
	}
	t.flush()
	if len(r.Splits) > 0 {
		fmt.Fprintln(w)
	}
	for _, s := range r.Splits {
		fmt.Fprintf(w, "Key %s is split into %d%s.\n", s.Key, s.N, formerText(s))
	}
	if len(r.Strangers) > 0 {
		fmt.Fprintf(w, "\nWaiting to be added: %s.\n", strings.Join(r.Strangers, ", "))
	}
	if len(r.Controllers) > 0 {
		fmt.Fprintf(w, "\nControllers: %s (active)", r.Controllers[0])
		for _, c := range r.Controllers[1:] {
			fmt.Fprintf(w, ", %s", c)
		}
		fmt.Fprintln(w, ".")
	}
	return t.err
}

// historyReport lists maps, from the newest on.
type historyReport []historyEntry

type historyEntry struct {
	Epoch     bucket.Epoch  `json:"epoch"`
	Digest    bucket.Digest `json:"digest"`
	Published time.Time     `json:"published"`
	Nodes     []string      `json:"nodes"`
	Splits    int           `json:"splits"`
	Moved     int           `json:"moved"` // buckets, since the map before it in the list
	Oldest    bool          `json:"oldest,omitempty"`
}

func newHistoryReport(history []control.Entry) historyReport {
	var r historyReport
	for i, e := range history {
		h := historyEntry{Epoch: e.Map.Epoch, Digest: e.Map.Digest(), Published: e.Published.UTC().Truncate(time.Second), Splits: len(e.Map.Splits)}
		for _, n := range e.Map.Nodes {
			h.Nodes = append(h.Nodes, n.ID)
		}
		if h.Oldest = i == len(history)-1; !h.Oldest {
			h.Moved = len(e.Map.Moved(history[i+1].Map))
		}
		r = append(r, h)
	}
	return r
}

func (r historyReport) write(w io.Writer) error {
	t := newTable(w)
	t.row("MAP", "PUBLISHED", "NODES", "MOVED", "SPLITS")
	for _, h := range r {
		moved := fmt.Sprint(h.Moved)
		if h.Oldest {
			moved = "-"
		}
		t.row(h.Epoch.String(), h.Published.Format(time.RFC3339), strings.Join(h.Nodes, " "), moved, fmt.Sprint(h.Splits))
	}
	t.flush()
	return t.err
}

// serverStats are what stats says.
type serverStats map[string]string

func (s serverStats) number(name string) float64 {
	n, _ := strconv.ParseFloat(s[name], 64)
	return n
}

// statsOf asks a server.
func (f *wireFlags) statsOf(ctx context.Context, addr string) (serverStats, error) {
	w, err := f.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer w.close()
	pairs, err := w.stats("")
	if err != nil {
		return nil, err
	}
	s := make(serverStats, len(pairs))
	for _, p := range pairs {
		s[p[0]] = p[1]
	}
	return s, nil
}

// splitInto is how many copies a key needs that is read at a rate, where a node
// stands perNode of them.
func splitInto(rate, perNode, headroom float64) (int, error) {
	if rate <= 0 || perNode <= 0 || headroom < 1 {
		return 0, errors.New("quarry: want a number of copies, or --rate and --node-rate")
	}
	return int(math.Ceil(rate / perNode * headroom)), nil
}

// table writes rows in columns.
type table struct {
	w   *tabwriter.Writer
	err error
}

func newTable(w io.Writer) *table { return &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)} }

func (t *table) row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

func (t *table) flush() { t.err = t.w.Flush() }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func dashZero(n int) string {
	if n == 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// expected is what is known of buckets that are given away.
func expected(gives int, n int64, text string) string {
	switch {
	case gives == 0:
		return "-"
	case n < 0:
		return "?"
	}
	return text
}

func percent(buckets int) float64 { return 100 * float64(buckets) / bucket.Count }

// byteText is a number of bytes for people.
func byteText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for ; f >= unit && i < 4; i++ {
		f /= unit
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[i])
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
