package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
)

// A notice says that the source has a newer version of a key. It goes to the
// owner, which keeps older fills out from then on; to the nodes with copies and
// to all places of a split key; for a while after a change of the map to the
// owner before, too; and to what this process has itself. What fails is tried
// again.

// Invalidation is what became of a notice.
type Invalidation struct {
	Version uint64 // that older values are kept out of
	Places  []Notified
}

// Notified is one place that a notice went to.
type Notified struct {
	Key  string // of a split key: that of the place
	Addr string
	Copy bool  // the node has a copy, or owned the key before
	Err  error // nil: it has heard. Else it is tried again in the background
}

// Err is nil if the owners of all places have heard. Copies may be behind, and
// say so with every answer.
func (i *Invalidation) Err() error {
	var all []error
	for _, p := range i.Places {
		if !p.Copy && p.Err != nil {
			all = append(all, fmt.Errorf("%s at %s: %w", p.Key, p.Addr, p.Err))
		}
	}
	return errors.Join(all...)
}

const (
	noticesAtOnce = 32 // places of one Invalidate that are told at once
	retriesMax    = 4096

	// A notice is tried again after retryMin, then after twice as long each
	// time, retryMax at most, and given up when what it keeps out has ended.
	retryMin  = 100 * time.Millisecond
	retryMax  = 5 * time.Second
	retryLife = time.Minute
)

// Invalidate says that the source has version of a key, or a later one: call it
// after the change is committed. For a source without versions version is 0;
// what it stands for is the present moment, plus Skew.
//
// When it returns, this process serves nothing older from its near cache. It
// may be called as often as one likes; what is not news changes nothing.
func (c *Client) Invalidate(ctx context.Context, key string, version uint64) Invalidation {
	if version == 0 {
		version = c.nowMillis() + uint64(c.opt.Fetch.Skew.Milliseconds())
	}
	c.floors.raise(key, version)
	c.near.dropBelow(key, version)
	n := Invalidation{Version: version}
	v, err := c.current(ctx)
	if err != nil {
		n.Places = []Notified{{Key: key, Err: err}}
		c.retry.add(c, notice{key: key, version: version})
		return n
	}
	list := c.noticesFor(v, key, version)
	n.Places = make([]Notified, len(list))
	var wg sync.WaitGroup
	tokens := make(chan struct{}, noticesAtOnce)
	for i := range list {
		tell := func() {
			p := &list[i]
			n.Places[i] = Notified{p.key, p.addr, p.copy, c.tell(ctx, p)}
		}
		if len(list) == 1 {
			tell()
			break
		}
		tokens <- struct{}{}
		wg.Go(func() {
			tell()
			<-tokens
		})
	}
	wg.Wait()
	for i := range list {
		if n.Places[i].Err != nil {
			c.retry.add(c, list[i])
		}
	}
	return n
}

// InvalidateSince is Invalidate for a change that was committed at a moment: how
// long it took until all had heard is in Stats.
func (c *Client) InvalidateSince(ctx context.Context, key string, version uint64, committed time.Time) Invalidation {
	n := c.Invalidate(ctx, key, version)
	if n.Err() == nil {
		c.prefixes.of(key).lag.add(c.opt.Now().Sub(committed))
	}
	return n
}

// notice is a notice to one place.
type notice struct {
	key     string
	version uint64
	addr    string // of the node, where it is not whoever owns the key
	copy    bool
	number  uint64 // in the bucket's numbering, 0 none yet

	until time.Time // it is tried again
	after time.Duration
	next  time.Time
}

// noticesFor are the notices of a key, to all places where it may be.
func (c *Client) noticesFor(v *view, key string, version uint64) []notice {
	list := c.noticesOf(v, nil, key, version)
	if s := v.split(key); s != nil {
		for i := range max(s.n, s.former) {
			list = c.noticesOf(v, list, splitKey(key, i), version)
		}
	}
	return list
}

// noticesOf appends the notices of one place: its owner, and the others.
func (c *Client) noticesOf(v *view, list []notice, key string, version uint64) []notice {
	hash := xxhash.Sum64String(key)
	p := v.of(key, hash)
	list = append(list, notice{key: key, version: version, addr: p.owner.addr, number: c.number(p.bucket)})
	for _, i := range v.copies(p.bucket) {
		if v.nodes[i] != p.owner {
			list = append(list, notice{key: key, version: version, addr: v.nodes[i].addr, copy: true})
		}
	}
	if n := v.formerOwner(p.bucket); n != nil && n != p.owner {
		list = append(list, notice{key: key, version: version, addr: n.addr, copy: true})
	}
	return list
}

