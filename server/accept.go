package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// acceptRetry is how long to wait when no connection can be accepted. Source:
// memcached's maxconns_handler.
const acceptRetry = 10 * time.Millisecond

// tooManyLine is what a connection over -c is told. Source: memcached's
// drive_machine.
const tooManyLine = "ERROR Too many open connections\r\n"

// pauses counts the times in which a listener does not accept, for want of
// descriptors or of a place in -c.
type pauses struct {
	mu     sync.Mutex
	paused int // listeners that do not accept now
	since  time.Time
	number uint64 // listen_disabled_num
	total  time.Duration
}

// begin says that a listener does not accept from now on.
func (p *pauses) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == 0 {
		p.since = time.Now()
		p.number++
	}
	p.paused++
}

// end says that a listener accepts again.
func (p *pauses) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused--; p.paused == 0 {
		p.total += time.Since(p.since)
	}
}

// stats are accepting_conns, listen_disabled_num and
// time_in_listen_disabled_us.
func (p *pauses) stats() (accepting, number, micros uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == 0 {
		accepting = 1
	}
	return accepting, p.number, uint64(p.total.Microseconds())
}

// reset zeroes what stats counted so far.
func (p *pauses) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number, p.total = 0, 0
	p.since = time.Now()
}

// accept takes the connections of ln until ln is closed. It waits for no loop:
// a connection joins its loop in a goroutine of its own, as that ends only
// when the loop has had a turn.
func (s *Server) accept(ln *listener) {
	paused := false
	defer func() {
		if paused {
			s.pauses.end()
		}
	}()
	for {
		nc, err := ln.Accept()
		if err == nil && paused {
			paused = false
			s.pauses.end()
		}
		switch {
		case err == nil:
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors or memory: others have to end first
			if !paused {
				paused = true
				s.pauses.begin()
				s.log.Warn("not accepting connections", "address", ln.Addr(), "error", err)
			}
			if !s.pause(acceptRetry) {
				return
			}
			continue
		}
		if !s.admit(nc) {
			continue
		}
		s.open(nc, ln)
	}
}

// admit takes a place in -c for nc. Without one, nc is told so and closed; or,
// with NoMaxConnsFast, waits for one, and those that come after it wait too.
func (s *Server) admit(nc net.Conn) bool {
	if s.takePlace() {
		return true
	}
	if !s.cfg.NoMaxConnsFast {
		s.counts.rejected.Add(1)
		_, _ = nc.Write([]byte(tooManyLine)) // fits: nothing was sent on nc before
		_ = nc.Close()
		return false
	}
	s.pauses.begin()
	defer s.pauses.end()
	for s.pause(acceptRetry) {
		if s.takePlace() {
			return true
		}
	}
	_ = nc.Close()
	return false
}

// takePlace takes a place in -c, if there is one.
func (s *Server) takePlace() bool {
	for {
		n := s.counts.current.Load()
		if n >= int64(s.cfg.MaxConns) {
			return false
		}
		if !s.counts.current.CompareAndSwap(n, n+1) {
			continue
		}
		for n++; ; {
			h := s.counts.highest.Load()
			if n <= h || s.counts.highest.CompareAndSwap(h, n) {
				return true
			}
		}
	}
}

// pause waits for d, and reports false when the server closes meanwhile.
func (s *Server) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.stop:
		return false
	}
}

// Descriptors that are needed beside those of the clients.
const (
	spareDescriptors    = 64 // listeners, log, files of the runtime
	descriptorsEachLoop = 8  // epoll, eventfd, and connections that move
)

// DescriptorError is a -c that the system does not allow.
type DescriptorError struct {
	MaxConns int
	Err      error
}

// Error is memcached's line and the cause.
func (e *DescriptorError) Error() string {
	return fmt.Sprintf("failed to set rlimit for open files. "+
		"Try starting as root or requesting smaller maxconns value: %d: %v", e.MaxConns, e.Err)
}

// Unwrap is the cause.
func (e *DescriptorError) Unwrap() error { return e.Err }

// raiseDescriptorLimit makes room for -c connections and what comes on top.
// All connections may move at once, and have two descriptors then; that is
// wanted, not needed. memcached sets the limit to -c, whatever else it needs.
func raiseDescriptorLimit(c *Config, log *slog.Logger) error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return &DescriptorError{c.MaxConns, err}
	}
	spare := spareDescriptors + descriptorsEachLoop*c.Threads
	if c.AdminListen != "" {
		spare += adminConnsMax
	}
	needed, wanted := uint64(c.MaxConns+spare), uint64(2*c.MaxConns+spare)
	if lim.Cur >= wanted {
		return nil
	}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: wanted, Max: max(lim.Max, wanted)})
	if err == nil {
		return nil
	}
	if lim.Max < uint64(c.MaxConns) {
		return &DescriptorError{c.MaxConns, err}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: lim.Max, Max: lim.Max}); err != nil {
		return &DescriptorError{c.MaxConns, err}
	}
	if lim.Max < needed {
		log.Warn("few descriptors", "limit", lim.Max, "needed", needed)
	}
	return nil
}
