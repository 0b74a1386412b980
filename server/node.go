package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/link"
	"github.com/quarrycache/quarry/meta"
)

// A server that is a node of a cluster knows the map, and by it which keys are
// its own. The map comes from a map store, by way of whoever called
// Server.ApplyMap, from another node that had it earlier, or after a start
// from the node's own disk.

// ClusterConfig makes a server a node of a cluster.
type ClusterConfig struct {
	NodeID  string // --node-id: this node in the map; "" is no cluster
	DataDir string // --data: where the newest map is kept; "" is nowhere

	Misrouted Misrouted // --misrouted: what becomes of keys of other nodes, from clients that know no map

	// HasStore says that somebody will call ApplyMap or ConfirmMap with what
	// the map store has. Without one, the other nodes are asked.
	HasStore bool

	// RelayTimeout, --relay-timeout-ms, is how long a client waits for another
	// node. Replies behind are held up no longer. 100 ms
	RelayTimeout time.Duration

	// KeyCapacity, --key-capacity, is how many reads/s of one key a node is to
	// serve: what is read more is worth being split. 100,000
	KeyCapacity int

	// Peer is how links to other nodes are made; Addr is filled in.
	Peer link.Config
}

// Misrouted says what a node does with a request for a key of another one, from
// a client that knows no map.
type Misrouted string

// The kinds of Misrouted.
const (
	MisroutedForward Misrouted = "forward" // ask the owner for it
	MisroutedLocal   Misrouted = "local"   // answer it here, as if there were no other
	MisroutedRefuse  Misrouted = "refuse"  // an error
)

const (
	relayTimeoutDefault = 100 * time.Millisecond

	// peerTick is how often the other nodes are asked which map they know.
	peerTick = time.Second

	mapFileName = "map.quarry"
)

// role is what a node is to a bucket.
type role uint8

const (
	roleNone role = iota
	roleCopy
	roleOwner
)

// view is a map as this node sees it. It is not changed once it is in use.
type view struct {
	m       *bucket.Map
	digest  bucket.Digest
	compact []byte // what config get quarry answers
	legacy  []byte // what config get cluster answers
	self    bucket.NodeIndex
	member  bool // this node is in the map
	roles   [bucket.Count]role
}

func newView(m *bucket.Map, id string) *view {
	v := &view{m: m, compact: m.Compact(), digest: m.Digest(), legacy: discovery(m)}
	if v.self, v.member = m.NodeOf(id); !v.member {
		return v
	}
	for b := range m.Buckets {
		switch k := &m.Buckets[b]; {
		case k.Owner == v.self:
			v.roles[b] = roleOwner
		case slices.Contains(k.Copies, v.self):
			v.roles[b] = roleCopy
		}
	}
	return v
}

// discovery is the node list in the form that auto-discovery clients read: the
// node-set revision, and host|ip|port of each node.
func discovery(m *bucket.Map) []byte {
	text := strconv.AppendUint(nil, uint64(m.NodeSet), 10)
	text = append(text, '\n')
	for i := range m.Nodes {
		if i > 0 {
			text = append(text, ' ')
		}
		host, port, _ := net.SplitHostPort(m.Nodes[i].Addr) // a map has no other
		ip := host                                          // a name stays one: clients take either
		text = append(text, host+"|"+ip+"|"+port...)
	}
	return append(text, '\n')
}

// node is what a server has as a node of a cluster.
type node struct {
	srv *Server
	cfg ClusterConfig
	now atomic.Pointer[view] // nil while there is no map

	applying sync.Mutex // one map after another

	peersMu sync.Mutex // peers and closed
	peers   map[string]*peer
	closed  bool

	budget share // of the reads of the source

	obeying sync.Mutex // from a look at what follows to what the store is told
	// confirmed: the map store, or a majority of the nodes with this one among
	// them, know of no newer map than ours. Without that there are no grants.
	confirmed atomic.Bool
	// asked is the map about which the other nodes have been asked whether they
	// have another one of its epoch. By a map that is newer there are no grants
	// yet, so that there never are by two of one epoch.
	asked     atomic.Pointer[view]
	changed   chan struct{} // wakes peer checks because of a new map
	newer     atomic.Uint64 // an epoch above ours that was seen; 0 none
	conflict  atomic.Pointer[conflict]
	withheld  atomic.Bool   // plain values from before the start are not shown
	look      chan struct{} // wakes peer checks
	complaint atomic.Value  // string: the last one

	copies copies

	gathering atomic.Int64 // bytes of values that are to be sent on

	relayed, relayFailed, moved, movedHere   atomic.Uint64
	copyReads, applied, hidden, conflictSeen atomic.Uint64
	storeBehind, splitRefused, unkept        atomic.Uint64
}