// number is the next one of this publisher's notices of a bucket. A gap in them
// tells whoever keeps account that it has missed something (S1-60).
func (c *Client) number(b int) uint64 { return c.numbers[b].Add(1) }

// tell sends a notice.
func (c *Client) tell(ctx context.Context, n *notice) error {
	versions, err := c.knowsVersions(ctx, n.key)
	if err != nil {
		return err
	}
	if !versions {
		return c.stockInvalidate(ctx, n.key)
	}
	q := newRequest(meta.OpDelete, meta.VerbMetaDelete, n.key, "IY")
	q.Fresh.Version = n.version
	q.again = true
	if n.copy {
		return c.tellCopy(ctx, &q, n)
	}
	q.Route = meta.Route{Numbered: true, Stream: c.opt.Publisher, Sequence: n.number}
	q.AddFlag('L')
	return c.write(ctx, &q)
}

// tellCopy sends a notice to a node that does not own the key, and needs to hear
// it only if it has a copy.
func (c *Client) tellCopy(ctx context.Context, q *request, n *notice) error {
	v, err := c.current(ctx)
	if err != nil {
		return err
	}
	p := v.of(q.key, q.hash)
	to := c.node(n.addr)
	if !v.uses(to) {
		return nil // it has left the cluster
	}
	a, err := c.askNode(ctx, q, to, p, time.Now().Add(c.opt.Timeout))
	if err != nil {
		return err
	}
	defer a.Free()
	if _, moved := a.Reply.Moved(); moved {
		return nil // it has no copy
	}
	return written(&a)
}

// retries are notices that have not been heard, tried again until they are, or
// until what they keep out has ended.
type retries struct {
	mu      sync.Mutex
	list    []notice
	running bool

	again, dropped atomic.Uint64
}

// add has n tried again. When there are too many, the oldest goes.
func (r *retries) add(c *Client, n notice) {
	n.until = time.Now().Add(max(retryLife, c.opt.Fetch.Life))
	n.after = retryMin
	n.next = time.Now().Add(n.after)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		if o := &r.list[i]; o.key == n.key && o.addr == n.addr && o.copy == n.copy {
			o.version, o.until = max(o.version, n.version), n.until
			return
		}
	}
	if len(r.list) == retriesMax {
		r.list = append(r.list[:0], r.list[1:]...)
		r.dropped.Add(1)
	}
	r.list = append(r.list, n)
	if !r.running {
		r.running = c.start(func() { r.run(c) })
	}
}

// run tries again what is due, until nothing is left.
func (r *retries) run(c *Client) {
	for c.sleep(retryMin/2 + rand.N(retryMin/2)) {
		for _, n := range r.due(time.Now()) {
			r.again.Add(1)
			ctx, cancel := context.WithTimeout(c.base, 4*c.opt.Timeout)
			err := c.tell(ctx, &n)
			cancel()
			if err != nil {
				n.after = min(2*n.after, retryMax)
				n.next = time.Now().Add(n.after)
				r.mu.Lock()
				r.list = append(r.list, n)
				r.mu.Unlock()
			}
		}
		r.mu.Lock()
		if len(r.list) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
	}
}

// due takes what is to be tried now out of the list, and drops what has no
// point any more.
func (r *retries) due(now time.Time) (due []notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keep := r.list[:0]
	for _, n := range r.list {
		switch {
		case now.After(n.until):
			r.dropped.Add(1)
		case now.Before(n.next):
			keep = append(keep, n)
		default:
			due = append(due, n)
		}
	}
	clear(r.list[len(keep):])
	r.list = keep
	return due
}

// former are the owners that buckets had before the map changed, for a while.
type former struct {
	owner [bucket.Count]*node
	until [bucket.Count]time.Time
}

// formerLife is how long the owner before still hears notices: until no client
// reads by the old map, and no load from then is under way.
const formerLife = 30 * time.Second

// formerOwner is the node that owned a bucket a short time ago, nil if there is
// none.
func (v *view) formerOwner(b int) *node {
	if v.former == nil || v.former.owner[b] == nil || time.Now().After(v.former.until[b]) {
		return nil
	}
	return v.former.owner[b]
}

// noteFormer takes down who owned what in old.
func (v *view) noteFormer(old *view, now time.Time) {
	if old == nil || old.m == nil {
		return
	}
	f := new(former)
	some := false
	for b := range v.m.Buckets {
		was, is := old.nodes[old.m.Buckets[b].Owner], v.nodes[v.m.Buckets[b].Owner]
		switch n := old.formerOwner(b); {
		case was != is:
			f.owner[b], f.until[b] = was, now.Add(formerLife)
		case n != nil:
			f.owner[b], f.until[b] = n, old.former.until[b]
		default:
			continue
		}
		some = true
	}
	if some {
		v.former = f
	}
}
