package main

import (
	"crypto/tls"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/quarrycache/quarry/server"
)

// class says what becomes of a sub-option.
type class uint8

const (
	honoured class = iota
	ignored        // accepted: one warning line, no effect
	ofSlabs        // the same without compat_slabs
	refused        // without it the user would get something else than asked for
)

// A suboption is one name that -o takes.
type suboption struct {
	name    string
	class   class
	why     string // of refused: the reason
	missing string // the complaint if no value is given; "" if none is needed
	bare    string // the value that the name alone stands for
	set     func(x *extended, value string) error
	help    string // what -h says, "" for nothing; an ignored one says so by itself
	own     bool   // Quarry's, not memcached's
}

// extended gathers what all -o of a command line say.
type extended struct {
	*server.Config

	chunkMaxGiven bool     // slab_chunk_max was given: -I does not change it
	slabSizes     *string  // slab_sizes, read when all limits are known
	ofSlabs       []string // names given that have no effect without compat_slabs
	warnings      []string // for the operator, once the server starts
}

// parse applies one -o list: name or name=value, separated by commas.
func (x *extended) parse(list string) error {
	for list != "" {
		var word string
		word, list, _ = strings.Cut(list, ",")
		name, value, given := strings.Cut(word, "=")
		o := findSuboption(name)
		switch {
		case o == nil:
			return refuse(exitError, "Illegal suboption \"%s\"", word)
		case o.class == refused:
			return refuse(exitUsage, "quarryd: -o %s: %s", name, o.why)
		case o.missing != "" && !given:
			return refuse(exitError, "%s", o.missing)
		case !given:
			value = o.bare
		}
		if o.set != nil {
			if err := o.set(x, value); err != nil {
				return err
			}
		}
		switch o.class {
		case ignored:
			x.warn("-o %s is accepted and has no effect", name)
		case ofSlabs:
			x.ofSlabs = append(x.ofSlabs, name)
		}
	}
	return nil
}

// warn keeps a warning for the start.
func (x *extended) warn(format string, values ...any) {
	x.warnings = append(x.warnings, fmt.Sprintf(format, values...))
}

func findSuboption(name string) *suboption {
	for i := range suboptions {
		if suboptions[i].name == name {
			return &suboptions[i]
		}
	}
	return nil
}

