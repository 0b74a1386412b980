package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scrape is what /metrics said.
type scrape struct {
	types  map[string]string  // of each metric
	values map[string]float64 // by name and labels, as they stand there
}

var sampleLine = regexp.MustCompile(`^([a-z_][a-z0-9_]*)(\{.*\})? (\S+)$`)

// parseMetrics reads the text format strictly: the lines of a metric stand
// together, HELP and TYPE come first, nothing comes twice.
func parseMetrics(t testing.TB, text string) scrape {
	t.Helper()
	sc := scrape{map[string]string{}, map[string]float64{}}
	family, ended := "", map[string]bool{}
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			ended[family] = true
			if family = name; ended[name] || help == "" {
				t.Errorf("metric %s comes twice, or has no help", name)
			}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if sc.types[name] = kind; name != family {
				t.Errorf("type of %s in %s", name, family)
			}
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("no line of a metric: %q", line)
			continue
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		own := strings.HasPrefix(m[1], "memcached_") || strings.HasPrefix(m[1], "quarry_")
		if own && m[1] != family && !(sc.types[family] == "histogram" && strings.HasPrefix(m[1], family+"_")) {
			t.Errorf("%q stands in %s", line, family)
		}
		if _, ok := sc.values[m[1]+m[2]]; ok {
			t.Errorf("%s%s comes twice", m[1], m[2])
		}
		sc.values[m[1]+m[2]] = v
	}
	return sc
}

// labelPairs finds the names and values of the labels in a key of a scrape.
var labelPairs = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

// startAdmin starts a server with admin HTTP and returns where that is.
func startAdmin(t testing.TB, cfg Config) (s *Server, addr, url string) {
	t.Helper()
	cfg.AdminListen = "127.0.0.1:0"
	s, addr = startServer(t, cfg)
	return s, addr, "http://" + s.AdminAddr().String()
}

// talk sends text and reads until the answer to a last mn.
func talk(t testing.TB, c net.Conn, text string) string {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text+"mn\r\n"); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if line == "MN\r\n" {
			return all.String()
		}
		all.WriteString(line)
	}
}

// statsOf is what commands, which are stats of some kind, say.
func statsOf(t testing.TB, c net.Conn, commands string) map[string]string {
	t.Helper()
	stats := map[string]string{}
	for line := range strings.Lines(talk(t, c, commands+"\r\n")) {
		if f := strings.Fields(line); len(f) == 3 {
			stats[f[1]] = f[2]
		}
	}
	return stats
}

// traffic is a little of everything that is counted.
func traffic() string {
	var b strings.Builder
	for i := range 300 {
		n := 1 + i*i%3000
		fmt.Fprintf(&b, "set web:%d 0 %d %d\r\n%s\r\n", i, 1000*(i%2), n, strings.Repeat("v", n))
	}
	for i := range 500 {
		fmt.Fprintf(&b, "get web:%d\r\n", i)
	}
	b.WriteString("set api:n 0 0 1\r\n5\r\nincr api:n 2\r\nincr api:x 2\r\ndecr api:n 1\r\ndecr api:x 1\r\n" +
		"touch api:n 100\r\ntouch api:x 100\r\ndelete web:1\r\ndelete web:1\r\n" +
		"cas web:2 0 0 1 999999\r\nx\r\ncas web:x 0 0 1 1\r\nx\r\n" +
		"ms api:c 1 E77\r\nv\r\ncas api:c 0 0 1 77\r\nx\r\nflush_all 1000\r\nme web:3\r\n")
	return b.String()
}

// trafficRequests is how many requests traffic is, the mn behind it included.
const trafficRequests = 300 + 500 + 16

// runTraffic sends traffic and waits until all of it is counted: a batch is
// answered first, and counted then.
func runTraffic(t testing.TB, s *Server, c net.Conn) {
	t.Helper()
	talk(t, c, traffic())
	eventually(t, "the traffic is counted", func() bool { return s.totals.sum().requests == trafficRequests })
}

// exporterRow is a line of testdata/exporter-metrics.list.
type exporterRow struct{ name, kind, labels, table, key string }

