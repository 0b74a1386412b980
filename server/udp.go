package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"runtime"

	"github.com/quarrycache/quarry/meta"
)

// Over UDP a datagram is a whole conversation: a header, one or more requests
// that are complete in it, and a message that answers all of them, cut into
// datagrams. The header of each is four numbers of 16 bits: the id that the
// client chose, which datagram this is, from 0, how many there are, and 0.
//
// Whoever sends a datagram can write any address into it, and the reply goes
// there. So what one datagram can cause is bounded, and what is no request at
// all is not answered: neither a flood can be aimed at anyone, nor can two
// servers be made to answer each other's answers for ever.
const (
	udpHeaderBytes = 8

	// udpDatagramBytes is the most that is sent in a datagram. Source:
	// memcached's UDP_MAX_PAYLOAD_SIZE.
	udpDatagramBytes = 1400

	// udpDatagramsMax is how many datagrams answer one. A message that would
	// need more is replaced by an error line. Quarry's own: memcached sends up
	// to 65535.
	udpDatagramsMax = 16

	udpMessageBytes = udpDatagramsMax * (udpDatagramBytes - udpHeaderBytes)

	// udpReadBytes is the most that is read: no datagram is longer.
	udpReadBytes = 1 << 16
)

// udpSocket is a socket that datagrams come to, and what serves them: one
// goroutine, with one session at a time.
type udpSocket struct {
	connInfo
	srv     *Server
	pc      *net.UDPConn
	session *session
	w       *worker
	out     [udpDatagramBytes]byte
}

// listenUDP opens a socket for each address of -l, or of the loopback.
func (s *Server) listenUDP(ctx context.Context) error {
	addresses, err := parseListen(s.cfg.Listen, s.cfg.UDPPort, protocolAuto)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	for _, a := range addresses {
		err := a.openAll(ctx, func(family string, at netip.AddrPort) (port int, err error) {
			pc, err := lc.ListenPacket(ctx, "udp"+family, at.String())
			if err != nil {
				return 0, err
			}
			return s.addUDP(pc.(*net.UDPConn), a.tag)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addUDP keeps pc and gives its port.
func (s *Server) addUDP(pc *net.UDPConn, tag string) (port int, err error) {
	u := &udpSocket{srv: s, pc: pc, w: new(worker)}
	u.listener = &listener{transport: transportUDP, tag: tag}
	u.local = pc.LocalAddr().(*net.UDPAddr).AddrPort()
	u.opened = s.clock()
	u.lastRead.Store(int64(u.opened))
	u.session = newSession(s, &u.connInfo)
	s.udp = append(s.udp, u)
	rc, err := pc.SyscallConn()
	if err != nil {
		return 0, err
	}
	return int(u.local.Port()), rc.Control(func(fd uintptr) {
		u.fd.Store(int32(fd))
		u.number = int(fd)
		s.markSocket(int(fd))
	})
}

// serve answers datagrams until the socket is closed.
func (u *udpSocket) serve() {
	in := make([]byte, udpReadBytes)
	for failed := false; ; {
		n, from, err := u.pc.ReadFromUDPAddrPort(in)
		switch {
		case err == nil:
			failed = false
			u.datagram(in[:n], from)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		case !failed:
			failed = true
			u.srv.log.Warn("no datagrams can be read", "address", u.local, "error", err)
		}
		if !u.srv.pause(acceptRetry) {
			return
		}
	}
}

// datagram answers one. What is no request, what is a part of one in several
// datagrams, and what is not complete is dropped.
func (u *udpSocket) datagram(p []byte, from netip.AddrPort) {
	w := u.w
	w.n.bytesRead += uint64(len(p))
	if len(p) > udpHeaderBytes && binary.BigEndian.Uint16(p[4:]) == 1 {
		w.begin(u.srv, &u.connInfo, u.srv.watch.common())
		u.lastRead.Store(int64(w.now))
		u.remote = from
		u.setState(connParseCmd)
		u.execute(p[udpHeaderBytes:])
		w.publish(u.srv) // who has the answer finds it counted
		u.send(binary.BigEndian.Uint16(p), from)
		u.setState(connRead)
	}
	w.publish(u.srv)
}

// execute has the session execute the requests in p, which is changed to the
// part of it that is complete. Their replies wait in the worker's output then.
func (u *udpSocket) execute(p []byte) {
	if p[0] != meta.PacketMagic { // a packet says how long it is
		p = p[:bytes.LastIndexByte(p, '\n')+1]
	}
	u.w.mayWait = true
	for v := verdictYield; (len(p) > 0 || v == verdictWait) && v != verdictClose && u.w.out.pending() <= udpMessageBytes; {
		var n int
		n, v = u.session.feed(u.w, p[:min(len(p), asideStepBytes)])
		p = p[n:]
		runtime.Gosched()
	}
	if u.w.out.pending() > udpMessageBytes {
		u.w.out.reset()
		u.w.req.HideErrors = false
		u.w.fail(&u.w.req, meta.ErrReplyTooLong)
	}
	u.session.end() // what is not complete is dropped
	*u.session = *newSession(u.srv, &u.connInfo)
}

// send sends the output as one message. What cannot be sent is lost, as any
// datagram may be.
func (u *udpSocket) send(id uint16, to netip.AddrPort) {
	o := &u.w.out
	const payload = udpDatagramBytes - udpHeaderBytes
	total := (o.pending() + payload - 1) / payload
	for seq := range total {
		binary.BigEndian.PutUint16(u.out[0:], id)
		binary.BigEndian.PutUint16(u.out[2:], uint16(seq))
		binary.BigEndian.PutUint16(u.out[4:], uint16(total))
		message := u.out[:udpHeaderBytes]
		for len(message) < len(u.out) && o.pending() > 0 {
			n := len(message)
			message = gather(message, o.next())
			o.advance(len(message) - n)
		}
		if _, err := u.pc.WriteToUDPAddrPort(message, to); err != nil {
			break
		}
		u.w.n.bytesWritten += uint64(len(message))
	}
	o.reset()
}
