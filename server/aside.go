package server

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
)

// A connection whose replies its peer does not take is set aside, and so is one
// whose request takes long: a goroutine drives its session, with writes that
// wait, and reads only when nothing is pending. What it holds is bounded: the input of two reads, what the session
// keeps, and outHighBytes of replies plus one value. It goes back into a loop
// when its peer keeps up again.

const (
	// asideReadBytes is the most that is read at once.
	asideReadBytes = 16 << 10

	// asideStepBytes is the most input that is taken before other goroutines
	// have their turn: some 100 µs of small requests.
	asideStepBytes = 4 << 10

	// cleanReadsMin is how many reads in a row must be answered without
	// waiting for the peer before the connection goes back. It doubles each
	// time that the connection leaves a loop, cleanDoublesMax times.
	cleanReadsMin   = 4
	cleanDoublesMax = 8

	// asideIdle is the time without input after which the connection goes
	// back, too.
	asideIdle = 20 * time.Millisecond
)

// errNoBuffer ends a connection that would hold more memory than there is for
// all of them.
var errNoBuffer = errors.New("no buffer")

// aside is what drives a connection that is in no loop.
type aside struct {
	c      *conn
	f      *os.File // its descriptor
	raw    syscall.RawConn
	w      *worker // nil while it waits for input
	waited bool    // for the peer to take replies, since the last read
}

// run drives the connection until it ends or goes back into a loop. First the
// output in a.w is to be written; then input is to be taken, which the session
// stopped at with v.
func (a *aside) run(v verdict, in []byte) {
	s := a.c.srv
	defer s.conns.aside.Done()
	defer s.counts.aside.Add(-1)
	var (
		buf   []byte
		clean int // reads in a row whose replies all went out at once
		wants = cleanReadsMin << min(a.c.nAsides-1, cleanDoublesMax)
		err   error
	)
	if a.raw, err = a.f.SyscallConn(); err != nil {
		a.end(err)
		return
	}
	a.waited = true
	for {
		if v, err = a.c.serve(a.w, a, v, in); err != nil || v == verdictClose {
			a.end(err)
			return
		}
		if v == verdictWatch {
			returnWorker(a.w)
			a.w = nil
			a.end(a.c.watch(asideWatch{a.f}))
			return
		}
		if a.w.relays.sent {
			a.w.relays.sent, a.waited = false, true // there is likely to be more to wait for
		}
		if clean++; a.waited {
			clean, a.waited = 0, false
		}
		if clean >= wants && a.goBack() {
			return
		}
		if !a.c.settleAll() {
			a.end(errNoBuffer)
			return
		}
		returnWorker(a.w)
		a.w, in = nil, nil
		if buf == nil {
			buf = make([]byte, asideReadBytes)
		}
		for in == nil {
			// A timer of the runtime, not the injected clock: nothing that
			// anyone can see depends on it.
			if err = a.f.SetReadDeadline(time.Now().Add(asideIdle)); err != nil {
				a.end(err)
				return
			}
			n, err := a.f.Read(buf)
			switch {
			case n > 0:
				in = buf[:n]
			case !errors.Is(err, os.ErrDeadlineExceeded):
				a.end(err)
				return
			case a.goBack():
				return
			case s.conns.isClosing():
				a.end(os.ErrClosed)
				return
			}
		}
		a.w = takeWorker()
		a.w.n.bytesRead += uint64(len(in))
		a.c.lastRead.Store(int64(s.clock()))
	}
}

// sender writes what is pending of a connection that a goroutine drives.
type sender interface{ send() error }

// serve writes what is pending and feeds in to the session until nothing is
// left of either, or until the session or the descriptor says stop.
func (c *conn) serve(w *worker, out sender, v verdict, in []byte) (verdict, error) {
	w.mayWait = true
	for {
		w.settle(c.session)
		if err := out.send(); err != nil {
			return v, err
		}
		c.noteState()
		if v == verdictClose || v == verdictWatch || v == verdictMore && len(in) == 0 {
			return v, nil
		}
		w.begin(c.srv, &c.connInfo, c.srv.watch.common())
		for more := true; more; more = v == verdictMore && len(in) > 0 {
			var n int
			n, v = c.feed(w, in[:min(len(in), asideStepBytes)])
			in = in[n:]
			c.noteState()
			if len(in) > 0 {
				runtime.Gosched()
			}
		}
	}
}

// send writes what is pending, and waits as long as the peer does not take
// it.
func (a *aside) send() error {
	w := a.w
	for w.out.pending() > 0 {
		var n int
		var err error
		closed := a.raw.Write(func(fd uintptr) bool {
			var blocked bool
			n, blocked, err = w.out.write(int(fd), writeTurnBytes)
			w.n.bytesWritten += uint64(n)
			if blocked {
				a.waited = true
				a.c.setState(connMwrite)
				w.publish(a.c.srv)
				if !a.c.wait(w.out.pending()) {
					err = errNoBuffer
					return true
				}
			}
			return !blocked
		})
		if err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
		runtime.Gosched()
	}
	a.c.wait(0)
	w.publish(a.c.srv)
	return nil
}

// goBack sends the connection, which has nothing pending, into a loop. It
// reports false when that cannot be done now.
func (a *aside) goBack() bool {
	c, s := a.c, a.c.srv
	nc, err := net.FileConn(a.f) // with a descriptor of its own
	if err != nil {
		return false
	}
	if err := c.listener.restoreKeepAlive(nc); err != nil || !s.conns.returns(c) {
		_ = nc.Close()
		return false
	}
	c.settleAll()
	if s.tells(verbosePlaces) {
		c.tell("%d: goes back into a loop", c.number)
	}
	_ = a.f.Close()
	if a.w != nil {
		returnWorker(a.w)
	}
	s.idlest().join(c, nc)
	return true
}

// end is the end of the connection. err is why; nil is that the session wants
// to close it.
func (a *aside) end(err error) {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		a.c.setReason(closeNormal)
	case errors.Is(err, os.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		a.c.setReason(closeShutdown)
	default:
		a.c.setReason(closeError)
	}
	if a.w != nil {
		a.w.out.reset()
		a.w.publish(a.c.srv)
		returnWorker(a.w)
	}
	a.c.srv.ended(a.c, closeError)
	_ = a.f.Close()
}
