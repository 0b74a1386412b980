package server

import (
	"bytes"

	"github.com/quarrycache/quarry/meta"
)

// The keys of get, gets, gat and gats. They are answered one by one, from the
// input as long as it reaches, so that neither a long line nor a full output
// needs a buffer. A key that is too long fails the whole line before any of
// its keys is answered, if the line is there as a whole; in a line that came
// in parts and is longer than lineMax, those before it were answered already.

// startKeys goes on behind the word of a get line. has has c for gets and
// gats, and T for gat and gats, whose expiry is given.
func (s *session) startKeys(has meta.Letters, expiry uint32) {
	s.phase, s.has, s.expiry, s.seen = phaseKeys, has, expiry, false
}

// readKeys answers the keys in in, or first those in the line it keeps, and
// returns the bytes of in that were taken. hungry says that it can only go on
// with more input.
func (s *session) readKeys(w *worker, in []byte) (n int, hungry bool) {
	w.req.Has = s.has // the batch may not be the one that the line began in
	if s.line == nil {
		n, broken := s.keys(w, in)
		if broken {
			s.keepKey(in[n:])
			n = len(in)
		}
		return n, n == len(in)
	}
	n, broken := s.keys(w, (*s.line)[s.at:])
	if s.at += n; s.phase != phaseKeys || s.at == len(*s.line) {
		s.dropLine()
		return 0, false
	}
	if !broken { // the output is full
		return 0, false
	}
	s.keepKey((*s.line)[s.at:])
	if s.phase != phaseKeys {
		return 0, false
	}
	n, ended := keyEnd(in)
	*s.line = append(*s.line, in[:n]...)
	return n, !ended
}

// keepKey keeps a broken key, the beginning of which is all that is there. It
// may be a view of the line kept before.
func (s *session) keepKey(key []byte) {
	// A \r may belong to the end of the line.
	if len(key) > meta.KeyMax && (len(key) > meta.KeyMax+1 || key[meta.KeyMax] != '\r') {
		s.dropLine()
		s.skipLine(meta.ErrBadLine)
		return
	}
	if s.line == nil {
		s.line = linePool.Get().(*[]byte)
	}
	*s.line, s.at = append((*s.line)[:0], key...), 0
}

// keys answers the complete keys in in, and the line when it ends there. It
// returns how far it came, and whether a broken key follows there. It stops
// before a key when the output is full.
func (s *session) keys(w *worker, in []byte) (n int, broken bool) {
	end := bytes.IndexByte(in, '\n')
	if end < 0 {
		line := in[:bytes.LastIndexByte(in, ' ')+1]
		if e := s.judgeKeys(line); e != meta.ErrNone {
			s.skipLine(e)
			return len(line), false
		}
		n, e := s.getAll(w, line)
		if e != meta.ErrNone {
			s.skipLine(e)
			return len(line), false
		}
		return n, n == len(line) && n < len(in)
	}
	line := trimCR(in[:end])
	e := s.judgeKeys(line)
	if e == meta.ErrNone {
		n, e = s.getAll(w, line)
	}
	switch {
	case e != meta.ErrNone:
		w.out.buf = e.AppendTo(w.out.buf)
	case n < len(line): // the rest of the line waits
		return n, false
	case !s.seen:
		w.out.buf = meta.ErrBadLine.AppendTo(w.out.buf)
	default:
		w.out.buf = meta.CodeEnd.AppendTo(w.out.buf)
	}
	s.phase = phaseLine
	return end + 1, false
}

// judgeKeys says why none of the keys in line can be answered, if so.
func (s *session) judgeKeys(line []byte) meta.Error {
	if len(line) <= meta.KeyMax && s.srv.buffers.repliesMax == 0 {
		return meta.ErrNone // as nearly all lines
	}
	return s.judgeEachKey(line)
}

func (s *session) judgeEachKey(line []byte) meta.Error {
	if hasLongKey(line) {
		return meta.ErrBadLine
	}
	if limit := s.srv.buffers.repliesMax; limit > 0 && countKeys(line) > limit {
		s.srv.buffers.repliesRefused.Add(1)
		return meta.ErrGetNoMemory
	}
	return meta.ErrNone
}

// countKeys is the number of keys in line.
func countKeys(line []byte) (n int) {
	for key, rest := meta.NextKey(line); key != nil; key, rest = meta.NextKey(rest) {
		n++
	}
	return n
}

// getAll answers the keys in line until the output is full, and returns how
// far it came.
func (s *session) getAll(w *worker, line []byte) (n int, e meta.Error) {
	for rest := line; ; {
		before := rest
		var key []byte
		if key, rest = meta.NextKey(rest); len(key) == 0 {
			return len(line), meta.ErrNone
		}
		if w.out.pending() >= outHighBytes || w.relays.full() {
			return len(line) - len(before), meta.ErrNone
		}
		s.seen = true
		if s.srv.node != nil {
			if s.legacyConfig(w, key) {
				continue
			}
			switch s.routeKey(w, key) {
			case routeWait:
				s.elsewhere = true
				return len(line) - len(before), meta.ErrNone
			case routeRelay:
				continue
			case routeMoved:
				return len(line), meta.ErrNotOwner
			}
		}
		if len(rest) > 0 && w.ahead.next == w.ahead.n && s.line == nil {
			s.lookAheadKeys(w, key, rest)
		}
		w.sampleKey(key, false)
		if !s.get(w, key) {
			return len(line), meta.ErrGetNoMemory
		}
	}
}

// keyEnd is how many bytes of in complete a broken key, the byte that ends it
// included, or so many that the key is too long.
func keyEnd(in []byte) (n int, ended bool) {
	in = in[:min(len(in), meta.KeyMax+2)]
	for i, c := range in {
		if c == ' ' || c == '\n' {
			return i + 1, true
		}
	}
	return len(in), false
}

// hasLongKey reports whether a key in line is longer than meta.KeyMax. It
// looks at few bytes: from each place where a key may begin it looks back
// from where it had to end.
func hasLongKey(line []byte) bool {
	for len(line) > meta.KeyMax {
		i := bytes.LastIndexByte(line[:meta.KeyMax+1], ' ')
		if i < 0 {
			return true
		}
		line = line[i+1:]
	}
	return false
}

// trimCR is line without the \r that belongs to its end.
func trimCR(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		return line[:n-1]
	}
	return line
}
