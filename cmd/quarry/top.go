package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// topCommand is quarry top: stats of all nodes, again and again.
type topCommand struct {
	serverFlags
	Interval time.Duration `default:"1s" help:"Time between two looks."`
	Keys     int           `default:"10" help:"Hot keys, and hot buckets, to show."`
	Once     bool          `help:"Print one look, over one interval, and end."`
	JSON     bool          `name:"json" help:"With --once: print it as JSON."`
}

// topNode is a node over an interval. Rates are a second.
type topNode struct {
	ID      string  `json:"id"`
	Addr    string  `json:"addr"`
	Error   string  `json:"error,omitempty"`
	Map     string  `json:"map,omitempty"` // epoch by which it serves
	Buckets int     `json:"buckets"`
	Gets    float64 `json:"gets"`
	Hits    float64 `json:"hits"`
	Sets    float64 `json:"sets"`
	Evicted float64 `json:"evicted"`
	Items   float64 `json:"items"`
	Bytes   float64 `json:"bytes"`
	Limit   float64 `json:"limit_bytes"`
	Conns   float64 `json:"connections"`
	CPU     float64 `json:"cpu"` // cores
}

// topHot is something that is used much: a key, or a bucket. Rates are a second.
type topHot struct {
	Name   string  `json:"name"`
	Node   string  `json:"node"`
	Reads  float64 `json:"reads"`
	Writes float64 `json:"writes"`
	Near   float64 `json:"near"`             // reads that near caches of clients have answered
	Copies int     `json:"copies,omitempty"` // of a key: into how many it should be split; 1: it should be kept near

	bucket int
}

// uses is by what hot things are ranked.
func (h *topHot) uses() float64 { return h.Reads + h.Writes + h.Near }

// topReport is one look.
type topReport struct {
	Cluster string    `json:"cluster,omitempty"`
	Map     string    `json:"map,omitempty"`
	Nodes   []topNode `json:"nodes"`
	Keys    []topHot  `json:"hot_keys,omitempty"`
	Buckets []topHot  `json:"hot_buckets,omitempty"` // by their hot keys
}

