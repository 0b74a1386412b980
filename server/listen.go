package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// tagMaxBytes is the longest tag of a listener. Source: memcached, which keeps
// it in a 64-bit number.
const tagMaxBytes = 8

// ListenError is an address that could not be listened on. Its text begins
// with memcached's line.
type ListenError struct {
	What string // "one of interface(s) a,b", "TCP port 1", "UNIX socket: path"
	Err  error
}

// Error begins with memcached's line.
func (e *ListenError) Error() string { return "failed to listen on " + e.What + ": " + e.Err.Error() }

// Unwrap is the cause.
func (e *ListenError) Unwrap() error { return e.Err }

// listener is a socket that connections come from.
type listener struct {
	net.Listener
	transport transport
	protocol  protocol
	tag       string
	security  security                   // securityNone without -Z
	fd        int                        // for stats conns; the runtime owns it
	keepAlive [len(keepAliveOptions)]int // what its connections inherit
}

// keepAliveOptions are the times of keep-alive probes.
var keepAliveOptions = [...]int{unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT}

// address is an item of -l.
type address struct {
	hosts    []string // names or numbers; "" is all of this machine
	port     int      // 0 is any free one
	protocol protocol
	tag      string
	security security
	optional bool // hosts after the first may be missing on this machine
}

// loopback is listened on without -l. Quarry's own: memcached listens on all
// interfaces.
var loopback = address{hosts: []string{"127.0.0.1", "::1"}, optional: true}

// listen opens all listeners.
func (s *Server) listen(ctx context.Context) error {
	if s.cfg.UnixSocket != "" {
		if err := s.listenUnix(ctx, s.cfg.UnixSocket); err != nil {
			return &ListenError{"UNIX socket: " + s.cfg.UnixSocket, err}
		}
		return nil
	}
	if !s.cfg.TCPOff {
		if err := s.listenNet(ctx); err != nil {
			return err
		}
	}
	if s.cfg.UDPPort != 0 {
		if err := s.listenUDP(ctx); err != nil {
			return &ListenError{fmt.Sprintf("UDP port %d", s.cfg.UDPPort), err}
		}
	}
	if s.cfg.PortFile != "" {
		if err := s.writePortFile(s.cfg.PortFile); err != nil {
			s.log.Warn("ports not written", "error", err)
		}
	}
	return nil
}

// listenNet opens the listeners of all -l.
func (s *Server) listenNet(ctx context.Context) error {
	what := fmt.Sprintf("TCP port %d", s.cfg.Port)
	if len(s.cfg.Listen) > 0 {
		what = "one of interface(s) " + strings.Join(s.cfg.Listen, ",")
	}
	addresses, err := parseListen(s.cfg.Listen, s.cfg.Port, s.cfg.protocol())
	if err != nil {
		return &ListenError{what, err}
	}
	for _, a := range addresses {
		switch {
		case a.security != securityDefault && !s.cfg.TLS.Enabled:
			return &ListenError{what, fmt.Errorf("'%s' option is valid only when SSL is enabled", securityNames[a.security])}
		case a.protocol != protocolBinary && s.cfg.SASL:
			return &ListenError{what, errors.New(asciiWithSASL)}
		case a.protocol == protocolBinary && s.cfg.AuthFile != "":
			return &ListenError{what, errors.New("Cannot use binary protocol when ascii authentication enabled")}
		}
		if err := s.listenTCP(ctx, a); err != nil {
			return &ListenError{what, err}
		}
	}
	return nil
}

// listenTCP opens the listeners of one item of -l.
func (s *Server) listenTCP(ctx context.Context, a address) error {
	lc := net.ListenConfig{KeepAlive: -1, Control: s.prepareSocket} // keep-alive comes from the listener
	lc.SetMultipathTCP(false)
	return a.openAll(ctx, func(family string, at netip.AddrPort) (port int, err error) {
		ln, err := lc.Listen(ctx, "tcp"+family, at.String())
		if err != nil {
			return 0, err
		}
		return ln.Addr().(*net.TCPAddr).Port, s.addListener(ln, transportTCP, a)
	})
}

