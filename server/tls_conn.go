package server

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A TLS connection is in no loop. A goroutine drives its session, as it does
// aside: writes wait for the peer, and nothing is read before all is written.
// While it waits for input it holds no buffer and no worker, and stands at the
// top of its stack: that is most of what an idle connection costs.

const (
	// handshakeTimeout is how long a connection may take from being accepted
	// to the end of its handshake.
	handshakeTimeout = 10 * time.Second

	// secureReadBytes is the most input that is decrypted before it is fed to
	// the session. What is left of a record waits in crypto/tls, which has it
	// in memory anyway.
	secureReadBytes = asideStepBytes

	// secureWriteBytes is the most that is given to crypto/tls at once: four
	// records, some 100 µs.
	secureWriteBytes = 64 << 10
)

// securePool lends the memory for decrypted input, and for gathering replies
// with pinned values in them.
var securePool = sync.Pool{New: func() any { return new([secureReadBytes]byte) }}

// secure is what drives a TLS connection. It is also the net.Conn beneath
// crypto/tls: its Read does not wait once the handshake is over, so that what
// is there can be told from what is still to come, its Write does.
type secure struct {
	net.Conn // the socket
	c        *conn
	raw      syscall.RawConn
	tls      *tls.Conn
	w        *worker // nil while it waits for input

	open   atomic.Bool // the handshake is over
	slot   bool        // it holds one of tlsState.slots
	heard  bool        // the peer has sent something
	dry    bool        // there was nothing more to read, last time
	broken atomic.Bool // the socket has failed, or the peer has closed it
	hasty  bool        // a write that would wait fails

	// What RawConn calls, made once, with arguments and results.
	tryPeek, tryRead, tryWrite func(fd uintptr) bool
	parked                     bool // tryPeek has found nothing
	peeked                     [1]byte
	in                         []byte
	nIn                        int
	inErr                      error
	out                        []byte
	outErr                     error
}

// errDry says that there is nothing to read now. crypto/tls goes on behind it
// at the next call, as behind the end of a deadline.
var errDry net.Error = dryError{}

type dryError struct{}

func (dryError) Error() string   { return "nothing to read yet" }
func (dryError) Timeout() bool   { return true }
func (dryError) Temporary() bool { return true }

// openSecure makes the TLS connection of an accepted socket and has its
// handshake done in a goroutine.
func (s *Server) openSecure(c *conn, nc net.Conn) error {
	t := &secure{Conn: nc, c: c}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return errors.New("no descriptor")
	}
	var err error
	if t.raw, err = sc.SyscallConn(); err != nil {
		return err
	}
	err = t.raw.Control(func(fd uintptr) { c.fd.Store(int32(fd)) })
	if err != nil {
		return err
	}
	t.tryPeek, t.tryRead, t.tryWrite = t.peek, t.readNow, t.writeNow
	t.tls = tls.Server(t, s.tls.configs.Load()[c.listener.security])
	if err := nc.SetDeadline(time.Now().Add(s.cfg.handshakeTimeout)); err != nil {
		return err
	}
	if !s.conns.addSecure(c, t) {
		return os.ErrClosed
	}
	s.watch.tellNew(&c.connInfo)
	go t.shake()
	return nil
}

// shake does the handshake, and has the connection served when it succeeds.
func (t *secure) shake() {
	s := t.c.srv
	err := t.handshake()
	t.leaveSlot()
	if err == nil {
		go t.run() // on a new stack: a handshake makes a large one
		return
	}
	defer s.conns.aside.Done()
	switch {
	case s.conns.isClosing():
		t.c.setReason(closeShutdown)
	case !t.heard && t.broken.Load(): // somebody looked whether the port is open
		t.c.setReason(closeNormal)
	default:
		s.tls.handshakeErrors.Add(1)
		s.watch.tellTLS(t.c.number, err)
		t.c.setReason(closeError)
	}
	t.end(err)
}

func (t *secure) handshake() error {
	s := t.c.srv
	if err := t.await(); err != nil {
		return err
	}
	if err := t.takeSlot(); err != nil {
		return err
	}
	if err := t.tls.Handshake(); err != nil {
		return err
	}
	if !t.tls.ConnectionState().DidResume {
		s.tls.newSessions.Add(1)
	}
	if err := t.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if s.conns.isClosing() { // whose deadline may just have been lifted
		return os.ErrClosed
	}
	t.c.lastRead.Store(int64(s.clock()))
	t.open.Store(true)
	return nil
}

