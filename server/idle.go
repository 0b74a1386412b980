package server

import (
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// idleCheck is how often idle connections are looked for.
const idleCheck = time.Second

// kickIdleConns closes, while the server runs, connections that have been
// silent for longer than idle_timeout.
func (s *Server) kickIdleConns() {
	for s.pause(idleCheck) {
		s.kickIdle(s.clock())
	}
}

// kickIdle has whoever drives them close the connections that are idle now.
// Handshakes have a time of their own. Those that are aside are left alone: either they wait for their peer, which is not
// idle in memcached's eyes, or they are about to go back.
func (s *Server) kickIdle(now store.Time) {
	s.conns.each(func(c *conn) {
		switch {
		case !s.isIdle(c, now):
		case c.gnet != nil:
			c.kick.Store(true)
			_ = c.gnet.Wake(nil) // fails only when the loop has ended
		case c.secure != nil && c.secure.open.Load():
			c.kick.Store(true)
			c.secure.wake()
		}
	})
}

// isIdle reports whether c has been silent for longer than idle_timeout, and
// not in the middle of a value. Source: memcached's conn_close_idle, which
// spares unix sockets too.
func (s *Server) isIdle(c *conn, now store.Time) bool {
	limit := int64(s.cfg.IdleSeconds)
	return limit > 0 &&
		c.listener.transport == transportTCP &&
		connState(c.state.Load()) == connRead &&
		int64(now.Seconds())-int64(store.Time(c.lastRead.Load()).Seconds()) > limit
}