// openAll opens a socket for each address that a's hosts resolve to: open is
// given "4" or "6", and gives the port that it got. As in memcached an address
// that is in use is left out if another one is not, and so is a family that
// the machine does not have.
func (a *address) openAll(ctx context.Context, open func(family string, at netip.AddrPort) (port int, err error)) error {
	ips, err := a.resolve(ctx)
	if err != nil {
		return err
	}
	port, opened := a.port, 0
	var leftOut error
	for i, ip := range ips {
		family := "4"
		if ip.Is6() {
			family = "6"
		}
		bound, err := open(family, netip.AddrPortFrom(ip, uint16(port)))
		if errors.Is(err, unix.EADDRINUSE) && a.port == 0 && port != 0 {
			bound, err = open(family, netip.AddrPortFrom(ip, 0))
		}
		switch {
		case err == nil:
		case errors.Is(err, unix.EADDRINUSE), errors.Is(err, unix.EAFNOSUPPORT), a.optional && i > 0:
			leftOut = err
			continue
		default:
			return err
		}
		if port == 0 { // the other addresses get the same port, where they can
			port = bound
		}
		opened++
	}
	if opened == 0 {
		return leftOut
	}
	return nil
}

// prepareSocket sets the options of a listener that its connections inherit.
// Source: memcached's server_socket; TCP_NODELAY is set by package net.
func (s *Server) prepareSocket(_, _ string, rc syscall.RawConn) error {
	var err error
	ctl := rc.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		if n := s.cfg.sendBufferBytes; n > 0 && err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, n)
		}
		s.markSocket(int(fd))
	})
	if ctl != nil {
		return ctl
	}
	return os.NewSyscallError("setsockopt", err)
}

// markSocket gives a socket the mark that a firewall knows it by; connections
// inherit it. Without the right to, the server runs all the same, as memcached
// does.
func (s *Server) markSocket(fd int) {
	if s.cfg.SocketMark == 0 {
		return
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, s.cfg.SocketMark); err != nil {
		s.log.Warn("socket not marked", "sock_cookie_id", s.cfg.SocketMark, "error", err)
	}
}

// addListener keeps ln, with -b for its backlog: package net takes the
// system's largest.
func (s *Server) addListener(ln net.Listener, tr transport, a address) error {
	l := &listener{Listener: ln, transport: tr, protocol: a.protocol, tag: a.tag, security: a.security}
	if !s.cfg.TLS.Enabled {
		l.security = securityNone
	}
	s.listeners = append(s.listeners, l)
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	ctl := rc.Control(func(fd uintptr) {
		l.fd = int(fd)
		if err = unix.Listen(l.fd, s.cfg.Backlog); err != nil || tr != transportTCP {
			return
		}
		for i, option := range keepAliveOptions {
			l.keepAlive[i], err = unix.GetsockoptInt(l.fd, unix.IPPROTO_TCP, option)
			if err != nil {
				return
			}
		}
	})
	if ctl != nil {
		return ctl
	}
	return os.NewSyscallError("listen", err)
}

// restoreKeepAlive makes the times of nc those that it was accepted with:
// net.FileConn sets its own.
func (ln *listener) restoreKeepAlive(nc net.Conn) error {
	if ln.transport != transportTCP {
		return nil
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	ctl := rc.Control(func(fd uintptr) {
		for i, option := range keepAliveOptions {
			if err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, ln.keepAlive[i]); err != nil {
				return
			}
		}
	})
	if ctl != nil {
		return ctl
	}
	return os.NewSyscallError("setsockopt", err)
}

