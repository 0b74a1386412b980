package server

import (
	"bytes"
	"strconv"
	"strings"
)

// The metrics of the Prometheus memcached exporter, made of stats by the rules
// of its own source, so that dashboards and alerts written for it stay. Source:
// prometheus/memcached_exporter, pkg/exporter/exporter.go, also where its
// types are not what one would choose.

// exported is a metric with one value that the exporter makes of a line of
// stats or stats settings.
type exported struct {
	name string
	kind metricType
	help string
	key  string // of the line
}

// exportedGeneral are made of stats, or of the end of stats slabs.
var exportedGeneral = []exported{
	{"memcached_uptime_seconds", counterType, "Number of seconds since the server started.", "uptime"},
	{"memcached_time_seconds", gaugeType, "Current UNIX time according to the server.", "time"},
	{"memcached_process_user_cpu_seconds_total", counterType, "Accumulated user time for this process.", "rusage_user"},
	{"memcached_process_system_cpu_seconds_total", counterType, "Accumulated system time for this process.", "rusage_system"},
	{"memcached_current_bytes", gaugeType, "Current number of bytes used to store items.", "bytes"},
	{"memcached_limit_bytes", gaugeType, "Number of bytes this server is allowed to use for storage.", "limit_maxbytes"},
	{"memcached_current_items", gaugeType, "Current number of items stored by this instance.", "curr_items"},
	{"memcached_items_total", counterType, "Total number of items stored during the life of this instance.", "total_items"},
	{"memcached_read_bytes_total", counterType, "Total number of bytes read by this server from network.", "bytes_read"},
	{"memcached_written_bytes_total", counterType, "Total number of bytes sent by this server to network.", "bytes_written"},
	{"memcached_current_connections", gaugeType, "Current number of open connections.", "curr_connections"},
	{"memcached_connections_total", counterType, "Total number of connections opened since the server started running.", "total_connections"},
	{"memcached_connections_rejected_total", counterType, "Total number of connections refused because of -c.", "rejected_connections"},
	{"memcached_connections_yielded_total", counterType, "Total number of times that a connection gave others a turn because of -R.", "conn_yields"},
	{"memcached_connections_listener_disabled_total", counterType, "Number of times that the server stopped accepting connections for want of room.", "listen_disabled_num"},
	{"memcached_items_evicted_total", counterType, "Total number of valid items removed from cache to free memory for new items.", "evictions"},
	{"memcached_items_reclaimed_total", counterType, "Total number of expired items freed by the sweeper, or as their room or key was needed.", "reclaimed"},
	{"memcached_item_too_large_total", counterType, "The number of times an item exceeded the max-item-size when being stored.", "store_too_large"},
	{"memcached_item_no_memory_total", counterType, "The number of times an item could not be stored due to no more memory.", "store_no_memory"},
	{"memcached_direct_reclaims_total", counterType, "Times that a command itself had to reclaim or evict items.", "direct_reclaims"},
	{"memcached_lru_crawler_starts_total", counterType, "Times an LRU crawler was started.", "lru_crawler_starts"},
	{"memcached_lru_crawler_items_checked_total", counterType, "Total items that the sweeper of expired items looked at.", "crawler_items_checked"},
	{"memcached_lru_crawler_reclaimed_total", counterType, "Total items freed by crawls that clients asked for, with no_lru_maintainer by the sweeper of expired items too.", "crawler_reclaimed"},
	{"memcached_lru_crawler_moves_to_cold_total", counterType, "Total number of items moved from window or protected to probation.", "moves_to_cold"},
	{"memcached_lru_crawler_moves_to_warm_total", counterType, "Total number of items moved from probation to protected.", "moves_to_warm"},
	{"memcached_lru_crawler_moves_within_lru_total", counterType, "Total number of items moved to the front of their segment.", "moves_within_lru"},
	{"memcached_malloced_bytes", gaugeType, "Number of bytes of memory allocated to slab pages.", "total_malloced"},
	{"memcached_accepting_connections", gaugeType, "Whether the server is accepting new connections.", "accepting_conns"},
}

// exportedCrawler are made of stats settings while the crawler is on.
var exportedCrawler = []exported{
	{"memcached_lru_crawler_enabled", gaugeType, "Whether the LRU crawler is enabled.", "lru_crawler"},
	{"memcached_lru_crawler_sleep", gaugeType, "Microseconds to sleep between LRU crawls.", "lru_crawler_sleep"},
	{"memcached_lru_crawler_to_crawl", gaugeType, "Max items to crawl per slab per run.", "lru_crawler_tocrawl"},
	{"memcached_lru_crawler_maintainer_thread", gaugeType, "Split LRU mode and background threads.", "lru_maintainer_thread"},
	{"memcached_lru_crawler_hot_percent", gaugeType, "Percent of slab memory reserved for HOT LRU.", "hot_lru_pct"},
	{"memcached_lru_crawler_warm_percent", gaugeType, "Percent of slab memory reserved for WARM LRU.", "warm_lru_pct"},
	{"memcached_lru_crawler_hot_max_factor", gaugeType, "Set idle age of HOT LRU to COLD age * this.", "hot_max_factor"},
	{"memcached_lru_crawler_warm_max_factor", gaugeType, "Set idle age of WARM LRU to COLD age * this.", "warm_max_factor"},
}

