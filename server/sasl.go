package server

import (
	"bytes"

	"github.com/quarrycache/quarry/meta"
)

// SASL, with -S: what a connection may do before it has said who it is, and
// how it says so. There is one mechanism, PLAIN.

const (
	// mechanismMaxBytes is the longest name of a mechanism. Source: memcached's
	// MAX_SASL_MECH_LEN.
	mechanismMaxBytes = 32

	// authValueMaxBytes is the longest message of a mechanism.
	authValueMaxBytes = 1 << 10

	// authHeadMax is the most that a session keeps of a packet.
	authHeadMax = meta.PacketHeadMax + authValueMaxBytes
)

// What is kept fits the memory that is kept for broken lines.
const _ = uint(lineMax - authHeadMax)

// plain is the name of the mechanism.
const plain = "PLAIN"

// saslLogin is how far a session has come with its authentication.
type saslLogin struct {
	done    bool // it may do everything
	started bool // the mechanism waits for its first message
}

// guard is e, or that the packet needs a login that is not there.
func (s *session) guard(r *meta.Request, e meta.Error) meta.Error {
	if s.srv.saslUsers == nil || s.sasl.done {
		return e
	}
	switch e {
	case meta.ErrPacketMagic, meta.ErrPacketShort, meta.ErrPacketLong:
		return e
	}
	switch r.Opcode {
	case meta.OpcodeAuthList, meta.OpcodeAuthStart, meta.OpcodeAuthStep, meta.OpcodeVersion:
		return e
	}
	return meta.ErrPacketUnauthenticated
}

// authIsWhole reports whether the packet in r, whose value is short, is to be
// executed when all of it is there.
func (s *session) authIsWhole(r *meta.Request, e meta.Error) bool {
	return e == meta.ErrNone && s.refuseAuth(r) == meta.ErrNone &&
		(r.Op == meta.OpAuthStart || r.Op == meta.OpAuthStep)
}

// refuseAuth is why a packet of SASL is refused before its value is looked at.
// The key need not be there yet.
func (s *session) refuseAuth(r *meta.Request) meta.Error {
	switch {
	case s.srv.saslUsers == nil:
		return meta.ErrUnknown
	case len(r.Key) > mechanismMaxBytes:
		return meta.ErrMechanismName
	case r.ValueLen > authValueMaxBytes:
		return meta.ErrAuthNoMemory
	}
	return meta.ErrNone
}

// authList answers which mechanisms there are. As in memcached that ends a
// login.
func (s *session) authList(w *worker) {
	r := &w.req
	if e := s.refuseAuth(r); e != meta.ErrNone {
		w.fail(r, e)
		return
	}
	s.sasl.done = false
	w.out.buf = r.AppendPacketText(w.out.buf, meta.PacketOK, plain)
}

// auth answers the packet in w.req, which starts a login or goes on with it;
// packet is the whole of it. A password that was right before is taken at once.
// Another one has to wait until the session may.
func (s *session) auth(w *worker, packet []byte) {
	r := &w.req
	if e := s.refuseAuth(r); e != meta.ErrNone {
		w.fail(r, e)
		s.skipBytes(r.ValueLen)
		return
	}
	started := s.sasl.started
	s.sasl = saslLogin{}
	switch {
	case r.Op == meta.OpAuthStart && !bytes.EqualFold(r.Key, []byte(plain)),
		r.Op == meta.OpAuthStep && !started:
		s.loggedIn(w, false)
		return
	case r.Op == meta.OpAuthStart && r.ValueLen == 0:
		s.sasl.started = true
		w.out.buf = r.AppendPacketText(w.out.buf, meta.PacketAuthContinue, "")
		return
	}
	name, password, ok := plainMessage(packet[len(packet)-r.ValueLen:])
	if !ok || s.srv.saslUsers.knows(name, password) {
		s.loggedIn(w, ok)
		return
	}
	if s.line == nil {
		s.keepHead(packet, len(packet))
	}
	s.phase = phaseAuth
}

// verifyKept answers the packet that was kept until the session may wait.
func (s *session) verifyKept(w *worker) {
	r, packet := &w.req, *s.line
	r.ParsePacket(packet)
	name, password, _ := plainMessage(packet[len(packet)-r.ValueLen:])
	ok := s.srv.saslUsers.try(name, password, s.srv.stop)
	w.now = s.srv.clock() // it may have taken long
	s.loggedIn(w, ok)
	s.dropLine()
	s.phase = s.home
}

// loggedIn answers how a login ended.
func (s *session) loggedIn(w *worker, ok bool) {
	w.n.authCmds++
	s.sasl.done = ok
	if !ok {
		w.n.authErrors++
		w.fail(&w.req, meta.ErrAuthFailed)
		return
	}
	w.out.buf = w.req.AppendPacketText(w.out.buf, meta.PacketOK, "Authenticated")
}

// plainMessage takes apart the message of PLAIN: the user to act as, who is
// nobody or the user himself, the user, and the password, with a NUL between
// them. Source: RFC 4616.
func plainMessage(b []byte) (name, password []byte, ok bool) {
	as, rest, ok1 := bytes.Cut(b, []byte{0})
	name, password, ok2 := bytes.Cut(rest, []byte{0})
	ok = ok1 && ok2 && len(name) > 0 && (len(as) == 0 || bytes.Equal(as, name))
	return name, password, ok && bytes.IndexByte(password, 0) < 0
}
