package server

import (
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// skippedMaxBytes is room for the line that tells of lost ones.
	skippedMaxBytes = 128

	// roomWait is how long the lines of all wait for the goroutine of a watcher
	// that has no room, but whose peer would take more.
	roomWait = 10 * time.Millisecond
)

// watcher is a connection that watches, as the one who makes the lines sees
// it: a buffer with a bound.
type watcher struct {
	conn    *connInfo
	streams stream
	since   uint64 // gid: it sees what came after

	mu     sync.Mutex
	lines  []byte // to be written
	flying int    // bytes of lines that are being written now
	max    int    // bytes of both

	ready chan struct{} // there are lines
	wrote chan struct{} // lines were written since the last look

	// Of carry alone.
	lost  uint64 // lines skipped since the last that was not
	stuck bool   // it has no room in this round, and its peer takes nothing
}

// newWatcher makes a watcher, who is told OK before anything else.
func newWatcher(ci *connInfo, streams stream, since uint64, maxBytes int) *watcher {
	w := &watcher{
		conn:    ci,
		streams: streams,
		since:   since,
		max:     maxBytes,
		ready:   make(chan struct{}, 1),
		wrote:   make(chan struct{}, 1),
	}
	w.put([]byte("OK\r\n"))
	return w
}

// put adds line to what is to be written, if there is room for it, and for
// the line about lost ones.
func (w *watcher) put(line []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.max-len(w.lines)-w.flying < len(line)+skippedMaxBytes {
		return false
	}
	if w.lost > 0 {
		w.lines = append(w.lines, "skipped="...)
		w.lines = append(strconv.AppendUint(w.lines, w.lost, 10), '\n')
		w.lost = 0
	}
	w.lines = append(w.lines, line...)
	select {
	case w.ready <- struct{}{}:
	default:
	}
	return true
}

// offer is put that waits a little for a watcher who keeps reading. It reports
// false when the line is lost.
func (w *watcher) offer(line []byte) bool {
	for !w.put(line) {
		if !w.awaitRoom() {
			w.lost++
			return false
		}
	}
	return true
}

// awaitRoom waits until lines have been written, if they are about to be. It
// reports false when the peer takes nothing.
func (w *watcher) awaitRoom() bool {
	if w.stuck {
		return false
	}
	select {
	case <-w.wrote:
		return true
	default:
	}
	if !w.conn.writable() {
		w.stuck = true
		return false
	}
	timer := time.NewTimer(roomWait)
	defer timer.Stop()
	select {
	case <-w.wrote:
		return true
	case <-timer.C:
		w.stuck = true
		return false
	}
}

// writable reports whether the peer would take more now.
func (ci *connInfo) writable() bool {
	fds := []unix.PollFd{{Fd: ci.fd.Load(), Events: unix.POLLOUT}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents == unix.POLLOUT
}

// next gives all lines that wait, in exchange for those of the last call, which
// have been written.
func (w *watcher) next(written []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = written[:0]
	w.flying = len(lines)
	if len(written) > 0 {
		select {
		case w.wrote <- struct{}{}:
		default:
		}
	}
	return lines
}

// watchConn is the way of lines to a watcher.
type watchConn interface {
	io.Writer
	discard() error // takes what the peer sends until it ends, and says why
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// watch drives a connection that has said watch until it ends, and says why:
// lines go out as they come, and what it sends is thrown away.
func (c *conn) watch(wc watchConn) error {
	w := c.session.watcher
	c.setState(connWatch)
	if err := wc.SetReadDeadline(time.Time{}); err != nil { // it was aside
		return err
	}
	if c.srv.conns.isClosing() { // and its deadline may just have been lifted
		return os.ErrClosed
	}
	gone := make(chan error, 1)
	go func() {
		err := wc.discard()
		_ = wc.SetWriteDeadline(time.Unix(1, 0))
		gone <- err
	}()
	var lines []byte
	for {
		select {
		case err := <-gone:
			return err
		case <-w.ready:
		}
		for lines = w.next(lines); len(lines) > 0; lines = w.next(lines) {
			if _, err := wc.Write(lines); err != nil {
				_ = wc.SetReadDeadline(time.Unix(1, 0))
				if ended := <-gone; !errors.Is(ended, os.ErrDeadlineExceeded) {
					return ended // it was the peer who ended it
				}
				return err
			}
		}
	}
}

// asideWatch is the way to a watcher without TLS.
type asideWatch struct{ *os.File }

func (a asideWatch) discard() error {
	_, err := io.Copy(io.Discard, a.File)
	return err
}

// secureWatch is the way to a watcher with TLS. Reading and writing do not
// share what they use.
type secureWatch struct{ *secure }

// Write implements watchConn.
func (t secureWatch) Write(p []byte) (n int, err error) { return t.tls.Write(p) }

func (t secureWatch) discard() error {
	buf := securePool.Get().(*[secureReadBytes]byte)
	defer securePool.Put(buf)
	for {
		_, err := t.fill(buf[:])
		if errors.Is(err, errDry) {
			err = t.await()
		}
		if err != nil {
			return err
		}
	}
}