// exportedItems are made of stats items, for each class with items.
var exportedItems = []exported{
	{"memcached_slab_current_items", gaugeType, "Number of items currently stored in this slab class.", "number"},
	{"memcached_slab_items_age_seconds", gaugeType, "Number of seconds since the last access of the next item to go.", "age"},
	{"memcached_slab_items_crawler_reclaimed_total", counterType, "Number of items freed by crawls that clients asked for, with no_lru_maintainer by the sweeper of expired items too.", "crawler_reclaimed"},
	{"memcached_slab_items_evicted_total", counterType, "Total number of times an item had to be evicted from the LRU before it expired.", "evicted"},
	{"memcached_slab_items_evicted_nonzero_total", counterType, "Total number of times an item which had an explicit expire time set had to be evicted from the LRU before it expired.", "evicted_nonzero"},
	{"memcached_slab_items_evicted_time_seconds", counterType, "Seconds since the last access for the most recent item evicted from this class.", "evicted_time"},
	{"memcached_slab_items_evicted_unfetched_total", counterType, "Total number of items evicted and never fetched.", "evicted_unfetched"},
	{"memcached_slab_items_expired_unfetched_total", counterType, "Total number of items that expired and were never fetched.", "expired_unfetched"},
	{"memcached_slab_items_outofmemory_total", counterType, "Total number of items for this slab class that have triggered an out of memory error.", "outofmemory"},
	{"memcached_slab_items_reclaimed_total", counterType, "Total number of items reclaimed.", "reclaimed"},
	{"memcached_slab_items_tailrepairs_total", counterType, "Always 0: nothing needs repairing here.", "tailrepairs"},
	{"memcached_slab_mem_requested_bytes", counterType, "Number of bytes of memory actual items take up within a slab.", "mem_requested"},
	{"memcached_slab_items_moves_to_cold", counterType, "Number of items moved from window or protected into probation.", "moves_to_cold"},
	{"memcached_slab_items_moves_to_warm", counterType, "Number of items moved from probation into protected.", "moves_to_warm"},
	{"memcached_slab_items_moves_within_lru", counterType, "Number of times active items were moved to the front of their segment.", "moves_within_lru"},
	{"memcached_slab_hot_items", gaugeType, "Number of items presently in the window.", "number_hot"},
	{"memcached_slab_warm_items", gaugeType, "Number of items presently protected.", "number_warm"},
	{"memcached_slab_cold_items", gaugeType, "Number of items presently in probation.", "number_cold"},
	{"memcached_slab_temporary_items", gaugeType, "Number of items presently stored in the TEMPORARY LRU.", "number_temp"},
	{"memcached_slab_hot_age_seconds", gaugeType, "Seconds since the last access of the window's last item.", "age_hot"},
	{"memcached_slab_warm_age_seconds", gaugeType, "Seconds since the last access of the last protected item.", "age_warm"},
}

// exportedSlabs are made of stats slabs, for each class with pages.
var exportedSlabs = []exported{
	{"memcached_slab_chunk_size_bytes", gaugeType, "Number of bytes allocated to each chunk within this slab class.", "chunk_size"},
	{"memcached_slab_chunks_per_page", gaugeType, "Number of chunks within a single page for this slab class.", "chunks_per_page"},
	{"memcached_slab_current_pages", gaugeType, "Number of pages allocated to this slab class.", "total_pages"},
	{"memcached_slab_current_chunks", gaugeType, "Number of chunks allocated to this slab class.", "total_chunks"},
	{"memcached_slab_chunks_used", gaugeType, "Number of chunks allocated to an item.", "used_chunks"},
	{"memcached_slab_chunks_free", gaugeType, "Number of chunks not yet allocated items.", "free_chunks"},
	{"memcached_slab_chunks_free_end", gaugeType, "Number of free chunks at the end of the last allocated page.", "free_chunks_end"},
}

// exportedCommands are the commands of which stats counts hits, and stats but
// not stats slabs misses.
var exportedCommands = []string{"get", "delete", "incr", "decr", "cas", "touch"}

// exportedLRUs are the lists of memcached's LRU: the key of stats items and
// the label.
var exportedLRUs = [][2]string{
	{"hits_to_hot", "hot"}, {"hits_to_warm", "warm"}, {"hits_to_cold", "cold"}, {"hits_to_temp", "temporary"},
}

// statTable is an answer to stats, by key.
type statTable map[string]string