// takeSlot waits for the right to compute a handshake. It is given back while
// the handshake waits for the peer, so that a slow peer holds nobody up.
func (t *secure) takeSlot() error {
	select {
	case t.c.srv.tls.slots <- struct{}{}:
		t.slot = true
		return nil
	case <-t.c.srv.stop:
		return os.ErrClosed
	}
}

// leaveSlot gives the slot back, if t has one.
func (t *secure) leaveSlot() {
	if t.slot {
		t.slot = false
		<-t.c.srv.tls.slots
	}
}

// run serves the connection until it ends.
func (t *secure) run() {
	s := t.c.srv
	defer s.conns.aside.Done()
	for {
		err := t.serve()
		switch {
		case err == errWatch:
			err = t.c.watch(secureWatch{t})
		case err == nil && !t.c.settle():
			err = errNoBuffer
		}
		if err != nil {
			t.end(err)
			return
		}
		for {
			err := t.await()
			if err == nil {
				break
			}
			if err = t.awoken(err); err != nil {
				t.end(err)
				return
			}
		}
	}
}

// errKicked ends a connection that was idle too long, errDone one that its
// session wants to close. With errWatch it goes on as a watcher's.
var (
	errKicked = errors.New("idle")
	errDone   = errors.New("done")
	errWatch  = errors.New("watch")
)

// awoken decides what an interrupted wait means: nil is to go on waiting.
func (t *secure) awoken(err error) error {
	s := t.c.srv
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if err := t.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	switch {
	case s.conns.isClosing():
		return os.ErrClosed
	case t.c.kick.Swap(false) && s.isIdle(t.c, s.clock()):
		s.counts.idleKicks.Add(1)
		return errKicked
	}
	return nil
}

// wake makes a wait for input look again. It is called under registry.mu.
func (t *secure) wake() { _ = t.SetReadDeadline(time.Unix(1, 0)) } // fails only for a closed socket

// serve takes all input that is there and answers it.
func (t *secure) serve() error {
	buf := securePool.Get().(*[secureReadBytes]byte)
	t.w = takeWorker()
	defer func() {
		securePool.Put(buf)
		if t.w != nil {
			returnWorker(t.w)
			t.w = nil
		}
	}()
	for {
		n, err := t.fill(buf[:])
		if n > 0 {
			t.w.n.bytesRead += uint64(n)
			t.c.lastRead.Store(int64(t.c.srv.clock()))
			t.w.sample.begin()
			v, serveErr := t.c.serve(t.w, t, verdictMore, buf[:n])
			t.w.sample.end(&t.c.srv.latencies)
			switch {
			case serveErr != nil:
			case v == verdictClose:
				serveErr = errDone
			case v == verdictWatch:
				serveErr = errWatch
			}
			if serveErr != nil {
				t.w.out.reset()
				t.w.publish(t.c.srv)
				return serveErr
			}
		}
		switch {
		case err == nil:
			runtime.Gosched() // there is more
		case errors.Is(err, errDry), errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		default:
			if !t.broken.Load() && err != io.EOF {
				t.c.srv.tls.protoErrors.Add(1)
				t.c.srv.watch.tellTLS(t.c.number, err)
			}
			return err
		}
	}
}

// fill decrypts into buf what is there. Its error is what comes behind that.
func (t *secure) fill(buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = t.tls.Read(buf[n:])
		n += k
	}
	return n, err
}

// send writes what is pending, and waits as long as the peer does not take
// it. Small pieces around pinned values are gathered: each Write of crypto/tls
// makes records of its own.
func (t *secure) send() error {
	w := t.w
	var gathered *[secureReadBytes]byte
	defer func() {
		if gathered != nil {
			securePool.Put(gathered)
		}
	}()
	for w.out.pending() > 0 {
		p := w.out.buf[w.out.off:]
		if w.out.pinned > 0 {
			pieces := w.out.next()
			if p = pieces[0]; len(p) < secureReadBytes {
				if gathered == nil {
					gathered = securePool.Get().(*[secureReadBytes]byte)
				}
				p = gather(gathered[:0], pieces)
			}
		}
		n, err := t.tls.Write(p[:min(len(p), secureWriteBytes)])
		w.out.advance(n)
		w.n.bytesWritten += uint64(n)
		if err != nil {
			return err
		}
		if w.out.pending() > 0 {
			runtime.Gosched()
		}
	}
	w.out.reset()
	t.c.wait(0)
	w.publish(t.c.srv)
	return nil
}

