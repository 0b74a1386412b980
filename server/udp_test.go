package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// udpClient talks to one server.
type udpClient struct {
	t  testing.TB
	nc net.Conn
	id uint16
}

func dialUDP(t testing.TB, addr string) *udpClient {
	t.Helper()
	nc, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &udpClient{t: t, nc: nc, id: 0x1234}
}

// send sends one datagram, with the next id.
func (c *udpClient) send(payload string) {
	c.t.Helper()
	c.id++
	c.raw(string(binary.BigEndian.AppendUint16(nil, c.id)) + "\x00\x00\x00\x01\x00\x00" + payload)
}

func (c *udpClient) raw(datagram string) {
	c.t.Helper()
	if _, err := c.nc.Write([]byte(datagram)); err != nil {
		c.t.Fatal(err)
	}
}

// receive puts the answer to the last datagram together. Any other one is an
// error: what must not be answered is followed by something that is.
func (c *udpClient) receive() string {
	c.t.Helper()
	var parts [][]byte
	p := make([]byte, 1<<16)
	for got := 0; parts == nil || got < len(parts); got++ {
		if err := c.nc.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
			c.t.Fatal(err)
		}
		n, err := c.nc.Read(p)
		if err != nil {
			c.t.Fatalf("%d of %d datagrams: %v", got, len(parts), err)
		}
		if n <= udpHeaderBytes || n > udpDatagramBytes {
			c.t.Fatalf("a datagram of %d bytes: %q", n, p[:n])
		}
		id, seq := binary.BigEndian.Uint16(p), int(binary.BigEndian.Uint16(p[2:]))
		total, zero := int(binary.BigEndian.Uint16(p[4:])), binary.BigEndian.Uint16(p[6:])
		if id != c.id || zero != 0 || total > udpDatagramsMax || seq >= total {
			c.t.Fatalf("header %x of id %x: %q", p[:udpHeaderBytes], c.id, p[udpHeaderBytes:n])
		}
		if parts == nil {
			parts = make([][]byte, total)
		}
		if total != len(parts) || parts[seq] != nil {
			c.t.Fatalf("header %x among %d", p[:udpHeaderBytes], len(parts))
		}
		parts[seq] = bytes.Clone(p[udpHeaderBytes:n])
	}
	return string(bytes.Join(parts, nil))
}

// want sends a datagram and compares the answer.
func (c *udpClient) want(payload, want string) {
	c.t.Helper()
	c.send(payload)
	if got := c.receive(); got != want {
		c.t.Errorf("sent %s\n got %s\nwant %s", short(payload), short(got), short(want))
	}
}

// wantNothing sends a datagram that must not be answered.
func (c *udpClient) wantNothing(datagram string) {
	c.t.Helper()
	c.raw(datagram)
	c.want("version\r\n", "VERSION "+Version+"\r\n")
}

// request is a datagram with payload.
func request(payload string) string { return "\x00\x01\x00\x00\x00\x01\x00\x00" + payload }

// udpSteps hold for Quarry and for memcached.
func udpSteps(c *udpClient) {
	c.t.Helper()
	c.want(packet("touch key=p exp=0"), packetReply("touch notfound"))
	c.want(packet("append key=p value=v opaque=1"), packetReply("append notstored opaque=1"))
	c.want(packet("incr key=p delta=1 init=0 exp=0xffffffff"), packetReply("incr notfound"))
	value := strings.Repeat("0123456789", 2000)
	c.want("set k 1 0 5\r\nhello\r\n", "STORED\r\n")
	c.want("get k\r\n", "VALUE k 1 5\r\nhello\r\nEND\r\n")
	c.want("get none\r\n", "END\r\n")
	c.want("mg k v\r\n", "VA 5\r\nhello\r\n")
	c.want("set big 0 0 20000\r\n"+value+"\r\n", "STORED\r\n") // comes as fragments
	c.want("get big\r\n", "VALUE big 0 20000\r\n"+value+"\r\nEND\r\n")
	c.want("delete k\r\n", "DELETED\r\n")
	c.wantNothing("")
	c.wantNothing("\x00\x01\x00\x00\x00\x01\x00\x00")
	c.wantNothing(request("set k 0 0 1 noreply\r\nv\r\n"))
	c.wantNothing("\x00\x01\x00\x00\x00\x02\x00\x00get k\r\n") // of two datagrams
	c.wantNothing("\x00\x01\x00\x00\x00\x00\x00\x00get k\r\n") // of none
	c.wantNothing(request("get k"))                            // not ended
	c.want("get k\r\nget", "VALUE k 0 1\r\nv\r\nEND\r\n")      // the second one is not
	c.want("get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n")         // and is forgotten
	c.want("incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n")
}

