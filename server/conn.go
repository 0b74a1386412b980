package server

import (
	"math"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/quarrycache/quarry/server/store"
)

// transport is the way a connection came.
type transport uint8

const (
	transportTCP transport = iota
	transportUnix
	transportUDP
)

// connState is what a connection is doing, as `stats conns` shows it. Source:
// memcached's enum conn_states; those that Quarry is never in are left out.
type connState uint32

const (
	connRead     connState = iota // waits for a request
	connParseCmd                  // executes one
	connNread                     // in the middle of a value
	connSwallow                   // throws a data block away
	connMwrite                    // has replies that the peer does not take
	connClosing
	connWatch // is told what happens
)

// closeReason is why a connection ended. Source: memcached's enum
// close_reasons, as `watch connevents` shows it.
type closeReason uint8

const (
	closeUnknown  closeReason = iota // not closed yet
	closeNormal                      // the peer closed, or said quit
	closeError                       // reset, or the peer broke the protocol
	closeIdle                        // idle_timeout
	closeShutdown                    // the server stops
)

var closeReasonNames = [...]string{"unknown", "normal", "error", "idle_timeout", "shutdown"}

// String is the reason as `watch connevents` shows it.
func (r closeReason) String() string { return closeReasonNames[r] }

// connInfo is what is known about a connection apart from what it says. Its
// atomics are written by whoever drives the connection and read by anyone.
type connInfo struct {
	listener *listener      // it came through; has the tag and the transport
	remote   netip.AddrPort // over UDP, who sent the datagram; its goroutine's alone then
	local    netip.AddrPort // both zero on a unix socket
	opened   store.Time

	number   int           // of the connection, as long as it lives; see numbers
	fd       atomic.Int32  // changes when the connection leaves a loop or joins one
	lastRead atomic.Int64  // store.Time of the last bytes
	state    atomic.Uint32 // connState

	// reason is written once, by whoever drives the connection; a session that
	// gives up on its peer sets closeError before it says verdictClose.
	reason closeReason
}

// setState says what the connection is doing.
func (ci *connInfo) setState(st connState) {
	if ci.state.Load() != uint32(st) {
		ci.state.Store(uint32(st))
	}
}

// overUDP reports whether the session has a datagram to talk to.
func (ci *connInfo) overUDP() bool { return ci.listener.transport == transportUDP }

// setReason says why the connection ends. The first reason stays.
func (ci *connInfo) setReason(r closeReason) {
	if ci.reason == closeUnknown {
		ci.reason = r
	}
}

// conn is a connection: a session and the transport that drives it. One with
// TLS has a place of its own (tls_conn.go). Any other is in one of three places. In a loop it has no pending output and at most
// restMaxBytes of input, which wait for their turn. Aside, in a goroutine of
// its own, it may have output that the peer does not take. In between, when it
// was accepted or goes back, it is on its way into a loop.
type conn struct {
	connInfo
	srv     *Server
	session *session

	// In a loop.
	rest  []byte              // input that waits for the next turn: a view of mem
	mem   *[restMaxBytes]byte // from restPool, nil when nothing waits
	again bool                // the session is to be fed although nothing arrives
	large bool                // its last input that filled a buffer ended in a large value
	kick  atomic.Bool         // idle too long, says the idle check; the loop looks again

	roundAt int // its turn in the loop's round, from 1; 0 none

	held    int64         // bytes that Server.buffers has counted for it
	waiting int64         // of these, replies that the peer does not take
	joins   atomic.Uint32 // how often it came into a loop
	nAsides int           // how often it left one

	// place: written under registry.mu by who drives the connection, read
	// without it by the same, with it by others. All nil is in between.
	gnet   gnet.Conn
	file   *os.File
	secure *secure

	index int // in registry.list; covered by registry.mu
}

// registry knows all connections.
type registry struct {
	mu      sync.Mutex // list, closing, and place and index of every conn
	list    []*conn
	numbers numbers
	closing bool // nothing is added, nothing moves any more

	joining sync.WaitGroup // connections on their way into a loop; Add under mu
	aside   sync.WaitGroup // goroutines of connections that are aside or have TLS; Add under mu
}

// add puts c on the list, on its way into a loop. It reports false when the
// server is closing.
func (r *registry) add(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	r.append(c)
	r.joining.Add(1)
	return true
}

// addSecure puts c on the list, as one that t drives. It reports false when
// the server is closing.
func (r *registry) addSecure(c *conn, t *secure) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	c.secure = t
	r.append(c)
	r.aside.Add(1)
	return true
}

func (r *registry) append(c *conn) {
	c.index = len(r.list)
	c.number = r.numbers.take()
	r.list = append(r.list, c)
}