// suboptions is every name that memcached 1.6.45 knows, in the order of its
// help, and lru_policy, which is Quarry's own. Limits and complaints are memcached's. What is ignored keeps its
// limits, and shows in `stats settings`.
var suboptions = []suboption{
	{name: "maxconns_fast",
		set: func(x *extended, _ string) error {
			x.NoMaxConnsFast = false
			return nil
		},
		help: "immediately close new connections after limit (default: enabled)"},
	{name: "no_maxconns_fast",
		set: func(x *extended, _ string) error {
			x.NoMaxConnsFast = true
			return nil
		}},
	{name: "hashpower", class: ignored,
		missing: "Missing numeric argument for hashpower",
		set:     setHashPower},
	{name: "tail_repair_time", class: ignored,
		missing: "Missing numeric argument for tail_repair_time",
		set: between(func(x *server.Extended) *int { return &x.TailRepairSeconds }, 10, math.MaxInt32,
			"Cannot set tail_repair_time to less than 10 seconds")},
	{name: "hash_algorithm", class: ignored,
		missing: "Missing hash_algorithm argument",
		set:     setHashAlgorithm},
	{name: "lru_crawler",
		set:  turn(func(x *server.Extended) *bool { return &x.NoLRUCrawler }, false),
		help: "the background frees what has expired (default: enabled)"},
	{name: "no_lru_crawler",
		set: turn(func(x *server.Extended) *bool { return &x.NoLRUCrawler }, true)},
	{name: "lru_crawler_sleep",
		missing: "Missing lru_crawler_sleep value",
		set: between(func(x *server.Extended) *int { return &x.LRUCrawlerSleepMicros }, 0, 1_000_000,
			"LRU crawler sleep must be between 0 and 1 second")},
	{name: "lru_crawler_tocrawl",
		missing: "Missing lru_crawler_tocrawl value",
		set: strict(func(x *server.Extended) *int { return &x.LRUCrawlerItemsMax }, 1,
			"lru_crawler_tocrawl takes a numeric 32bit value")},
	{name: "read_buf_mem_limit",
		missing: "Missing read_buf_mem_limit argument",
		set: strict(func(x *server.Extended) *int { return &x.ReadBufferMaxBytes }, 1<<20,
			"could not parse argument to read_buf_mem_limit"),
		help: "limit in megabytes for what connections hold beside themselves.\n0 means unlimited (default: 0)"},
	{name: "resp_obj_mem_limit",
		set: func(x *extended, _ string) error {
			x.warn("DEPRECATED: resp_obj_mem_limit no longer used. See read_buf_mem_limit,")
			return nil
		}},
	{name: "lru_maintainer",
		set: func(x *extended, _ string) error {
			x.Extended.NoLRUMaintainer, x.Extended.LRUFlat = false, false
			return nil
		}},
	{name: "no_lru_maintainer",
		set: func(x *extended, _ string) error {
			x.Extended.NoLRUMaintainer, x.Extended.LRUFlat = true, true
			return nil
		}},
	{name: "lru_policy", own: true,
		missing: "Missing lru_policy argument",
		set: func(x *extended, value string) error {
			if value != "tinylfu" && value != "segmented" {
				return refuse(exitError, "lru_policy must be tinylfu or segmented")
			}
			x.Extended.LRUPolicy = value
			return nil
		},
		help: "tinylfu: a new item stays if it is asked for often enough;\n" +
			"segmented: it stays until it is not asked for, as in memcached\n(default: tinylfu)"},
	{name: "compat_slabs", own: true,
		set: turn(func(x *server.Extended) *bool { return &x.CompatSlabs }, true),
		help: "memcached's pages, classes, sizes of items and eviction, for who\n" +
			"depends on their numbers; holds less, and has one shard (default: off)"},
	{name: "stalls", own: true,
		set: turn(func(x *server.Extended) *bool { return &x.Stalls }, true),
		help: "keep the longest times in which the server held clients up, and why:\n" +
			"stats stalls shows them (default: off)"},
	{name: "hot_lru_pct",
		missing: "Missing hot_lru_pct argument",
		set: between(func(x *server.Extended) *int { return &x.HotLRUPercent }, 1, 79,
			"hot_lru_pct must be > 1 and < 80")},
	{name: "warm_lru_pct",
		missing: "Missing warm_lru_pct argument",
		set: between(func(x *server.Extended) *int { return &x.WarmLRUPercent }, 1, 79,
			"warm_lru_pct must be > 1 and < 80")},
	{name: "hot_max_factor", class: ignored,
		missing: "Missing hot_max_factor argument",
		set: ratio(func(x *server.Extended) *float64 { return &x.HotMaxFactor }, math.MaxFloat64,
			"hot_max_factor must be > 0")},
	{name: "warm_max_factor", class: ignored,
		missing: "Missing warm_max_factor argument",
		set: ratio(func(x *server.Extended) *float64 { return &x.WarmMaxFactor }, math.MaxFloat64,
			"warm_max_factor must be > 0")},
	{name: "temporary_ttl",
		missing: "Missing temporary_ttl argument",
		set: func(x *extended, value string) error {
			x.Extended.TempLRU = true
			x.Extended.TemporaryTTLSeconds = given(atoi(value))
			return nil
		}},
	{name: "idle_timeout",
		missing: "Missing numeric argument for idle_timeout",
		set: func(x *extended, value string) error {
			x.IdleSeconds = max(atoi(value), 0)
			return nil
		},
		help: "timeout for idle connections. (default: 0, no timeout)"},
	{name: "slab_reassign",
		set: turn(func(x *server.Extended) *bool { return &x.NoSlabReassign }, false)},
	{name: "no_slab_reassign",
		set: turn(func(x *server.Extended) *bool { return &x.NoSlabReassign }, true)},
	{name: "slab_automove", bare: "1",
		set:  setSlabAutomove,
		help: "whether memory pages move to the sizes that use them best\n(0 off, 1 and 2 on; default: 1)"},
	{name: "no_slab_automove",
		set: turn(func(x *server.Extended) *bool { return &x.NoSlabAutomove }, true)},
	{name: "slab_automove_ratio", class: ignored,
		missing: "Missing slab_automove_ratio argument",
		set: ratio(func(x *server.Extended) *float64 { return &x.SlabAutomoveRatio }, 1,
			"slab_automove_ratio must be > 0 and < 1")},
	{name: "slab_automove_window", class: ignored,
		missing: "Missing slab_automove_window argument",
		set: between(func(x *server.Extended) *int { return &x.SlabAutomoveWindow }, 3, 1800,
			"slab_automove_window must be > 2 and < 1800")},
	{name: "slab_automove_freeratio", class: ignored,
		missing: "Missing slab_automove_freeratio argument",
		set: func(x *extended, value string) error {
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return refuse(exitError, "could not parse argument to slab_automove_freeratio")
			}
			x.Extended.SlabAutomoveFreeRatio = f
			return nil
		}},
	{name: "slab_sizes",
		missing: "Missing slab_sizes argument",
		set: func(x *extended, value string) error {
			x.slabSizes = &value
			return nil
		},
		help: "sizes of the chunks that memory is cut into, rising: a-b-c"},
	{name: "slab_chunk_max", class: ofSlabs,
		missing: "Missing slab_chunk_max argument",
		set:     setChunkMax},
	{name: "no_chunked_items", class: ofSlabs,
		set: func(x *extended, _ string) error {
			x.Extended.SlabChunkMaxBytes = slabPageBytes
			return nil
		}},
	{name: "watcher_logbuf_size",
		missing: "Missing watcher_logbuf_size argument",
		set: strict(func(x *server.Extended) *int { return &x.WatcherBufferBytes }, 1<<10,
			"could not parse argument to watcher_logbuf_size")},
	{name: "worker_logbuf_size",
		missing: "Missing worker_logbuf_size argument",
		set: strict(func(x *server.Extended) *int { return &x.WorkerBufferBytes }, 1<<10,
			"could not parse argument to worker_logbuf_size")},
	{name: "optimistic_reads", own: true,
		set:  turn(func(x *server.Extended) *bool { return &x.OptimisticReads }, true),
		help: "read what is hot without the lock of its shard, on amd64:\nfor many threads that read the same keys"},
	{name: "track_sizes",
		set: turn(func(x *server.Extended) *bool { return &x.TrackSizes }, true)},
	{name: "no_hashexpand", class: ignored},
	{name: "inline_ascii_resp"},
	{name: "no_inline_ascii_resp"},
	{name: "modern",
		help: "enables options which will be default in future.\ncurrently: nothing"},
	{name: "no_modern", set: setNoModern},
	{name: "drop_privileges", class: ignored},
	{name: "no_drop_privileges"}, // asks for what is so
	{name: "relaxed_privileges"}, // of debug builds; asks for what is so
	{name: "sock_cookie_id",
		missing: "Missing sock_cookie_id argument",
		set: func(x *extended, value string) error {
			x.SocketMark, _ = strictUint(value) // junk is 0, which is none
			return nil
		},
		help: "attributes an ID to a socket for ip filtering/firewalls"},

	// The flash tier: sizes for a tier that is off change nothing.
	{name: "ext_path", class: refused, why: "this server has no flash tier"},
	{name: "ext_page_size", class: ignored, missing: "Missing ext_page_size argument"},
	{name: "ext_wbuf_size", class: ignored, missing: "Missing ext_wbuf_size argument"},
	{name: "ext_threads", class: ignored, missing: "Missing ext_threads argument"},
	{name: "ext_io_depth", class: ignored, missing: "Missing ext_io_depth argument"},
	{name: "ext_item_size", class: ignored, missing: "Missing ext_item_size argument"},
	{name: "ext_item_age", class: ignored, missing: "Missing ext_item_age argument"},
	{name: "ext_low_ttl", class: ignored, missing: "Missing ext_low_ttl argument"},
	{name: "ext_drop_unread", class: ignored},
	{name: "ext_recache_rate", class: ignored, missing: "Missing ext_recache_rate argument"},
	{name: "ext_compact_under", class: ignored, missing: "Missing ext_compact_under argument"},
	{name: "ext_drop_under", class: ignored, missing: "Missing ext_drop_under argument"},
	{name: "ext_max_frag", class: ignored, missing: "Missing ext_max_frag argument"},
	{name: "ext_max_sleep", class: ignored, missing: "Missing ext_max_sleep argument"},

	{name: "ssl_chain_cert",
		missing: "Missing ssl_chain_cert argument",
		set:     tlsText(func(c *server.TLS) *string { return &c.ChainCert }),
		help:    "certificate chain file in PEM format"},
	{name: "ssl_key",
		missing: "Missing ssl_key argument",
		set:     tlsText(func(c *server.TLS) *string { return &c.Key }),
		help:    "private key, if not part of the -ssl_chain_cert"},
	{name: "ssl_keyformat",
		missing: "Missing ssl_keyformat argument",
		set:     setKeyFormat,
		help:    "private key format: 1 (PEM), which is the default"},
	{name: "ssl_verify_mode",
		missing: "Missing ssl_verify_mode argument",
		set:     setVerifyMode,
		help: "peer certificate verification mode, default is 0(None).\n" +
			"valid values are 0(None), 1(Request), 2(Require)\nor 3(Once)"},
	{name: "ssl_ciphers",
		missing: "Missing ssl_ciphers argument",
		set:     tlsText(func(c *server.TLS) *string { return &c.Ciphers }),
		help:    "specify cipher list to be used, up to TLS 1.2: OpenSSL's names\nof single ciphers, separated by colons"},
	{name: "ssl_ca_cert",
		missing: "Missing ssl_ca_cert argument",
		set:     tlsText(func(c *server.TLS) *string { return &c.CACert }),
		help:    "PEM format file of acceptable client CA's"},
	{name: "ssl_wbuf_size", class: ignored,
		missing: "Missing ssl_wbuf_size argument",
		set: func(x *extended, value string) error {
			n, ok := strictUint(value)
			if !ok {
				return refuse(exitError, "could not parse argument to ssl_wbuf_size")
			}
			x.TLS.WriteBufferBytes = n << 10
			return nil
		}},
	{name: "ssl_session_cache",
		set: func(x *extended, _ string) error {
			x.TLS.SessionCache = true
			return nil
		},
		help: "enable server-side SSL session cache, to support session\nresumption"},
	{name: "ssl_kernel_tls", class: ignored,
		set: func(x *extended, _ string) error {
			x.TLS.Kernel = true
			return nil
		}},
	{name: "ssl_min_version",
		missing: "Missing ssl_min_version argument",
		set:     setMinVersion,
		help: "minimum protocol version to accept (default: tlsv1.2)\n" +
			"valid values are 0(tlsv1.0), 1(tlsv1.1), 2(tlsv1.2), or 3(tlsv1.3)."},

	{name: "proxy_config", class: refused, why: noProxy},
	{name: "proxy_arg", class: refused, why: noProxy},
	{name: "proxy_uring", class: refused, why: noProxy},
	{name: "proxy_memprofile", class: refused, why: noProxy},
}

