package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
)

// The map is fetched by one goroutine for all callers: when the client starts,
// now and then, and when a node has said that there is a newer one, which is
// asked for it first.

// askedMax is how many nodes one refresh asks at most.
const askedMax = 4

// errPlain says that a server is no node of a cluster.
var errPlain = errors.New("cluster: the server is no node of a cluster")

// hint is what a node said of a newer map.
type hint struct {
	epoch uint64
	n     *node
}

// hinted wakes the refresher, if the epoch is news.
func (c *Client) hinted(h hint) {
	if v := c.view.Load(); v != nil && h.epoch <= v.epoch {
		return
	}
	select {
	case c.hints <- h:
	default: // it is awake
	}
}

// keepFresh fetches the map until the client is closed.
func (c *Client) keepFresh() {
	poll := time.NewTimer(0)
	defer poll.Stop()
	for {
		var h hint
		select {
		case <-c.stop:
			return
		case h = <-c.hints:
			// Others were told the same at the same moment.
			pause := rand.N(c.opt.MapGap/8 + 1)
			if since := time.Since(c.fetched); since < c.opt.MapGap {
				pause += c.opt.MapGap - since
			}
			if !c.sleep(pause) {
				return
			}
			if v := c.view.Load(); v != nil && h.epoch <= v.epoch {
				continue
			}
		case <-poll.C:
		}
		err := c.refresh(h)
		c.fetched = time.Now()
		c.mapErr.Store(&err)
		c.tried()
		c.report()
		c.hot.decay()
		next := c.opt.MapPoll
		if err != nil {
			c.counters.mapFailures.Add(1)
			next = c.opt.MapGap
		}
		poll.Reset(next + rand.N(next/8+1))
	}
}

// refresh asks for the map, who said that there is a newer one first, then
// some of the nodes, then the seeds.
func (c *Client) refresh(h hint) error {
	var asked []*node
	var last error = ErrNoMap
	plain := 0
	try := func(n *node) (done bool) {
		if slices.Contains(asked, n) {
			return false
		}
		asked = append(asked, n)
		m, err := c.fetchMap(n)
		switch {
		case errors.Is(err, errPlain):
			plain++
		case err == nil:
			err = c.adopt(m)
		}
		if err != nil {
			last = err
			return false
		}
		v := c.view.Load()
		return v.epoch >= h.epoch || h.n == nil
	}
	if h.n != nil && try(h.n) {
		return nil
	}
	if v := c.view.Load(); v != nil && v.m != nil {
		for _, i := range rand.Perm(len(v.nodes))[:min(len(v.nodes), askedMax)] {
			if try(v.nodes[i]) {
				return nil
			}
		}
	}
	for _, i := range rand.Perm(len(c.opt.Seeds)) {
		if try(c.node(c.opt.Seeds[i])) {
			return nil
		}
	}
	if v := c.view.Load(); v != nil && v.epoch >= h.epoch && h.n != nil {
		return nil
	}
	// One server that is no node, or has no map yet, has all keys itself.
	if plain == 1 && len(c.opt.Seeds) == 1 {
		if c.view.Load() == nil {
			c.adoptRing(c.opt.Seeds, RingJump)
		}
		if last == errPlain && c.view.Load().m == nil {
			return nil
		}
	}
	return last
}

// fetchMap asks a node for its map.
func (c *Client) fetchMap(n *node) (m *bucket.Map, err error) {
	c.counters.mapFetches.Add(1)
	err = n.ask(context.Background(), func(r *meta.Reply) error {
		switch r.Code {
		case meta.CodeConfig:
			m, err = bucket.Decode(r.Value)
			return err
		case meta.CodeServerError:
			return fmt.Errorf("%w: %s: %s", errPlain, n.addr, r.Text) // it has no map yet
		case meta.CodeError:
			return errPlain
		}
		return fmt.Errorf("cluster: %s: config get quarry: %s %s", n.addr, r.Code, r.Text)
	}, "config", "get", "quarry")
	return m, err
}

// adopt takes a map, if it is newer than the one in use.
func (c *Client) adopt(m *bucket.Map) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.view.Load()
	if old != nil && old.m != nil {
		switch {
		case old.m.Cluster != m.Cluster:
			return fmt.Errorf("cluster: a map of cluster %q: this client is in %q", m.Cluster, old.m.Cluster)
		case m.Epoch <= old.m.Epoch:
			return nil
		}
	}
	v := &view{m: m, epoch: uint64(m.Epoch)}
	for i := range m.Nodes {
		n := c.nodeLocked(m.Nodes[i].Addr)
		n.kind.Store(kindQuarry)
		v.nodes = append(v.nodes, n)
	}
	v.keep(old)
	v.noteFormer(old, time.Now())
	v.noteSplits(old)
	c.use(v)
	c.opt.Fetch.Budget.cap(m.Budget.DirectLoads)
	c.counters.mapsAdopted.Add(1)
	return nil
}

// adoptRing makes a ring of servers the view.
func (c *Client) adoptRing(servers []string, kind Ring) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := &view{ring: newRing(kind, servers)}
	for _, addr := range servers {
		v.nodes = append(v.nodes, c.nodeLocked(addr))
	}
	c.use(v)
}

// use makes v the view, and lets nodes go that are in it no more. c.mu is held.
func (c *Client) use(v *view) {
	c.view.Store(v)
	for addr, n := range c.nodes {
		if v.uses(n) {
			continue
		}
		delete(c.nodes, addr)
		c.start(func() {
			// Whoever has the old view may still be waiting for an answer.
			c.sleep(2 * c.opt.Timeout)
			n.close()
		})
	}
}