func exporterRows(t testing.TB) []exporterRow {
	t.Helper()
	data, err := os.ReadFile("testdata/exporter-metrics.list")
	if err != nil {
		t.Fatal(err)
	}
	var rows []exporterRow
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); line[0] != '#' {
			rows = append(rows, exporterRow{f[0], f[1], f[2], f[3], f[4]})
		}
	}
	return rows
}

// TestExporterMetrics: names, types and labels are those of the memcached
// exporter, no more and no fewer, and the values those of stats over the wire
// (S1-74, S3-42).
func TestExporterMetrics(t *testing.T) {
	clock := newTestClock()
	s, addr, url := startAdmin(t, Config{Clock: clock.Now, MemoryMB: 8})
	c := dial(t, addr)
	runTraffic(t, s, c)
	sc := parseMetrics(t, get(t, url+"/metrics", 200))

	tables := map[string]map[string]string{}
	for table, command := range map[string]string{
		"stats": "stats", "settings": "stats settings", "items": "stats items", "slabs": "stats slabs",
	} {
		tables[table] = statsOf(t, c, command)
	}
	number := func(s string) float64 {
		switch s {
		case "yes":
			return 1
		case "no":
			return 0
		}
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return v
	}
	// sum is the value that key, which may subtract others, has behind prefix.
	sum := func(table map[string]string, prefix, key string) (v float64, ok bool) {
		for i, k := range strings.Split(key, "-") {
			s, found := table[prefix+k]
			if !found {
				return 0, false
			}
			if i == 0 {
				v = number(s)
			} else {
				v -= number(s)
			}
		}
		return v, true
	}
	moves := map[string]bool{ // while it is looked at
		"bytes_read": true, "bytes_written": true, "rusage_user": true, "rusage_system": true,
	}

	want := map[string]bool{}
	kinds := map[string]string{}
	compared := 0
	for _, row := range exporterRows(t) {
		kinds[row.name] = row.kind
		label := func(class string) string {
			if row.labels == "-" {
				return row.name
			}
			var b []string
			for _, pair := range strings.Split(row.labels, ",") {
				k, v, _ := strings.Cut(pair, "=")
				if v == "*" {
					v = class
				}
				b = append(b, fmt.Sprintf("%s=%q", k, v))
			}
			return row.name + "{" + strings.Join(b, ",") + "}"
		}
		check := func(key, prefix string) {
			v, ok := sum(tables[row.table], prefix, row.key)
			if !ok {
				return
			}
			want[key] = true
			got, ok := sc.values[key]
			if !ok {
				t.Errorf("%s is missing", key)
			} else if compared++; got != v && !moves[row.key] {
				t.Errorf("%s is %v, stats says %v", key, got, v)
			}
		}
		switch {
		case row.table == "-":
			want[label(Version)] = true
		case strings.Contains(row.labels, "slab=*"):
			for class := 1; class < 200; class++ {
				prefix := fmt.Sprintf("%d:", class)
				if row.table == "items" {
					prefix = "items:" + prefix
				}
				check(label(strconv.Itoa(class)), prefix)
			}
		default:
			check(label(""), "")
		}
	}
	if compared < 500 {
		t.Errorf("only %d values were compared", compared)
	}
	for key := range sc.values {
		if strings.HasPrefix(key, "memcached_") && !want[key] {
			t.Errorf("%s is not the exporter's", key)
		}
	}
	for name, kind := range sc.types {
		if strings.HasPrefix(name, "memcached_") && kinds[name] != kind {
			t.Errorf("%s is a %s, the exporter's is a %q", name, kind, kinds[name])
		}
	}
}

