package server

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// TestFreshFigures: stats freshness, /metrics and the page say the same, and what
// happened.
func TestFreshFigures(t *testing.T) {
	clock := newTestClock()
	s, addr, url := startAdmin(t, Config{Clock: clock.Now, MemoryMB: 8, Fresh: FreshConfig{
		RateBackground: 1, InflightMax: 100, GrantOnly: []string{"only:"}, VersionRanges: []VersionRange{{Prefix: "near:", Max: 10}}}})
	c := dialFresh(t, addr, clock)
	if strings.Contains(get(t, url+"/stats.json", 200), `"freshness"`) {
		t.Error("the page shows freshness before anybody used it")
	}

	a := c.lookup("a G500").token
	c.want("mg a G500", "EN Z w10")
	c.want("mg b G500s", "EN W g* w500 y0")
	c.want("mg c G500b", "EN W g* w500 y0")
	c.want("mg d G500b", "EN d1001")
	c.want(fmt.Sprintf("ms a 1 G%s Y7 A%d,%d", a, c.in(30_000), c.in(20_000)), "HD", "x")
	c.want(fmt.Sprintf("ms a 1 G%s Y7 A%d", a, c.in(30_000)), "NF r1", "x")
	c.want(fmt.Sprintf("ms a 1 Gforged Y7 A%d", c.in(30_000)), "NF r3", "x")
	c.want(fmt.Sprintf("ms e 1 Y5 A%d", c.in(30_000)), "HD", "x")
	c.want("md a I Y7", "HD")
	c.want("md a I Y8", "HD")
	c.want("md f Y9", "HD")
	c.want("md "+"f"+" G"+c.lookup("f G500").token, "HD")
	g := c.lookup("g G500").token
	c.want(fmt.Sprintf("ms g 0 MN G%s Y0 A%d", g, c.in(60_000)), "HD", "")
	c.want("mg g G500", "EN e y0")
	c.want("set only:x 0 0 1", "NOT_STORED", "x")
	c.want("md near:x I Y5", "HD")
	c.want("mg near:x Y16", "CLIENT_ERROR version out of range")
	c.advance(600) // b and c expire
	a = c.lookup("a G500").token
	c.want(fmt.Sprintf("ms a 1 G%s Y7 A%d", a, c.in(30_000)), "EX r5", "x")
	a = c.lookup("a G500").token
	c.want(fmt.Sprintf("ms a 1 G%s Y8 A%d,%d", a, c.in(30_000), c.in(20_000)), "HD", "x")
	c.advance(20_000)
	a = c.lookup("a G500").token
	c.want(fmt.Sprintf("ms a 0 MV G%s Y8 A%d", a, c.in(30_000)), "HD", "")

	stat := statsOf(t, c.conn, "stats freshness\r\nstats memory")
	for key, want := range map[string]string{
		"grants_foreground": "6", "grants_background": "1", "grants_strong": "1", "grants_early": "0",
		"waits": "1", "denials": "1", "absent_hits": "1",
		"fills": "2", "revalidations": "1", "absences": "1", "versioned_writes": "1",
		"given_back": "1", "grants_expired": "2", "notices": "3", "takedowns": "1",
		"out_of_range": "1", "floors_dropped": "0",
		"refused_r1": "1", "refused_r2": "0", "refused_r3": "1", "refused_r4": "0", "refused_r5": "1", "refused_r6": "0",
		"refused_r7": "0", "refused_r8": "0", "refused_r10": "0", "refused_r11": "1",
		"grants_in_flight": "0", "grants_in_flight_max": "100", "clock_trusted": "1", "clock_distrusts": "0", "clock_resets": "0",
		"clock_offset_ms": "0", "grant_max_ms": "1000", "floor_retention_ms": "30000", "clock_skew_max_ms": "100",
	} {
		if stat[key] != want {
			t.Errorf("%s is %q, want %s", key, stat[key], want)
		}
	}

	sc := parseMetrics(t, get(t, url+"/metrics", 200))
	compared := 0
	for _, f := range s.snapshot(clock.Now()).freshFigures() {
		key := f.metric + labelText(f.labels)
		if v, ok := sc.values[key]; !ok || strconv.FormatFloat(v, 'f', -1, 64) != stat[f.stat] {
			t.Errorf("%s is %v (%v), stats says %s", key, v, ok, stat[f.stat])
		}
		compared++
	}
	if compared < 37 {
		t.Errorf("%d figures were compared", compared)
	}
	if v := sc.values["quarry_fill_seconds"]; strconv.FormatFloat(v*1000, 'f', -1, 64) != stat["fill_ms"] {
		t.Errorf("a fill takes %v s, stats says %s ms", v, stat["fill_ms"])
	}
	if v := sc.values[`quarry_memory_bytes{use="record"}`]; v == 0 || strconv.FormatFloat(v, 'f', -1, 64) != stat["records_bytes"] || stat["record_bytes"] != stat["records_bytes"] {
		t.Errorf("records take %v, stats says %s and %s", v, stat["records_bytes"], stat["record_bytes"])
	}

	var page figures
	if err := json.Unmarshal([]byte(get(t, url+"/stats.json", 200)), &page); err != nil || page.Freshness == nil {
		t.Fatal(err)
	}
	if f := page.Freshness; f.Grants != 8 || f.Background != 1 || f.Filled != 5 || f.Refused != 4 || f.Notices != 4 || f.InflightMax != 100 ||
		strconv.Itoa(f.Records) != stat["records"] || strconv.FormatUint(f.Versioned, 10) != stat["versioned_items"] {
		t.Errorf("the page has %+v", *f)
	}

	talk(t, c.conn, "stats reset\r\n")
	stat = statsOf(t, c.conn, "stats freshness")
	for _, f := range s.snapshot(clock.Now()).freshFigures() {
		if f.kind == counterType && stat[f.stat] != "0" {
			t.Errorf("%s is %s after stats reset", f.stat, stat[f.stat])
		}
	}
	if stat["versioned_items"] == "0" {
		t.Error("stats reset has set a gauge to 0")
	}
}
