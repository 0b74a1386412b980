package control

import (
	"slices"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// NodeState is what a node's presence means, held against the map in the store.
type NodeState string

// The states of a node.
const (
	Up      NodeState = "up"      // it serves by the map
	Behind  NodeState = "behind"  // by an earlier one
	Ahead   NodeState = "ahead"   // by a newer one: the store has lost maps
	Differs NodeState = "differs" // by another one of the same epoch
	Down    NodeState = "down"    // it has no lease
)

// Meaning says what a state asks of the operator.
func (s NodeState) Meaning() string {
	switch s {
	case Up:
		return "serves by this map"
	case Behind:
		return "has not taken the newest map"
	case Ahead:
		return "has a newer map than the store, which was restored from a backup: quarry cluster rebalance"
	case Differs:
		return "has another map of this epoch, and grants pause where they differ: quarry cluster rebalance"
	case Down:
		return "its lease has ended"
	}
	return ""
}

// StateOf is the state of the node with an id, by the map m.
func (l *Liveness) StateOf(m *bucket.Map, id string) NodeState {
	i := slices.IndexFunc(l.Nodes, func(p Presence) bool { return p.ID == id })
	if i < 0 {
		return Down
	}
	switch p := &l.Nodes[i]; {
	case p.Epoch < m.Epoch:
		return Behind
	case p.Epoch > m.Epoch:
		return Ahead
	case p.Digest != m.Digest():
		return Differs
	}
	return Up
}