// conflict is another map of our epoch: for the buckets in which they differ
// there are no grants.
type conflict struct {
	epoch   bucket.Epoch
	differs [bucket.Count]bool
}

func newNode(s *Server, c ClusterConfig) (*node, error) {
	if c.NodeID == "" {
		return nil, nil
	}
	if c.RelayTimeout == 0 {
		c.RelayTimeout = relayTimeoutDefault
	}
	c.Peer.Timeout = c.RelayTimeout
	if c.Misrouted == "" {
		c.Misrouted = MisroutedForward
	}
	n := &node{srv: s, cfg: c, peers: make(map[string]*peer), look: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	n.copies.node = n
	if c.DataDir == "" {
		return n, nil
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("server: --data: %w", err)
	}
	text, err := os.ReadFile(n.mapFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return n, nil
	case err != nil:
		return nil, fmt.Errorf("server: --data: %w", err)
	}
	m, err := bucket.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("server: --data: %s: %w", n.mapFile(), err)
	}
	n.now.Store(newView(m, c.NodeID))
	s.log.Info("the map from disk", "cluster", m.Cluster, "epoch", m.Epoch)
	return n, nil
}

func (n *node) mapFile() string { return filepath.Join(n.cfg.DataDir, mapFileName) }

// keep writes the map to the node's disk, whole or not at all.
func (n *node) keep(v *view) error {
	if n.cfg.DataDir == "" {
		return nil
	}
	f, err := os.CreateTemp(n.cfg.DataDir, mapFileName+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(v.compact)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), n.mapFile())
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// ErrNoCluster says that the server is not a node of a cluster.
var ErrNoCluster = errors.New("server: not a node of a cluster")

// ApplyMap takes a map that the map store has, if it is newer than the one in
// use. A store that has an older one was set back: it does not know what else
// there has been since, so the other nodes are asked.
func (s *Server) ApplyMap(m *bucket.Map) error {
	n := s.node
	if n == nil {
		return ErrNoCluster
	}
	if err := n.apply(m); err != nil {
		return err
	}
	if v := n.now.Load(); m.Epoch < v.m.Epoch {
		n.storeBehind.Add(1)
		s.log.Error("ALARM: the map store has an older map than this node: was it set back? The next map must have a higher epoch",
			"store", m.Epoch, "node", v.m.Epoch)
		return nil
	}
	n.confirm("the map store")
	return nil
}

// MapEpoch is the epoch and digest of the map in use, 0 when there is none.
func (s *Server) MapEpoch() (bucket.Epoch, bucket.Digest) {
	if s.node == nil {
		return 0, bucket.Digest{}
	}
	v := s.node.now.Load()
	if v == nil {
		return 0, bucket.Digest{}
	}
	return v.m.Epoch, v.digest
}

// clusterMap is the map in use, nil for none.
func (s *Server) clusterMap() *bucket.Map {
	if s.node == nil {
		return nil
	}
	if v := s.node.now.Load(); v != nil {
		return v.m
	}
	return nil
}

