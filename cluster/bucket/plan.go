package bucket

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Change is what is to be different in the next map. The zero value plans
// again: it restores the balance, and copies that are missing.
type Change struct {
	Add     []Node         // State is Active if empty, Weight 1 if 0
	Remove  []string       // ids
	Weights map[string]int // by id
	Copies  *int           // copies of each bucket, nil as before
	Budget  *Budget        // nil as before
	Split   []Split        // keys to be split otherwise: N is new, the rest is found out; N 1 ends a split
}

// First is the first map of a cluster.
func First(cluster string, nodes []Node, copies int, b Budget) (*Map, error) {
	m := &Map{Cluster: cluster, CopiesWanted: copies, Budget: b}
	if len(nodes) == 0 {
		return nil, errors.New("bucket: a cluster has at least one node")
	}
	return m.plan(&Change{Add: nodes}, 0)
}

// Plan is the map that follows m after a change, one epoch later. It moves as
// few buckets as can be: each node gets its part of them by weight, rounded up
// or down, where nodes that join round up first and then those that have most;
// what a node has beyond that goes to those that lack it, and nothing else
// moves. It is the same for the same input, whoever computes it.
func (m *Map) Plan(c Change) (*Map, error) {
	next, err := m.plan(&c, m.Epoch)
	if err != nil {
		return nil, err
	}
	next.Predecessor = m.Digest()
	return next, next.Follows(m)
}

// At is m at another epoch, higher than its own: for a publisher that has found
// nodes which know of a higher one.
func (m *Map) At(e Epoch) *Map {
	at := m.Clone()
	for b := range at.Buckets {
		if at.Buckets[b].Since == m.Epoch {
			at.Buckets[b].Since = e
		}
	}
	for i := range at.Splits {
		if at.Splits[i].Version == uint64(m.Epoch) {
			at.Splits[i].Version = uint64(e)
		}
	}
	at.Epoch = e
	return at
}

// unowned is the owner of a bucket that has none yet.
const unowned = ^NodeIndex(0)

func (m *Map) plan(c *Change, after Epoch) (*Map, error) {
	next := m.Clone()
	next.Epoch = after.Next()
	if err := next.changeNodes(m, c); err != nil {
		return nil, err
	}
	if c.Copies != nil {
		next.CopiesWanted = *c.Copies
	}
	if c.Budget != nil {
		next.Budget = *c.Budget
	}
	if next.CopiesWanted < 0 || next.CopiesWanted > CopiesMax {
		return nil, fmt.Errorf("bucket: %d copies: want 0 to %d", next.CopiesWanted, CopiesMax)
	}
	if err := next.changeSplits(c.Split); err != nil {
		return nil, err
	}
	for b, from := range next.assign(m) {
		if from {
			next.Buckets[b].Since = next.Epoch
		}
	}
	next.placeCopies()
	if next.NodeSet == 0 || next.nodeSetDiffers(m) {
		next.NodeSet = m.NodeSet + 1
	}
	return next, next.Validate()
}

// changeNodes puts the nodes of c into m, which was made of old, and the
// buckets where they belong by then: nowhere, if their owner has left.
func (m *Map) changeNodes(old *Map, c *Change) error {
	nodes := slices.Clone(old.Nodes)
	for _, n := range c.Add {
		n.State = cmp.Or(n.State, Active)
		n.Weight = cmp.Or(n.Weight, 1)
		if _, ok := old.NodeOf(n.ID); ok {
			return fmt.Errorf("bucket: node %s is in the cluster already", n.ID)
		}
		nodes = append(nodes, n)
	}
	for _, id := range c.Remove {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.ID == id })
		if i < 0 {
			return fmt.Errorf("bucket: there is no node %s to remove", id)
		}
		nodes = slices.Delete(nodes, i, i+1)
	}
	for id, weight := range c.Weights {
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.ID == id })
		if i < 0 {
			return fmt.Errorf("bucket: there is no node %s to weigh", id)
		}
		nodes[i].Weight = weight
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	active := 0
	for i := range nodes {
		if err := nodes[i].validate(); err != nil {
			return err
		}
		if nodes[i].State == Active {
			active++
		}
	}
	if active == 0 {
		return errors.New("bucket: a cluster has at least one active node")
	}
	if len(nodes) > NodesMax {
		return fmt.Errorf("bucket: %d nodes: want at most %d", len(nodes), NodesMax)
	}
	m.Nodes = nodes

	to := make([]NodeIndex, len(old.Nodes))
	for i := range old.Nodes {
		to[i] = unowned
		if n, ok := m.NodeOf(old.Nodes[i].ID); ok && m.Nodes[n].State == Active {
			to[i] = n
		}
	}
	for b := range m.Buckets {
		k := &m.Buckets[b]
		if len(old.Nodes) == 0 {
			k.Owner = unowned
			continue
		}
		k.Owner = to[k.Owner]
		copies := k.Copies[:0]
		for _, n := range k.Copies {
			if to[n] != unowned {
				copies = append(copies, to[n])
			}
		}
		k.Copies = copies
	}
	return nil
}

