package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/server"
)

// The sub-options about pages and the policy arrive, and those that do
// something say nothing at the start.
func TestPagesAndPolicy(t *testing.T) {
	for _, tc := range []struct {
		list     string
		want     server.Extended
		warnings string // what they are about
	}{
		{"slab_reassign,slab_automove", server.Extended{SlabAutomove: 1}, ""},
		{"slab_automove=2", server.Extended{SlabAutomove: 2}, ""},
		{"slab_automove=0", server.Extended{NoSlabAutomove: true}, ""},
		{"no_slab_automove", server.Extended{NoSlabAutomove: true}, ""},
		{"no_slab_automove,slab_automove", server.Extended{SlabAutomove: 1}, ""},
		{"no_slab_reassign", server.Extended{NoSlabReassign: true}, ""},
		{"no_slab_reassign,slab_reassign", server.Extended{}, ""},
		{"lru_policy=segmented", server.Extended{LRUPolicy: "segmented"}, ""},
		{"lru_policy=segmented,lru_policy=tinylfu", server.Extended{LRUPolicy: "tinylfu"}, ""},
		{"slab_automove_ratio=0.5,slab_automove_window=30,slab_automove_freeratio=0.1",
			server.Extended{SlabAutomoveRatio: 0.5, SlabAutomoveWindow: 30, SlabAutomoveFreeRatio: 0.1},
			"slab_automove_ratio slab_automove_window slab_automove_freeratio"},
		{"no_modern", server.Extended{NoSlabReassign: true, NoSlabAutomove: true, NoLRUCrawler: true, NoLRUMaintainer: true,
			LRUFlat: true, HashAlgorithm: "jenkins", SlabChunkMaxBytes: slabPageBytes}, "no_modern"},
	} {
		var c server.Config
		x := extended{Config: &c}
		if err := x.parse(tc.list); err != nil {
			t.Errorf("%s: %v", tc.list, err)
			continue
		}
		if !reflect.DeepEqual(x.Extended, tc.want) {
			t.Errorf("%s: got %+v want %+v", tc.list, x.Extended, tc.want)
		}
		names := strings.Fields(tc.warnings)
		if len(x.warnings) != len(names) {
			t.Errorf("%s: warnings %q, want them about %q", tc.list, x.warnings, names)
			continue
		}
		for i, name := range names {
			if !strings.Contains(x.warnings[i], "-o "+name) {
				t.Errorf("%s: warning %q, want it about %s", tc.list, x.warnings[i], name)
			}
		}
	}
}

func TestPolicyIsShown(t *testing.T) {
	for _, list := range []string{"modern", "lru_policy=segmented"} {
		p := start(t, "-p", "-1", "-o", list)
		want := "STAT policy tinylfu"
		if list != "modern" {
			want = "STAT policy segmented"
		}
		if got := ask(t, "tcp", p.tcp(t), "stats memory"); got != want {
			t.Errorf("-o %s: got %q want %q", list, got, want)
		}
	}
}