// apply takes a map, if it is newer than the one in use, and hides what was
// stored under other owners.
func (n *node) apply(m *bucket.Map) error {
	if err := m.Validate(); err != nil {
		return err
	}
	next := newView(m, n.cfg.NodeID)
	n.applying.Lock()
	defer n.applying.Unlock()
	old := n.now.Load()
	if old != nil {
		switch {
		case m.Cluster != old.m.Cluster:
			return fmt.Errorf("server: a map of cluster %q: this node is in %q", m.Cluster, old.m.Cluster)
		case m.Epoch < old.m.Epoch:
			return nil
		case m.Epoch == old.m.Epoch && next.digest == old.digest:
			return nil
		case m.Epoch == old.m.Epoch:
			n.differs(old, m)
			return fmt.Errorf("server: two maps of epoch %s: %s is in use, %s is another one", m.Epoch, old.digest, next.digest)
		}
	}
	// What other owners left is hidden before anyone is served by the new map,
	// and before the map is on disk: a node that dies between hides it again.
	// And once more for what requests under way did by the old one.
	isNew := old == nil && n.srv.store.IsNew() // there is nothing to be hidden
	n.hideChanged(old, next, isNew)
	if err := n.keep(next); err != nil {
		// An older one on disk hides more after a restart, and nothing less.
		n.unkept.Add(1)
		n.srv.log.Error("the map is not kept on disk", "epoch", m.Epoch, "error", err)
	}
	n.budget.apply(next.shareOf(), n.srv.store)
	n.copies.track(next)
	n.copies.gained(old, next)
	n.asked.Store(nil)
	n.obey()
	n.now.Store(next)
	if next.alone() {
		n.asked.Store(next)
	}
	hidden := n.hideChanged(old, next, isNew)
	n.hidden.Add(uint64(hidden))
	if e := n.newer.Load(); e <= uint64(m.Epoch) {
		n.newer.Store(0)
	}
	if c := n.conflict.Load(); c != nil && c.epoch < m.Epoch {
		n.conflict.Store(nil)
	}
	n.dropPeers(next)
	n.applied.Add(1)
	n.obey()
	select {
	case n.changed <- struct{}{}:
	default:
	}
	n.srv.log.Info("a new map", "cluster", m.Cluster, "epoch", m.Epoch, "nodes", len(m.Nodes), "hidden_buckets", hidden)
	return nil
}

// alone reports whether no other node is in the map.
func (v *view) alone() bool {
	return !slices.ContainsFunc(v.m.Nodes, func(x bucket.Node) bool { return v.member && x.ID != v.m.Nodes[v.self].ID || !v.member })
}

// hideChanged hides what the store has of the buckets that next has changed since
// old, unless it is new, and returns how many they are. Of a bucket that was copied
// here and still is, there may be what the new owner has told already: that stays.
func (n *node) hideChanged(old, next *view, isNew bool) int {
	if isNew {
		return 0
	}
	n.copies.mu.Lock() // nothing is told meanwhile
	defer n.copies.mu.Unlock()
	changed := slices.DeleteFunc(next.changedSince(old), func(b int) bool {
		return old != nil && old.roles[b] == roleCopy && next.roles[b] == roleCopy && n.copies.isOf(b, next.m.Buckets[b].Since)
	})
	if len(changed) > 0 {
		n.srv.store.HideBuckets(changed, n.srv.now())
	}
	return len(changed)
}

// changedSince are the buckets that this node has a part in, or owned by old, and
// whose present ownership began after old; and those of which it has a copy now,
// and had none. Without an old map nobody knows whose keys it has: all.
func (v *view) changedSince(old *view) []int {
	var changed []int
	for b := range v.m.Buckets {
		switch {
		case old == nil,
			(v.roles[b] != roleNone || old.roles[b] == roleOwner) && v.m.Buckets[b].Since != old.m.Buckets[b].Since,
			v.roles[b] == roleCopy && old.roles[b] == roleNone:
			changed = append(changed, b)
		}
	}
	return changed
}

// differs notes another map of the epoch in use.
func (n *node) differs(v *view, other *bucket.Map) {
	c := &conflict{epoch: v.m.Epoch}
	for b := range v.m.Buckets {
		x, y := &v.m.Buckets[b], &other.Buckets[b]
		c.differs[b] = v.m.OwnerOf(b).ID != other.OwnerOf(b).ID || x.Since != y.Since
	}
	before := n.conflict.Load()
	if before != nil && before.epoch == c.epoch { // there may be more than two
		for b := range c.differs {
			c.differs[b] = c.differs[b] || before.differs[b]
		}
	}
	n.conflict.Store(c)
	if before == nil {
		n.conflictSeen.Add(1)
		n.srv.log.Error("ALARM: two maps of one epoch; no grants for the buckets in which they differ until there is a higher one",
			"epoch", v.m.Epoch)
	}
}

