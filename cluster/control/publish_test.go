package control

import (
	"context"
	"errors"
	"testing"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// answers are what nodes say when they are asked: nil is silence.
func answers(byID map[string]*bucket.Map) Ask {
	return func(_ context.Context, n bucket.Node) (*bucket.Map, error) {
		if m := byID[n.ID]; m != nil {
			return m, nil
		}
		return nil, errors.New("no answer")
	}
}

func again(base *bucket.Map) (*bucket.Map, error) { return base.Plan(bucket.Change{}) }

func TestTakeAsksWhoIsNewer(t *testing.T) {
	s := fileDriver(t).open(t)
	m := first(t, s)
	// n3 joined in a map that the store has lost, and n4 in one that n2 has not.
	three, err := m.Plan(bucket.Change{Add: []bucket.Node{node(3)}})
	if err != nil {
		t.Fatal(err)
	}
	four, err := three.Plan(bucket.Change{Add: []bucket.Node{node(4)}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := Take(t.Context(), s, answers(map[string]*bucket.Map{"n1": m, "n2": three, "n3": four, "n4": four}), Known{})
	if err != nil {
		t.Fatal(err)
	}
	if k.Base.Digest() != four.Digest() || len(k.Nodes) != 4 || k.Answered() != 4 || !k.Behind() {
		t.Errorf("the newest map is %s, %d of %d nodes answered", k.Base.Epoch, k.Answered(), len(k.Nodes))
	}
	next, err := k.Next(again)
	if err != nil || next.Epoch <= four.Epoch {
		t.Fatalf("next is %v, %v", next, err)
	}
	if err := s.CompareAndSwap(t.Context(), k.Stored, next); err != nil {
		t.Error(err)
	}
}

func TestTakeRefusesOtherClusters(t *testing.T) {
	s := fileDriver(t).open(t)
	m := first(t, s)
	other, err := bucket.First("other", []bucket.Node{node(1)}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(t.Context(), s, answers(map[string]*bucket.Map{"n1": m, "n2": other}), Known{}); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("got %v", err)
	}
}

// When most nodes are silent, the operator has to say what to do.
func TestSilentNodes(t *testing.T) {
	s := fileDriver(t).open(t)
	m := first(t, s)
	k, err := Take(t.Context(), s, answers(map[string]*bucket.Map{"n1": m}), Known{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Next(again); !errors.Is(err, ErrSilent) {
		t.Errorf("one of two nodes is enough: %v", err)
	}
	k.Trusted = true
	if next, err := k.Next(again); err != nil || next.Epoch != m.Epoch.Next() {
		t.Errorf("a store that is trusted gives %v, %v", next, err)
	}
	k.Trusted, k.Takeover, k.Random = false, true, 12345
	next, err := k.Next(again)
	if err != nil {
		t.Fatal(err)
	}
	if next.Epoch != bucket.MakeEpoch(1, 12345) {
		t.Errorf("the takeover has epoch %s", next.Epoch)
	}
	for b := range next.Buckets {
		if next.Buckets[b].Since != next.Epoch {
			t.Fatalf("after a takeover bucket %d has its owner since %s", b, next.Buckets[b].Since)
		}
	}
	if err := s.CompareAndSwap(t.Context(), k.Stored, next); err != nil {
		t.Error(err)
	}
	// Whoever served by a map of before has a lower epoch, whatever it was.
	if next.Epoch <= m.Epoch+1<<40 {
		t.Error("a term is not above all revisions")
	}
}

func TestNothingToPlanFrom(t *testing.T) {
	k, err := Take(t.Context(), fileDriver(t).open(t), answers(nil), Known{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Next(again); !errors.Is(err, ErrNoMap) {
		t.Errorf("got %v", err)
	}
}
