package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/cluster/link"
	"github.com/quarrycache/quarry/meta"
)

// multiBatch is how many keys of one GetMulti are under way at once.
const multiBatch = 1024

// GetMulti reads many keys at once: those of one node go there in one batch. It
// returns a Result for each key, also for those that missed. It takes no longer
// than the slowest node, and what one node fails to answer says nothing about
// the keys of others. Values that were read together may share their memory, 16
// KiB of it at most: whoever keeps one of them for long should copy it.
func (c *Client) GetMulti(ctx context.Context, keys []string) map[string]Result {
	results := make(map[string]Result, len(keys))
	list := make([]multiKey, 0, min(len(keys), multiBatch))
	for _, key := range keys {
		if _, twice := results[key]; twice {
			continue
		}
		if e, ok := c.near.get(key, c.seen(key)); ok {
			results[key] = e.Result
			continue
		}
		results[key] = Result{}
		list = append(list, c.multiKey(ctx, key))
		if len(list) == multiBatch {
			c.getBatch(ctx, list, results)
			list = list[:0]
		}
	}
	if len(list) > 0 {
		c.getBatch(ctx, list, results)
	}
	return results
}

// multiKey is one key of a GetMulti.
type multiKey struct {
	name  string // the key
	key   string // that it is asked for by: one of the places of a split key
	split *split
	hash  uint64
	place place
	to    *node      // that is asked
	call  *link.Call // nil: it was not sent
	err   error      // why there is no answer; nil when the key has moved
	done  bool       // it has its result
}

// values is memory for the values of a batch, in few blocks.
type values struct {
	block []byte
	left  int // values that may come
}

const (
	valuesBlockBytes = 16 << 10 // and so what one value that is kept can hold
	valueTogetherMax = 2 << 10  // longer ones have their own
)

// keep is a copy of a value.
func (m *values) keep(value []byte) []byte {
	m.left--
	if len(value) == 0 || len(value) > valueTogetherMax {
		return slices.Clone(value)
	}
	if cap(m.block)-len(m.block) < len(value) {
		// As much as it would be if all were as long as this one.
		m.block = make([]byte, 0, max(min(len(value)*(m.left+1), valuesBlockBytes), len(value)))
	}
	at := len(m.block)
	m.block = append(m.block, value...)
	return m.block[at:len(m.block):len(m.block)]
}

func (c *Client) multiKey(ctx context.Context, name string) multiKey {
	key, s := c.place(ctx, name)
	return multiKey{name: name, key: key, split: s, hash: xxhash.Sum64String(key)}
}

// multiRequest is the request for any key, without it.
func multiRequest(v *view) (q request) {
	q.Op, q.Verb, q.reads = meta.OpGet, meta.VerbMetaGet, true
	q.AddFlags("vfc")
	if v.m != nil {
		q.AddFlags("ya")
	}
	return q
}

// getBatch asks for the keys of a list: first the owners, all at once; then, for
// keys that have moved or whose owner did not answer, whoever is to be asked
// instead, all at once; and what then is left, key by key.
func (c *Client) getBatch(ctx context.Context, list []multiKey, results map[string]Result) {
	begin := time.Now()
	v, err := c.current(ctx)
	if err != nil {
		for i := range list {
			results[list[i].name] = unavailable(err)
		}
		return
	}
	for i := range list {
		k := &list[i]
		k.place = v.of(k.key, k.hash)
		k.to = k.place.owner
	}
	list = c.round(ctx, v, list, begin.Add(c.opt.Timeout), results)
	if len(list) > 0 && ctx.Err() == nil {
		v = c.view.Load()
		for i := range list {
			list[i].elsewhere(v)
		}
		list = c.round(ctx, v, list, begin.Add(2*c.opt.Timeout), results)
	}
	for i := range list {
		k := &list[i]
		if k.err == nil && ctx.Err() == nil {
			q := multiRequest(v)
			q.key, q.hash = k.key, k.hash
			r := c.read(ctx, &q)
			if r.Found() && c.behind(k.split, k.key, r.Version) {
				r = Result{}
			}
			results[k.name] = r
		} else {
			fill(&k.err, ErrMoved)
			results[k.name] = unavailable(k.err)
		}
		r := results[k.name]
		c.prefixes.of(k.name).read(&r, time.Since(begin))
	}
}

