package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/quarrycache/quarry/server/store"
	"golang.org/x/sys/unix"
)

const (
	// readBytes is what gnet reads from a connection at most before it calls
	// back. The loop reads more by itself, so that most of a large value does
	// not come into a buffer first.
	readBytes = 16 << 10

	// moreBytes is the most that is in the loop's own buffer.
	moreBytes = 64 << 10

	// turnReadBytes end a turn's reading: others have theirs then.
	turnReadBytes = 256 << 10

	// restMaxBytes is the most input that a connection in a loop keeps while
	// others have their turn.
	restMaxBytes = moreBytes

	// batchesATurn is how many batches a session that reports verdictFull
	// has in a row before others have their turn.
	batchesATurn = 4
)

// restPool lends connections the memory for input that waits.
var restPool = sync.Pool{New: func() any { return new([restMaxBytes]byte) }}

// loop is one event loop: a gnet client with a single loop, so that we say
// which connection comes where and each has its own worker. Its callbacks run
// one at a time, in the loop's goroutine.
type loop struct {
	gnet.BuiltinEventEngine
	srv    *Server
	client *gnet.Client
	w      *worker      // output is empty between two callbacks
	ring   *ring        // for watchers of what its connections do
	conns  atomic.Int32 // in the loop or on the way into it
	round  round
	more   [moreBytes]byte        // what readMore read
	pieces [store.ReadvMax][]byte // for readMore
	turns  turns
	yields yields
}

// newLoop starts a loop.
func newLoop(s *Server, r *ring, hot *hotTable) (*loop, error) {
	l := &loop{srv: s, w: takeWorker(), ring: r, turns: turns{stalls: s.stalls}, yields: newYields()}
	l.w.hot = hot
	l.w.reader = s.store.NewReader()
	client, err := gnet.NewClient(l,
		gnet.WithNumEventLoop(1),
		gnet.WithReadBufferCap(readBytes),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // package net has set it: leave it alone
		gnet.WithLogger(gnetLog{s.log}))
	if err != nil {
		return nil, err
	}
	if err := client.Start(); err != nil {
		return nil, err
	}
	l.client = client
	return l, nil
}

// idlest is the loop with the fewest connections.
func (s *Server) idlest() *loop {
	best := s.loops[0]
	for _, l := range s.loops[1:] {
		if l.conns.Load() < best.conns.Load() {
			best = l
		}
	}
	best.conns.Add(1)
	return best
}

// join brings c, whose socket is nc, into the loop. It returns when the loop
// has taken c.
func (l *loop) join(c *conn, nc net.Conn) {
	defer l.srv.conns.joining.Done()
	before := c.joins.Load()
	forgetZone(nc.RemoteAddr())
	forgetZone(nc.LocalAddr())
	_, err := l.client.EnrollContext(nc, c) // closes nc in any case
	if err == nil && c.joins.Load() > before {
		return // it may have left again by now
	}
	l.conns.Add(-1)
	l.srv.ended(c, closeError)
}

// forgetZone takes the zone out of a: gnet puts a zone's memory into a pool
// when the connection ends, but package net shares it among addresses.
func forgetZone(a net.Addr) {
	if tcp, ok := a.(*net.TCPAddr); ok {
		tcp.Zone = ""
	}
}

// OnOpen is called by gnet when a connection has come into the loop.
func (l *loop) OnOpen(gc gnet.Conn) ([]byte, gnet.Action) {
	c := gc.Context().(*conn)
	l.srv.conns.joined(c, gc)
	if c.joins.Add(1) == 1 {
		l.srv.watch.tellNew(&c.connInfo)
		if l.srv.tells(verboseCommands) {
			c.tell("<%d new %s client connection", c.number, c.listener.protocol)
		}
	}
	return nil, gnet.None
}

// OnTraffic is called by gnet with all that one read gave, or with nothing,
// when the connection is to have another turn.
func (l *loop) OnTraffic(gc gnet.Conn) gnet.Action {
	if l.turns.stalls != nil {
		l.turns.called()
	}
	c := gc.Context().(*conn)
	p, _ := gc.Next(-1) // a view of the loop's read buffer; fails for no n < 1
	if len(p) > 0 {
		l.w.n.bytesRead += uint64(len(p))
	}
	if c.roundAt > 0 {
		l.leaveRound(c) // it has more to say, and in order
	}
	if l.joinRound(c, gc, p) {
		return gnet.None
	}
	action := l.serve(c, p, l.srv.now(), time.Time{})
	l.yields.yield()
	return action
}