// gather appends the pieces to dst, as far as there is room.
func gather(dst []byte, pieces [][]byte) []byte {
	for _, p := range pieces {
		k := min(len(p), cap(dst)-len(dst))
		dst = append(dst, p[:k]...)
	}
	return dst
}

// end is the end of the connection, and says so to the peer unless that would
// have to wait. err is why, unless the reason is known already.
func (t *secure) end(err error) {
	switch {
	case err == errKicked:
		t.c.setReason(closeIdle)
	case err == errDone, errors.Is(err, io.EOF):
		t.c.setReason(closeNormal)
	case errors.Is(err, os.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
		t.c.setReason(closeShutdown)
	default:
		t.c.setReason(closeError)
	}
	t.c.srv.ended(t.c, closeError)
	t.hasty = true
	_ = t.tls.Close() // the socket too, whatever becomes of the message
}

// await waits until there is something to read.
func (t *secure) await() error {
	t.parked, t.dry = false, false
	return t.raw.Read(t.tryPeek)
}

// peek reports whether there is something to read: certainly when it is first
// called, and as far as the runtime knows when it is called again.
func (t *secure) peek(fd uintptr) bool {
	if t.parked {
		return true
	}
	t.parked = true
	_, _, err := unix.Recvfrom(int(fd), t.peeked[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err != unix.EAGAIN
}

// Read implements net.Conn for crypto/tls. It waits only during the handshake.
func (t *secure) Read(p []byte) (n int, err error) {
	for {
		if !t.dry {
			t.in = p
			err = t.raw.Read(t.tryRead)
			n, t.in = t.nIn, nil
			if err == nil {
				err = t.inErr
			}
			switch {
			case n > 0:
				t.heard = true
				t.dry = n < len(p) // the next one would find nothing
				return n, nil
			case errors.Is(err, os.ErrDeadlineExceeded):
				return 0, err
			case err != unix.EAGAIN:
				t.broken.Store(true)
				return 0, err
			}
			t.dry = true
		}
		if t.open.Load() {
			return 0, errDry
		}
		t.leaveSlot()
		if err = t.await(); err != nil {
			return 0, err
		}
		if err = t.takeSlot(); err != nil {
			return 0, err
		}
	}
}

// readNow reads into t.in what is there.
func (t *secure) readNow(fd uintptr) bool {
	for {
		t.nIn, t.inErr = unix.Read(int(fd), t.in)
		if t.inErr != unix.EINTR {
			break
		}
	}
	if t.nIn == 0 && t.inErr == nil {
		t.inErr = io.EOF
	}
	t.nIn = max(t.nIn, 0)
	return true
}

// Write implements net.Conn for crypto/tls. It waits until all of p is
// written.
func (t *secure) Write(p []byte) (n int, err error) {
	slot := t.slot
	t.out, t.outErr = p, nil
	err = t.raw.Write(t.tryWrite)
	n, t.out = len(p)-len(t.out), nil
	if err == nil {
		err = t.outErr
	}
	if err == nil && slot && !t.slot {
		err = t.takeSlot()
	}
	if err != nil {
		t.broken.Store(true)
	}
	return n, err
}

// writeNow writes what it can of t.out, and reports whether that is the end.
func (t *secure) writeNow(fd uintptr) bool {
	for len(t.out) > 0 {
		n, err := unix.Write(int(fd), t.out)
		switch {
		case err == nil:
			t.out = t.out[n:]
		case err == unix.EINTR:
		case err == unix.EAGAIN && !t.hasty:
			t.leaveSlot()
			if t.w != nil {
				t.c.setState(connMwrite)
				t.w.sample.end(&t.c.srv.latencies) // what follows is the peer's time
				t.w.publish(t.c.srv)
				if !t.c.wait(t.w.out.pending()) {
					t.outErr = errNoBuffer
					return true
				}
			}
			return false
		default:
			t.outErr = err
			return true
		}
	}
	return true
}