func TestUDP(t *testing.T) {
	s, addr := startServer(t, Config{UDPPort: -1, Listen: []string{"127.0.0.1"}})
	c := dialUDP(t, s.udp[0].local.String())
	tcp := dialText(t, addr)
	udpSteps(c)
	value := strings.Repeat("x", 20000)
	c.want("set k 1 0 5\r\nhello\r\n", "STORED\r\n")
	tcp.say(t, "get k", "VALUE k 1 5")

	for _, tt := range []struct{ name, sent, want string }{
		{"many keys are one message", "get k none k\r\n", "VALUE k 1 5\r\nhello\r\nVALUE k 1 5\r\nhello\r\nEND\r\n"},
		{"many requests are one message", "get none\r\nmn\r\nset n 0 0 1\r\n1\r\nincr n 1\r\n", "END\r\nMN\r\nSTORED\r\n2\r\n"},
		{"more requests than -R", strings.Repeat("mn\r\n", 100), strings.Repeat("MN\r\n", 100)},
		{"a large value", "set big 0 0 20000\r\n" + value + "\r\nget big\r\n",
			"STORED\r\nVALUE big 0 20000\r\n" + value + "\r\nEND\r\n"},
		{"quit", "quit\r\nmn\r\n", "ERROR\r\nMN\r\n"},
		{"watch", "watch fetchers\r\nmn\r\n", "ERROR\r\nMN\r\n"},
		{"lru_crawler", "lru_crawler metadump all\r\nmn\r\n", "ERROR\r\nMN\r\n"},
		{"half a value leaves nothing", "set half 0 0 50\r\nab\r\nget half\r\n", ""},
		{"and is no part of the next", "get half\r\n", "END\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dialUDP(t, s.udp[0].local.String())
			if tt.want == "" {
				c.wantNothing(request(tt.sent))
				return
			}
			c.want(tt.sent, tt.want)
		})
	}
}

// One datagram causes a bounded number of them: a message that would need
// more is one error line.
func TestUDPBound(t *testing.T) {
	s, addr := startServer(t, Config{UDPPort: -1, Listen: []string{"127.0.0.1"}})
	c := dialUDP(t, s.udp[0].local.String())
	tcp := dialText(t, addr)
	const header, end = len("VALUE k 0 22222\r\n"), len("\r\nEND\r\n")
	fits := udpMessageBytes - header - end
	for size, want := range map[int]string{
		fits:     "",
		fits + 1: "SERVER_ERROR output line too long\r\n",
		1 << 19:  "SERVER_ERROR output line too long\r\n",
	} {
		value := strings.Repeat("v", size)
		tcp.say(t, fmt.Sprintf("set k 0 0 %d\r\n%s", size, value), "STORED")
		if want == "" {
			want = fmt.Sprintf("VALUE k 0 %d\r\n%s\r\nEND\r\n", size, value)
		}
		c.want("get k\r\n", want)
	}
	c.want("get "+strings.Repeat("k ", 1000)+"\r\n", "SERVER_ERROR output line too long\r\n")
	c.want(strings.Repeat("get k\r\n", 1000), "SERVER_ERROR output line too long\r\n")
	c.want("get none\r\n", "END\r\n")
	if n := tcp.stat(t, "stats memory", "sending_bytes"); n != 0 {
		t.Errorf("%d bytes are pinned still", n)
	}
}

// What is no command is not answered, so that the answers of two servers to
// each other come to an end.
func TestUDPUnknown(t *testing.T) {
	s, _ := startServer(t, Config{UDPPort: -1, Listen: []string{"127.0.0.1"}})
	c := dialUDP(t, s.udp[0].local.String())
	for _, answer := range []string{
		"ERROR\r\n", "STORED\r\n", "END\r\n", "MN\r\n", "HD\r\n", "VERSION 1.6.45\r\n", "12345\r\n", "OK\r\n",
		"VALUE k 1 5\r\nhello\r\nEND\r\n", "SERVER_ERROR output line too long\r\n", "CLIENT_ERROR bad data chunk\r\n",
		"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n",
	} {
		c.wantNothing(request(answer))
	}
}

