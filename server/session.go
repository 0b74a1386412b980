package server

import (
	"bytes"
	"runtime"
	"sync"

	"github.com/quarrycache/quarry/meta"
)

// lineMax bounds an unfinished line. A peer that sends more without a line
// end is cut off without a word, unless it is sending keys to get. Source:
// memcached's try_read_command_ascii.
const lineMax = 2048

// phase is where a session stands in its input.
type phase uint8

const (
	// phaseLine: at the start of a line, or in a broken one that s.line keeps.
	phaseLine phase = iota
	// phaseKeys: in a get line, behind its word. Complete keys are answered as
	// they come; s.line keeps a broken key.
	phaseKeys
	// phaseBlock: in the data block of a set that is half there.
	phaseBlock
	// phaseSkip: skip bytes of a data block are thrown away.
	phaseSkip
	// phaseWatch: the connection watches.
	phaseWatch
	// phaseSkipLine: the rest of a line is thrown away; then after is answered.
	phaseSkipLine
	// phaseLogin: as phaseLine, before the peer has logged in.
	phaseLogin
	// phaseToken: in the user and password of a login; skip bytes in all.
	phaseToken
	// phaseStart: nothing has come yet. The first byte says which protocol
	// this is.
	phaseStart
	// phasePacket: at the start of a packet, or in a broken head that s.line
	// keeps.
	phasePacket
	// phaseBadPacket: skip bytes of a packet's head are thrown away; then after
	// is answered to the header in s.line, and the connection closed.
	phaseBadPacket
	// phaseAuth: the packet in s.line is to be executed where the session may
	// wait for it.
	phaseAuth
	// phaseDump and phaseCachedump: items are being dumped. Input waits.
	phaseDump
	phaseCachedump
	// phaseRelay: the request in s.line belongs to another node, which is asked
	// where the session may wait for it.
	phaseRelay
	// phaseGather: in the value of a set that is to be sent on.
	phaseGather
	// phaseClosed: no more input is taken.
	phaseClosed
)

// session is the state machine of one connection: it takes the bytes that
// arrive, in whatever pieces, and appends the replies to the output of the
// worker it is lent. It knows no transport. What it keeps between two feeds is
// bounded: an unfinished line, and one half-sent value, which is in the store
// already. An idle session keeps nothing but itself.
type session struct {
	srv  *Server
	conn *connInfo

	phase     phase
	home      phase        // of the next request: phaseLine or phasePacket
	seen      bool         // phaseKeys: the line has a key
	elsewhere bool         // phaseKeys: the next key is another node's
	after     meta.Error   // phaseSkipLine, phaseBadPacket: to be answered then
	expiry    uint32       // phaseKeys: of gat and gats
	has       meta.Letters // phaseKeys: what the word asks for
	skip      int          // phaseSkip, phaseBadPacket: bytes still to throw away; phaseToken: of the token, its end included
	sasl      saslLogin    // -S

	line *[]byte // an unfinished line, token or head, or a complete one that was broken; from linePool, nil if none
	at   int     // phaseKeys: (*line)[at:] is still to be read

	block *block // phaseBlock

	gather   *gathered // phaseGather
	holesMax uint8     // relays in one output; 0 is relaysStart

	dump      *dump      // phaseDump
	cachedump *cachedump // phaseCachedump

	watcher *watcher // phaseWatch
}

// linePool lends sessions the memory for a broken line.
var linePool = sync.Pool{New: func() any {
	b := make([]byte, 0, lineMax)
	return &b
}}

// newSession makes the session of a connection that was just accepted.
func newSession(s *Server, ci *connInfo) *session {
	ns := &session{srv: s, conn: ci}
	switch {
	case s.credentials.Load() != nil:
		ns.phase = phaseLogin
	case ci.listener.protocol == protocolAuto:
		ns.phase = phaseStart
	case ci.listener.protocol == protocolBinary:
		ns.phase, ns.home = phasePacket, phasePacket
	}
	return ns
}

// close ends the connection once its output is written.
func (s *session) close(r closeReason) {
	s.phase = phaseClosed
	s.conn.setReason(r)
}