// noProxy is why a sub-option is refused.
const noProxy = "this server is not built with a proxy"

// tlsText sets a text of TLS.
func tlsText(field func(*server.TLS) *string) func(*extended, string) error {
	return func(x *extended, value string) error {
		*field(&x.TLS) = value
		return nil
	}
}

func setKeyFormat(x *extended, value string) error {
	n, ok := strictInt(value)
	switch {
	case !ok:
		return refuse(exitError, "could not parse argument to ssl_keyformat")
	case n != 1:
		return refuse(exitUsage, "quarryd: -o ssl_keyformat=%d: keys are read as PEM only, which is 1", n)
	}
	return nil
}

func setVerifyMode(x *extended, value string) error {
	n, ok := strictInt(value)
	switch {
	case !ok:
		return refuse(exitError, "could not parse argument to ssl_verify_mode")
	case n < server.VerifyNone || n > server.VerifyOnce:
		return refuse(exitError, "Invalid ssl_verify_mode. Use help to see valid options.")
	}
	x.TLS.VerifyMode = n
	return nil
}

func setMinVersion(x *extended, value string) error {
	versions := [...]uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13}
	n, ok := strictInt(value)
	switch {
	case !ok:
		return refuse(exitError, "could not parse argument to ssl_min_version")
	case n < 0 || n >= len(versions):
		return refuse(exitError, "Invalid ssl_min_version. Use help to see valid options.")
	}
	x.TLS.MinVersion = versions[n]
	return nil
}