// parseStats reads lines of stats into a table for each class, the key being
// what stands behind the class and a colon, and one for the other lines. The
// classes come in the order of the lines.
func (e *exposition) parseStats(lines []byte, prefix string) (general statTable, classes []string, byClass map[string]statTable) {
	general, byClass = statTable{}, map[string]statTable{}
	for line := range bytes.SplitSeq(lines, []byte("\r\n")) {
		e.step()
		key, value, ok := strings.Cut(strings.TrimPrefix(string(line), "STAT "), " ")
		if !ok {
			continue
		}
		class, name, ok := strings.Cut(strings.TrimPrefix(key, prefix), ":")
		if _, err := strconv.Atoi(class); !ok || err != nil {
			general[key] = value
			continue
		}
		if byClass[class] == nil {
			byClass[class] = statTable{}
			classes = append(classes, class)
		}
		byClass[class][name] = value
	}
	return general, classes, byClass
}

// number is the value of key, 0 if there is none.
func (t statTable) number(key string) float64 {
	f, _ := strconv.ParseFloat(t[key], 64)
	return f
}

// memcached writes the exporter's metrics of sn.
func (e *exposition) memcached(s *Server, sn *snapshot) {
	general, _, _ := e.parseStats(s.appendStats(nil, sn), "")
	settings, _, _ := e.parseStats(s.appendSettings(nil), "")
	_, itemClasses, items := e.parseStats(s.appendItemStats(nil, sn), "items:")
	slabsEnd, slabClasses, slabs := e.parseStats(s.appendSlabStats(nil, sn), "")
	general["total_malloced"] = slabsEnd["total_malloced"]

	e.one("memcached_up", gaugeType, "Could the memcached server be reached.", 1)
	e.family("memcached_version", gaugeType, "The version of this memcached server.")
	e.num("memcached_version", 1, "version", general["version"])
	for _, x := range exportedGeneral {
		e.exported(x, general)
	}
	e.exported(exported{"memcached_max_connections", gaugeType, "Maximum number of clients allowed.", "maxconns"}, settings)
	if settings["lru_crawler"] == "yes" {
		for _, x := range exportedCrawler {
			e.exported(x, settings)
		}
	}
	e.commands(general)
	for _, x := range exportedItems {
		e.exportedClasses(x, itemClasses, items)
	}
	if len(itemClasses) > 0 {
		e.family("memcached_slab_lru_hits_total", counterType, "Number of get_hits to the LRU.")
	}
	for _, class := range itemClasses {
		for _, lru := range exportedLRUs {
			e.text("memcached_slab_lru_hits_total", items[class][lru[0]], "slab", class, "lru", lru[1])
		}
	}
	for _, x := range exportedSlabs {
		e.exportedClasses(x, slabClasses, slabs)
	}
	e.slabCommands(slabClasses, slabs)
}

// exported writes x, unless stats does not have it now.
func (e *exposition) exported(x exported, from statTable) {
	v, ok := from[x.key]
	if !ok {
		return
	}
	e.family(x.name, x.kind, x.help)
	switch v {
	case "yes":
		v = "1"
	case "no":
		v = "0"
	}
	e.text(x.name, v)
}

// exportedClasses writes x for all classes that have it.
func (e *exposition) exportedClasses(x exported, classes []string, byClass map[string]statTable) {
	begun := false
	for _, class := range classes {
		v, ok := byClass[class][x.key]
		if !ok {
			continue
		}
		if !begun {
			e.family(x.name, x.kind, x.help)
			begun = true
		}
		e.text(x.name, v, "slab", class)
	}
}

// commands writes what was asked for, by outcome.
func (e *exposition) commands(general statTable) {
	const name = "memcached_commands_total"
	e.family(name, counterType, "Total number of all requests broken down by command (get, set, etc.) and status.")
	for _, op := range exportedCommands {
		e.text(name, general[op+"_hits"], "command", op, "status", "hit")
		e.text(name, general[op+"_misses"], "command", op, "status", "miss")
	}
	e.text(name, general["cas_badval"], "command", "cas", "status", "badval")
	e.text(name, general["cmd_flush"], "command", "flush", "status", "hit")
	cas := general.number("cas_misses") + general.number("cas_hits") + general.number("cas_badval")
	e.float(name, general.number("cmd_set")-cas, "command", "set", "status", "hit")
}

// slabCommands writes what found its item, by class.
func (e *exposition) slabCommands(classes []string, slabs map[string]statTable) {
	const name = "memcached_slab_commands_total"
	if len(classes) > 0 {
		e.family(name, counterType, "Total number of all requests broken down by command (get, set, etc.) and status per slab.")
	}
	for _, class := range classes {
		t := slabs[class]
		for _, op := range exportedCommands {
			e.text(name, t[op+"_hits"], "slab", class, "command", op, "status", "hit")
		}
		e.text(name, t["cas_badval"], "slab", class, "command", "cas", "status", "badval")
		cas := t.number("cas_hits") + t.number("cas_badval")
		e.float(name, t.number("cmd_set")-cas, "slab", class, "command", "set", "status", "hit")
	}
}