// TestOwnMetrics: Quarry's own metrics are the figures of stats, stats memory
// and stats tenants.
func TestOwnMetrics(t *testing.T) {
	clock := newTestClock()
	s, addr, url := startAdmin(t, Config{Clock: clock.Now, MemoryMB: 8, TenantDelimiter: ':',
		TenantQuotas: []TenantQuota{{Name: "api", Quota: Quota{MemoryBytes: 1 << 20}}}})
	c := dial(t, addr)
	runTraffic(t, s, c)
	sc := parseMetrics(t, get(t, url+"/metrics", 200))
	stat := statsOf(t, c, "stats\r\nstats memory\r\nstats tenants")
	for metric, key := range map[string]string{
		`quarry_meta_debug_total`:                                                "cmd_meta",
		`quarry_shards`:                                                          "shards",
		`quarry_lru_window_percent`:                                              "window_percent",
		`quarry_lru_admitted_total`:                                              "admitted",
		`quarry_lru_rejected_total`:                                              "rejected",
		`quarry_lru_items{segment="window"}`:                                     "items_window",
		`quarry_lru_items{segment="probation"}`:                                  "items_probation",
		`quarry_lru_items{segment="protected"}`:                                  "items_protected",
		`quarry_lru_hits_total{segment="window"}`:                                "hits_window",
		`quarry_lru_hits_total{segment="probation"}`:                             "hits_probation",
		`quarry_lru_hits_total{segment="protected"}`:                             "hits_protected",
		`quarry_get_expired_total`:                                               "get_expired",
		`quarry_get_flushed_total`:                                               "get_flushed",
		`quarry_chain_evictions_total`:                                           "chain_evictions",
		`quarry_expired_unfetched_total`:                                         "expired_unfetched",
		`quarry_evicted_unfetched_total`:                                         "evicted_unfetched",
		`quarry_evicted_active_total`:                                            "evicted_active",
		`quarry_page_bytes`:                                                      "page_bytes",
		`quarry_pages_idle`:                                                      "slab_global_page_pool",
		`quarry_pages_moved_total`:                                               "slabs_moved",
		`quarry_page_moves_running`:                                              "slab_reassign_running",
		`quarry_page_moves_aborted_total`:                                        "slab_reassign_busy_items",
		`quarry_page_items_moved_total`:                                          "slab_reassign_rescues",
		`quarry_page_pieces_moved_total`:                                         "slab_reassign_chunk_rescues",
		`quarry_sending_bytes`:                                                   "sending_bytes",
		`quarry_uncarved_bytes`:                                                  "uncarved_bytes",
		`quarry_limit_max_bytes`:                                                 "limit_max_bytes",
		`quarry_memory_bytes{use="key_value"}`:                                   "key_value_bytes",
		`quarry_memory_bytes{use="header"}`:                                      "header_bytes",
		`quarry_memory_bytes{use="rounding"}`:                                    "rounding_bytes",
		`quarry_memory_bytes{use="free_chunk"}`:                                  "free_chunk_bytes",
		`quarry_memory_bytes{use="idle_page"}`:                                   "idle_page_bytes",
		`quarry_memory_bytes{use="pinned"}`:                                      "pinned_bytes",
		`quarry_memory_bytes{use="upload"}`:                                      "upload_bytes",
		`quarry_memory_bytes{use="index"}`:                                       "index_bytes",
		`quarry_memory_bytes{use="index_overflow"}`:                              "index_overflow_bytes",
		`quarry_memory_bytes{use="sketch"}`:                                      "sketch_bytes",
		`quarry_tenant_items{tenant="api",kind="quota"}`:                         "api:items",
		`quarry_tenant_quota_bytes{tenant="api",kind="quota"}`:                   "api:quota_memory",
		`quarry_tenant_bytes{tenant="web",kind="tracked"}`:                       "web:bytes",
		`quarry_tenant_hits_total{tenant="web",kind="tracked"}`:                  "web:hits",
		`quarry_tenant_misses_total{tenant="web",kind="tracked"}`:                "web:misses",
		`quarry_tenant_sets_total{tenant="web",kind="tracked"}`:                  "web:sets",
		`quarry_tenant_evicted_total{tenant="web",kind="tracked"}`:               "web:evicted",
		`quarry_tenant_evicted_own_total{tenant="web",kind="tracked"}`:           "web:evicted_own",
		`quarry_tenant_refused_total{tenant="api",kind="quota",reason="memory"}`: "api:refused_memory",
		`quarry_tenant_refused_total{tenant="api",kind="quota",reason="rate"}`:   "api:refused_rate",
		`quarry_tenant_refused_total{tenant="api",kind="quota",reason="value"}`:  "api:refused_value",
		`quarry_tenant_items{tenant="",kind="other"}`:                            "other_items",
	} {
		got, ok := sc.values[metric]
		want, err := strconv.ParseFloat(stat[key], 64)
		if !ok || err != nil || got != want {
			t.Errorf("%s is %v (%v), %s of stats is %q", metric, got, ok, key, stat[key])
		}
	}
	if n := sc.values["quarry_requests_total"]; n != trafficRequests {
		t.Errorf("quarry_requests_total is %v, want %d", n, trafficRequests)
	}
}