// serve serves c, which has said p, or is to have another turn. began is when
// that was read, if it was before now.
func (l *loop) serve(c *conn, p []byte, now store.Time, began time.Time) gnet.Action {
	l.w.beginAt(now, l.srv, &c.connInfo, l.ring)
	l.w.sample.begin()
	if !began.IsZero() {
		l.w.sample.began = began
	}
	action := gnet.None
	switch {
	case len(p) > 0:
		c.lastRead.Store(int64(now))
		action = l.arrived(c, p)
	case c.again:
		action = l.turn(c, c.rest)
	case c.kick.Swap(false) && l.srv.isIdle(c, now):
		l.srv.counts.idleKicks.Add(1)
		c.setReason(closeIdle)
		action = gnet.Close
	}
	if action == gnet.None && !c.settle() {
		c.setReason(closeError)
		action = gnet.Close
	}
	l.w.sample.end(&l.srv.latencies)
	if l.turns.stalls != nil {
		l.turns.end(l.w, len(p))
	}
	l.yields.requests += l.w.n.requests + turnRequests
	l.w.publish(l.srv)
	return action
}

// arrived is a turn of c with the input p, unless older input waits: then p
// waits behind it, or when there is no room, c goes aside with both.
func (l *loop) arrived(c *conn, p []byte) gnet.Action {
	if len(c.rest) == 0 {
		return l.turn(c, p)
	}
	if len(c.rest)+len(p) > restMaxBytes {
		return l.leave(c, verdictYield, c.rest, p)
	}
	n := copy(c.mem[:], c.rest)
	n += copy(c.mem[n:], p)
	return l.turn(c, c.mem[:n])
}

// turn feeds p to c's session and writes the replies, and reads more if there
// is likely to be more. When the session wants to go on, but others must have
// their turn, the rest of p waits. c leaves the loop when its replies cannot be
// written at once, or its next request takes long.
func (l *loop) turn(c *conn, p []byte) gnet.Action {
	w, r := l.w, reading{left: turnReadBytes, filled: len(p) == readBytes}
	if r.filled && !c.large {
		p = l.gather(c, &r, p)
	}
	for batches := 1; ; batches++ {
		if batches > 1 {
			w.now = l.srv.now() // the process may have been stopped since
		}
		n, v := c.feed(w, p)
		p = p[n:]
		c.noteState()
		sent, _, err := w.out.write(int(c.fd.Load()), writeTurnBytes)
		w.n.bytesWritten += uint64(sent)
		l.round.wrote += sent
		switch {
		case err != nil:
			w.out.reset()
			c.setReason(closeError)
			return gnet.Close
		case w.out.pending() > 0 || v == verdictWait || v == verdictWatch:
			return l.leave(c, v, p, nil)
		case v == verdictMore:
			c.dropRest()
			if !r.filled {
				return gnet.None
			}
			c.large = c.session.blockLeft() >= readBytes
			if p, err = l.readMore(c, &r); err != nil {
				c.setReason(closeError)
				return gnet.Close
			}
			if len(p) == 0 && !r.again {
				return gnet.None
			}
		case v == verdictClose:
			c.setReason(closeNormal)
			return gnet.Close
		case v == verdictYield || batches >= batchesATurn:
			c.keepRest(p)
			if err := c.gnet.Wake(nil); err != nil {
				c.setReason(closeError)
				return gnet.Close
			}
			return gnet.None
		}
	}
}

// reading is how far a turn has come with reading.
type reading struct {
	left   int  // bytes that may still be read
	filled bool // the last read got all that it had room for: there may be more
	direct bool // no more is to be read but what belongs to a value
	again  bool // the session is to be fed, even with nothing
}

// gather reads what c has sent behind p, for one batch of both. What it cannot
// read because of an error is left for the next read to find.
func (l *loop) gather(c *conn, r *reading, p []byte) []byte {
	at := copy(l.more[:], p)
	n, err := unix.Read(int(c.fd.Load()), l.more[at:])
	n = max(n, 0)
	l.w.n.bytesRead += uint64(n)
	r.left -= n
	r.filled, r.direct = err == nil && n == len(l.more)-at, true
	return l.more[:at+n]
}