// Run looks until it is told to stop.
func (c *topCommand) Run(ctx context.Context, k *kong.Kong) error {
	if c.Interval < 100*time.Millisecond || c.JSON && !c.Once {
		return errors.New("quarry: want an --interval of 100ms or more, and --json together with --once")
	}
	w, err := c.watch(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	w.look(ctx)
	if c.Once || !isTerminal(k.Stdout) {
		for {
			if !sleep(ctx, c.Interval) {
				return nil
			}
			r := w.look(ctx)
			if c.JSON {
				return printJSON(k.Stdout, r)
			}
			if _, err := k.Stdout.Write(r.frame(0, 0, c.Keys)); err != nil || c.Once {
				return err
			}
		}
	}
	return c.live(ctx, k, w)
}

// live fills the terminal until somebody types q.
func (c *topCommand) live(ctx context.Context, k *kong.Kong, w *topWatch) error {
	const (
		enter = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
		leave = "\x1b[?25h\x1b[?1049l"
		home  = "\x1b[H"
		below = "\x1b[J" // clears what is below
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := int(os.Stdin.Fd())
	if term.IsTerminal(in) {
		state, err := term.MakeRaw(in)
		if err != nil {
			return fmt.Errorf("quarry: %w", err)
		}
		defer func() { _ = term.Restore(in, state) }()
		go func() {
			var b [1]byte
			for {
				if n, err := os.Stdin.Read(b[:]); err != nil || n == 1 && (b[0] == 'q' || b[0] == 3 || b[0] == 4) {
					cancel()
					return
				}
			}
		}()
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	if _, err := io.WriteString(k.Stdout, enter); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(k.Stdout, leave) }()
	r := &topReport{}
	next := time.NewTimer(firstFrame) // until then there are no rates
	defer next.Stop()
	for {
		width, height := 80, 24
		if f, ok := k.Stdout.(*os.File); ok {
			if cols, rows, err := term.GetSize(int(f.Fd())); err == nil {
				width, height = cols, rows
			}
		}
		frame := bytes.ReplaceAll(r.frame(width, height-1, c.Keys), []byte("\n"), []byte("\x1b[K\r\n"))
		if _, err := fmt.Fprintf(k.Stdout, "%s%s%sq ends", home, frame, below); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-resized:
		case <-next.C:
			r = w.look(ctx)
			next.Reset(c.Interval)
		}
	}
}

// firstFrame is how soon after the first look there is something to see.
const firstFrame = 200 * time.Millisecond

// sleep is false when ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// topWatch looks at nodes.
type topWatch struct {
	c     *topCommand
	m     *bucket.Map // nil for servers that have none
	nodes []*topServer
}

// topServer is a node, and what it said last.
type topServer struct {
	node bucket.Node
	wire *wire
	at   time.Time
	last serverStats
}

func (c *topCommand) watch(ctx context.Context) (*topWatch, error) {
	w := &topWatch{c: c}
	if servers := strings.Split(c.Server, ","); len(servers) > 1 {
		for _, addr := range servers {
			w.nodes = append(w.nodes, &topServer{node: bucket.Node{ID: addr, Addr: addr}})
		}
		return w, nil
	}
	m, err := c.clusterMap(ctx)
	if err != nil {
		return nil, err
	}
	w.follow(m)
	return w, nil
}

// follow looks at the nodes of a map from now on.
func (w *topWatch) follow(m *bucket.Map) {
	if w.m = m; m == nil {
		addr := cmp.Or(w.c.Server, serverDefault)
		w.nodes = []*topServer{{node: bucket.Node{ID: addr, Addr: addr}}}
		return
	}
	known := make(map[string]*topServer)
	for _, s := range w.nodes {
		known[s.node.ID+" "+s.node.Addr] = s
	}
	w.nodes = nil
	for _, n := range m.Nodes {
		s := known[n.ID+" "+n.Addr]
		if s == nil {
			s = &topServer{node: n}
		}
		delete(known, n.ID+" "+n.Addr)
		w.nodes = append(w.nodes, s)
	}
	for _, s := range known {
		s.close()
	}
}

func (w *topWatch) close() {
	for _, s := range w.nodes {
		s.close()
	}
}

func (s *topServer) close() {
	if s.wire != nil {
		s.wire.close()
		s.wire = nil
	}
}

// look asks all nodes at once. When one serves by a newer map, the next look is
// at that map's nodes.
func (w *topWatch) look(ctx context.Context) *topReport {
	r := &topReport{Nodes: make([]topNode, len(w.nodes))}
	hot := make([][]topHot, len(w.nodes))
	newer := make([]*bucket.Map, len(w.nodes))
	var wg sync.WaitGroup
	for i, s := range w.nodes {
		wg.Go(func() { r.Nodes[i], hot[i], newer[i] = s.look(ctx, w) })
	}
	wg.Wait()
	r.Keys = slices.Concat(hot...)
	if w.m != nil {
		r.Cluster, r.Map = w.m.Cluster, w.m.Epoch.String()
		r.Keys, r.Buckets = w.together(r.Keys)
		for i, n := range w.m.Owned() {
			r.Nodes[i].Buckets = n
		}
	}
	for _, list := range []*[]topHot{&r.Keys, &r.Buckets} {
		slices.SortFunc(*list, func(a, b topHot) int {
			return cmp.Or(cmp.Compare(b.uses(), a.uses()), cmp.Compare(a.Name, b.Name))
		})
		*list = (*list)[:min(len(*list), w.c.Keys)]
	}
	for _, m := range newer {
		if m != nil && m.Epoch > w.m.Epoch {
			w.follow(m)
		}
	}
	return r
}

// together puts together what nodes say of the same key, as its copies are read,
// too, and of the keys of a bucket. The node is the owner.
func (w *topWatch) together(list []topHot) (keys, buckets []topHot) {
	sum := func(to []topHot, name string, h *topHot) []topHot {
		i := slices.IndexFunc(to, func(x topHot) bool { return x.Name == name })
		if i < 0 {
			i = len(to)
			to = append(to, topHot{Name: name, Node: w.m.OwnerOf(h.bucket).ID})
		}
		to[i].Reads += h.Reads
		to[i].Writes += h.Writes
		to[i].Near += h.Near
		to[i].Copies = max(to[i].Copies, h.Copies)
		return to
	}
	for i := range list {
		h := &list[i]
		h.bucket &= bucket.Count - 1
		keys = sum(keys, h.Name, h)
		buckets = sum(buckets, strconv.Itoa(h.bucket), h)
	}
	for i := range buckets {
		buckets[i].Copies = 0
	}
	return keys, buckets
}

// look is what a node says, its hot keys, and its map if that is newer.
func (s *topServer) look(ctx context.Context, w *topWatch) (topNode, []topHot, *bucket.Map) {
	n := topNode{ID: s.node.ID, Addr: s.node.Addr}
	hot, m, err := s.ask(ctx, &n, w)
	if err != nil {
		n.Error = strings.TrimPrefix(err.Error(), "quarry: ")
		s.close()
		s.last = nil
	}
	return n, hot, m
}

func (s *topServer) ask(ctx context.Context, n *topNode, w *topWatch) (hot []topHot, m *bucket.Map, err error) {
	if s.wire == nil {
		if s.wire, err = w.c.dial(ctx, s.node.Addr); err != nil {
			return nil, nil, err
		}
	}
	pairs, err := s.wire.stats("")
	if err != nil {
		return nil, nil, err
	}
	now, stats := time.Now(), make(serverStats, len(pairs))
	for _, p := range pairs {
		stats[p[0]] = p[1]
	}
	n.compare(s.last, stats, now.Sub(s.at).Seconds())
	s.at, s.last = now, stats
	hot, err = s.wire.hotKeys()
	if err != nil && !errors.Is(err, errRefused) {
		return nil, nil, err
	}
	for i := range hot {
		hot[i].Node = s.node.ID
	}
	if w.m == nil {
		return hot, nil, nil
	}
	pairs, err = s.wire.stats("cluster")
	if err != nil {
		if errors.Is(err, errRefused) {
			return hot, nil, nil // it is no node
		}
		return nil, nil, err
	}
	for _, p := range pairs {
		if p[0] == "epoch" {
			n.Map = p[1]
		}
	}
	if e, err := bucket.ParseEpoch(n.Map); err != nil || e <= w.m.Epoch {
		return hot, nil, nil
	}
	m, err = s.wire.config()
	return hot, m, err
}

// hotKeys are the keys that are used most, by stats hotkeys.
func (w *wire) hotKeys() (hot []topHot, err error) {
	pairs, err := w.stats("hotkeys")
	if err != nil {
		return nil, err
	}
	for _, p := range pairs {
		if h, ok := parseHot(p[0], p[1]); ok {
			hot = append(hot, h)
		}
	}
	return hot, nil
}

// parseHot reads a line of stats hotkeys: a key, URI-encoded, and its reads,
// writes, bucket, reads that near caches hid, and copies.
func parseHot(key, text string) (h topHot, ok bool) {
	name, err := url.PathUnescape(key)
	if err != nil {
		return h, false
	}
	var n [5]uint64
	words := strings.Fields(text)
	if len(words) < len(n) {
		return h, false
	}
	for i := range n {
		if n[i], err = strconv.ParseUint(words[i], 10, 63); err != nil {
			return h, false
		}
	}
	return topHot{Name: name, Reads: float64(n[0]), Writes: float64(n[1]), bucket: int(n[2]), Near: float64(n[3]), Copies: int(n[4])}, true
}

// compare makes rates of what a server said before and says now. A server that
// has been restarted begins anew.
func (n *topNode) compare(before, now serverStats, seconds float64) {
	n.Items, n.Bytes, n.Limit, n.Conns = now.number("curr_items"), now.number("bytes"), now.number("limit_maxbytes"), now.number("curr_connections")
	if before == nil || before["pid"] != now["pid"] || now.number("uptime") < before.number("uptime") {
		return
	}
	rate := func(names ...string) (sum float64) {
		for _, name := range names {
			sum += max(0, now.number(name)-before.number(name)) / seconds
		}
		return sum
	}
	n.Gets, n.Hits, n.Sets = rate("cmd_get"), rate("get_hits"), rate("cmd_set")
	n.Evicted, n.CPU = rate("evictions"), rate("rusage_user", "rusage_system")
}

// frame is the look as text: cut to so many columns and lines, or whole if 0.
func (r *topReport) frame(width, height, keys int) []byte {
	var out bytes.Buffer
	if r.Map != "" {
		fmt.Fprintf(&out, "Cluster %s, map %s\n\n", r.Cluster, r.Map)
	}
	t := newTable(&out)
	t.row("NODE", "MAP", "BUCKETS", "GET/S", "HIT %", "SET/S", "EVICT/S", "ITEMS", "MEMORY", "CONNS", "CPU")
	total := topNode{ID: "total"}
	for _, n := range r.Nodes {
		if n.Error != "" {
			t.row(n.ID, n.Error)
			continue
		}
		t.row(n.row()...)
		total.add(&n)
	}
	if len(r.Nodes) > 1 {
		t.row(total.row()...)
	}
	t.flush()
	if len(r.Keys) > 0 && keys > 0 {
		fmt.Fprintln(&out)
		t := newTable(&out)
		head := []string{"HOT KEY", "READ/S", "WRITE/S", "NEAR/S", "SPLIT", "NODE"}
		if len(r.Buckets) > 0 {
			head = append(head, "HOT BUCKET", "READ/S", "WRITE/S", "NEAR/S", "NODE")
		}
		t.row(head...)
		for i := range r.Keys {
			h := &r.Keys[i]
			split := "-"
			if h.Copies > 1 {
				split = strconv.Itoa(h.Copies)
			}
			row := append(h.row(), split, h.Node)
			if i < len(r.Buckets) {
				h := &r.Buckets[i]
				row = append(append(row, h.row()...), h.Node)
			}
			t.row(row...)
		}
		t.flush()
	}
	return cut(out.Bytes(), width, height)
}

func (n *topNode) row() []string {
	hits := "-"
	if n.Gets > 0 {
		hits = fmt.Sprintf("%.1f", 100*n.Hits/n.Gets)
	}
	memory := byteText(int64(n.Bytes))
	if n.Limit > 0 {
		memory += fmt.Sprintf(" (%.0f %%)", 100*n.Bytes/n.Limit)
	}
	return []string{
		n.ID, dash(n.Map), dashZero(n.Buckets), countText(n.Gets), hits, countText(n.Sets), countText(n.Evicted),
		countText(n.Items), memory, countText(n.Conns), fmt.Sprintf("%.2f", n.CPU),
	}
}

func (n *topNode) add(o *topNode) {
	n.Buckets += o.Buckets
	n.Gets += o.Gets
	n.Hits += o.Hits
	n.Sets += o.Sets
	n.Evicted += o.Evicted
	n.Items += o.Items
	n.Bytes += o.Bytes
	n.Limit += o.Limit
	n.Conns += o.Conns
	n.CPU += o.CPU
}

func (h *topHot) row() []string {
	return []string{printable(h.Name), countText(h.Reads), countText(h.Writes), countText(h.Near)}
}

// printable is a key without what a terminal would obey, and not too long.
func printable(key string) string {
	const most = 40
	q := strconv.QuoteToASCII(key)
	q = q[1 : len(q)-1]
	if len(q) > most {
		q = q[:most-3] + "..."
	}
	return q
}

// countText is a number for people: three digits or four.
func countText(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1fG", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1fk", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// cut leaves so many columns of so many lines.
func cut(text []byte, width, height int) []byte {
	if width == 0 {
		return text
	}
	var out []byte
	i := 0
	for line := range bytes.Lines(text) {
		if i++; i > height {
			break
		}
		line = bytes.TrimRight(line, "\n")
		if r := []rune(string(line)); len(r) > width {
			line = []byte(string(r[:width]))
		}
		out = append(append(out, line...), '\n')
	}
	return out
}