// turn sets a switch.
func turn(field func(*server.Extended) *bool, on bool) func(*extended, string) error {
	return func(x *extended, _ string) error {
		*field(&x.Extended) = on
		return nil
	}
}

// between reads a number from low to high, as atoi does.
func between(field func(*server.Extended) *int, low, high int, complaint string) func(*extended, string) error {
	return func(x *extended, value string) error {
		n := atoi(value)
		if n < low || n > high {
			return refuse(exitError, "%s", complaint)
		}
		*field(&x.Extended) = given(n)
		return nil
	}
}

// strict reads a number that must be one, in units.
func strict(field func(*server.Extended) *int, unit int, complaint string) func(*extended, string) error {
	return func(x *extended, value string) error {
		n, ok := strictUint(value)
		if !ok {
			return refuse(exitError, "%s", complaint)
		}
		*field(&x.Extended) = given(n * unit)
		return nil
	}
}

// ratio reads a number over 0 and up to high.
func ratio(field func(*server.Extended) *float64, high float64, complaint string) func(*extended, string) error {
	return func(x *extended, value string) error {
		f := atof(value)
		if f <= 0 || f > high {
			return refuse(exitError, "%s", complaint)
		}
		*field(&x.Extended) = f
		return nil
	}
}

func setHashPower(x *extended, value string) error {
	n := atoi(value)
	switch {
	case n < 12:
		return refuse(exitError, "Initial hashtable multiplier of %d is too low", n)
	case n > 32:
		return refuse(exitError, "Initial hashtable multiplier of %d is too high\n"+
			"Choose a value based on \"STAT hash_power_level\" from a running instance", n)
	}
	x.Extended.HashPower = n
	return nil
}