// elsewhere decides whom to ask for a key that the first one did not answer.
func (k *multiKey) elsewhere(v *view) {
	failed := k.to
	k.place = v.of(k.key, k.hash)
	k.to = k.place.owner
	if k.err == nil || k.to != failed || errors.Is(k.err, ErrKey) {
		return
	}
	k.to = nil
	for _, i := range v.copies(k.place.bucket) {
		if n := v.nodes[i]; n != failed && !n.shut.Load() {
			k.to = n
			return
		}
	}
}

// round asks for all keys, each node for its keys in one go, and returns those
// that have no result yet, at the front of list.
func (c *Client) round(ctx context.Context, v *view, list []multiKey, deadline time.Time, results map[string]Result) []multiKey {
	begin := time.Now()
	slices.SortFunc(list, func(a, b multiKey) int { return compareNodes(a.to, b.to) })
	for from := 0; from < len(list); {
		upTo := from + 1
		for upTo < len(list) && list[upTo].to == list[from].to {
			upTo++
		}
		c.sendAll(v, list[from:upTo])
		from = upTo
	}
	// A node answers in order: when its last answer is there, all are, and this
	// goroutine is woken once for each node.
	mem := values{left: len(list)}
	var took time.Duration
	var asked, failed *node // failed is told to its breaker once, not for every key
	for i := len(list) - 1; i >= 0; i-- {
		k := &list[i]
		if k.call == nil {
			continue
		}
		mine, err := k.call.WaitUntil(ctx, deadline)
		if err == nil || k.to != failed {
			k.to.heard(err)
		}
		if err != nil {
			failed = k.to
		}
		if k.to != asked {
			asked, took = k.to, time.Since(begin)
		}
		k.done = c.readOne(v, took, k, mine, err, &mem, results)
	}
	return slices.DeleteFunc(list, func(k multiKey) bool { return k.done })
}

// sendAll sends the requests for keys that go to one node.
func (c *Client) sendAll(v *view, keys []multiKey) {
	n := keys[0].to
	if n == nil {
		return // their err says why
	}
	calls := make([]*link.Call, 0, len(keys))
	q := multiRequest(v)
	for i := range keys {
		k := &keys[i]
		q.key, q.hash = k.key, k.hash
		before := k.err
		if k.call, k.err = q.call(k.place, n != k.place.owner); k.err == nil {
			calls = append(calls, k.call)
			if n != k.place.owner {
				k.err = before // the cause of what the copy answers
			}
		}
	}
	if len(calls) == 0 {
		return
	}
	if err := n.submit(n.linkNext(), calls...); err != nil {
		for i := range keys {
			k := &keys[i]
			if k.call != nil {
				k.call.Free()
				k.call, k.err = nil, c.closedErr(err)
			}
		}
	}
}

// readOne makes the answer for a key a result. It is false if there is none.
func (c *Client) readOne(v *view, took time.Duration, k *multiKey, mine bool, err error, mem *values, results map[string]Result) bool {
	a := answer{Call: k.call, n: k.to, copy: k.to != k.place.owner, cause: k.err}
	k.call = nil
	if err != nil {
		if mine {
			a.Free()
		}
		k.err = c.closedErr(err)
		return false
	}
	defer a.Free()
	if m, moved := a.Reply.Moved(); moved {
		c.counters.moved.Add(1)
		if v.m != nil && m.Bucket == k.place.bucket && v.patch(m.Bucket, m.Epoch, c.node(m.Addr)) {
			c.hinted(hint{m.Epoch, k.to})
		}
		if a.copy {
			return false
		}
		k.err = nil
		return false
	}
	if a.Reply.Fresh.Epoch > v.epoch {
		c.hinted(hint{a.Reply.Fresh.Epoch, k.to})
	}
	r := c.said(&a)
	r.Value = mem.keep(r.Value)
	if r.Found() && c.behind(k.split, k.key, r.Version) {
		r = Result{}
	}
	results[k.name] = r
	c.prefixes.of(k.name).read(&r, took)
	return true
}

// compareNodes orders keys by the node that is asked.
func compareNodes(a, b *node) int {
	switch {
	case a == b:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	case a.addr < b.addr:
		return -1
	}
	return 1
}
