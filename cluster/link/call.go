package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

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
	// errUnsent is ErrBroken before anything was sent.
	errUnsent = fmt.Errorf("%w before the request was sent", ErrBroken)
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

	// Reply is the answer, once Do has returned no error. Its slices are
	// valid until Free.
	Reply meta.Reply

	text  []byte // of the reply
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
	c.Value, c.err, c.Reply = nil, nil, meta.Reply{}
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
		c.text = append(c.text[:0], text...)
	}
	if !c.state.CompareAndSwap(waiting, ended) {
		c.free() // its caller has left just now
		return
	}
	c.done <- struct{}{}
}

// leave ends a call that nobody waits for any more. It is false when the call
// has ended meanwhile.
func (c *Call) leave() bool { return c.state.CompareAndSwap(waiting, abandoned) }
