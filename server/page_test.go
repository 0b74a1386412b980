package server

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestPageFigures: what the page is made of are the figures of stats.
func TestPageFigures(t *testing.T) {
	clock := newTestClock()
	s, addr, url := startAdmin(t, Config{Clock: clock.Now, MemoryMB: 8, TenantDelimiter: ':',
		TenantQuotas: []TenantQuota{{Name: "web", Quota: Quota{MemoryBytes: 1 << 20}}}})
	c := dial(t, addr)
	runTraffic(t, s, c)
	s.latencies[classSet].add(1000, 3)
	var f figures
	if err := json.Unmarshal([]byte(get(t, url+"/stats.json", 200)), &f); err != nil {
		t.Fatal(err)
	}
	stat := statsOf(t, c, "stats\r\nstats memory\r\nstats tenants")
	number := func(keys ...string) (sum uint64) {
		for _, key := range keys {
			v, err := strconv.ParseUint(stat[key], 10, 64)
			if err != nil {
				t.Errorf("%s of stats is %q", key, stat[key])
			}
			sum += v
		}
		return sum
	}
	for name, pair := range map[string][2]uint64{
		"pid":           {uint64(f.PID), number("pid")},
		"uptime":        {f.UptimeSeconds, number("uptime")},
		"loops":         {uint64(f.Loops), number("threads")},
		"shards":        {uint64(f.Shards), number("shards")},
		"hits":          {f.GetHits, number("get_hits")},
		"misses":        {f.GetMisses, number("get_misses")},
		"sets":          {f.Sets, number("cmd_set")},
		"deletes":       {f.Deletes, number("delete_hits", "delete_misses")},
		"ariths":        {f.Ariths, number("incr_hits", "incr_misses", "decr_hits", "decr_misses")},
		"touches":       {f.Touches, number("cmd_touch")},
		"evictions":     {f.Evictions, number("evictions")},
		"expirations":   {f.Expirations, number("reclaimed", "crawler_reclaimed")},
		"too large":     {f.TooLarge, number("store_too_large")},
		"no memory":     {f.NoMemory, number("store_no_memory")},
		"connections":   {f.Connections.Current, number("curr_connections")},
		"most":          {uint64(f.Connections.Max), number("max_connections")},
		"opened":        {f.Connections.Total, number("total_connections")},
		"refused":       {f.Connections.Rejected, number("rejected_connections")},
		"admitted":      {f.Admitted, number("admitted")},
		"rejected":      {f.Rejected, number("rejected")},
		"items":         {f.Items, number("curr_items")},
		"limit":         {uint64(f.LimitBytes), number("limit_maxbytes")},
		"held":          {uint64(f.HeldBytes), number("held_bytes")},
		"uncarved":      {uint64(f.UncarvedBytes), number("uncarved_bytes")},
		"sending":       {uint64(f.SendingBytes), number("sending_bytes")},
		"pages moved":   {f.PagesMoved, number("slabs_moved")},
		"sweep checked": {f.SweepChecked, number("crawler_items_checked")},
		"window":        {f.Segments[0].Items, number("items_window")},
		"probation":     {f.Segments[1].Hits, number("hits_probation")},
		"keys, values":  {uint64(f.Memory[0].Bytes), number("key_value_bytes")},
		"tenant items":  {f.Tenants[0].Items, number("web:items")},
		"tenant quota":  {uint64(f.Tenants[0].QuotaBytes), number("web:quota_memory")},
		"tenant misses": {f.Tenants[0].Misses, number("web:misses")},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: the page has %d, stats %d", name, pair[0], pair[1])
		}
	}
	if f.State != stateReady || f.Version != Version || len(f.Addresses) != len(s.Addrs()) || f.TimeMillis != int64(clock.Now()) {
		t.Errorf("got %q %q %q %d", f.State, f.Version, f.Addresses, f.TimeMillis)
	}
	classes := statsOf(t, c, "stats items\r\nstats slabs")
	for _, class := range f.Classes {
		id := strconv.Itoa(class.Class)
		for key, v := range map[string]uint64{
			id + ":chunk_size": uint64(class.ChunkBytes), id + ":total_pages": class.Pages, id + ":get_hits": class.Hits,
			"items:" + id + ":number": class.Items, "items:" + id + ":mem_requested": class.RequestedBytes,
			"items:" + id + ":evicted": class.Evictions,
		} {
			if want, ok := classes[key]; ok && want != strconv.FormatUint(v, 10) {
				t.Errorf("%s: the page has %d, stats %s", key, v, want)
			}
		}
	}
	if active := classes["active_slabs"]; active != strconv.Itoa(len(f.Classes)) {
		t.Errorf("the page has %d classes, stats %s", len(f.Classes), active)
	}
	set := f.Latency[classSet]
	if set.Class != "set" || len(set.Buckets) == 0 || set.Buckets[0] != [2]uint64{1024, 3} {
		t.Errorf("latency of set: %v", set)
	}
}

// TestPageFiles: the page asks nobody but the server, and has nothing that its
// policy forbids.
func TestPageFiles(t *testing.T) {
	_, _, url := startAdmin(t, Config{})
	var all strings.Builder
	for path, want := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8",
		"/page.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml", "/stats.json": "application/json",
	} {
		body, resp := fetch(t, "GET", url+path)
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != want {
			t.Errorf("%s: %s, type %q, want %q", path, resp.Status, got, want)
		}
		all.WriteString(body)
	}
	for _, m := range regexp.MustCompile(`(https?:)?//[a-z][^\s"']*`).FindAllString(all.String(), -1) {
		if m != "http://www.w3.org/2000/svg" { // a name, never fetched
			t.Errorf("the page knows %s", m)
		}
	}
	html := get(t, url+"/", 200)
	for _, bad := range []string{" style=", "<style", " onclick=", "<script>"} {
		if strings.Contains(html, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if js := get(t, url+"/page.js", 200); strings.Contains(js, "innerHTML") {
		t.Error("the script makes elements of text")
	}
}
