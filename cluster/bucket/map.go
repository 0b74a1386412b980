package bucket

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
)

// Map says who owns which buckets, at an epoch. A map that was published is
// never changed: the planner makes new ones.
type Map struct {
	Cluster     string // id of the cluster: maps of others are refused
	Epoch       Epoch
	Predecessor Digest // of the map before it; zero for the first one
	NodeSet     uint32 // node-set revision, which auto-discovery clients see: below 2^31

	// Nodes are in the order of their ids. Owners and copies are indexes here.
	Nodes []Node

	CopiesWanted int // copies of each bucket, besides its owner
	Buckets      [Count]Bucket

	// Splits are keys that are read so often that they are stored in several
	// places, in the order of their keys.
	Splits []Split

	Budget Budget
}

// Bucket is one row of the map.
type Bucket struct {
	Owner  NodeIndex
	Copies []NodeIndex // never the owner, none twice
	Since  Epoch       // at which it got its present owner
}

func (k *Bucket) equal(o *Bucket) bool {
	return k.Owner == o.Owner && k.Since == o.Since && slices.Equal(k.Copies, o.Copies)
}

// NodeIndex is the place of a node in Map.Nodes.
type NodeIndex uint16

// Node is one server.
type Node struct {
	ID     string `json:"id"`
	Addr   string `json:"addr"` // host:port that clients connect to
	Zone   string `json:"zone,omitempty"`
	Weight int    `json:"weight"` // its part of the buckets is Weight over the sum of all
	State  State  `json:"state"`
}

// State is what a node is to the map.
type State string

// The states of a node.
const (
	Active  State = "active"
	Leaving State = "leaving" // it owns nothing any more once the map has been planned
)

// Split is a key whose value is in N places, key#0 to key#N-1.
type Split struct {
	Key     RawKey `json:"key"`
	N       int    `json:"n"`
	Former  int    `json:"former,omitempty"` // a larger N from before, as long as those copies may live
	Version uint64 `json:"version"`          // of the split: rises with each change of N
}

// RawKey is the bytes of a key. In JSON, bytes that are not printable ASCII, and
// '"' and '\\', are written as Go writes them in a string.
type RawKey string

