package server

import "sync/atomic"

// buffers is the account of the memory that connections hold between two
// turns, and the bound of -o read_buf_mem_limit on it. An idle connection
// holds none; what is read into and written from in a turn belongs to the
// loops and is not counted.
type buffers struct {
	bytesMax   int64 // 0 is no bound
	repliesMax int   // in a batch, while they wait to be written; 0 is no bound

	holders atomic.Int64  // connections that hold any
	bytes   atomic.Int64  // what they hold, replies included
	waiting atomic.Int64  // bytes of replies that peers do not take
	waiters atomic.Int64  // connections of such peers
	refused atomic.Uint64 // connections closed for want of memory; read_buf_oom

	repliesRefused atomic.Uint64 // batches and gets; response_obj_oom
}

// What memcached counts against the limit. Source: memcached's
// READ_BUFFER_SIZE, and the mc_resp that each reply takes, a miss too.
const (
	memcachedReadBytes  = 16 << 10
	memcachedReplyBytes = 1216
)

// setLimit divides limit among loops, as memcached does among its threads:
// each has a buffer to read into, and the rest for replies.
func (b *buffers) setLimit(limit int64, loops int) {
	if limit == 0 {
		return
	}
	b.bytesMax = limit
	b.repliesMax = int(max((limit/int64(loops)-memcachedReadBytes)/memcachedReplyBytes, 1))
}

// settle makes *held, what a connection was counted with, n. It reports
// whether that is within the bound.
func (b *buffers) settle(held *int64, n int64) bool {
	switch {
	case *held == n:
		return true
	case *held == 0:
		b.holders.Add(1)
	case n == 0:
		b.holders.Add(-1)
	}
	total := b.bytes.Add(n - *held)
	grown := n > *held
	*held = n
	if grown && b.bytesMax > 0 && total > b.bytesMax {
		b.refused.Add(1)
		return false
	}
	return true
}

// bufferFigures are the figures of buffers in `stats`. The loops and the
// sockets of UDP have a buffer each, and lend it to whoever reads.
type bufferFigures struct {
	RepliesRefused, RepliesWaiting, WaitingBytes uint64
	Count, Bytes, FreeBytes, Refused             uint64
}

// bufferStats is the state of all buffers now.
func (s *Server) bufferStats() bufferFigures {
	b := &s.buffers
	own := uint64(s.cfg.Threads*(readBytes+moreBytes) + len(s.udp)*udpReadBytes)
	waiting := uint64(b.waiting.Load())
	return bufferFigures{
		RepliesRefused: b.repliesRefused.Load(),
		RepliesWaiting: uint64(b.waiters.Load()),
		WaitingBytes:   waiting,
		Count:          uint64(s.cfg.Threads+len(s.udp)) + uint64(b.holders.Load()),
		Bytes:          own + uint64(b.bytes.Load()) - waiting,
		FreeBytes:      own - readBytes, // one is in use: somebody asks
		Refused:        b.refused.Load(),
	}
}

// reset zeroes what was counted; what is so now stays.
func (b *buffers) reset() {
	b.refused.Store(0)
	b.repliesRefused.Store(0)
}

// settle counts what c holds now. It reports false when that is too much: c is
// to be closed then.
func (c *conn) settle() bool {
	return c.held == 0 && c.mem == nil && c.session.empty() || c.settleAll()
}

// settleAll is settle for a connection that holds something, or did, or that
// is aside; nearly every turn ends without it.
func (c *conn) settleAll() bool {
	n := c.waiting + c.session.heldBytes()
	if c.mem != nil {
		n += restMaxBytes
	}
	if c.file != nil {
		n += asideReadBytes
	}
	return c.srv.buffers.settle(&c.held, n)
}

// wait counts n bytes of replies that the peer of c does not take.
func (c *conn) wait(n int) (ok bool) {
	if int64(n) == c.waiting {
		return true
	}
	b := &c.srv.buffers
	b.waiting.Add(int64(n) - c.waiting)
	switch {
	case c.waiting == 0:
		b.waiters.Add(1)
	case n == 0:
		b.waiters.Add(-1)
	}
	c.waiting = int64(n)
	return c.settleAll()
}

// empty reports whether the session keeps nothing beside itself.
func (s *session) empty() bool { return s.line == nil && s.block == nil }

// heldBytes is the memory that the session keeps beside itself.
func (s *session) heldBytes() (n int64) {
	if s.line != nil {
		n += int64(cap(*s.line))
	}
	if s.block != nil {
		n += blockBytes
	}
	return n
}

// turnOver says what becomes of a session that has executed as many requests
// as its batch may have: either others have a turn, or there is no memory for
// so many replies.
func (s *session) turnOver(w *worker, executed int) verdict {
	if limit := s.srv.cfg.ReqsPerEvent; limit > 0 && executed >= limit {
		w.n.yields++
		return verdictYield
	}
	s.srv.buffers.repliesRefused.Add(1)
	w.out.reset()
	s.close(closeError)
	return verdictClose
}
