package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/cluster/bucket"
)

// Client is a client of a cluster, of one server, or of several without a map.
// It is safe for concurrent use. A program needs one.
type Client struct {
	opt    Options
	millis func() int64         // Options.Now, in ms of Unix time
	view   atomic.Pointer[view] // nil until the first map has come

	hints   chan hint
	fetched time.Time // the last fetch of the map; keepFresh's
	mapErr  atomic.Pointer[error]

	stop  chan struct{} // closed by Close
	first chan struct{} // closed when the map was asked for once

	mu    sync.Mutex // nodes, and changes of the view
	nodes map[string]*node

	life   sync.Mutex // closed, and against goroutines that start behind Close
	closed bool
	gone   sync.WaitGroup

	firstOnce sync.Once
	counters  counters

	base      context.Context // ends with the client
	end       context.CancelFunc
	near      *nearCache
	floors    *floors
	flights   flights
	refreshes atomic.Int64 // loads ahead under way
	offers    atomic.Int64 // values on their way to other places of split keys
	retry     retries      // notices that were not heard
	numbers   [bucket.Count]atomic.Uint64
	prefixes  prefixTable
	hot       hot
	idHash    uint64 // of Options.ClientID
}

// New makes a client. It connects when it is used, or in the background.
func New(o Options) (*Client, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Client{
		opt:   o.withDefaults(),
		hints: make(chan hint, 1),
		stop:  make(chan struct{}),
		first: make(chan struct{}),
		nodes: make(map[string]*node),
	}
	c.base, c.end = context.WithCancel(context.Background())
	c.idHash = xxhash.Sum64String(c.opt.ClientID)
	f := &c.opt.Fetch
	c.flights.waitersMax, c.flights.flightsMax = int64(f.WaitersMax), int64(f.FlightsMax)
	// What is older than a floor is kept no longer than this by anyone.
	longest := c.opt.Near.Life + f.Wait + 2*f.Grant + 8*c.opt.Timeout
	for i := range o.Policies {
		longest = max(longest, longest-c.opt.Near.Life+o.Policies[i].Near)
	}
	c.floors = newFloors(longest, time.Now, func() { c.near.dropAll() })
	c.millis = systemMillis
	if o.Now != nil {
		c.millis = func() int64 { return o.Now().UnixMilli() }
	}
	c.near = newNearCache(&c.opt.Near, c.floors, c.millis, c.run, func(key string, e *nearEntry) {
		c.hot.hid(key, uint64(e.hidden.Load()))
	})
	if len(o.Servers) > 0 {
		c.adoptRing(o.Servers, o.Ring)
		c.tried()
	} else {
		c.start(c.keepFresh)
	}
	return c, nil
}

// Close ends all connections. Calls that wait fail. It returns when all
// goroutines of the client have ended, loaders among them: those see their
// context end.
func (c *Client) Close() error {
	c.life.Lock()
	if c.closed {
		c.life.Unlock()
		return nil
	}
	c.closed = true
	close(c.stop)
	c.end()
	c.life.Unlock()
	c.mu.Lock()
	nodes := c.nodes
	c.nodes = nil
	c.mu.Unlock()
	for _, n := range nodes {
		n.close()
	}
	c.gone.Wait()
	return nil
}

// start runs f in a goroutine that Close waits for. Once the client is closed
// it does nothing and returns false.
func (c *Client) start(f func()) bool {
	c.life.Lock()
	defer c.life.Unlock()
	if c.closed {
		return false
	}
	c.gone.Go(f)
	return true
}

// run runs f in a goroutine that Close waits for, or at once when the client is
// closed.
func (c *Client) run(f func()) {
	if !c.start(f) {
		f()
	}
}

// sleep waits, and is false when the client was closed meanwhile.
func (c *Client) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.stop:
		return false
	}
}

// node is the node at addr.
func (c *Client) node(addr string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodeLocked(addr)
}

func (c *Client) nodeLocked(addr string) *node {
	n := c.nodes[addr]
	if n == nil {
		n = newNode(c, addr)
		if c.nodes == nil { // closed
			n.close()
			return n
		}
		c.nodes[addr] = n
	}
	return n
}

// tried notes that the map was asked for.
func (c *Client) tried() { c.firstOnce.Do(func() { close(c.first) }) }

// current is the view to go by. The first callers wait for the first map, or
// until it has been asked for in vain.
func (c *Client) current(ctx context.Context) (*view, error) {
	if v := c.view.Load(); v != nil {
		return v, nil
	}
	t := time.NewTimer(2 * c.opt.Timeout)
	defer t.Stop()
	select {
	case <-c.first:
	case <-t.C:
	case <-c.stop:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if v := c.view.Load(); v != nil {
		return v, nil
	}
	if err := c.mapErr.Load(); err != nil && *err != nil {
		return nil, *err
	}
	return nil, ErrNoMap
}
