package server

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// With -vv, or after `verbosity 2`, the log shows what connections say and what
// they are answered, with -vvv also where they are; never a value, nor a user
// or a password. Otherwise that costs one look at the level a turn.
const (
	verboseCommands = 2
	verbosePlaces   = 3

	// verboseLineBytes is the most that is shown of a line.
	verboseLineBytes = 256
)

// tells reports whether the log is to show what belongs to level.
func (s *Server) tells(level int32) bool { return s.verbosity.Load() >= level }

// tell logs one line about c.
func (c *conn) tell(format string, values ...any) {
	c.srv.log.Info(fmt.Sprintf(format, values...))
}

// feed is session.feed, aloud where that is asked for.
func (c *conn) feed(w *worker, p []byte) (n int, v verdict) {
	if !c.srv.tells(verboseCommands) {
		return c.session.feed(w, p)
	}
	return c.feedAloud(w, p)
}

// feedAloud feeds p a line at a time, and tells of each that is a command, and
// of what answers it. Lines that belong to data are not told.
func (c *conn) feedAloud(w *worker, p []byte) (n int, v verdict) {
	s := c.session
	for more := true; more; more = v == verdictMore && n < len(p) {
		piece := p[n:]
		if i := bytes.IndexByte(piece, '\n'); i >= 0 {
			piece = piece[:i+1]
		}
		packets := s.phase == phasePacket || s.phase == phaseStart && len(piece) > 0 && piece[0] == meta.PacketMagic
		switch {
		case packets:
			piece = p[n:]
			c.tell("<%d %d bytes of packets", c.number, len(piece))
		case s.phase != phaseLine && s.phase != phaseStart && s.phase != phaseLogin, !bytes.HasSuffix(piece, []byte{'\n'}):
		case s.line != nil:
			c.tell("<%d %s%s", c.number, visible(*s.line), visible(piece))
		default:
			c.tell("<%d %s", c.number, visible(piece))
		}
		before := w.out.pending()
		mark := len(w.out.buf)
		var k int
		k, v = s.feed(w, piece)
		n += k
		if mark < len(w.out.buf) {
			line, _, _ := bytes.Cut(w.out.buf[mark:], []byte{'\n'})
			if packets {
				line = nil
			}
			c.tell(">%d %s (%d bytes)", c.number, visible(line), w.out.pending()-before)
		}
	}
	return n, v
}

// visible is a line without its end, as far as it is shown; bytes that are not
// printable are escaped.
func visible(line []byte) string {
	line = bytes.TrimRight(line[:min(len(line), verboseLineBytes)], "\r\n")
	text := strconv.QuoteToASCII(string(line))
	return text[1 : len(text)-1]
}

// tellStart shows the chunk sizes and the listeners.
func (s *Server) tellStart() {
	if !s.tells(verboseCommands) {
		return
	}
	var st store.Stats
	s.store.Snapshot(s.now(), &st)
	for i := range st.Classes {
		if c := &st.Classes[i]; c.ChunksPerPage > 0 {
			s.log.Info(fmt.Sprintf("slab class %3d: chunk size %9d perslab %7d", i+1, c.ChunkBytes, c.ChunksPerPage))
		}
	}
	for _, ln := range s.listeners {
		s.log.Info(fmt.Sprintf("<%d server listening (%s)", ln.fd, ln.protocol))
	}
	for _, u := range s.udp {
		s.log.Info(fmt.Sprintf("<%d server listening (udp)", u.fd.Load()))
	}
}
