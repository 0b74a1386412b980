package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/cluster/link"
	"github.com/quarrycache/quarry/meta"
)

// A request goes to the owner of its key. When that is another node by now, the
// answer says which, and the request follows; when it cannot be asked, a read
// goes to a copy.

const (
	hopsMax     = 6                      // nodes that one request is sent to, one after the other
	hopsTimeMax = 100 * time.Millisecond // after which it follows no further, but for the first time

	// behindPause is how long to wait for a node that has not got the map yet
	// by which the key is its own.
	behindPause = 5 * time.Millisecond
)

// request is what is asked of a key. Its meta.Request has everything but the
// key and P.
type request struct {
	meta.Request
	key   string
	hash  uint64
	value []byte

	reads bool // it changes nothing: it may be sent again, and a copy may answer
	again bool // it may be sent again
}

// newRequest is a request with a meta verb.
func newRequest(op meta.Op, verb meta.Verb, key string, flags string) (q request) {
	q.Op, q.Verb = op, verb
	q.AddFlags(flags)
	q.key, q.hash = key, xxhash.Sum64String(key)
	return q
}

// call is a call for q, by the map of an epoch.
func (q *request) call(p place, asCopy bool) (*link.Call, error) {
	call := link.NewCall()
	call.Request = q.Request
	if !call.SetKey(q.key) {
		call.Free()
		return nil, ErrKey
	}
	call.Value = q.value
	if p.mapped {
		if asCopy {
			call.Request.DropFlag('G') // a copy gives none
		}
		call.Request.AddFlag('P')
		t := &call.Request.Route
		t.Known, t.Epoch, t.Copy = true, p.epoch, asCopy
	}
	return call, nil
}

// answer is a reply, and who gave it. Free it.
type answer struct {
	*link.Call
	n     *node
	copy  bool
	cause error // why the owner did not answer
}

// Free gives the call back, if there is one.
func (a *answer) Free() {
	if a.Call != nil {
		a.Call.Free()
		a.Call = nil
	}
}

// ask sends q to where its key is and returns the answer, which is not MOVED
// and no error of the server's.
func (c *Client) ask(ctx context.Context, q *request) (a answer, err error) {
	begin := time.Now()
	v, err := c.current(ctx)
	if err != nil {
		return a, err
	}
	broken := 0
	for hop := 1; ; hop++ {
		p := v.of(q.key, q.hash)
		a, err = c.askNode(ctx, q, p.owner, p, begin.Add(c.opt.Timeout))
		if err == nil {
			m, moved := a.Reply.Moved()
			if !moved {
				return a, c.heed(q, &a, v)
			}
			a.Free()
			if hop == hopsMax || hop > 1 && time.Since(begin) > hopsTimeMax {
				c.counters.lost.Add(1)
				return a, ErrMoved
			}
			if err := c.moved(ctx, v, m, p); err != nil {
				return a, err
			}
			v = c.view.Load()
			continue
		}
		if broken == 0 && ctx.Err() == nil && q.mayRepeat(err) {
			broken++
			v = c.view.Load()
			continue
		}
		if !q.reads || ctx.Err() != nil || errors.Is(err, ErrKey) {
			return a, err
		}
		return c.askCopies(ctx, q, v, p, begin.Add(2*c.opt.Timeout), err)
	}
}

// mayRepeat reports whether q, whose connection was lost, may be sent once
// more.
func (q *request) mayRepeat(err error) bool {
	switch {
	case errors.Is(err, link.ErrUnsent), errors.Is(err, link.ErrClosed):
		return true // a node that has left the map is closed
	case errors.Is(err, link.ErrTimeout):
		return false
	}
	return errors.Is(err, link.ErrBroken) && (q.reads || q.again)
}

// askNode sends q to one node.
func (c *Client) askNode(ctx context.Context, q *request, n *node, p place, deadline time.Time) (answer, error) {
	asCopy := n != p.owner
	call, err := q.call(p, asCopy)
	if err != nil {
		return answer{}, err
	}
	if q.reads {
		err = n.submit(n.linkOf(q.hash), call)
	} else {
		err = n.submitOther(n.linkOf(q.hash), call)
	}
	if err != nil {
		call.Free()
		return answer{}, c.closedErr(err)
	}
	mine, err := n.wait(ctx, call, deadline)
	if err != nil {
		if mine {
			call.Free()
		}
		return answer{}, c.closedErr(err)
	}
	return answer{Call: call, n: n, copy: asCopy}, nil
}

// closedErr is ErrClosed for what a link of a closed client says.
func (c *Client) closedErr(err error) error {
	if errors.Is(err, link.ErrClosed) {
		select {
		case <-c.stop:
			return ErrClosed
		default:
		}
	}
	return err
}

// askCopies reads from a node with a copy, as the owner did not answer because
// of cause.
func (c *Client) askCopies(ctx context.Context, q *request, v *view, p place, deadline time.Time, cause error) (answer, error) {
	for _, i := range v.copies(p.bucket) {
		if v.nodes[i] == p.owner || time.Now().After(deadline) {
			continue
		}
		a, err := c.askNode(ctx, q, v.nodes[i], p, deadline)
		if err != nil {
			continue
		}
		if _, moved := a.Reply.Moved(); moved || a.Reply.Code.IsError() {
			a.Free()
			continue
		}
		c.counters.copyReads.Add(1)
		a.cause = cause
		return a, nil
	}
	return answer{}, cause
}

// moved heeds MOVED, which node p.owner has answered.
func (c *Client) moved(ctx context.Context, v *view, m meta.Moved, p place) error {
	c.counters.moved.Add(1)
	if v.m == nil {
		// A server that was one of its own has become a node.
		c.hinted(hint{max(m.Epoch, 1), p.owner})
		return c.pause(ctx, behindPause)
	}
	if m.Bucket != p.bucket {
		return ErrMoved
	}
	if m.Epoch > p.epoch {
		if v.patch(m.Bucket, m.Epoch, c.node(m.Addr)) {
			c.hinted(hint{m.Epoch, p.owner})
		}
		return nil
	}
	// The node has an older map than we have, or somebody else has patched
	// the bucket meanwhile.
	if c.view.Load().of("", uint64(p.bucket)<<52).epoch != p.epoch {
		return nil
	}
	return c.pause(ctx, behindPause+rand.N(behindPause))
}

// pause waits for d, or until ctx ends.
func (c *Client) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stop:
		return ErrClosed
	}
}

// heed takes what an answer says beside what was asked for. An error that the
// server answered becomes one, and a is freed.
func (c *Client) heed(q *request, a *answer, v *view) error {
	r := &a.Reply
	if r.Fresh.Epoch > v.epoch {
		c.hinted(hint{r.Fresh.Epoch, a.n})
	}
	if r.Fresh.Copies > 0 {
		c.hot.hint(q.key, int(r.Fresh.Copies), time.Now())
	}
	if !r.Code.IsError() && r.Code != meta.CodeText {
		return nil
	}
	err := serverError(a.n.addr, r)
	a.Free()
	return err
}

// serverError is the error that a reply is.
func serverError(addr string, r *meta.Reply) error {
	if r.Code == meta.CodeClientError && string(r.Text) == notANumber {
		return ErrNotANumber
	}
	if r.Code == meta.CodeServerError && string(r.Text) == keyIsSplit {
		return ErrSplit // by a map that we have not got yet
	}
	return &ServerError{addr, r.Code, string(r.Text)}
}

// Lines of servers that have errors of their own here.
const (
	notANumber = "cannot increment or decrement non-numeric value"
	keyIsSplit = "key is split"
)
