package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// Item is what is stored under a key.
type Item struct {
	Key   string
	Value []byte
	Flags uint32        // the server keeps them with the value
	TTL   time.Duration // 0 is for ever; less than a second counts as one
	CAS   uint64        // for CompareAndSwap: that of the Result that was read
}

// ttlRelativeMax is the longest TTL that memcached takes as one: what is longer
// it takes as a moment.
const ttlRelativeMax = 30 * 24 * time.Hour

// seconds is a TTL as the protocol has it.
func (c *Client) seconds(ttl time.Duration) int64 {
	switch {
	case ttl <= 0:
		return 0
	case ttl > ttlRelativeMax:
		return c.opt.Now().Add(ttl).Unix()
	}
	return int64((ttl + time.Second - 1) / time.Second)
}

// Get reads a key. Its Result tells a miss from a cache that could not be asked,
// and neither is an error.
func (c *Client) Get(ctx context.Context, key string) Result {
	seen := c.seen(key)
	if e, ok := c.near.get(key, seen); ok {
		return e.Result
	}
	begin := time.Now()
	near := c.opt.Near.Gets || c.hot.some.Load() && c.hot.is(key, begin)
	var m mark
	if near {
		m = c.floors.mark()
	}
	place, s := c.place(ctx, key)
	r, ok := c.readCopy(ctx, key, place, seen)
	if !ok {
		q := newRequest(meta.OpGet, meta.VerbMetaGet, place, "vfc")
		r = c.read(ctx, &q)
	}
	if r.Found() && c.behind(s, place, r.Version) {
		r = Result{}
	}
	if near {
		c.keep(key, r, m)
	}
	c.prefixes.of(key).read(&r, time.Since(begin))
	return r
}

// GetAndTouch reads a key and gives its item a new TTL.
func (c *Client) GetAndTouch(ctx context.Context, key string, ttl time.Duration) Result {
	if c.isSplit(ctx, key) {
		return unavailable(ErrSplit)
	}
	q := newRequest(meta.OpGet, meta.VerbMetaGet, key, "vfcT")
	q.TTL = c.seconds(ttl)
	return c.read(ctx, &q)
}

// read asks for a value. What is known of versions is asked of nodes that know
// of it.
func (c *Client) read(ctx context.Context, q *request) Result {
	if v, err := c.current(ctx); err == nil && v.m != nil {
		q.AddFlags("ya")
	}
	q.reads = !q.Has.Has('T')
	a, err := c.ask(ctx, q)
	if err != nil {
		return unavailable(err)
	}
	defer a.Free()
	return c.result(&a)
}

// result is what the answer to a read says.
func (c *Client) result(a *answer) Result {
	r := c.said(a)
	r.Value = slices.Clone(r.Value)
	return r
}

// said is result, with a value that is valid until a is freed.
func (c *Client) said(a *answer) (r Result) {
	rep := &a.Reply
	r.Cause = a.cause
	if rep.Has.Has('y') {
		r.Version = rep.Fresh.Version
	}
	switch rep.Code {
	case meta.CodeVA, meta.CodeHD:
		r.Outcome = Hit
		if rep.Item.Stale {
			r.Outcome = Stale
		}
		r.Value = rep.Value
		r.Flags, r.CAS, r.Deadlines = rep.Item.ClientFlags, rep.Item.CAS, rep.Fresh.Deadlines
		r.From = FromOwner
	case meta.CodeEN, meta.CodeNF:
		r.Outcome = Miss
		if rep.Fresh.Absent {
			r.Outcome, r.From = Negative, FromOwner
		}
	default:
		return unavailable(serverError(a.n.addr, rep))
	}
	if a.copy {
		r.fromCopy()
	}
	return c.inTime(r)
}

// fromCopy makes of r what a copy may say: a value that may be old, and nothing
// about what is not there.
func (r *Result) fromCopy() {
	if r.Outcome == Hit || r.Outcome == Stale {
		r.Outcome, r.From, r.CAS = Stale, FromCopy, 0
		return
	}
	*r = unavailable(r.Cause)
}

// nowMillis is the time in ms of Unix time.
func (c *Client) nowMillis() uint64 { return uint64(c.millis()) }

// inTime is r, unless its value has passed its deadline.
func (c *Client) inTime(r Result) Result {
	if r.Hard != 0 && c.nowMillis() >= r.Hard {
		c.counters.expired.Add(1)
		return unavailable(ErrExpired)
	}
	return r
}

// Set stores an item, whatever was there.
func (c *Client) Set(ctx context.Context, it *Item) error { return c.store(ctx, it, meta.ModeSet) }

// Add stores an item if there is none: ErrNotStored if there is.
func (c *Client) Add(ctx context.Context, it *Item) error { return c.store(ctx, it, meta.ModeAdd) }

// Replace stores an item if there is one: ErrNotStored if there is none.
func (c *Client) Replace(ctx context.Context, it *Item) error {
	return c.store(ctx, it, meta.ModeReplace)
}

