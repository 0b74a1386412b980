package server

import (
	"slices"
	"strings"
	"testing"
)

// statKeys are the keys of an answer to stats, in their order.
func statKeys(answer string) []string {
	var keys []string
	for line := range strings.SplitSeq(answer, "\n") {
		if rest, ok := strings.CutPrefix(line, "STAT "); ok {
			key, _, _ := strings.Cut(rest, " ")
			keys = append(keys, key)
		}
	}
	return keys
}

// Flags decide which keys there are, as in memcached, whose tests count them.
func TestStatKeyCount(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    Config
		want int
	}{
		{"plain", Config{}, 93},
		{"no background", Config{Extended: Extended{NoLRUCrawler: true, NoLRUMaintainer: true, LRUFlat: true}}, 84},
		{"no crawler", Config{Extended: Extended{NoLRUCrawler: true}}, 91},
		{"idle_timeout", Config{IdleSeconds: 5}, 94},
		{"no_maxconns_fast, no_slab_reassign", Config{NoMaxConnsFast: true, Extended: Extended{NoSlabReassign: true}}, 83},
	} {
		p := newTestPeer(t, tt.c)
		if got := len(statKeys(p.send("stats\r\n"))); got != tt.want {
			t.Errorf("%s: got %d keys want %d", tt.name, got, tt.want)
		}
	}
}

// The keys and their order are memcached's.
func TestStatKeysJustified(t *testing.T) {
	for _, tt := range []struct {
		flags string
		c     Config
	}{
		{"-o no_lru_crawler,no_lru_maintainer", Config{Extended: Extended{NoLRUCrawler: true, NoLRUMaintainer: true, LRUFlat: true}}},
		{"-o no_slab_reassign,idle_timeout=5", Config{IdleSeconds: 5, Extended: Extended{NoSlabReassign: true}}},
	} {
		tg := startMemcachedTarget(t, strings.Fields(tt.flags))
		if tg.version != Version {
			t.Skipf("skipped: another memcached (%s)", tg.version)
		}
		p := newTestPeer(t, tt.c)
		for _, command := range []string{"stats", "stats settings"} {
			answer, err := tg.ask(command)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(statKeys(answer), func(key string) bool { // of its flash tier, and of TLS
				return strings.HasPrefix(key, "ext_") || strings.HasPrefix(key, "ssl_")
			})
			got := slices.DeleteFunc(statKeys(p.send(command+"\r\n")), func(key string) bool { return strings.HasPrefix(key, "ssl_") })
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s: got\n%v want\n%v", tt.flags, command, got, want)
			}
		}
	}
}
