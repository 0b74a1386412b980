package server

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/quarrycache/quarry/server/store"
)

// connStateNames are the states as stats conns shows them.
var connStateNames = [...]string{
	connRead:     "conn_read",
	connParseCmd: "conn_parse_cmd",
	connNread:    "conn_nread",
	connSwallow:  "conn_swallow",
	connMwrite:   "conn_mwrite",
	connClosing:  "conn_closing",
	connWatch:    "conn_watch",
}

// connRow is a connection or a listener in stats conns.
type connRow struct {
	fd           int
	udp          bool
	addr, listen string
	state        string
	idleSeconds  int64
}

// appendConnStats answers stats conns, by descriptor: listeners, sockets of
// UDP, and connections. asking is the connection that asks.
func (s *Server) appendConnStats(dst []byte, asking *connInfo, now store.Time) []byte {
	var rows []connRow
	for _, ln := range s.listeners {
		rows = append(rows, connRow{
			fd:          ln.fd,
			addr:        ln.address(),
			state:       "conn_listening",
			idleSeconds: idleSeconds(s.started, now),
		})
	}
	for _, u := range s.udp {
		row := connRow{
			fd:          u.number,
			udp:         true,
			addr:        addressText("udp", u.local),
			state:       connStateNames[connRead],
			idleSeconds: idleSeconds(store.Time(u.lastRead.Load()), now),
		}
		if &u.connInfo == asking {
			row.addr, row.listen = addressText("udp", u.remote), row.addr
			row.state = connStateNames[connParseCmd]
		}
		rows = append(rows, row)
	}
	s.conns.each(func(c *conn) {
		row := connRow{
			fd:          c.number,
			addr:        addressText("tcp", c.remote),
			listen:      addressText("tcp", c.local),
			state:       connStateNames[c.state.Load()],
			idleSeconds: idleSeconds(store.Time(c.lastRead.Load()), now),
		}
		if c.listener.transport == transportUnix {
			row.addr = c.listener.address()
			row.listen = row.addr
		}
		if &c.connInfo == asking {
			row.state = connStateNames[connParseCmd]
		}
		rows = append(rows, row)
	})
	slices.SortFunc(rows, func(a, b connRow) int { return cmp.Compare(a.fd, b.fd) })

	l := statLines(dst)
	for _, row := range rows {
		prefix := strconv.Itoa(row.fd) + ":"
		if row.udp {
			l.text(prefix+"UDP", "UDP")
		}
		l.text(prefix+"addr", row.addr)
		if row.listen != "" {
			l.text(prefix+"listen_addr", row.listen)
		}
		l.text(prefix+"state", row.state)
		l.num(prefix+"secs_since_last_cmd", uint64(row.idleSeconds))
	}
	return append(l, statsEnd...)
}

// idleSeconds are the whole seconds from then to now.
func idleSeconds(then, now store.Time) int64 {
	return max(int64(now-then)/1000, 0)
}

// address is where the listener listens, as stats conns shows it.
func (ln *listener) address() string {
	switch a := ln.Addr().(type) {
	case *net.TCPAddr:
		return addressText("tcp", a.AddrPort())
	case *net.UnixAddr:
		return "unix:" + a.Name
	}
	return ""
}

// addressText is an address as stats conns shows it. transport is tcp or udp.
func addressText(transport string, a netip.AddrPort) string {
	if a.Addr().Is6() && !a.Addr().Is4In6() {
		return transport + "6:" + a.String()
	}
	return transport + ":" + netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
}