// Append adds the item's value behind the one there: ErrNotStored if there is
// none. Flags and TTL stay.
func (c *Client) Append(ctx context.Context, it *Item) error {
	return c.store(ctx, it, meta.ModeAppend)
}

// Prepend adds the item's value in front of the one there.
func (c *Client) Prepend(ctx context.Context, it *Item) error {
	return c.store(ctx, it, meta.ModePrepend)
}

// CompareAndSwap stores an item if the one there has the CAS of it.CAS:
// ErrCASConflict if it has changed, ErrMiss if there is none.
func (c *Client) CompareAndSwap(ctx context.Context, it *Item) error {
	q := newRequest(meta.OpSet, meta.VerbMetaSet, it.Key, "FTC")
	q.CompareCAS = it.CAS
	return c.storeItem(ctx, &q, it)
}

func (c *Client) store(ctx context.Context, it *Item, mode meta.Mode) error {
	q := newRequest(meta.OpSet, meta.VerbMetaSet, it.Key, "FTM")
	q.Mode = mode
	return c.storeItem(ctx, &q, it)
}

func (c *Client) storeItem(ctx context.Context, q *request, it *Item) error {
	if c.isSplit(ctx, it.Key) {
		return ErrSplit
	}
	defer c.changed(it.Key)
	q.ClientFlags, q.TTL, q.value = it.Flags, c.seconds(it.TTL), it.Value
	return c.write(ctx, q)
}

// write sends a request that changes something, and makes an error of what it
// was answered.
func (c *Client) write(ctx context.Context, q *request) error {
	a, err := c.ask(ctx, q)
	if err != nil {
		return err
	}
	defer a.Free()
	return written(&a)
}

// written is the error that the answer to a write is.
func written(a *answer) error {
	r := &a.Reply
	switch {
	case r.Code == meta.CodeHD:
		return nil
	case r.Fresh.Reason != 0:
		return &RefusedError{Reason(r.Fresh.Reason)}
	case r.Code == meta.CodeNS:
		return ErrNotStored
	case r.Code == meta.CodeEX:
		return ErrCASConflict
	case r.Code == meta.CodeNF, r.Code == meta.CodeEN:
		return ErrMiss
	}
	return serverError(a.n.addr, r)
}

// changed drops from the near cache what a plain write of this process has
// changed. A read that is under way does not put it back.
func (c *Client) changed(key string) {
	if c.near.cache != nil {
		c.near.cache.Invalidate(key)
		c.floors.forbid(key)
	}
}

// Delete removes an item: ErrMiss if there is none.
func (c *Client) Delete(ctx context.Context, key string) error {
	if c.isSplit(ctx, key) {
		return ErrSplit
	}
	defer c.changed(key)
	q := newRequest(meta.OpDelete, meta.VerbMetaDelete, key, "")
	return c.write(ctx, &q)
}

// Touch gives an item a new TTL: ErrMiss if there is none.
func (c *Client) Touch(ctx context.Context, key string, ttl time.Duration) error {
	if c.isSplit(ctx, key) {
		return ErrSplit
	}
	q := newRequest(meta.OpGet, meta.VerbMetaGet, key, "T")
	q.TTL, q.again = c.seconds(ttl), true
	return c.write(ctx, &q)
}

// Increment adds to a number in decimal, and returns what it is then. It begins
// again at 0 after the largest of 64 bits.
func (c *Client) Increment(ctx context.Context, key string, delta uint64) (uint64, error) {
	return c.count(ctx, key, delta, false, nil)
}

// Decrement takes away from a number, down to 0, and returns what it is then.
func (c *Client) Decrement(ctx context.Context, key string, delta uint64) (uint64, error) {
	return c.count(ctx, key, delta, true, nil)
}

// firstCount is what a number that is not there begins as.
type firstCount struct {
	initial uint64
	ttl     time.Duration
}

func (c *Client) count(ctx context.Context, key string, delta uint64, down bool, first *firstCount) (uint64, error) {
	if c.isSplit(ctx, key) {
		return 0, ErrSplit
	}
	defer c.changed(key)
	q := newRequest(meta.OpArith, meta.VerbMetaArith, key, "vDM")
	q.Delta, q.Decr = delta, down
	if first != nil {
		q.AddFlags("NJ")
		q.Initial, q.VivifyTTL = first.initial, c.seconds(first.ttl)
	}
	a, err := c.ask(ctx, &q)
	if err != nil {
		return 0, err
	}
	defer a.Free()
	if a.Reply.Code != meta.CodeVA {
		return 0, written(&a)
	}
	n, ok := meta.ParseUint64(a.Reply.Value)
	if !ok {
		return 0, ErrNotANumber
	}
	return n, nil
}

// Ping asks every node whether it is there. The errors of those that are not
// are joined.
func (c *Client) Ping(ctx context.Context) error {
	v, err := c.current(ctx)
	if err != nil {
		return err
	}
	var all []error
	for _, n := range v.nodes {
		err := n.ask(ctx, func(r *meta.Reply) error {
			if r.Code != meta.CodeVersion {
				return serverError(n.addr, r)
			}
			return nil
		}, "version")
		all = append(all, err)
	}
	return errors.Join(all...)
}
