package store

import (
	"fmt"
	"testing"
)

// versioned stores a value with a version, without a grant.
func (s *Store) versioned(k, v string, version uint64, hard, now Time) SetResult {
	f := Fill{Version: version, Deadlines: Deadlines{Hard: hard}}
	return s.Set(key(k), []byte(v), &SetOptions{Fill: &f}, now)
}

// FRESHNESS, Restarts: values and floors come back, versioned values are stale,
// and after a crash floors are unknown.
func TestRestartFresh(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash=", crash), func(t *testing.T) {
			c := fileConfig(t)
			c.Recover = true
			s, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			if res := s.versioned("row", "seven", 7, noon+60_000, noon); res.Status != OK {
				t.Fatalf("status %d, reason %d", res.Status, res.Reason)
			}
			s.mustSet(t, "plain", "x", SetOptions{}, noon)
			s.Notice(key("gone"), 9, false, noon)
			leave(t, s, crash)
			c.Now = noon
			if s, err = Open(c); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			got, st := s.get("row", GetOptions{}, noon)
			if st != OK || got.value != "seven" || !got.Stale || !got.WinSent || got.Won {
				t.Errorf("row: status %d %q stale %t win sent %t won %t, want it stale", st, got.value, got.Stale, got.WinSent, got.Won)
			}
			if got, _ := s.get("plain", GetOptions{}, noon); got.Stale {
				t.Error("a value without a version is stale")
			}
			if _, st := s.get("row", GetOptions{}, noon+60_000); st != Miss {
				t.Error("it is served after its hard deadline")
			}
			// An older version is refused by the floor, if that is known.
			res := s.versioned("gone", "eight", 8, 0, noon)
			kept, _ := s.get("gone", GetOptions{}, noon)
			switch {
			case !crash && res.Reason != ReasonFloor:
				t.Errorf("below the floor: status %d, reason %d, want reason %d", res.Status, res.Reason, ReasonFloor)
			case crash && (res.Status != OK || !kept.Stale):
				t.Errorf("with the floor unknown: status %d, stale %t, want it stored as stale", res.Status, kept.Stale)
			}
			var stats Stats
			s.Snapshot(noon, &stats)
			if want := map[bool]int{false: 0, true: 2}[crash]; stats.Fresh.FloorsUnknown != want {
				t.Errorf("floors are unknown in %d shards, want %d", stats.Fresh.FloorsUnknown, want)
			}
		})
	}
}

// What was hidden before stays hidden.
func TestRestartHidden(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash=", crash), func(t *testing.T) {
			c := fileConfig(t)
			c.Recover = true
			s, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			s.mustSet(t, "moved", "x", SetOptions{}, noon)
			s.mustSet(t, "stays", "x", SetOptions{}, noon)
			s.versioned("dated", "x", 3, noon+60_000, noon)
			s.HideBuckets([]int{key("moved").Bucket()}, noon)
			s.Rebase(0, noon)
			s.mustSet(t, "moved2", "x", SetOptions{}, noon)
			s = reopen(t, s, crash, noon)
			defer s.Close()
			for k, want := range map[string]Status{"moved": Miss, "dated": Miss, "stays": OK, "moved2": OK} {
				if _, st := s.get(k, GetOptions{}, noon); st != want {
					t.Errorf("%s: status %d, want %d", k, st, want)
				}
			}
			if _, st := s.get("stays", GetOptions{}, noon); st != OK {
				t.Error("a bucket that stayed is hidden")
			}
		})
	}
}