// MarshalText is the key as JSON has it.
func (k RawKey) MarshalText() ([]byte, error) {
	q := strconv.QuoteToASCII(string(k))
	return []byte(q[1 : len(q)-1]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (k *RawKey) UnmarshalText(text []byte) error {
	s, err := strconv.Unquote(`"` + string(text) + `"`)
	if err != nil {
		return fmt.Errorf("bucket: key %q: %w", text, err)
	}
	*k = RawKey(s)
	return nil
}

// Budget is how fast the source behind the cache may be read, by the cluster
// as a whole; 0 is no limit.
type Budget struct {
	Foreground  int `json:"foreground,omitempty"`   // grants a second, for callers that wait
	Background  int `json:"background,omitempty"`   // the same to refresh ahead
	DirectLoads int `json:"direct_loads,omitempty"` // loads a second of all clients past the cache
}

// Share is the part of n, a budget, that node i has: that of the buckets that it
// owns. Parts are rounded where they meet, so that they add up to n. Where that
// would leave an owner without any, each has one first, if there are so many.
func (m *Map) Share(i NodeIndex, n int) int {
	owned := m.Owned()
	share := parts(owned, n)
	owners, without := 0, false
	for k, buckets := range owned {
		if buckets > 0 {
			owners++
			without = without || share[k] == 0
		}
	}
	if without && owners <= n && owned[i] > 0 {
		return 1 + parts(owned, n-owners)[i]
	}
	return share[i]
}

// parts are those of n in proportion to what is owned.
func parts(owned []int, n int) []int {
	list := make([]int, len(owned))
	upTo := 0
	for i, buckets := range owned {
		list[i] = n*(upTo+buckets)/Count - n*upTo/Count
		upTo += buckets
	}
	return list
}

// Bounds of a map.
const (
	NodesMax    = 1024
	CopiesMax   = 3
	SplitsMax   = 4096
	SplitMax    = 256 // places of one key
	SplitKeyMax = 247 // bytes: #i must fit behind it
	WeightMax   = 1 << 20
	NodeSetMax  = 1<<31 - 1
	nameMax     = 64
)

// Digest identifies a map: SHA-256 of its compact encoding.
type Digest [32]byte

// String is the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText is String, for JSON.
func (d Digest) MarshalText() ([]byte, error) {
	if d == (Digest{}) {
		return nil, nil
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = Digest{}
		return nil
	}
	if n, err := hex.Decode(d[:], text); err != nil || n != len(d) || len(text) != 2*len(d) {
		return fmt.Errorf("bucket: digest %q: want %d hexadecimal digits", text, 2*len(d))
	}
	return nil
}

// NodeOf is the index of the node with an id.
func (m *Map) NodeOf(id string) (NodeIndex, bool) {
	for i := range m.Nodes {
		if m.Nodes[i].ID == id {
			return NodeIndex(i), true
		}
	}
	return 0, false
}

// OwnerOf is the node that owns a bucket.
func (m *Map) OwnerOf(b int) *Node { return &m.Nodes[m.Buckets[b].Owner] }

// SplitOf is the split of a key, if it is split.
func (m *Map) SplitOf(key []byte) (Split, bool) {
	i, ok := slices.BinarySearchFunc(m.Splits, key, func(s Split, key []byte) int {
		return compare(s.Key, key)
	})
	if !ok {
		return Split{}, false
	}
	return m.Splits[i], true
}

// compare is strings.Compare without a copy of key.
func compare(s RawKey, key []byte) int {
	switch {
	case string(s) < string(key):
		return -1
	case string(s) > string(key):
		return 1
	}
	return 0
}

// Owned is the number of buckets that each node owns, by its index.
func (m *Map) Owned() []int {
	n := make([]int, len(m.Nodes))
	for b := range m.Buckets {
		n[m.Buckets[b].Owner]++
	}
	return n
}

// Clone is a deep copy, to be changed.
func (m *Map) Clone() *Map {
	c := *m
	c.Nodes = slices.Clone(m.Nodes)
	c.Splits = slices.Clone(m.Splits)
	for b := range c.Buckets {
		c.Buckets[b].Copies = slices.Clone(c.Buckets[b].Copies)
	}
	return &c
}

// Validate reports what is wrong with a map, by itself.
func (m *Map) Validate() error {
	switch {
	case !validName(m.Cluster):
		return fmt.Errorf("bucket: cluster %q: want 1 to %d letters, digits, '-', '_' or '.'", m.Cluster, nameMax)
	case m.Epoch == 0:
		return errors.New("bucket: a map has an epoch above 0")
	case len(m.Nodes) == 0 || len(m.Nodes) > NodesMax:
		return fmt.Errorf("bucket: %d nodes: want 1 to %d", len(m.Nodes), NodesMax)
	case m.NodeSet == 0 || m.NodeSet > NodeSetMax:
		return fmt.Errorf("bucket: node-set revision %d: want 1 to %d", m.NodeSet, NodeSetMax)
	case m.CopiesWanted < 0 || m.CopiesWanted > CopiesMax:
		return fmt.Errorf("bucket: %d copies: want 0 to %d", m.CopiesWanted, CopiesMax)
	case min(m.Budget.Foreground, m.Budget.Background, m.Budget.DirectLoads) < 0:
		return fmt.Errorf("bucket: budget %+v: negative", m.Budget)
	}
	addrs := make(map[string]string)
	for i := range m.Nodes {
		n := &m.Nodes[i]
		if err := n.validate(); err != nil {
			return err
		}
		if i > 0 && m.Nodes[i-1].ID >= n.ID {
			return fmt.Errorf("bucket: node %q stands behind %q: want the order of their ids, each once", n.ID, m.Nodes[i-1].ID)
		}
		if other, ok := addrs[n.Addr]; ok {
			return fmt.Errorf("bucket: nodes %q and %q have the same address %s", other, n.ID, n.Addr)
		}
		addrs[n.Addr] = n.ID
	}
	for b := range m.Buckets {
		if err := m.validateBucket(b); err != nil {
			return err
		}
	}
	if len(m.Splits) > SplitsMax {
		return fmt.Errorf("bucket: %d split keys: want at most %d", len(m.Splits), SplitsMax)
	}
	for i := range m.Splits {
		s := &m.Splits[i]
		switch {
		case s.Key == "" || len(s.Key) > SplitKeyMax:
			return fmt.Errorf("bucket: split key %q: want 1 to %d bytes", s.Key, SplitKeyMax)
		case i > 0 && m.Splits[i-1].Key >= s.Key:
			return fmt.Errorf("bucket: split key %q stands behind %q: want the order of their bytes, each once", s.Key, m.Splits[i-1].Key)
		case s.N < 1 || s.N > SplitMax || s.Former < 0 || s.Former > SplitMax:
			return fmt.Errorf("bucket: key %q is split into %d, before %d: want 1 to %d", s.Key, s.N, s.Former, SplitMax)
		}
	}
	return nil
}

func (n *Node) validate() error {
	host, port, err := net.SplitHostPort(n.Addr)
	p, errPort := strconv.ParseUint(port, 10, 16)
	switch {
	case !validName(n.ID):
		return fmt.Errorf("bucket: node %q: want 1 to %d letters, digits, '-', '_' or '.'", n.ID, nameMax)
	case err != nil || errPort != nil || p == 0 || host == "":
		return fmt.Errorf("bucket: node %s: address %q: want HOST:PORT", n.ID, n.Addr)
	case n.Zone != "" && !validName(n.Zone):
		return fmt.Errorf("bucket: node %s: zone %q: want at most %d letters, digits, '-', '_' or '.'", n.ID, n.Zone, nameMax)
	case n.Weight < 1 || n.Weight > WeightMax:
		return fmt.Errorf("bucket: node %s: weight %d: want 1 to %d", n.ID, n.Weight, WeightMax)
	case n.State != Active && n.State != Leaving:
		return fmt.Errorf("bucket: node %s: state %q: want %s or %s", n.ID, n.State, Active, Leaving)
	}
	return nil
}

// validName reports whether s can stand in the map, in commands and in the
// names of files.
func validName(s string) bool {
	if s == "" || len(s) > nameMax || s == "." || s == ".." {
		return false
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

func (m *Map) validateBucket(b int) error {
	k := &m.Buckets[b]
	switch {
	case int(k.Owner) >= len(m.Nodes):
		return fmt.Errorf("bucket: bucket %d: there is no node %d", b, k.Owner)
	case k.Since == 0 || k.Since > m.Epoch:
		return fmt.Errorf("bucket: bucket %d has its owner since %s, and the map is %s", b, k.Since, m.Epoch)
	case len(k.Copies) > m.CopiesWanted:
		return fmt.Errorf("bucket: bucket %d has %d copies, and %d are wanted", b, len(k.Copies), m.CopiesWanted)
	}
	for i, c := range k.Copies {
		if int(c) >= len(m.Nodes) || c == k.Owner || slices.Contains(k.Copies[:i], c) {
			return fmt.Errorf("bucket: bucket %d of node %d has copies on %v", b, k.Owner, k.Copies)
		}
	}
	return nil
}

// Follows reports what is wrong with m as the map that is published after old.
// A map that is not the very next one, as after a takeover, or where a store
// was behind its nodes, need not know old.
func (m *Map) Follows(old *Map) error {
	next := m.Epoch == old.Epoch.Next()
	switch {
	case m.Cluster != old.Cluster:
		return fmt.Errorf("bucket: a map of cluster %q after one of %q", m.Cluster, old.Cluster)
	case m.Epoch <= old.Epoch:
		return fmt.Errorf("bucket: epoch %s after %s: epochs rise", m.Epoch, old.Epoch)
	case next && m.Predecessor != old.Digest():
		return fmt.Errorf("bucket: map %s does not follow map %s: it was made from another one", m.Epoch, old.Epoch)
	}
	changed := m.nodeSetDiffers(old)
	switch {
	case changed && m.NodeSet <= old.NodeSet:
		return fmt.Errorf("bucket: nodes have joined or left, and the node-set revision is %d after %d", m.NodeSet, old.NodeSet)
	case !changed && m.NodeSet != old.NodeSet && (next || m.NodeSet < old.NodeSet):
		return fmt.Errorf("bucket: no node has joined or left, and the node-set revision is %d after %d", m.NodeSet, old.NodeSet)
	}
	for b := range m.Buckets {
		was, is := old.OwnerOf(b).ID, m.OwnerOf(b).ID
		switch since := m.Buckets[b].Since; {
		case since > old.Epoch:
		case was != is:
			return fmt.Errorf("bucket: bucket %d goes from %s to %s, which has it since %s", b, was, is, since)
		case since != old.Buckets[b].Since:
			return fmt.Errorf("bucket: bucket %d stays with %s, since %s, and before since %s", b, is, since, old.Buckets[b].Since)
		}
	}
	return nil
}

// nodeSetDiffers reports whether an auto-discovery client would see other
// nodes.
func (m *Map) nodeSetDiffers(old *Map) bool {
	return !slices.EqualFunc(m.Nodes, old.Nodes, func(a, b Node) bool { return a.ID == b.ID && a.Addr == b.Addr })
}

// Moved lists the buckets whose owner is another one than in old.
func (m *Map) Moved(old *Map) []int {
	var moved []int
	for b := range m.Buckets {
		if m.OwnerOf(b).ID != old.OwnerOf(b).ID {
			moved = append(moved, b)
		}
	}
	return moved
}