// assign gives every bucket its owner, and reports of each whether it is
// another one than in old.
func (m *Map) assign(old *Map) (moved [Count]bool) {
	quota := m.quotas(old)
	lacks := slices.Clone(quota)
	var free []int // buckets without an owner
	owned := make([][]int, len(m.Nodes))
	for b := range m.Buckets {
		if n := m.Buckets[b].Owner; n != unowned {
			owned[n] = append(owned[n], b)
			lacks[n]--
		} else {
			free = append(free, b)
		}
	}
	for n := range owned {
		if over := -lacks[n]; over > 0 {
			// Which ones go is a matter of chance, but the same chance for
			// everybody: neighbours do not all go to one node.
			slices.SortFunc(owned[n], byChance)
			free = append(free, owned[n][:over]...)
			lacks[n] = 0
		}
	}
	slices.SortFunc(free, byChance)
	for _, b := range free {
		n := m.neediest(b, lacks)
		m.Buckets[b].Owner = n
		lacks[n]--
		moved[b] = true
	}
	return moved
}

// byChance orders buckets by a hash of their number.
func byChance(a, b int) int {
	return cmp.Or(cmp.Compare(chance(a, ""), chance(b, "")), cmp.Compare(a, b))
}

// chance is a number that is the same for everybody.
func chance(b int, id string) uint64 {
	return xxhash.Sum64(append([]byte{byte(b >> 8), byte(b)}, id...))
}

// neediest is the node that lacks most of its quota, in proportion; among
// equals one that is in another zone than the copies of b, and then by chance.
func (m *Map) neediest(b int, lacks []int) NodeIndex {
	best := unowned
	for i := range m.Nodes {
		n := NodeIndex(i)
		if lacks[n] <= 0 {
			continue
		}
		if best == unowned || m.needs(b, n, best, lacks) {
			best = n
		}
	}
	return best
}

// needs reports whether n should have bucket b, rather than x.
func (m *Map) needs(b int, n, x NodeIndex, lacks []int) bool {
	return cmp.Or(
		-compareBool(m.sharesZone(b, n), m.sharesZone(b, x)),
		cmp.Compare(lacks[n]*m.Nodes[x].Weight, lacks[x]*m.Nodes[n].Weight),
		cmp.Compare(chance(b, m.Nodes[n].ID), chance(b, m.Nodes[x].ID)),
	) > 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// sharesZone reports whether a copy of b is on n, or in its zone.
func (m *Map) sharesZone(b int, n NodeIndex) bool {
	for _, c := range m.Buckets[b].Copies {
		if c == n || m.Nodes[c].Zone == m.Nodes[n].Zone {
			return true
		}
	}
	return false
}

// quotas are the buckets that each node is to own: its part by weight, rounded
// so that they add up to Count. Nodes that have joined round up first, then
// those that have most beyond their part, so that least has to move.
func (m *Map) quotas(old *Map) []int {
	total := 0
	for i := range m.Nodes {
		if m.Nodes[i].State == Active {
			total += m.Nodes[i].Weight
		}
	}
	owned := make([]int, len(m.Nodes))
	for b := range m.Buckets {
		if n := m.Buckets[b].Owner; n != unowned {
			owned[n]++
		}
	}
	type part struct {
		node    int
		rest    int // of the division
		joined  bool
		surplus int
	}
	quota := make([]int, len(m.Nodes))
	left := Count
	var parts []part
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if n.State != Active {
			continue
		}
		quota[i] = Count * n.Weight / total
		left -= quota[i]
		_, was := old.NodeOf(n.ID)
		if rest := Count * n.Weight % total; rest > 0 {
			parts = append(parts, part{i, rest, !was, owned[i] - quota[i]})
		}
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(
			-compareBool(a.joined, b.joined),
			-cmp.Compare(min(a.surplus, 1), min(b.surplus, 1)),
			-cmp.Compare(a.rest, b.rest),
			cmp.Compare(a.node, b.node),
		)
	})
	for _, p := range parts[:left] {
		quota[p.node]++
	}
	return quota
}

// placeCopies gives every bucket its copies: on other nodes than the owner, in
// zones of their own as far as there are zones enough, and spread by weight.
// What is right stays where it is.
func (m *Map) placeCopies() {
	load := make([]int, len(m.Nodes)) // copies on each node
	for b := range m.Buckets {
		k := &m.Buckets[b]
		kept := k.Copies[:0]
		for _, c := range k.Copies {
			if len(kept) < m.CopiesWanted && m.fits(k.Owner, kept, c) {
				kept = append(kept, c)
				load[c]++
			}
		}
		k.Copies = kept
	}
	for b := range m.Buckets {
		k := &m.Buckets[b]
		for len(k.Copies) < m.CopiesWanted {
			n := m.lightest(b, k.Copies, load)
			if n == unowned {
				break
			}
			k.Copies = append(k.Copies, n)
			load[n]++
		}
	}
	m.spreadCopies(load)
}