// confirm says that who must know, by, knows of no newer map.
func (n *node) confirm(by string) {
	if !n.confirmed.Swap(true) {
		n.srv.log.Info("the map is confirmed: grants are given", "by", by)
		if n.withheld.Swap(false) {
			n.srv.store.WithholdPlain(false)
		}
	}
	n.obey()
}

// saw notes that there is a map of epoch e somewhere.
func (n *node) saw(e bucket.Epoch) {
	v := n.now.Load()
	if v != nil && e <= v.m.Epoch {
		return
	}
	for {
		old := n.newer.Load()
		if uint64(e) <= old || n.newer.CompareAndSwap(old, uint64(e)) {
			break
		}
	}
	n.obey()
	n.wake()
}

// hint is what a client says of an epoch: it makes the node look, and nothing
// more.
func (n *node) hint(e uint64) {
	if v := n.now.Load(); v == nil || e > uint64(v.m.Epoch) {
		n.wake()
	}
}

func (n *node) wake() {
	select {
	case n.look <- struct{}{}:
	default:
	}
}

// obey lets the store give grants, or not.
func (n *node) obey() {
	n.obeying.Lock()
	defer n.obeying.Unlock()
	n.srv.store.PauseGrants(!n.isConfirmed() || n.newer.Load() != 0)
}

// isConfirmed reports whether the map in use is the newest, and the only one of
// its epoch, as far as that can be known.
func (n *node) isConfirmed() bool {
	v := n.now.Load()
	return v != nil && n.confirmed.Load() && n.asked.Load() == v
}

// grantsFor reports whether grants may be given for a bucket.
func (n *node) grantsFor(b int) bool {
	c := n.conflict.Load()
	return c == nil || !c.differs[b]
}

// opened obeys the map from disk, if there is one, in a store that was just
// opened. Where that has what an earlier start left, nobody knows whether it is
// still this node's until the map is confirmed.
func (n *node) opened(restored bool) {
	if v := n.now.Load(); v != nil {
		n.budget.apply(v.shareOf(), n.srv.store)
		n.copies.track(v)
	}
	n.obey()
	if restored {
		n.copies.restored = true
		n.withheld.Store(true)
		n.srv.store.WithholdPlain(true)
	}
}

// Names of configurations.
const (
	configMap    = "quarry"
	configEpoch  = "epoch"
	configLegacy = "cluster"

	// legacyKey is what older auto-discovery clients get.
	legacyKey = "AmazonElastiCache:cluster"
)

// configCommand answers config get and config report.
func (s *session) configCommand(w *worker) {
	r := &w.req
	n := s.srv.node
	if n != nil && r.NArgs >= 2 && string(r.Args[1]) == "report" {
		s.reportCommand(w)
		return
	}
	if n == nil || r.NArgs < 3 || string(r.Args[1]) != "get" {
		w.fail(r, meta.ErrUnknown)
		return
	}
	v := n.now.Load()
	if v == nil {
		w.fail(r, meta.ErrNoMap)
		return
	}
	switch name := string(r.Args[2]); name {
	case configMap:
		w.out.buf = meta.AppendConfig(w.out.buf, name, v.compact)
	case configLegacy:
		w.out.buf = meta.AppendConfig(w.out.buf, name, v.legacy)
	case configEpoch:
		w.out.buf = meta.AppendConfig(w.out.buf, name, []byte(n.epochText(v)))
	default:
		w.fail(r, meta.ErrUnknown)
	}
}

// firstCAS is where CAS numbers begin. Those of a node begin at UTC ms times
// 2^20, so that no owner of a bucket repeats those of an earlier one.
func (s *Server) firstCAS() uint64 {
	if s.node == nil {
		return 0
	}
	return uint64(s.clock()) << 20
}
