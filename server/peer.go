package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/link"
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// peer is another node, as this one reaches it: a link, and whether it makes
// sense to use it. A node that does not answer is left alone for a while, so
// that not every request for its keys waits as long as one may.
type peer struct {
	*link.Link

	failures  atomic.Int32 // batches in a row without an answer
	restUntil atomic.Int64 // ns of Unix time; 0 it is fine
}

const (
	// peerFailuresMax is how many batches in a row may get no answer in time
	// before the peer rests. A link that broke lets it rest at once.
	peerFailuresMax = 3

	peerRestMin = 50 * time.Millisecond
	peerRestMax = time.Second

	// peersAsked is how many others are asked which map they know, once ours is
	// confirmed: what one knows goes round soon enough.
	peersAsked = 16
	// peersAskedAtOnce bounds the questions under way.
	peersAskedAtOnce = 32
)

// errPeerRests says that a node is left alone for now.
var errPeerRests = errors.New("server: the node did not answer of late")

// errPeerLogin says that a node has -Y, and does not know us.
var errPeerLogin = errors.New("server: unauthenticated")

// rests reports whether p is left alone now.
func (p *peer) rests() bool {
	until := p.restUntil.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// answered notes that p has answered.
func (p *peer) answered() {
	if p.failures.Load() != 0 {
		p.failures.Store(0)
		p.restUntil.Store(0)
	}
}

// failed notes that p has not answered in time, or that the link to it broke.
func (p *peer) failed(broken bool) {
	if p.rests() {
		return // it is of the batch that was counted
	}
	n := p.failures.Add(1)
	if !broken && n < peerFailuresMax {
		return
	}
	rest := min(peerRestMin<<min(n, 8), peerRestMax)
	p.restUntil.Store(time.Now().Add(rest/2 + rand.N(rest/2)).UnixNano())
}

// peer is the node at addr.
func (n *node) peer(addr string) *peer {
	n.peersMu.Lock()
	defer n.peersMu.Unlock()
	p := n.peers[addr]
	if p == nil {
		c := n.cfg.Peer
		c.Addr = addr
		p = &peer{Link: link.New(c)}
		if n.closed {
			p.Close()
			return p
		}
		n.peers[addr] = p
	}
	return p
}

// dropPeers ends the links to nodes that have left.
func (n *node) dropPeers(v *view) {
	n.peersMu.Lock()
	defer n.peersMu.Unlock()
	for addr, p := range n.peers {
		if !slices.ContainsFunc(v.m.Nodes, func(x bucket.Node) bool { return x.Addr == addr }) {
			delete(n.peers, addr)
			n.srv.chores.Go(p.Close)
		}
	}
}

// close ends all links.
func (n *node) close() {
	n.peersMu.Lock()
	n.closed = true
	peers := n.peers
	n.peers = nil
	n.peersMu.Unlock()
	for _, p := range peers {
		p.Close()
	}
}

// watch compares maps with the other nodes until ctx ends: once a second, when
// there is a new one here, and when somebody has heard of a newer one, at once,
// but not twice a second.
func (n *node) watch(ctx context.Context) {
	tick := time.NewTicker(peerTick)
	defer tick.Stop()
	var looked time.Time // because of somebody
	for {
		n.compare(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			continue
		case <-n.changed:
			continue
		case <-n.look:
		}
		if time.Since(looked) < peerTick {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-n.changed:
			}
		}
		looked = time.Now()
	}
}

// known is what another node says of itself.
type known struct {
	addr    string
	epoch   bucket.Epoch
	digest  bucket.Digest
	cluster string
	ahead   store.Time // its clock, of the one by which deadlines are judged here
	timely  bool       // ahead is worth something: the answer came soon
	err     error
}

