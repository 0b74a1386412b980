package server

import (
	"bytes"

	"github.com/quarrycache/quarry/meta"
)

// With -Y a connection starts outside: the only thing it can do there is to
// send a user and a password, in the form of a set with any key:
//
//	set KEY 0 0 LENGTH\r\n
//	USER PASSWORD\r\n

// Limits of a login. Source: memcached's try_read_command_asciiauth.
const (
	tokenMaxBytes     = 16384 // of USER PASSWORD
	loginLineMinBytes = 6     // without the \n: what is shorter ends the connection
	loginWordsMin     = 5     // of the line
)

// readLogin takes the line of a login, or what is there of it.
func (s *session) readLogin(w *worker, in []byte) (n int) {
	end := bytes.IndexByte(in, '\n')
	if s.line == nil {
		if end >= 0 {
			s.loginLine(w, in[:end])
			return end + 1
		}
		s.line = linePool.Get().(*[]byte)
	}
	n = len(in)
	if end >= 0 {
		n = end + 1
	}
	if len(*s.line)+n > lineMax {
		s.dropLine()
		s.close(closeError)
		return n
	}
	*s.line = append(*s.line, in[:n]...)
	if end >= 0 {
		s.loginLine(w, (*s.line)[:len(*s.line)-1])
		s.dropLine()
	}
	return n
}

// loginLine answers a line that is no login, and goes on to the token of one
// that is. line is without its \n.
func (s *session) loginLine(w *worker, line []byte) {
	w.n.requests++
	if len(line) < loginLineMinBytes {
		s.close(closeError)
		return
	}
	var word []byte
	words := 0
	for rest := trimCR(line); words < loginWordsMin; words++ {
		if word, rest = meta.NextKey(rest); word == nil {
			break
		}
	}
	length, ok := meta.ParseUint32(word)
	switch {
	case words < loginWordsMin || !ok || !bytes.HasPrefix(line, []byte("set")):
		w.out.buf = meta.ErrUnauthenticated.AppendTo(w.out.buf)
	case length > tokenMaxBytes:
		w.out.buf = meta.ErrAuthTooLong.AppendTo(w.out.buf)
	default:
		s.phase, s.skip = phaseToken, int(length)+len("\r\n")
	}
}

// readToken takes the user and the password, or what is there of them.
func (s *session) readToken(w *worker, in []byte) (n int) {
	if s.line == nil {
		if n = s.skip; len(in) >= n {
			s.login(w, in[:n])
			return n
		}
		s.line = linePool.Get().(*[]byte)
	}
	n = min(s.skip-len(*s.line), len(in))
	*s.line = append(*s.line, in[:n]...)
	if len(*s.line) == s.skip {
		s.login(w, *s.line)
		s.dropLine()
	}
	return n
}

// login lets the connection in, or answers why not.
func (s *session) login(w *worker, token []byte) {
	s.phase, s.skip = phaseLogin, 0
	token, ended := bytes.CutSuffix(token, []byte("\r\n"))
	user, password, both := bytes.Cut(token, []byte{' '})
	switch {
	case !ended:
		w.out.buf = meta.ErrAuthTermination.AppendTo(w.out.buf)
		return
	case !both:
		w.out.buf = meta.ErrAuthFormat.AppendTo(w.out.buf)
		return
	}
	w.n.authCmds++
	if !s.srv.credentials.Load().check(user, password) {
		w.n.authErrors++
		w.out.buf = meta.ErrAuthFailed.AppendTo(w.out.buf)
		return
	}
	s.phase = phaseLine
	w.out.buf = meta.CodeStored.AppendTo(w.out.buf)
}
