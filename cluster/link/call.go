package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// Why a call fails. What a server answers is never one of them.
var (
	// ErrDial is wrapped by the errors of connections that could not be made.
	ErrDial = errors.New("link: cannot connect")
	// ErrBroken is wrapped by the errors of calls whose connection ended before
	// their reply came: whether the request was executed is not known.
	ErrBroken = errors.New("link: connection lost")
	// ErrTimeout says that no reply came in time, which is ErrBroken otherwise.
	ErrTimeout = errors.New("link: no reply in time")
	// ErrUnsent is ErrBroken before anything was sent.
	ErrUnsent = fmt.Errorf("%w before the request was sent", ErrBroken)
	// ErrBusy says that too many calls wait already.
	ErrBusy = errors.New("link: too many calls wait")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("link: closed")
)

// Call is one request and its reply. Take one with NewCall, fill Request, Do it,
// read Reply, and give it back with Free.
type Call struct {
	// Request is what to ask. Its slices must stay as they are until Do
	// returns. A set's block is Value.
	Request meta.Request
	Value   []byte

	// Lines says that the reply is lines of statistics: what STAT lines there
	// are is in Raw, and Reply is the line that ends them.
	Lines bool

	// Reply is the answer, once Do has returned no error. Its slices are
	// valid until Free.
	Reply meta.Reply

	key   []byte // see SetKey
	text  []byte // of the reply
	last  int    // where its last line begins
	timer *time.Timer
	err   error
	done  chan struct{} // one token when it has ended
	state atomic.Uint32
}

// The states of a call that was accepted.
const (
	waiting   uint32 = iota
	ended            // the reply or the error is there
	abandoned        // its caller has left
)

// replyKeepBytes is the most memory for replies that a call in the pool keeps.
const replyKeepBytes = 64 << 10

// linesMaxBytes bounds the text of a reply of many lines; what is beyond is
// dropped.
const linesMaxBytes = 4 << 20

var calls = sync.Pool{New: func() any { return &Call{done: make(chan struct{}, 1)} }}

// Raw is the reply as it came, with the value behind it. It is valid as long as
// Reply is.
func (c *Call) Raw() []byte { return c.text }

// NewCall is an empty call.
func NewCall() *Call {
	c := calls.Get().(*Call)
	c.Request.Reset()
	return c
}

// SetKey makes a copy of key the key of the request, in base64 if it cannot be
// sent as it is. It is false if the key is too long for either.
func (c *Call) SetKey(key string) (ok bool) {
	c.key = append(c.key[:0], key...)
	c.Request.Key, c.Request.Binary = c.key, false
	if meta.ValidTextKey(c.key) {
		return true
	}
	c.Request.Binary = true
	return len(key) > 0 && len(key) <= meta.BinaryKeyMax
}

// Free gives a call back. It must not be used any more. A call that Do has
// left because its context ended is given back by the link.
func (c *Call) Free() {
	if c.state.Load() == abandoned {
		return
	}
	c.free()
}

func (c *Call) free() {
	if cap(c.text) > replyKeepBytes {
		c.text = nil
	}
	c.Value, c.err, c.Reply, c.Lines, c.last = nil, nil, meta.Reply{}, false, 0
	c.text = c.text[:0]
	c.state.Store(waiting)
	calls.Put(c)
}

// end gives the call its reply, which is text, or its error.
func (c *Call) end(text []byte, err error) {
	if c.state.Load() == abandoned {
		c.free()
		return
	}
	c.err = err
	if err == nil {
		c.last = len(c.text)
		c.text = append(c.text, text...)
	}
	if !c.state.CompareAndSwap(waiting, ended) {
		c.free() // its caller has left just now
		return
	}
	c.done <- struct{}{}
}

// line adds a line to the text of a reply of many lines.
func (c *Call) line(text []byte) {
	if c.state.Load() == waiting && len(c.text)+len(text) <= linesMaxBytes {
		c.text = append(c.text, text...)
	}
}

// WaitUntil is Wait with a deadline, at which it returns ErrTimeout. mine is
// false when the call is not the caller's any more, and must not be touched.
func (c *Call) WaitUntil(ctx context.Context, deadline time.Time) (mine bool, err error) {
	select {
	case <-c.done: // of a batch, most are there when the first one is
		return true, c.read()
	default:
	}
	if c.timer == nil {
		c.timer = time.NewTimer(time.Until(deadline))
	} else {
		c.timer.Reset(time.Until(deadline))
	}
	select {
	case <-c.done:
		c.timer.Stop()
		return true, c.read()
	case <-c.timer.C:
		err = ErrTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.timer.Stop()
	if c.leave() {
		return false, err
	}
	<-c.done
	return true, c.read()
}

// leave ends a call that nobody waits for any more. It is false when the call
// has ended meanwhile.
func (c *Call) leave() bool { return c.state.CompareAndSwap(waiting, abandoned) }
