package control

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// Ask asks a node for the map by which it serves: nil if it has none.
type Ask func(ctx context.Context, n bucket.Node) (*bucket.Map, error)

// Stock is what is known before a map is published: what is in the store, and
// what the nodes know.
type Stock struct {
	Stored *bucket.Map // nil for none
	Base   *bucket.Map // the newest that anybody knows, from which to plan; nil for none
	Nodes  []NodeStock // by what the nodes answered

	// Trusted and Takeover say what to do when most nodes do not answer.
	Trusted  bool   // publish: the store is known to have the newest map
	Takeover bool   // begin a term, in which every bucket begins anew
	Random   uint64 // for Takeover
}

// NodeStock is what one node answered.
type NodeStock struct {
	Node bucket.Node
	Map  *bucket.Map // nil for none
	Err  error       // it did not answer
}

// Errors of publishing.
var (
	// ErrSilent says that most nodes do not answer, so that nobody knows
	// whether the store has the newest map.
	ErrSilent = errors.New("control: most nodes do not answer, and may know of a newer map than the store")

	// ErrOtherCluster says that a map of another cluster is about.
	ErrOtherCluster = errors.New("control: another cluster")
)

// askMax bounds how many nodes are asked at once.
const askMax = 16

// Known is what an operator brings along, where the store may have lost it.
type Known struct {
	Map   *bucket.Map   // from a backup; nil for none
	Nodes []bucket.Node // to be asked besides those of the map
}

// Take asks the store, and then the nodes of its map, and of any newer map that
// one of them knows.
func Take(ctx context.Context, s Store, ask Ask, known Known) (*Stock, error) {
	m, err := s.Get(ctx)
	if err != nil && !errors.Is(err, ErrNoMap) {
		return nil, err
	}
	k := &Stock{Stored: m, Base: m}
	if known.Map != nil {
		if err := k.offer(known.Map, "the map that is given belongs"); err != nil {
			return nil, err
		}
	}
	asked := make(map[string]bool)
	for due := known.Nodes; ; due = nil {
		if k.Base != nil {
			due = append(due, k.Base.Nodes...)
		}
		var fresh []bucket.Node
		for _, n := range due {
			if !asked[n.Addr] {
				asked[n.Addr] = true
				fresh = append(fresh, n)
			}
		}
		if len(fresh) == 0 {
			return k, nil
		}
		for _, n := range askAll(ctx, ask, fresh) {
			k.Nodes = append(k.Nodes, n)
			if n.Map == nil {
				continue
			}
			if err := k.offer(n.Map, fmt.Sprintf("node %s at %s belongs", n.Node.ID, n.Node.Addr)); err != nil {
				return nil, err
			}
		}
	}
}

// offer takes a map for Base if it is newer.
func (k *Stock) offer(m *bucket.Map, who string) error {
	if k.Base != nil && m.Cluster != k.Base.Cluster {
		return fmt.Errorf("%w: %s to %q, and not to %q", ErrOtherCluster, who, m.Cluster, k.Base.Cluster)
	}
	if k.Base == nil || m.Epoch > k.Base.Epoch {
		k.Base = m
	}
	return nil
}

// askAll asks nodes at once, and gives their answers in the order of the nodes.
func askAll(ctx context.Context, ask Ask, nodes []bucket.Node) []NodeStock {
	answers := make([]NodeStock, len(nodes))
	room := make(chan struct{}, askMax)
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			room <- struct{}{}
			m, err := ask(ctx, n)
			answers[i] = NodeStock{n, m, err}
			<-room
		})
	}
	wg.Wait()
	return answers
}

// Answered is how many nodes answered.
func (k *Stock) Answered() int {
	n := 0
	for i := range k.Nodes {
		if k.Nodes[i].Err == nil {
			n++
		}
	}
	return n
}

// Behind reports whether a node knows of a newer map than the store.
func (k *Stock) Behind() bool {
	return k.Base != nil && (k.Stored == nil || k.Base.Epoch > k.Stored.Epoch)
}

// Contested lists the nodes that know another map than Base of its very epoch:
// two were published, or one was edited.
func (k *Stock) Contested() []NodeStock {
	var nodes []NodeStock
	for _, n := range k.Nodes {
		if n.Map != nil && n.Map.Epoch == k.Base.Epoch && n.Map.Digest() != k.Base.Digest() {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Next is the map to publish: what plan makes of Base, above all that is known.
// Buckets about whose history anybody disagrees begin anew.
func (k *Stock) Next(plan func(base *bucket.Map) (*bucket.Map, error)) (*bucket.Map, error) {
	if k.Base == nil {
		return nil, ErrNoMap
	}
	if len(k.Nodes) > 0 && 2*k.Answered() <= len(k.Nodes) && !k.Trusted && !k.Takeover {
		return nil, fmt.Errorf("%w (%d of %d answer)", ErrSilent, k.Answered(), len(k.Nodes))
	}
	next, err := plan(k.Base)
	if err != nil {
		return nil, err
	}
	if k.Takeover {
		return next.Takeover(k.Random), nil
	}
	for _, n := range k.Contested() {
		next = next.Begin(func(b int) bool { return k.Base.Differs(n.Map, b) })
	}
	return next, nil
}