// feed takes p, executes the requests that are complete in it, and appends
// their replies to w.out. It takes all of p unless the verdict says why not;
// after verdictFull and verdictYield it is to be called again with the rest,
// even when nothing is left.
func (s *session) feed(w *worker, p []byte) (n int, v verdict) {
	in, executed := p, 0
	w.ahead.begin(len(p))
	for {
		if w.out.pending() >= outHighBytes || w.relays.full() {
			return len(p) - len(in), verdictFull
		}
		switch s.phase {
		case phaseStart:
			if len(in) == 0 {
				return len(p), verdictMore
			}
			s.start(in[0])
		case phaseLine, phasePacket:
			if len(in) == 0 {
				return len(p), verdictMore
			}
			if limit := s.srv.batchMax; limit > 0 && executed >= limit {
				return len(p) - len(in), s.turnOver(w, executed)
			}
			if executed++; executed > 1 && len(in) <= w.ahead.until {
				s.lookAhead(w, in, s.srv.batchMax-executed+1)
			}
			if s.phase == phasePacket {
				in = in[s.readPacket(w, in):]
			} else {
				in = in[s.readLine(w, in):]
			}
		case phaseKeys:
			k, hungry := s.readKeys(w, in)
			if in = in[k:]; hungry && len(in) == 0 && s.phase == phaseKeys {
				return len(p), verdictMore
			}
			if s.elsewhere {
				s.elsewhere = false
				return len(p) - len(in), verdictWait
			}
		case phaseBlock:
			if len(in) == 0 && !s.block.whole() {
				return len(p), verdictMore
			}
			in = in[s.readBlock(w, in):]
		case phaseSkip:
			k := min(s.skip, len(in))
			in, s.skip = in[k:], s.skip-k
			if s.skip > 0 {
				return len(p), verdictMore
			}
			s.phase = s.home
		case phaseSkipLine:
			i := bytes.IndexByte(in, '\n')
			if i < 0 {
				return len(p), verdictMore
			}
			in, s.phase = in[i+1:], phaseLine
			w.out.buf = s.after.AppendTo(w.out.buf)
		case phaseLogin:
			if len(in) == 0 {
				return len(p), verdictMore
			}
			if limit := s.srv.batchMax; limit > 0 && executed >= limit {
				return len(p) - len(in), s.turnOver(w, executed)
			}
			executed++
			in = in[s.readLogin(w, in):]
		case phaseToken:
			if len(in) == 0 {
				return len(p), verdictMore
			}
			in = in[s.readToken(w, in):]
		case phaseBadPacket:
			k := min(s.skip, len(in))
			in, s.skip = in[k:], s.skip-k
			if s.skip > 0 {
				return len(p), verdictMore
			}
			s.failPacket(w)
		case phaseAuth:
			if !w.mayWait {
				return len(p) - len(in), verdictWait
			}
			s.verifyKept(w)
		case phaseRelay:
			if !w.mayWait {
				return len(p) - len(in), verdictWait
			}
			in = in[s.relayKept(w, in):]
		case phaseGather:
			if len(in) == 0 {
				return len(p), verdictMore
			}
			if !w.mayWait {
				return len(p) - len(in), verdictWait
			}
			in = in[s.readGather(w, in):]
		case phaseDump, phaseCachedump:
			if !w.mayWait || !s.goOn(w) {
				return len(p) - len(in), verdictWait
			}
		case phaseWatch:
			return len(p) - len(in), verdictWatch
		case phaseClosed:
			return len(p) - len(in), verdictClose
		}
	}
}

// goOn does a step of what takes many, and reports whether it was the last.
func (s *session) goOn(w *worker) (done bool) {
	runtime.Gosched() // a step may have nothing to write
	if s.phase == phaseDump {
		s.goOnDumping(w)
		return s.phase != phaseDump
	}
	s.goOnCachedump(w)
	return s.phase != phaseCachedump
}

// end gives back all that the session holds: its connection is gone. A
// half-sent value leaves no trace. It may be called again.
func (s *session) end() {
	s.endDump()
	s.phase = phaseClosed
	s.cachedump = nil
	s.dropLine()
	s.dropBlock()
	if s.watcher != nil {
		s.srv.watch.remove(s.watcher)
		s.watcher = nil
	}
	s.dropGather()
}

// readLine takes a line, or what is there of it, and returns the bytes of in
// that were taken, those of the line's data block included.
func (s *session) readLine(w *worker, in []byte) (n int) {
	i := bytes.IndexByte(in, '\n')
	if i < 0 {
		return s.keepLine(w, in)
	}
	rest := in[i+1:]
	if s.line == nil {
		lineUsed, restUsed := s.command(w, in[:i+1], rest)
		if s.phase == phaseRelay {
			s.line, s.at = linePool.Get().(*[]byte), 0
			*s.line = append(*s.line, in[:i+1]...)
		}
		return lineUsed + restUsed
	}
	*s.line = append(*s.line, in[:i+1]...)
	lineUsed, restUsed := s.command(w, *s.line, rest)
	if s.phase == phaseRelay {
		return i + 1
	}
	if s.phase == phaseKeys {
		s.at = lineUsed
		return i + 1
	}
	s.dropLine()
	return i + 1 + restUsed
}

// keepLine keeps a line whose end has not arrived. A line over lineMax is the
// end of the connection, unless it holds keys to get, which are taken as they
// come.
func (s *session) keepLine(w *worker, in []byte) (n int) {
	if s.line == nil {
		s.line, s.at = linePool.Get().(*[]byte), 0
	}
	n = min(len(in), lineMax-len(*s.line))
	*s.line = append(*s.line, in[:n]...)
	if n == len(in) {
		return n
	}
	line := *s.line
	word := bytes.TrimLeft(line, " ")
	gets := bytes.HasPrefix(word, []byte("gets "))
	if !gets && !bytes.HasPrefix(word, []byte("get ")) || len(line)-len(word) > longLineSpaces {
		s.dropLine()
		s.close(closeError)
		return n
	}
	w.n.requests++
	if len(word) < len(line) { // no command: spaces come first
		s.dropLine()
		s.skipLine(meta.ErrUnknown)
		return n
	}
	s.at = len("get ")
	s.startKeys(0, 0)
	if gets {
		s.at = len("gets ")
		s.startKeys(meta.Letter('c'), 0)
	}
	return n
}

// longLineSpaces is how many spaces may lead a get line over lineMax. Source:
// memcached's try_read_command_ascii.
const longLineSpaces = 100

// skipLine throws the line away up to its end, and answers e then.
func (s *session) skipLine(e meta.Error) {
	s.phase, s.after = phaseSkipLine, e
}

// dropLine gives the memory of a broken line back.
func (s *session) dropLine() {
	if s.line == nil {
		return
	}
	if cap(*s.line) == lineMax { // one that grew is left to the collector
		*s.line = (*s.line)[:0]
		linePool.Put(s.line)
	}
	s.line, s.at = nil, 0
}
