package bucket

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// nodes makes n nodes, spread over that many zones; 0 is no zones.
func nodes(n, zones int) []Node {
	var all []Node
	for i := range n {
		node := Node{ID: fmt.Sprintf("n%03d", i), Addr: fmt.Sprintf("10.0.0.%d:11211", i+1), Weight: 1, State: Active}
		if zones > 0 {
			node.Zone = fmt.Sprintf("z%d", i%zones)
		}
		all = append(all, node)
	}
	return all
}

func first(t testing.TB, n, zones, copies int) *Map {
	t.Helper()
	m, err := First("test", nodes(n, zones), copies, Budget{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func plan(t testing.TB, m *Map, c Change) *Map {
	t.Helper()
	next, err := m.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// S1-48: from 16 nodes to 17 exactly 241 buckets move.
func TestSeventeenthNode(t *testing.T) {
	m := first(t, 16, 4, 1)
	for i, n := range m.Owned() {
		if n != 256 {
			t.Errorf("node %d owns %d buckets, want 256", i, n)
		}
	}
	next := plan(t, m, Change{Add: []Node{{ID: "new", Addr: "10.0.1.1:11211", Zone: "z0"}}})
	if n := len(next.Moved(m)); n != 241 {
		t.Errorf("%d buckets move, want 241", n)
	}
	joined, _ := next.NodeOf("new")
	for _, b := range next.Moved(m) {
		if next.Buckets[b].Owner != joined || next.Buckets[b].Since != next.Epoch {
			t.Errorf("bucket %d moves to node %d, since %s", b, next.Buckets[b].Owner, next.Buckets[b].Since)
		}
	}
	if back := plan(t, next, Change{Remove: []string{"new"}}); len(back.Moved(next)) != 241 {
		t.Errorf("%d buckets move when the node leaves, want its 241", len(back.Moved(next)))
	}
}

func TestJoiningNodeRoundsUp(t *testing.T) {
	if testing.Short() {
		t.Skip("70 maps take long")
	}
	for n := 1; n < 70; n++ {
		m := first(t, n, 0, 0)
		next := plan(t, m, Change{Add: []Node{{ID: "new", Addr: "10.0.1.1:11211"}}})
		if got, want := len(next.Moved(m)), int(math.Ceil(float64(Count)/float64(n+1))); got != want {
			t.Errorf("%d buckets move to node %d, want %d", got, n+1, want)
		}
	}
}

// fewest is the least number of buckets that have to move so that nodes own
// what next says.
func fewest(m, next *Map) int {
	owned := next.Owned()
	moved := Count
	for i, n := range m.Owned() {
		if j, ok := next.NodeOf(m.Nodes[i].ID); ok {
			moved -= min(n, owned[j])
		}
	}
	return moved
}

// Random joins, leaves and changes of weight: the balance is within a bucket of
// what weights say, no more moves than has to, and copies are apart.
func TestPlanProperties(t *testing.T) {
	if testing.Short() {
		t.Skip("100 histories of maps take long")
	}
	rapid.Check(t, func(t *rapid.T) {
		zones := rapid.IntRange(0, 4).Draw(t, "zones")
		copies := rapid.IntRange(0, 2).Draw(t, "copies")
		m, err := First("test", nodes(rapid.IntRange(1, 12).Draw(t, "nodes"), zones), copies, Budget{})
		if err != nil {
			t.Fatal(err)
		}
		joined := 0
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			var c Change
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				joined++
				c.Add = []Node{{
					ID: fmt.Sprintf("j%d", joined), Addr: fmt.Sprintf("10.1.0.%d:1", joined),
					Weight: rapid.IntRange(1, 3).Draw(t, "weight"),
				}}
				if zones > 0 {
					c.Add[0].Zone = fmt.Sprintf("z%d", rapid.IntRange(0, zones-1).Draw(t, "zone"))
				}
			case 1:
				if len(m.Nodes) > 1 {
					c.Remove = []string{rapid.SampledFrom(m.Nodes).Draw(t, "leaves").ID}
				}
			case 2:
				c.Weights = map[string]int{rapid.SampledFrom(m.Nodes).Draw(t, "weighed").ID: rapid.IntRange(1, 5).Draw(t, "weight")}
			}
			next, err := m.Plan(c)
			if err != nil {
				t.Fatal(err)
			}
			checkBalance(t, next)
			if got, want := len(next.Moved(m)), fewest(m, next); got != want {
				t.Errorf("%d buckets move, %d have to", got, want)
			}
			checkCopies(t, next)
			if again, _ := next.Plan(Change{}); len(again.Moved(next)) != 0 || again.NodeSet != next.NodeSet {
				t.Errorf("planning again moves %d buckets", len(again.Moved(next)))
			}
			m = next
		}
	})
}

func checkBalance(t *rapid.T, m *Map) {
	total := 0
	for i := range m.Nodes {
		total += m.Nodes[i].Weight
	}
	for i, n := range m.Owned() {
		if part := float64(Count*m.Nodes[i].Weight) / float64(total); math.Abs(float64(n)-part) >= 1 {
			t.Errorf("node %s of weight %d owns %d buckets, want %.1f", m.Nodes[i].ID, m.Nodes[i].Weight, n, part)
		}
	}
}

func checkCopies(t *rapid.T, m *Map) {
	zones := make(map[string]bool)
	for i := range m.Nodes {
		zones[m.Nodes[i].Zone] = true
	}
	for b := range m.Buckets {
		k := &m.Buckets[b]
		if want := min(m.CopiesWanted, len(m.Nodes)-1); len(k.Copies) != want {
			t.Fatalf("bucket %d has %d copies, want %d", b, len(k.Copies), want)
		}
		in := map[string]bool{m.Nodes[k.Owner].Zone: true}
		for _, c := range k.Copies {
			in[m.Nodes[c].Zone] = true
		}
		if want := min(1+len(k.Copies), len(zones)); len(in) != want {
			t.Fatalf("bucket %d and its copies are in %d zones, want %d", b, len(in), want)
		}
	}
}

// With equal nodes and zones, copies are spread as owners are, about.
func TestCopiesAreSpread(t *testing.T) {
	m := first(t, 12, 3, 1)
	load := make([]int, len(m.Nodes))
	for b := range m.Buckets {
		load[m.Buckets[b].Copies[0]]++
	}
	for i, n := range load {
		if n < Count/12-3 || n > Count/12+3 {
			t.Errorf("node %d has %d copies, want about %d", i, n, Count/12)
		}
	}
	// A node that joins takes its part of them, and few others move.
	next := plan(t, m, Change{Add: []Node{{ID: "new", Addr: "10.0.1.1:11211", Zone: "z0"}}})
	joined, _ := next.NodeOf("new")
	n := 0
	for b := range next.Buckets {
		if next.Buckets[b].Copies[0] == joined {
			n++
		}
	}
	if n < Count/13-20 || n > Count/13+20 {
		t.Errorf("the node that joined has %d copies, want about %d", n, Count/13)
	}
}

func TestPlanRefuses(t *testing.T) {
	m := first(t, 2, 0, 1)
	two := 5
	for _, tt := range []struct {
		name string
		c    Change
	}{
		{"a node twice", Change{Add: []Node{{ID: "n000", Addr: "h:1"}}}},
		{"an address twice", Change{Add: []Node{{ID: "x", Addr: "10.0.0.1:11211"}}}},
		{"no address", Change{Add: []Node{{ID: "x", Addr: "h"}}}},
		{"a name with a space", Change{Add: []Node{{ID: "x y", Addr: "h:1"}}}},
		{"nobody there", Change{Remove: []string{"x"}}},
		{"everybody", Change{Remove: []string{"n000", "n001"}}},
		{"a weight of nothing", Change{Weights: map[string]int{"n000": 0}}},
		{"a weight of nobody", Change{Weights: map[string]int{"x": 1}}},
		{"too many copies", Change{Copies: &two}},
		{"a split into none", Change{Split: []Split{{Key: "k"}}}},
		{"an end of no split", Change{Split: []Split{{Key: "k", N: 1}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if next, err := m.Plan(tt.c); err == nil {
				t.Errorf("planned: %s", next.JSON()[:200])
			}
		})
	}
}

// The parts of a budget add up to it, and no owner has nothing as long as there
// is one for each.
func TestShares(t *testing.T) {
	uneven := plan(t, first(t, 5, 0, 0), Change{Weights: map[string]int{"n001": 1000, "n003": 7}})
	for _, m := range []*Map{first(t, 1, 0, 0), first(t, 3, 0, 0), first(t, 16, 0, 0), uneven} {
		owned := m.Owned()
		for _, n := range []int{0, 1, 2, 5, 16, 100, 12_000, 20_000} {
			sum := 0
			for i := range m.Nodes {
				share := m.Share(NodeIndex(i), n)
				sum += share
				if n >= len(m.Nodes) && share == 0 {
					t.Errorf("%d nodes, %d: node %d has no part", len(m.Nodes), n, i)
				}
				if part := float64(n) * float64(owned[i]) / Count; math.Abs(float64(share)-part) > float64(len(m.Nodes)) {
					t.Errorf("%d nodes, %d: node %d has %d, its buckets are %.1f", len(m.Nodes), n, i, share, part)
				}
			}
			if sum != n {
				t.Errorf("%d nodes: the parts of %d add up to %d", len(m.Nodes), n, sum)
			}
		}
	}
}

// Addresses change, and nothing else does: not even a balance that is off is
// restored.
func TestReaddress(t *testing.T) {
	m := first(t, 3, 0, 1)
	m.Buckets[0].Owner, m.Buckets[0].Copies = m.Buckets[1].Owner, m.Buckets[1].Copies
	next, err := m.Readdress(map[string]string{"n000": m.Nodes[1].Addr, "n001": m.Nodes[0].Addr})
	if err != nil {
		t.Fatal(err)
	}
	for b := range m.Buckets {
		if !next.Buckets[b].equal(&m.Buckets[b]) {
			t.Fatalf("bucket %d was %+v, is %+v", b, m.Buckets[b], next.Buckets[b])
		}
	}
	if next.Epoch != m.Epoch.Next() || next.NodeSet != m.NodeSet+1 || next.Nodes[0].Addr != m.Nodes[1].Addr || next.Nodes[2] != m.Nodes[2] {
		t.Errorf("got epoch %s, node set %d, nodes %+v", next.Epoch, next.NodeSet, next.Nodes)
	}
	for name, addrs := range map[string]map[string]string{
		"nobody": {"x": "h:1"}, "no port": {"n000": "h"}, "another's": {"n000": m.Nodes[1].Addr}, "its own": {"n000": m.Nodes[0].Addr}, "none": nil,
	} {
		if _, err := m.Readdress(addrs); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A split that shrinks remembers how far it went, until it is settled.
func TestSplits(t *testing.T) {
	m := first(t, 2, 0, 0)
	m = plan(t, m, Change{Split: []Split{{Key: "b", N: 4}, {Key: "a", N: 2}}})
	if s, ok := m.SplitOf([]byte("b")); !ok || s.N != 4 || s.Former != 0 || s.Version != uint64(m.Epoch) {
		t.Errorf("b is split %+v, %t", s, ok)
	}
	m = plan(t, m, Change{Split: []Split{{Key: "b", N: 1}}})
	if s, ok := m.SplitOf([]byte("b")); !ok || s.N != 1 || s.Former != 4 {
		t.Errorf("b is split %+v, %t", s, ok)
	}
	m, err := m.Settle()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.SplitOf([]byte("b")); ok || len(m.Splits) != 1 {
		t.Errorf("splits are %+v", m.Splits)
	}
	if _, ok := m.SplitOf([]byte("c")); ok {
		t.Error("c is split")
	}
}