// remove takes c off the list.
func (r *registry) remove(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.list) - 1
	r.list[c.index] = r.list[last]
	r.list[c.index].index = c.index
	r.list[last] = nil
	r.list = r.list[:last]
	r.numbers.giveBack(c.number)
	c.gnet, c.file, c.secure = nil, nil, nil
}

// joined says that c is in a loop now.
func (r *registry) joined(c *conn, gc gnet.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.gnet = gc
	c.fd.Store(int32(gc.Fd()))
}

// left says that c is aside now, with its descriptor in f. It reports false
// when the server is closing.
func (r *registry) left(c *conn, f *os.File, fd int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	c.gnet, c.file = nil, f
	c.fd.Store(int32(fd))
	r.aside.Add(1)
	return true
}

// returns says that c, which was aside, is on its way into a loop. It reports
// false when the server is closing.
func (r *registry) returns(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	c.file = nil
	r.joining.Add(1)
	return true
}

// close lets nothing in any more.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
}

// closeAside ends the waiting of all connections that are in no loop; their
// goroutines see that the server is closing, and end. The descriptors are
// theirs to close.
func (r *registry) closeAside() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.list {
		if c.file != nil {
			_ = c.file.SetDeadline(time.Unix(1, 0))
		}
		if c.secure != nil {
			_ = c.secure.SetDeadline(time.Unix(1, 0))
		}
	}
}

// isClosing reports whether the server is closing.
func (r *registry) isClosing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closing
}

// numbers gives connections their numbers, the lowest that is free: what a
// descriptor is in memcached, in stats conns and for watchers. A descriptor
// itself would not do, as it changes when a connection moves.
type numbers struct {
	first int      // descriptors of listeners are below it
	taken []uint64 // bit i is number first+i
}

func (n *numbers) take() int {
	for i, w := range n.taken {
		if w != math.MaxUint64 {
			b := bits.TrailingZeros64(^w)
			n.taken[i] |= 1 << b
			return n.first + i*64 + b
		}
	}
	n.taken = append(n.taken, 1)
	return n.first + (len(n.taken)-1)*64
}

func (n *numbers) giveBack(number int) {
	i := number - n.first
	n.taken[i/64] &^= 1 << (i % 64)
}

// connsAStep is how many connections are looked at under one lock.
const connsAStep = 256

// each calls f for all connections, a step at a time, with r.mu held: f must
// not block. A connection may be left out while others end.
func (r *registry) each(f func(*conn)) {
	for from := 0; ; from += connsAStep {
		r.mu.Lock()
		if from >= len(r.list) {
			r.mu.Unlock()
			return
		}
		for _, c := range r.list[from:min(from+connsAStep, len(r.list))] {
			f(c)
		}
		r.mu.Unlock()
	}
}

// open makes the connection of an accepted socket, whose place in -c is taken
// already, and sends it into a loop, or with TLS to a goroutine of its own.
func (s *Server) open(nc net.Conn, ln *listener) {
	c := &conn{srv: s}
	c.listener = ln
	c.remote = addrPort(nc.RemoteAddr())
	c.local = addrPort(nc.LocalAddr())
	c.opened = s.clock()
	c.lastRead.Store(int64(c.opened))
	c.session = newSession(s, &c.connInfo)
	if ln.security != securityNone {
		if err := s.openSecure(c, nc); err != nil {
			_ = nc.Close()
			s.counts.current.Add(-1)
			return
		}
		s.counts.total.Add(1)
		if s.tells(verboseCommands) {
			c.tell("<%d new %s client connection", c.number, ln.protocol)
		}
		return
	}
	if !s.conns.add(c) {
		_ = nc.Close()
		s.counts.current.Add(-1)
		return
	}
	s.counts.total.Add(1)
	l := s.idlest()
	go l.join(c, nc)
}

// addrPort is the address a, or nothing if it is not one of TCP.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// noteState says what the connection is doing between two feeds.
func (c *conn) noteState() {
	switch c.session.phase {
	case phaseBlock:
		c.setState(connNread)
	case phaseSkip:
		c.setState(connSwallow)
	default:
		c.setState(connRead)
	}
}

// ended is the one place where a connection ends, for whatever reason. Who
// drives it calls it once, and closes the descriptor.
func (s *Server) ended(c *conn, r closeReason) {
	c.setReason(r)
	c.setState(connClosing)
	if s.tells(verboseCommands) {
		c.tell("<%d connection closed (%s).", c.number, c.reason)
	}
	c.dropRest()
	c.session.end()
	c.wait(0)
	s.buffers.settle(&c.held, 0)
	s.watch.tellClose(&c.connInfo)
	s.conns.remove(c)
	s.counts.current.Add(-1)
}
