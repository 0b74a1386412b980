package bucket

import "slices"

// What brings an earlier state back, or does not know all that came before,
// must not bring old values back with it: buckets begin anew there. Their since
// is the epoch of the new map, and a node hides all that it stored before.

// Begin is m with buckets that begin anew, those that which accepts.
func (m *Map) Begin(which func(b int) bool) *Map {
	next := m.Clone()
	for b := range next.Buckets {
		if which(b) {
			next.Buckets[b].Since = next.Epoch
		}
	}
	return next
}

// Differs reports whether bucket b has another history in m than in other:
// another owner, or one since another epoch.
func (m *Map) Differs(other *Map, b int) bool {
	return m.OwnerOf(b).ID != other.OwnerOf(b).ID || m.Buckets[b].Since != other.Buckets[b].Since
}

// takeoverNodeSets is how far a takeover raises the node-set revision: above
// what unknown maps may have had.
const takeoverNodeSets = 1 << 16

// Takeover is m as the first map of the next term, for a publisher that cannot
// know what was published last. What was in between is unknown: every bucket
// begins anew. random is any 64 random bits.
func (m *Map) Takeover(random uint64) *Map {
	next := m.At(m.Epoch.Takeover(random))
	next.NodeSet = min(next.NodeSet+takeoverNodeSets, NodeSetMax)
	return next.Begin(func(int) bool { return true })
}

// Rollback is the map after m that has the nodes, owners, copies, splits and
// budget of an earlier one. Buckets whose owner changes back begin anew.
func (m *Map) Rollback(earlier *Map) (*Map, error) {
	next := earlier.Clone()
	next.Cluster, next.Epoch, next.Predecessor = m.Cluster, m.Epoch.Next(), m.Digest()
	next.NodeSet = m.NodeSet
	if next.nodeSetDiffers(m) {
		next.NodeSet++
	}
	for b := range next.Buckets {
		next.Buckets[b].Since = next.Epoch
		if next.OwnerOf(b).ID == m.OwnerOf(b).ID {
			next.Buckets[b].Since = m.Buckets[b].Since
		}
	}
	next.rollbackSplits(m, earlier)
	if err := next.Validate(); err != nil {
		return nil, err
	}
	return next, next.Follows(m)
}

// rollbackSplits gives m the splits of the earlier map. Places where values may
// live still, since the last map had them, are remembered.
func (m *Map) rollbackSplits(last, earlier *Map) {
	m.Splits = slices.Clone(last.Splits)
	for i := range m.Splits {
		s := &m.Splits[i]
		n := 1
		if e, ok := earlier.SplitOf([]byte(s.Key)); ok {
			n = e.N
		}
		if n != s.N {
			s.resize(n, m.Epoch)
		}
	}
	for _, s := range earlier.Splits {
		if _, ok := last.SplitOf([]byte(s.Key)); !ok {
			m.insertSplit(Split{Key: s.Key, N: s.N, Version: uint64(m.Epoch)})
		}
	}
}
