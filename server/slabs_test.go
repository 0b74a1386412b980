package server

import (
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// statNumber is one number of a stats command.
func (p *testPeer) statNumber(word, key string) int64 {
	p.t.Helper()
	n, err := strconv.ParseInt(p.stat(word, key), 10, 64)
	if err != nil {
		p.t.Fatalf("stats %s: %s: %v", word, key, err)
	}
	return n
}

// fill stores n items k0, k1 ... with values of so many bytes.
func (p *testPeer) fill(n, valueBytes int) {
	p.t.Helper()
	var in []byte
	value := strings.Repeat("v", valueBytes)
	for i := range n {
		in = fmt.Appendf(in, "set k%d 0 0 %d noreply\r\n%s\r\n", i, valueBytes, value)
		if len(in) > 1<<20 || i == n-1 {
			p.want(string(in), "")
			in = in[:0]
		}
	}
}

// classOf is the class of key, from me.
func (p *testPeer) classOf(key string) int {
	p.t.Helper()
	reply := p.send("me " + key + "\r\n")
	_, rest, _ := strings.Cut(reply, " cls=")
	word, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(word)
	if err != nil {
		p.t.Fatalf("me %s: %q", key, reply)
	}
	return n
}

// TestReassignCommand moves a page from one class to another by hand, and sees
// it in the statistics.
func TestReassignCommand(t *testing.T) {
	s, addr := startServer(t, Config{MemoryMB: 2, Threads: 1})
	c := dialText(t, addr)
	const n = 3000
	value := strings.Repeat("v", 1000)
	var in strings.Builder
	for i := range n {
		fmt.Fprintf(&in, "set k%d 0 0 %d noreply\r\n%s\r\n", i, len(value), value)
	}
	fmt.Fprint(c.conn, in.String())
	c.say(t, "set last 0 0 1\r\nx", "STORED")
	from, pages := 0, 0
	for name, v := range c.stats(t, "stats slabs") {
		class, ok := strings.CutSuffix(name, ":total_pages")
		if p, err := strconv.Atoi(v); ok && err == nil && p > pages {
			from, _ = strconv.Atoi(class)
			pages = p
		}
	}
	const to = 2 // nothing is of that size
	moved := c.stat(t, "stats", "slabs_moved")
	c.say(t, fmt.Sprintf("slabs reassign %d %d", from, to), "OK")
	waitFor(t, "the page to move", func() bool { return c.stat(t, "stats", "slabs_moved") > moved })
	slabs := c.stats(t, "stats slabs")
	if got := slabs[fmt.Sprintf("%d:total_pages", to)]; got != "1" {
		t.Errorf("class %d has %s pages", to, got)
	}
	if got := slabs[fmt.Sprintf("%d:total_pages", from)]; got != strconv.Itoa(pages-1) {
		t.Errorf("class %d has %s pages, had %d", from, got, pages)
	}
	stats := c.stats(t, "stats")
	for key, want := range map[string]string{
		"slab_reassign_running": "0", "slab_reassign_busy_items": "0", "slab_reassign_last_busy_status": "none",
		"slab_global_page_pool": "0",
	} {
		if stats[key] != want {
			t.Errorf("%s: got %s, want %s", key, stats[key], want)
		}
	}
	c.say(t, fmt.Sprintf("slabs reassign %d 0", from), "OK")
	waitFor(t, "the page to come free", func() bool { return c.stat(t, "stats", "slab_global_page_pool") == 1 })

	// A value on its way in stays where it is, and so does its page.
	busy := dialText(t, addr)
	fmt.Fprintf(busy.conn, "set half 0 0 %d\r\n%s", len(value), value[:500])
	waitFor(t, "half a value", func() bool { return s.store.Check() == nil && c.stat(t, "stats memory", "upload_bytes") > 0 })
	waitFor(t, "a move to meet the half value", func() bool {
		fmt.Fprintf(c.conn, "slabs reassign %d 0\r\n", from)
		if answer := c.line(t); answer != "OK" && !strings.HasPrefix(answer, "BUSY ") {
			t.Fatalf("no move met the half value before %q", answer)
		}
		return c.stat(t, "stats", "slab_reassign_busy_items") > 0
	})
	if got := c.stats(t, "stats")["slab_reassign_last_busy_status"]; got != "busy_uploading" {
		t.Errorf("slab_reassign_last_busy_status %s", got)
	}
	fmt.Fprintf(busy.conn, "%s\r\n", value[500:])
	if got := busy.line(t); got != "STORED" {
		t.Errorf("the half value: %s", got)
	}
}

// TestMemlimitCommand lowers the limit of a full server, and raises it again.
func TestMemlimitCommand(t *testing.T) {
	_, addr := startServer(t, Config{MemoryMB: 16, Threads: 1})
	c := dialText(t, addr)
	fill := func() (items int) {
		var in strings.Builder
		for i := range 20000 {
			fmt.Fprintf(&in, "set k%d 0 0 1000 noreply\r\n%s\r\n", i, strings.Repeat("v", 1000))
		}
		fmt.Fprint(c.conn, in.String())
		c.say(t, "set last 0 0 1\r\nx", "STORED")
		return c.stat(t, "stats", "curr_items")
	}
	full := fill()
	c.say(t, "cache_memlimit 8", "OK")
	waitFor(t, "memory to come back", func() bool { return c.stat(t, "stats slabs", "total_malloced") <= 8<<20 })
	half := c.stat(t, "stats", "curr_items")
	c.say(t, "cache_memlimit 16", "OK")
	again := fill()
	t.Logf("%d items in 16 MB, %d in 8, %d in 16", full, half, again)
	if half > full*6/10 || half < full*4/10 || again < full*9/10 {
		t.Errorf("%d items in 16 MB, %d in 8, %d in 16", full, half, again)
	}
}

// TestStatsWithoutReassign: memcached leaves nine keys out.
func TestStatsWithoutReassign(t *testing.T) {
	p := newTestPeer(t, Config{Extended: Extended{NoSlabReassign: true}})
	got := p.send("stats\r\n")
	if n := strings.Count(got, "STAT "); n != 93-9 || strings.Contains(got, "slab_reassign") {
		t.Errorf("%d keys, memcached has %d", n, 93-9)
	}
}

// TestLargeItemsInStats: a large item counts in the largest class, whatever
// its size.
func TestLargeItemsInStats(t *testing.T) {
	p := newTestPeer(t, Config{MemoryMB: 8})
	sizes := []int{20_000, 60_000, 200_000, 1_000_000}
	total := 0
	for i, n := range sizes {
		p.want(fmt.Sprintf("set k%d 0 0 %d\r\n%s\r\nget k%d nope\r\n", i, n, strings.Repeat("v", n), i),
			fmt.Sprintf("STORED\r\nVALUE k%d 0 %d\r\n%s\r\nEND\r\n", i, n, strings.Repeat("v", n)))
		total += n
	}
	class := p.classOf("k0")
	prefix := fmt.Sprintf("items:%d:", class)
	if got := p.statNumber("items", prefix+"number"); got != int64(len(sizes)) {
		t.Errorf("%snumber %d, want %d", prefix, got, len(sizes))
	}
	if got := p.statNumber("items", prefix+"mem_requested"); got < int64(total) || got > int64(total)+400 {
		t.Errorf("%smem_requested %d, want %d and headers", prefix, got, total)
	}
	if got := p.statNumber("slabs", fmt.Sprintf("%d:get_hits", class)); got != int64(len(sizes)) {
		t.Errorf("%d:get_hits %d, want %d", class, got, len(sizes))
	}
	if got := p.statNumber("slabs", fmt.Sprintf("%d:cmd_set", class)); got != int64(len(sizes)) {
		t.Errorf("%d:cmd_set %d, want %d", class, got, len(sizes))
	}
	if strings.Count(p.send("stats items\r\n"), ":number ") != 1 {
		t.Errorf("stats items: %s", p.send("stats items\r\n"))
	}
	if m := p.statNumber("memory", "key_value_bytes"); m != int64(total+len(sizes)*len("k0")) {
		t.Errorf("key_value_bytes %d, want %d", m, total+len(sizes)*len("k0"))
	}
}

// TestStatsMemory: the parts are the whole, and the policy is shown.
func TestStatsMemory(t *testing.T) {
	for _, policy := range []string{"", "segmented"} {
		p := newTestPeer(t, Config{Extended: Extended{LRUPolicy: policy}})
		p.fill(30000, 100)
		p.send("get k1 k2 k29999\r\nget k29999 k29998\r\n")
		want := policy
		if policy == "" {
			want = "tinylfu"
		}
		if got := p.stat("memory", "policy"); got != want {
			t.Errorf("policy %s, want %s", got, want)
		}
		if admitted, rejected := p.statNumber("memory", "admitted"), p.statNumber("memory", "rejected"); (admitted+rejected > 0) != (policy == "") {
			t.Errorf("%s: %d admitted, %d rejected", want, admitted, rejected)
		}
		hits := p.statNumber("memory", "hits_window") + p.statNumber("memory", "hits_probation") + p.statNumber("memory", "hits_protected")
		if got := p.statNumber("", "get_hits"); got != hits || hits == 0 {
			t.Errorf("%d hits by segment, %d in all", hits, got)
		}
		if got := p.statNumber("memory", "limit_bytes"); got != 2<<20 {
			t.Errorf("limit_bytes %d", got)
		}
		in := func(keys ...string) (sum int64) {
			for _, key := range keys {
				sum += p.statNumber("memory", key)
			}
			return sum
		}
		pages := in("key_value_bytes", "header_bytes", "rounding_bytes", "free_chunk_bytes", "idle_page_bytes",
			"pinned_bytes", "upload_bytes", "uncarved_bytes")
		if held := in("held_bytes"); pages != held {
			t.Errorf("the parts of the pages are %d bytes, %d are held", pages, held)
		}
	}
}

// TestStatsMemoryIsRSS: what stats memory says is what the process has.
func TestStatsMemoryIsRSS(t *testing.T) {
	if raceEnabled {
		t.Skip("item memory is on the Go heap under the race detector")
	}
	for _, size := range []struct{ items, valueBytes, memoryMB int }{
		{200_000, 100, 64},  // it all fits
		{200_000, 1000, 64}, // it does not
		{2_000, 50_000, 128},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", size.items, size.valueBytes), func(t *testing.T) {
			p := newTestPeer(t, Config{MemoryMB: size.memoryMB})
			figures := func() (total, rss int64) {
				// The heap is to be as large in both measurements, and
				// what is free of it no part of them.
				debug.FreeOSMemory()
				total, rss = p.statNumber("memory", "total_bytes"), p.statNumber("memory", "rss_bytes")
				if rss == 0 {
					t.Skip("skipped: no /proc/self/statm")
				}
				return total, rss
			}
			total0, rss0 := figures()
			p.fill(size.items, size.valueBytes)
			total1, rss1 := figures()
			t.Logf("grew by %d of RSS, %d by stats memory; now %d, %d", rss1-rss0, total1-total0, rss1, total1)
			if got, want := float64(total1-total0), float64(rss1-rss0); got < 0.9*want || got > 1.1*want {
				t.Errorf("stats memory says %.0f bytes more, RSS is %.0f more\n%s", got, want, p.send("stats memory\r\n"))
			}
		})
	}
}