// readMore reads what c has sent besides. What belongs to a value that is half
// there goes into its chunks; what is behind it is returned, a view of l.more.
func (l *loop) readMore(c *conn, r *reading) (p []byte, err error) {
	w, s := l.w, c.session
	r.again = false
	for r.filled && r.left > 0 {
		left := s.blockLeft()
		if left == 0 && r.direct {
			return nil, nil
		}
		room, ok := s.blockRoom(w)
		if !ok {
			r.again = true
			return nil, nil
		}
		pieces, size := l.pieces[:0], len(room)
		if size > 0 {
			pieces = append(pieces, room)
		}
		if size == left {
			pieces = append(pieces, l.more[:])
			size += len(l.more)
		}
		n, err := store.Readv(int(c.fd.Load()), pieces)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			r.filled = false
			return nil, nil
		case err != nil:
			return nil, err
		case n == 0:
			r.filled = false // gnet finds the end as well
			return nil, nil
		}
		w.n.bytesRead += uint64(n)
		r.filled, r.left = n == size, r.left-n
		k := min(n, len(room))
		if k > 0 {
			s.block.upload.Advance(k)
		}
		if n > k {
			r.direct = true
			return l.more[:n-k], nil
		}
		if s.block.whole() { // that of a packet: nothing is behind it
			r.again = true
			return nil, nil
		}
	}
	return nil, nil
}

// keepRest keeps p, which may be a view of what is kept already, for the next
// turn. There is one even when p is empty.
func (c *conn) keepRest(p []byte) {
	c.again = true
	if c.mem == nil && len(p) == 0 {
		return
	}
	if c.mem == nil {
		c.mem = restPool.Get().(*[restMaxBytes]byte)
	}
	c.rest = c.mem[:copy(c.mem[:], p)]
}

// dropRest gives the memory of waiting input back.
func (c *conn) dropRest() {
	if c.mem != nil {
		restPool.Put(c.mem)
	}
	c.mem, c.rest, c.again = nil, nil, false
}

// leave takes c out of the loop: what the worker has to write, the input that
// was not taken, in two parts, and the session go on in a goroutine. gnet
// closes its own descriptor behind leave. When there is no other one to be
// had, c ends.
func (l *loop) leave(c *conn, v verdict, in, more []byte) gnet.Action {
	fd, err := unix.FcntlInt(uintptr(c.fd.Load()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		l.w.out.reset()
		c.setReason(closeError)
		return gnet.Close
	}
	w := takeWorker()
	w.out.takeFrom(&l.w.out)
	rest := make([]byte, 0, len(in)+len(more))
	rest = append(append(rest, in...), more...)
	c.dropRest()
	f := os.NewFile(uintptr(fd), "connection")
	gc := c.gnet
	if !l.srv.conns.left(c, f, fd) { // the server closes
		_ = f.Close()
		w.out.reset()
		returnWorker(w)
		c.setReason(closeShutdown)
		return gnet.Close
	}
	gc.SetContext(nil) // OnClose is not c's end now
	l.conns.Add(-1)
	l.srv.counts.aside.Add(1)
	l.srv.counts.asides.Add(1)
	c.nAsides++
	if l.srv.tells(verbosePlaces) {
		c.tell("%d: leaves its loop, %d bytes are pending", c.number, w.out.pending())
	}
	a := &aside{c: c, f: f, w: w}
	go a.run(v, rest)
	return gnet.Close
}

// OnClose is called by gnet when it closes its descriptor: the peer has
// closed, or at least its sending side, or we have.
func (l *loop) OnClose(gc gnet.Conn, err error) gnet.Action {
	c, ok := gc.Context().(*conn)
	if !ok {
		return gnet.None // it has left
	}
	if c.roundAt > 0 {
		l.leaveRound(c)
	}
	if c.again && c.reason == closeUnknown && errors.Is(err, io.EOF) {
		// Requests wait for their turn: they are served and answered all the
		// same. The descriptor is still open.
		l.leave(c, verdictYield, c.rest, nil)
		if _, stayed := gc.Context().(*conn); !stayed {
			return gnet.None
		}
	}
	reason := closeError
	switch {
	case err == nil:
		reason = closeShutdown // with every other Close the reason is set
	case errors.Is(err, io.EOF):
		reason = closeNormal
	}
	l.conns.Add(-1)
	l.srv.ended(c, reason)
	return gnet.None
}

// gnetLog gives what gnet has to say to slog, a level lower: gnet warns of
// what is no trouble here, such as events of connections that have left.
type gnetLog struct{ log *slog.Logger }

func (g gnetLog) Debugf(string, ...any) {}
func (g gnetLog) Infof(string, ...any)  {}
func (g gnetLog) Warnf(format string, args ...any) {
	g.log.Debug("gnet: " + fmt.Sprintf(format, args...))
}
func (g gnetLog) Errorf(format string, args ...any) {
	g.log.Warn("gnet: " + fmt.Sprintf(format, args...))
}
func (g gnetLog) Fatalf(format string, args ...any) {
	g.log.Error("gnet: " + fmt.Sprintf(format, args...))
}