func setHashAlgorithm(x *extended, value string) error {
	switch value {
	case "jenkins", "murmur3", "xxh3":
		x.Extended.HashAlgorithm = value
		return nil
	}
	return refuse(exitError, "Unknown hash_algorithm option (jenkins, murmur3, xxh3)")
}

func setChunkMax(x *extended, value string) error {
	n, ok := strictUint(strings.TrimPrefix(value, "-"))
	switch {
	case !ok:
		return refuse(exitError, "could not parse argument to slab_chunk_max")
	case n == 0 || strings.HasPrefix(value, "-"):
		return refuse(exitError, "slab_chunk_max must be >= 0")
	case n > 1<<10:
		return refuse(exitError, "slab_chunk_max must be specified in kilobytes.")
	}
	x.Extended.SlabChunkMaxBytes = n << 10
	x.chunkMaxGiven = true
	return nil
}

func setSlabAutomove(x *extended, value string) error {
	n := atoi(value)
	if n < 0 || n > 2 {
		return refuse(exitError, "slab_automove must be between 0 and 2")
	}
	x.Extended.SlabAutomove, x.Extended.NoSlabAutomove = n, n == 0
	return nil
}

func setNoModern(x *extended, _ string) error {
	x.warn("-o no_modern: the hash algorithm and the size of chunks that it chooses have no effect")
	if !x.chunkMaxGiven {
		x.Extended.SlabChunkMaxBytes = slabPageBytes
	}
	x.NoMaxConnsFast = true
	x.Extended.HashAlgorithm = "jenkins"
	x.Extended.NoSlabReassign = true
	x.Extended.NoSlabAutomove = true
	x.Extended.NoLRUCrawler = true
	x.Extended.NoLRUMaintainer = true
	x.Extended.LRUFlat = true
	return nil
}

// given marks a number that was given as 0: a 0 in the configuration is the
// default.
func given(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// slabClassesMax bounds slab_sizes. Source: memcached's
// MAX_NUMBER_OF_SLAB_CLASSES is 64, class 0 and the largest are its own.
const slabClassesMax = 62

// parseSlabSizes reads a-b-c: chunk sizes that rise by more than chunkAlign.
func parseSlabSizes(list string, low, high int) ([]int, error) {
	const chunkAlign = 8
	var sizes []int
	last := 0
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return r == '-' }) {
		size, ok := strictUint(word)
		switch {
		case !ok || size < low || size > high:
			return nil, refuse(exitUsage, "slab size %d is out of valid range", size)
		case size <= last:
			return nil, refuse(exitUsage, "slab size %d cannot be lower than or equal to a previous class size", size)
		case size <= last+chunkAlign:
			return nil, refuse(exitUsage, "slab size %d must be at least %d bytes larger than previous class",
				size, chunkAlign)
		case len(sizes) == slabClassesMax:
			return nil, refuse(exitUsage, "too many slab classes specified")
		}
		sizes = append(sizes, size)
		last = size
	}
	if len(sizes) == 0 {
		return nil, refuse(exitUsage, "quarryd: -o slab_sizes: no size in %q", list)
	}
	return sizes, nil
}