// TestMetricsCardinality: however many tenants clients invent, a scrape has
// few of them, and their names cannot break out of their labels (S1-45, S1-74).
func TestMetricsCardinality(t *testing.T) {
	_, addr, url := startAdmin(t, Config{MemoryMB: 8, TenantDelimiter: ':'})
	c := dial(t, addr)
	var b strings.Builder
	fmt.Fprintf(&b, "set a\"}\\1:k 0 0 1000\r\n%s\r\n", strings.Repeat("v", 1000))
	for i := range 2000 {
		fmt.Fprintf(&b, "set t%d:k 0 0 1\r\nv\r\n", i)
	}
	talk(t, c, b.String())
	sc := parseMetrics(t, get(t, url+"/metrics", 200))
	tenants := map[string]bool{}
	for key := range sc.values {
		if strings.HasPrefix(key, "quarry_tenant_items{") {
			tenants[key] = true
		}
	}
	if len(tenants) != tenantsExposedMax+1 {
		t.Errorf("%d tenants are shown, want %d and the rest", len(tenants), tenantsExposedMax)
	}
	if key := `quarry_tenant_items{tenant="a\"}\\1",kind="tracked"}`; sc.values[key] != 1 {
		t.Errorf("no %s", key)
	}
}

// TestMetricsDocumented holds docs/metrics.md against /metrics: each metric is
// there with its type and labels, and no other one of ours.
func TestMetricsDocumented(t *testing.T) {
	data, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	type doc struct{ kind, labels string }
	docs := map[string]doc{}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (\\w+) \\|([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(string(data), -1) {
		var labels []string
		for _, l := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		if _, ok := docs[m[1]]; ok {
			t.Errorf("%s stands there twice", m[1])
		}
		docs[m[1]] = doc{m[2], strings.Join(labels, " ")}
	}

	_, addr, url := startAdmin(t, Config{MemoryMB: 8, TenantDelimiter: ':', Cluster: ClusterConfig{NodeID: "n0", HasStore: true},
		TLS: newTestCA(t, "ca").server(t), Listen: []string{"notls:127.0.0.1:0"}})
	talk(t, dial(t, addr), traffic())
	sc := parseMetrics(t, get(t, url+"/metrics", 200))
	seen := map[string]bool{"memcached_slab_temporary_items": true} // of memcached alone
	for key := range sc.values {
		name, _, _ := strings.Cut(key, "{")
		var labels []string
		for _, p := range labelPairs.FindAllStringSubmatch(key, -1) {
			if p[1] != "le" && p[1] != "quantile" {
				labels = append(labels, p[1])
			}
		}
		if _, ok := docs[name]; !ok {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
		}
		seen[name] = true
		d, ok := docs[name]
		if !ok {
			t.Errorf("%s is not in docs/metrics.md", name)
			docs[name] = doc{sc.types[name], strings.Join(labels, " ")} // say it once
			continue
		}
		own := strings.HasPrefix(name, "quarry_") || strings.HasPrefix(name, "memcached_")
		if own && d.kind != sc.types[name] {
			t.Errorf("%s is a %s, the docs say %s", name, sc.types[name], d.kind)
		}
		if own && !slices.Equal(strings.Fields(d.labels), labels) {
			t.Errorf("%s has the labels %q, the docs say %q", name, labels, d.labels)
		}
	}
	for name := range docs { // what the system does not have everywhere may be missing
		if !seen[name] && (strings.HasPrefix(name, "quarry_") || strings.HasPrefix(name, "memcached_")) {
			t.Errorf("%s is not in /metrics", name)
		}
	}
}

// TestDashboard: the Grafana dashboard is one that Grafana can read, and asks
// for what there is: each metric, and of ours each label.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile("../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	type panel struct {
		ID          int
		Type, Title string
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct{ Expr, RefID string }
	}
	var board struct {
		UID, Title    string
		SchemaVersion int
		Panels        []panel
		Templating    struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	if board.UID == "" || board.Title == "" || board.SchemaVersion < 39 || len(board.Templating.List) != 3 {
		t.Errorf("the board is %q %q, schema %d", board.UID, board.Title, board.SchemaVersion)
	}
	_, addr, url := startAdmin(t, Config{MemoryMB: 8, TenantDelimiter: ':'})
	talk(t, dial(t, addr), traffic())
	sc := parseMetrics(t, get(t, url+"/metrics", 200))
	labels := map[string]map[string]bool{} // of each metric
	for key := range sc.values {
		name, _, _ := strings.Cut(key, "{")
		if labels[name] == nil {
			labels[name] = map[string]bool{"job": true, "instance": true}
		}
		for _, p := range labelPairs.FindAllStringSubmatch(key, -1) {
			labels[name][p[1]] = true
		}
	}
	metric := regexp.MustCompile(`\b((?:memcached|quarry|go|process)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	grouping := regexp.MustCompile(`by \(([^)]*)\) \((?:rate\()?([a-z0-9_]+)`)
	ids, asked := map[int]bool{}, 0
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.H == 0 {
			t.Errorf("panel %d %q: its number or place is wrong", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			found := metric.FindAllStringSubmatch(target.Expr, -1)
			if len(found) == 0 || target.RefID == "" {
				t.Errorf("panel %q: %q names no metric", p.Title, target.Expr)
			}
			for _, m := range found {
				asked++
				if labels[m[1]] == nil {
					t.Errorf("panel %q: there is no %s", p.Title, m[1])
				}
				for _, l := range regexp.MustCompile(`(\w+)(?:=|!=)[~"]`).FindAllStringSubmatch(m[2], -1) {
					if !labels[m[1]][l[1]] {
						t.Errorf("panel %q: %s has no %s", p.Title, m[1], l[1])
					}
				}
			}
			for _, m := range grouping.FindAllStringSubmatch(target.Expr, -1) {
				for _, l := range strings.Split(m[1], ", ") {
					if !labels[m[2]][l] {
						t.Errorf("panel %q: %s has no %s", p.Title, m[2], l)
					}
				}
			}
			if strings.Count(target.Expr, "(") != strings.Count(target.Expr, ")") {
				t.Errorf("panel %q: %q", p.Title, target.Expr)
			}
		}
	}
	if asked < 40 {
		t.Errorf("only %d metrics are asked for", asked)
	}
	for _, v := range board.Templating.List {
		for _, m := range metric.FindAllStringSubmatch(string(v.Query), -1) {
			if labels[m[1]] == nil {
				t.Errorf("variable %s: there is no %s", v.Name, m[1])
			}
		}
	}
}