func TestUDPStats(t *testing.T) {
	s, addr := startServer(t, Config{UDPPort: -1, Listen: []string{"127.0.0.1"}})
	udp := s.udp[0]
	c := dialUDP(t, udp.local.String())
	tcp := dialText(t, addr)
	fd := fmt.Sprint(udp.fd.Load())
	conns := tcp.stats(t, "stats conns")
	for key, want := range map[string]string{
		fd + ":UDP":   "UDP",
		fd + ":addr":  "udp:" + udp.local.String(),
		fd + ":state": "conn_read",
	} {
		if conns[key] != want {
			t.Errorf("%s: got %q want %q", key, conns[key], want)
		}
	}
	if _, ok := conns[fd+":listen_addr"]; ok {
		t.Error("an idle socket has no listen_addr")
	}
	c.send("stats conns\r\n")
	got := c.receive()
	for _, want := range []string{
		"STAT " + fd + ":addr udp:" + c.nc.LocalAddr().String() + "\r\n",
		"STAT " + fd + ":listen_addr udp:" + udp.local.String() + "\r\n",
		"STAT " + fd + ":state conn_parse_cmd\r\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if got := tcp.stats(t, "stats settings")["udpport"]; got != fmt.Sprint(udp.local.Port()) {
		t.Errorf("udpport: got %s", got)
	}
	before := tcp.stat(t, "stats", "bytes_read")
	c.want("version\r\n", "VERSION 1.6.45\r\n")
	if read := tcp.stat(t, "stats", "bytes_read") - before; read != len("stats\r\n")+udpHeaderBytes+len("version\r\n") {
		t.Errorf("bytes_read grew by %d", read)
	}
}

func TestUDPPorts(t *testing.T) {
	ports := filepath.Join(t.TempDir(), "ports")
	s, _ := startServer(t, Config{TCPOff: true, UDPPort: -1, PortFile: ports})
	if len(s.listeners) > 0 || len(s.udp) == 0 {
		t.Fatalf("%d listeners, %d sockets of UDP", len(s.listeners), len(s.udp))
	}
	text, err := os.ReadFile(ports)
	if err != nil {
		t.Fatal(err)
	}
	port := s.udp[0].local.Port()
	if want := fmt.Sprintf("UDP INET: %d\n", port); !strings.HasPrefix(string(text), want) {
		t.Errorf("got %q want %q", text, want)
	}
	if len(s.udp) > 1 && s.udp[1].local != netip.AddrPortFrom(netip.IPv6Loopback(), port) {
		t.Errorf("the second one: got %s", s.udp[1].local)
	}
	busy, err := New(Config{TCPOff: true, UDPPort: int(port), Listen: []string{"127.0.0.1"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	err = busy.Start(t.Context())
	if want := fmt.Sprintf("failed to listen on UDP port %d: ", port); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("a port that is taken: got %v", err)
	}
}

// What TestUDP expects is what memcached does, but for what is said there.
func TestUDPJustified(t *testing.T) {
	port := freePort(t)
	tg := startMemcachedTarget(t, []string{"-U", fmt.Sprint(port)})
	if tg.version != Version {
		t.Skipf("skipped: another memcached (%s)", tg.version)
	}
	udpSteps(dialUDP(t, fmt.Sprintf("127.0.0.1:%d", port)))
}

func TestUDPAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := newTestPeer(t, Config{})
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	if _, err := p.srv.addUDP(pc, ""); err != nil {
		t.Fatal(err)
	}
	u := p.srv.udp[0]
	in := []byte(request("set k 0 0 1\r\nv\r\nget k\r\n"))
	to := netip.MustParseAddrPort(u.local.String())
	if n := testing.AllocsPerRun(100, func() { u.datagram(in, to) }); n > 0 {
		t.Errorf("%v allocations for a datagram", n)
	}
}

// FuzzDatagram gives a socket any datagram at all: it never panics, its
// answer keeps the bound, and nothing of it is left behind.
func FuzzDatagram(f *testing.F) {
	f.Add([]byte(request("set k 0 0 1\r\nv\r\nget k\r\n")))
	f.Add([]byte(request("get k")))
	f.Add([]byte(request("set k 0 0 100000\r\nv\r\n")))
	f.Add([]byte(request("get " + strings.Repeat("k ", 9000) + "\r\n")))
	f.Add([]byte(request(sessionScript)))
	f.Add([]byte(request(packetScript)))
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) > udpReadBytes {
			return
		}
		peer := newTestPeer(t, Config{})
		peer.send("set k 0 0 5000\r\n" + strings.Repeat("v", 5000) + "\r\n")
		u := &udpSocket{srv: peer.srv, w: new(worker)}
		u.listener = &listener{transport: transportUDP}
		u.session = newSession(peer.srv, &u.connInfo)
		if len(p) <= udpHeaderBytes {
			return
		}
		u.w.now = peer.srv.clock()
		u.execute(p[udpHeaderBytes:])
		if n := u.w.out.pending(); n > udpMessageBytes {
			t.Errorf("an answer of %d bytes", n)
		}
		u.w.out.reset()
		if s := u.session; s.phase != phaseStart || s.line != nil || s.block != nil {
			t.Errorf("the session keeps something: phase %d", s.phase)
		}
	})
}
