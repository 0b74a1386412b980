package bucket

import (
	"testing"

	"pgregory.net/rapid"
)

// S1-59: a rollback is a higher epoch with the earlier owners, and what changes
// its owner begins anew.
func TestRollback(t *testing.T) {
	early := plan(t, first(t, 3, 0, 1), Change{Split: []Split{{Key: "a", N: 4}, {Key: "b", N: 2}}})
	m := plan(t, early, Change{Add: []Node{{ID: "x", Addr: "h:1"}}, Split: []Split{{Key: "b", N: 8}, {Key: "c", N: 2}}})
	m = plan(t, m, Change{Split: []Split{{Key: "a", N: 1}}})
	if m, _ = m.Settle(); m.Splits[0].Key != "b" {
		t.Fatalf("splits are %+v", m.Splits)
	}
	back, err := m.Rollback(early)
	if err != nil {
		t.Fatal(err)
	}
	if back.Epoch <= m.Epoch || back.NodeSet <= m.NodeSet || back.Predecessor != m.Digest() {
		t.Errorf("map %s, node set %d, after map %s, node set %d", back.Epoch, back.NodeSet, m.Epoch, m.NodeSet)
	}
	moved := 0
	for b := range back.Buckets {
		if back.OwnerOf(b).ID != early.OwnerOf(b).ID {
			t.Fatalf("bucket %d is %s's, want %s's", b, back.OwnerOf(b).ID, early.OwnerOf(b).ID)
		}
		want := m.Buckets[b].Since
		if back.OwnerOf(b).ID != m.OwnerOf(b).ID {
			want = back.Epoch
			moved++
		}
		if got := back.Buckets[b].Since; got != want {
			t.Fatalf("bucket %d is %s's since %s, want %s", b, back.OwnerOf(b).ID, got, want)
		}
	}
	if moved != Count/4 {
		t.Errorf("%d buckets move back, want %d", moved, Count/4)
	}
	v := uint64(back.Epoch)
	for i, want := range []Split{{"a", 4, 0, v}, {"b", 2, 8, v}, {"c", 1, 2, v}} {
		if back.Splits[i] != want {
			t.Errorf("split %+v, want %+v", back.Splits[i], want)
		}
	}
}

// A rollback to any earlier map of a random history follows, as does a takeover.
func TestRollbackProperties(t *testing.T) {
	if testing.Short() {
		t.Skip("100 histories of maps take long")
	}
	rapid.Check(t, func(t *rapid.T) {
		m, err := First("test", nodes(rapid.IntRange(1, 5).Draw(t, "nodes"), 2), 1, Budget{})
		if err != nil {
			t.Fatal(err)
		}
		history := []*Map{m}
		for i := range rapid.IntRange(1, 8).Draw(t, "changes") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				m, err = m.Plan(Change{Add: nodes(9+i, 2)[8+i:]})
			case 1:
				m, err = m.Rollback(rapid.SampledFrom(history).Draw(t, "earlier"))
			case 2:
				m = m.Takeover(rapid.Uint64().Draw(t, "random"))
			}
			if err != nil {
				t.Fatal(err)
			}
			last := history[len(history)-1]
			if err := m.Follows(last); err != nil {
				t.Fatal(err)
			}
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			for _, before := range history {
				for b := range m.Buckets {
					if !m.Differs(before, b) {
						continue
					}
					if m.Buckets[b].Since <= before.Epoch {
						t.Fatalf("bucket %d: %s since %s in map %s, and in map %s %s since %s", b, m.OwnerOf(b).ID,
							m.Buckets[b].Since, m.Epoch, before.Epoch, before.OwnerOf(b).ID, before.Buckets[b].Since)
					}
				}
			}
			history = append(history, m)
		}
	})
}