// compare asks other nodes which map they know, takes a newer one, counts who
// agrees, and holds the clock against theirs. It asks all of them as long as
// something depends on all.
func (n *node) compare(ctx context.Context) {
	v := n.now.Load()
	if v == nil {
		return
	}
	var others []string
	for i := range v.m.Nodes {
		if x := &v.m.Nodes[i]; x.ID != n.cfg.NodeID {
			others = append(others, x.Addr)
		}
	}
	asked := others
	if n.isConfirmed() && !n.budget.waits() && len(asked) > peersAsked {
		rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		asked = asked[:peersAsked]
	}
	answers := n.askAll(ctx, asked)
	if ctx.Err() != nil {
		return
	}
	agree, behind := 0, 0
	for i := range answers {
		switch a := &answers[i]; {
		case a.err != nil:
		case a.cluster != v.m.Cluster:
			n.stranger(a)
		case a.epoch > v.m.Epoch:
			n.saw(a.epoch)
			n.fetch(ctx, a.addr)
		case a.epoch == v.m.Epoch && a.digest != v.digest:
			n.fetch(ctx, a.addr) // which finds the conflict
		case a.epoch < v.m.Epoch:
			behind++
			agree++
		default:
			agree++
		}
	}
	n.holdClock(answers)
	if n.now.Load() != v {
		return
	}
	if behind == 0 {
		n.budget.raise(n.srv.store)
	}
	n.asked.Store(v)
	n.obey()
	// Half of the others and this node are a majority of the nodes.
	if !n.confirmed.Load() && n.newer.Load() == 0 && 2*agree >= len(others) && (len(others) > 0 || !n.cfg.HasStore) {
		n.confirm(fmt.Sprintf("%d of %d nodes", agree+1, len(v.m.Nodes)))
	}
}

// askAll asks the nodes at addrs what they know.
func (n *node) askAll(ctx context.Context, addrs []string) []known {
	answers := make([]known, len(addrs))
	var all sync.WaitGroup
	places := make(chan struct{}, peersAskedAtOnce)
	for i, addr := range addrs {
		places <- struct{}{}
		all.Go(func() {
			answers[i] = n.ask(ctx, addr)
			<-places
		})
	}
	all.Wait()
	return answers
}

// ask asks the node at addr what it knows.
func (n *node) ask(ctx context.Context, addr string) known {
	k := known{addr: addr}
	began := n.srv.deadlineClock()
	text, err := n.config(ctx, addr, configEpoch)
	if k.err = err; err != nil {
		return k
	}
	took := n.srv.deadlineClock() - began
	// epoch, digest, cluster, clock
	words := append(strings.Fields(string(text)), "", "", "", "")
	k.epoch, err = bucket.ParseEpoch(words[0])
	millis, errClock := strconv.ParseInt(words[3], 10, 64)
	k.err = errors.Join(err, k.digest.UnmarshalText([]byte(words[1])), errClock)
	k.cluster = words[2]
	k.ahead = store.Time(millis) - began - took/2
	k.timely = 0 <= took && took <= n.srv.guard.skew/2
	return k
}

// epochText is what ask reads.
func (n *node) epochText(v *view) string {
	return v.m.Epoch.String() + " " + v.digest.String() + " " + v.m.Cluster + " " + strconv.FormatInt(int64(n.srv.wallClock()), 10)
}

// holdClock gives the guard over the clock those of the others.
func (n *node) holdClock(answers []known) {
	ahead := []store.Time{0} // our own
	for i := range answers {
		if a := &answers[i]; a.err == nil && a.timely {
			ahead = append(ahead, a.ahead)
		}
	}
	if len(ahead) < clocksMin {
		n.srv.guard.alone()
		return
	}
	slices.Sort(ahead)
	n.srv.guard.hear(n.srv.clock(), ahead[len(ahead)/2])
}

// fetch takes the map of the node at addr.
func (n *node) fetch(ctx context.Context, addr string) {
	text, err := n.config(ctx, addr, configMap)
	if err != nil {
		return
	}
	m, err := bucket.Decode(text)
	if err == nil {
		err = n.apply(m)
	}
	if err != nil {
		n.complain("a map of another node is not taken", addr, err)
	}
}

// stranger tells that a node of another cluster stands where one of ours should.
func (n *node) stranger(a *known) {
	n.complain("a node of another cluster has an address of our map", a.addr, errors.New(a.cluster))
}

// complain logs what is wrong with another node, but not again and again.
func (n *node) complain(what, addr string, err error) {
	text := what + addr + err.Error()
	if old, _ := n.complaint.Swap(text).(string); old != text {
		n.srv.log.Warn(what, "node", addr, "error", err)
	}
}

// config asks the node at addr for a configuration.
func (n *node) config(ctx context.Context, addr, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTick)
	defer cancel()
	c := link.NewCall()
	c.Request.Op, c.Request.Verb = meta.OpConfig, meta.VerbOther
	c.Request.Args[0], c.Request.Args[1], c.Request.Args[2] = []byte("config"), []byte("get"), []byte(name)
	c.Request.NArgs = 3
	if err := n.peer(addr).Do(ctx, c); err != nil {
		return nil, err
	}
	defer c.Free()
	if c.Reply.Code != meta.CodeConfig {
		return nil, errors.New("server: config get " + name + ": " + c.Reply.Code.String() + " " + string(c.Reply.Text))
	}
	return slices.Clone(c.Reply.Value), nil
}
