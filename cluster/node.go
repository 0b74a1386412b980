package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/cluster/link"
	"github.com/quarrycache/quarry/meta"
	"github.com/sony/gobreaker/v2"
)

// node is one server: a few links, and a breaker over them.
type node struct {
	c     *Client
	addr  string
	links []*link.Link

	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	shut    atomic.Bool // the breaker is not closed
	failing atomic.Bool // the last thing that the breaker was told is a failure

	kind atomic.Uint32 // see knowsVersions
	turn atomic.Uint32 // of links, for batches

	requests, failures, rejected, opened atomic.Uint64

	others atomic.Uint64 // requests that read no key
}

// What a node is known to be.
const (
	kindUnknown uint32 = iota
	kindQuarry         // it knows versions, deadlines and grants
	kindStock          // memcached
)

func newNode(c *Client, addr string) *node {
	o := &c.opt
	n := &node{c: c, addr: addr}
	for range o.Connections {
		n.links = append(n.links, link.New(link.Config{
			Addr: addr, Timeout: o.Timeout, TLS: o.TLS, User: o.User, Password: o.Password, DialFunc: o.DialFunc,
		}))
	}
	n.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:    addr,
		Timeout: o.BreakerPause,
		ReadyToTrip: func(k gobreaker.Counts) bool {
			return int(k.ConsecutiveFailures) >= o.BreakerFailures
		},
		OnStateChange: n.changed,
	})
	return n
}

// changed follows the breaker. While it is not closed only the probe asks the
// node anything, so that no caller waits for a node that does not answer.
func (n *node) changed(_ string, from, to gobreaker.State) {
	n.shut.Store(to != gobreaker.StateClosed)
	if from == gobreaker.StateClosed {
		n.opened.Add(1)
		n.c.start(n.probe)
	}
}

// probe asks a node that was left alone whether it answers again, until it
// does.
func (n *node) probe() {
	for n.shut.Load() && n.c.sleep(n.c.opt.BreakerPause+time.Millisecond) {
		done, err := n.breaker.Allow()
		if err != nil {
			continue
		}
		call := link.NewCall()
		call.Request.Op, call.Request.Verb = meta.OpNoop, meta.VerbMetaNoop
		mine, err := n.send(context.Background(), n.links[0], call, time.Now().Add(n.c.opt.Timeout))
		if mine {
			call.Free()
		}
		done(err)
	}
}

// do sends the calls in one go over one link. It fails at once, and nothing was
// sent, when the node is left alone or the link takes no more. After it, each
// call is to be waited for.
func (n *node) submit(l *link.Link, calls ...*link.Call) error {
	if n.shut.Load() {
		n.rejected.Add(uint64(len(calls)))
		return ErrBreaker
	}
	n.requests.Add(uint64(len(calls)))
	err := l.Send(calls...)
	if err != nil {
		n.heard(err)
	}
	return err
}

// submitOther is submit of a request that reads no key.
func (n *node) submitOther(l *link.Link, call *link.Call) error {
	err := n.submit(l, call)
	if !errors.Is(err, ErrBreaker) {
		n.others.Add(1)
	}
	return err
}

// reads are the requests that read keys. What is done less is counted: a read
// costs nothing more.
func (n *node) reads() uint64 {
	others := n.others.Load()
	return n.requests.Load() - others
}

// send sends one call and waits for its reply. mine is false when the call is
// the link's now.
func (n *node) send(ctx context.Context, l *link.Link, call *link.Call, deadline time.Time) (mine bool, err error) {
	if err := l.Send(call); err != nil {
		return true, err
	}
	return call.WaitUntil(ctx, deadline)
}

// wait waits for a call that was submitted, and tells the breaker.
func (n *node) wait(ctx context.Context, call *link.Call, deadline time.Time) (mine bool, err error) {
	mine, err = call.WaitUntil(ctx, deadline)
	n.heard(err)
	return mine, err
}

// heard tells the breaker how a call went. As long as all goes well it has
// nothing to be told.
func (n *node) heard(err error) {
	if err == nil {
		if !n.failing.Load() || !n.failing.CompareAndSwap(true, false) {
			return
		}
	} else {
		if !failure(err) {
			return
		}
		n.failures.Add(1)
		n.failing.Store(true)
	}
	if n.shut.Load() {
		return
	}
	if done, allowed := n.breaker.Allow(); allowed == nil {
		done(err)
	}
}

// failure reports whether err says that the node does not do its work. A caller
// that does not want to wait says nothing about it.
func failure(err error) bool {
	return errors.Is(err, link.ErrDial) || errors.Is(err, link.ErrBroken) || errors.Is(err, link.ErrTimeout)
}

// linkOf is the link for a key: the same one for the same key, so that its
// requests stay in order.
func (n *node) linkOf(hash uint64) *link.Link { return n.links[int(hash&0xffff)%len(n.links)] }

// linkNext is the link for the next batch.
func (n *node) linkNext() *link.Link { return n.links[int(n.turn.Add(1))%len(n.links)] }

// knowsVersions reports whether the node is one that knows versions, deadlines
// and grants. A node of a cluster is; others are asked once.
func (n *node) knowsVersions(ctx context.Context) (bool, error) {
	if k := n.kind.Load(); k != kindUnknown {
		return k == kindQuarry, nil
	}
	call := link.NewCall()
	call.Lines = true
	words(&call.Request, meta.OpStats, "stats", "freshness")
	if err := n.submitOther(n.links[0], call); err != nil {
		return false, err
	}
	mine, err := n.wait(ctx, call, time.Now().Add(n.c.opt.Timeout))
	if !mine {
		return false, err
	}
	defer call.Free()
	switch {
	case err != nil:
		return false, err
	case call.Reply.Code == meta.CodeEnd && len(call.Raw()) > len("END\r\n"):
		n.kind.Store(kindQuarry)
		return true, nil
	}
	n.kind.Store(kindStock)
	return false, nil
}

// words makes r a command without a key.
func words(r *meta.Request, op meta.Op, args ...string) {
	r.Op, r.Verb = op, meta.VerbOther
	for i, a := range args {
		r.Args[i] = []byte(a)
	}
	r.NArgs = len(args)
}

// ask sends a command without a key, and gives its reply to read.
func (n *node) ask(ctx context.Context, read func(*meta.Reply) error, args ...string) error {
	call := link.NewCall()
	words(&call.Request, meta.OpConfig, args...)
	if err := n.submitOther(n.links[0], call); err != nil {
		call.Free()
		return err
	}
	mine, err := n.wait(ctx, call, time.Now().Add(n.c.opt.Timeout))
	if !mine {
		return err
	}
	defer call.Free()
	if err != nil {
		return err
	}
	return read(&call.Reply)
}

// close ends the links.
func (n *node) close() {
	for _, l := range n.links {
		l.Close()
	}
}