// TestLatencyMetrics: the buckets add up.
func TestLatencyMetrics(t *testing.T) {
	s, _, url := startAdmin(t, Config{MemoryMB: 8})
	for _, d := range []time.Duration{0, 1024, 1025, time.Millisecond, time.Minute} {
		s.latencies[classGet].add(d, 2)
	}
	sc := parseMetrics(t, get(t, url+"/metrics", 200))
	at := func(le string) float64 {
		return sc.values[`quarry_command_duration_seconds_bucket{class="get",le="`+le+`"}`]
	}
	if a, b, c := at("1.024e-06"), at("2.048e-06"), at("+Inf"); a != 4 || b != 6 || c != 10 {
		t.Errorf("got %v, %v, %v, want 4, 6, 10", a, b, c)
	}
	if n := sc.values[`quarry_command_duration_seconds_count{class="get"}`]; n != 10 {
		t.Errorf("count is %v", n)
	}
	sum := 2 * (time.Minute + time.Millisecond + 2049).Seconds()
	if got := sc.values[`quarry_command_duration_seconds_sum{class="get"}`]; math.Abs(got-sum) > 1e-6 {
		t.Errorf("sum is %v, want %v", got, sum)
	}
	s.resetStats()
	sc = parseMetrics(t, get(t, url+"/metrics", 200))
	if c := at("+Inf"); c != 0 {
		t.Errorf("%v after stats reset", c)
	}
}

// BenchmarkMetrics is a scrape of a server with a few dozen classes.
func BenchmarkMetrics(b *testing.B) {
	s, addr, _ := startAdmin(b, Config{MemoryMB: 64})
	talk(b, dial(b, addr), traffic())
	b.ReportAllocs()
	for b.Loop() {
		s.metricsText(s.fullSnapshot(s.clock(), tenantsExposedMax))
	}
}