// fits reports whether a copy may be on n, beside the owner and the copies in
// others: it must be in a zone of its own if there is one.
func (m *Map) fits(owner NodeIndex, others []NodeIndex, n NodeIndex) bool {
	if n == owner || slices.Contains(others, n) || m.Nodes[n].State != Active {
		return false
	}
	return m.apart(owner, others, n) || !m.zoneLeft(owner, others)
}

// apart reports whether n is in another zone than all of them.
func (m *Map) apart(owner NodeIndex, others []NodeIndex, n NodeIndex) bool {
	zone := m.Nodes[n].Zone
	if m.Nodes[owner].Zone == zone {
		return false
	}
	for _, o := range others {
		if m.Nodes[o].Zone == zone {
			return false
		}
	}
	return true
}

// zoneLeft reports whether there is a zone without any of them.
func (m *Map) zoneLeft(owner NodeIndex, others []NodeIndex) bool {
	for i := range m.Nodes {
		if m.Nodes[i].State == Active && m.apart(owner, others, NodeIndex(i)) {
			return true
		}
	}
	return false
}

// lightest is the node for another copy of b that has the fewest, by weight.
func (m *Map) lightest(b int, others []NodeIndex, load []int) NodeIndex {
	best := unowned
	for i := range m.Nodes {
		n := NodeIndex(i)
		if !m.fits(m.Buckets[b].Owner, others, n) {
			continue
		}
		if best == unowned || cmp.Or(
			cmp.Compare(load[n]*m.Nodes[best].Weight, load[best]*m.Nodes[n].Weight),
			cmp.Compare(chance(b, m.Nodes[best].ID), chance(b, m.Nodes[n].ID)),
		) < 0 {
			best = n
		}
	}
	return best
}

// spreadCopies moves copies from nodes that have many to those that have few,
// as long as that brings them nearer to each other.
func (m *Map) spreadCopies(load []int) {
	for b := range m.Buckets {
		k := &m.Buckets[b]
		for i, c := range k.Copies {
			others := slices.Delete(slices.Clone(k.Copies), i, i+1)
			n := m.lightest(b, others, load)
			// With one fewer here it must still have more, by weight.
			if n == unowned || n == c || (load[c]-1)*m.Nodes[n].Weight <= load[n]*m.Nodes[c].Weight {
				continue
			}
			k.Copies[i] = n
			load[c]--
			load[n]++
		}
	}
}

// changeSplits puts the splits of a change into m.
func (m *Map) changeSplits(changes []Split) error {
	for _, s := range changes {
		i, ok := slices.BinarySearchFunc(m.Splits, s, func(a, b Split) int { return cmp.Compare(a.Key, b.Key) })
		switch {
		case s.N < 1 || s.N > SplitMax:
			return fmt.Errorf("bucket: key %q into %d: want 1 to %d", s.Key, s.N, SplitMax)
		case !ok && s.N == 1:
			return fmt.Errorf("bucket: key %q is not split", s.Key)
		case !ok:
			m.insertSplit(Split{Key: s.Key, N: s.N, Version: uint64(m.Epoch)})
		default:
			m.Splits[i].resize(s.N, m.Epoch)
		}
	}
	return nil
}

// insertSplit adds a split of a key that has none.
func (m *Map) insertSplit(s Split) {
	i, _ := slices.BinarySearchFunc(m.Splits, s, func(a, b Split) int { return cmp.Compare(a.Key, b.Key) })
	m.Splits = slices.Insert(m.Splits, i, s)
}

// resize makes it a split into n. Places that held a value before are
// invalidated, too, until the longest life has passed and somebody plans a
// settled split.
func (s *Split) resize(n int, e Epoch) {
	former := max(s.N, s.Former)
	if n >= former {
		former = 0
	}
	*s = Split{Key: s.Key, N: n, Former: former, Version: uint64(e)}
}

// Readdress is the map that follows m when nodes, by their ids, are reached
// elsewhere. Nothing else changes: no bucket moves, and none begins anew.
func (m *Map) Readdress(addrs map[string]string) (*Map, error) {
	next := m.Clone()
	next.Epoch, next.Predecessor = m.Epoch.Next(), m.Digest()
	for id, addr := range addrs {
		i, ok := next.NodeOf(id)
		if !ok {
			return nil, fmt.Errorf("bucket: there is no node %s", id)
		}
		next.Nodes[i].Addr = addr
	}
	if !next.nodeSetDiffers(m) {
		return nil, errors.New("bucket: the nodes have these addresses already")
	}
	next.NodeSet++
	if err := next.Validate(); err != nil {
		return nil, err
	}
	return next, next.Follows(m)
}

// Settle drops what splits had before: the values there have passed their
// longest life.
func (m *Map) Settle() (*Map, error) {
	next, err := m.Plan(Change{})
	if err != nil {
		return nil, err
	}
	next.Splits = slices.DeleteFunc(next.Splits, func(s Split) bool { return s.N == 1 })
	for i := range next.Splits {
		next.Splits[i].Former = 0
	}
	return next, nil
}