// listenUnix opens a unix socket. An old socket at path is removed first, any
// other file is in the way. The socket's file is left behind at the end, as
// memcached does.
func (s *Server) listenUnix(ctx context.Context, path string) error {
	if fi, err := os.Lstat(path); err == nil && fi.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	lc := net.ListenConfig{Control: s.prepareSocket}
	mask := unix.Umask(int(^s.cfg.UnixMask & 0o777)) // at no moment is it open to others
	ln, err := lc.Listen(ctx, "unix", path)
	unix.Umask(mask)
	if err != nil {
		return err
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	return s.addListener(ln, transportUnix, address{protocol: s.cfg.protocol(), security: securityNone})
}

// writePortFile tells name the ports that were bound. Source: memcached's
// MEMCACHED_PORT_FILENAME.
func (s *Server) writePortFile(name string) error {
	var text []byte
	for _, a := range s.Addrs() {
		var transport string
		var ip net.IP
		var port int
		switch a := a.(type) {
		case *net.TCPAddr:
			transport, ip, port = "TCP", a.IP, a.Port
		case *net.UDPAddr:
			transport, ip, port = "UDP", a.IP, a.Port
		default:
			continue
		}
		family := "INET"
		if ip.To4() == nil {
			family = "INET6"
		}
		text = fmt.Appendf(text, "%s %s: %d\n", transport, family, port)
	}
	if err := os.WriteFile(name+".lck", text, 0o666); err != nil {
		return err
	}
	return os.Rename(name+".lck", name)
}

// parseListen reads -l: lists of addresses, separated by commas or semicolons.
// port and proto are for those that name none. Source: memcached's
// server_sockets.
func parseListen(lists []string, port int, proto protocol) ([]address, error) {
	port = max(port, 0)
	if len(lists) == 0 {
		a := loopback
		a.port, a.protocol = port, proto
		return []address{a}, nil
	}
	var addresses []address
	for _, list := range lists {
		for _, item := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ';' }) {
			a, err := parseAddress(item, port, proto)
			if err != nil {
				return nil, err
			}
			addresses = append(addresses, a)
		}
	}
	return addresses, nil
}

// parseAddress reads one item of -l: [notls:|btls:|mtls:][proto[name]:][tag[name]:|tag_name_:]
// followed by host, host:port, [v6], [v6]:port, a bare v6 address, or *.
func parseAddress(item string, port int, proto protocol) (address, error) {
	a := address{port: port, protocol: proto}
	s := item
	for kind := securityNone; kind < securityKinds; kind++ {
		if after, ok := strings.CutPrefix(s, securityNames[kind]+":"); ok {
			a.security, s = kind, after
			break
		}
	}
	if after, ok := strings.CutPrefix(s, "proto["); ok {
		name, rest, ok := strings.Cut(after, "]")
		if !ok {
			return a, fmt.Errorf("invalid protocol: %q", item)
		}
		if name == "proxy" {
			return a, fmt.Errorf("no proxy protocol here: %q", item)
		}
		if p, ok := listenerProtocol(name); ok {
			a.protocol = p
		}
		s = strings.TrimPrefix(rest, ":")
	}
	if after, ok := strings.CutPrefix(s, "tag"); ok && after != "" && (after[0] == '[' || after[0] == '_') {
		closer := "]"
		if after[0] == '_' {
			closer = "_"
		}
		tag, rest, ok := strings.Cut(after[1:], closer)
		if !ok {
			return a, fmt.Errorf("invalid tag: %q", s)
		}
		if tag == "" || len(tag) > tagMaxBytes {
			return a, fmt.Errorf("a tag has between 1 and 8 characters: %q", tag)
		}
		a.tag, s = tag, strings.TrimPrefix(rest, ":")
	}
	host, portText := s, ""
	if after, ok := strings.CutPrefix(s, "["); ok {
		var rest string
		if host, rest, ok = strings.Cut(after, "]"); !ok {
			return a, fmt.Errorf("invalid IPv6 address: %q", s)
		}
		if rest != "" {
			if portText, ok = strings.CutPrefix(rest, ":"); !ok || portText == "" {
				return a, fmt.Errorf("invalid port number: %q", rest)
			}
		}
	} else if before, after, ok := strings.Cut(s, ":"); ok && !strings.Contains(after, ":") {
		host = before
		if portText = after; portText == "" {
			return a, fmt.Errorf("invalid port number: %q", portText)
		}
	}
	if portText != "" {
		n, err := strconv.Atoi(portText)
		if err != nil || n < -1 || n > portMax {
			return a, fmt.Errorf("invalid port number: %q", portText)
		}
		a.port = max(n, 0)
	}
	if host == "*" {
		a.hosts = []string{""}
		return a, nil
	}
	if host == "" {
		return a, fmt.Errorf("no host in %q", item)
	}
	a.hosts = []string{host}
	return a, nil
}

// resolve gives the addresses of a's hosts, each once.
func (a *address) resolve(ctx context.Context) ([]netip.Addr, error) {
	var ips []netip.Addr
	for _, host := range a.hosts {
		if host == "" {
			ips = append(ips, netip.IPv4Unspecified(), netip.IPv6Unspecified())
			continue
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, err
		}
		for _, ip := range found {
			ip = ip.Unmap()
			if !slices.Contains(ips, ip) {
				ips = append(ips, ip)
			}
		}
	}
	return ips, nil
}
