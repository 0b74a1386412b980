package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseListen(t *testing.T) {
	tests := []struct {
		list []string
		want []address
	}{
		{nil, []address{{hosts: []string{"127.0.0.1", "::1"}, port: 7, optional: true}}},
		{[]string{"a"}, []address{{hosts: []string{"a"}, port: 7}}},
		{[]string{"a:1,b;c:2"}, []address{
			{hosts: []string{"a"}, port: 1}, {hosts: []string{"b"}, port: 7}, {hosts: []string{"c"}, port: 2}}},
		{[]string{"a", "b"}, []address{{hosts: []string{"a"}, port: 7}, {hosts: []string{"b"}, port: 7}}},
		{[]string{"[::1]:9"}, []address{{hosts: []string{"::1"}, port: 9}}},
		{[]string{"[::1]"}, []address{{hosts: []string{"::1"}, port: 7}}},
		{[]string{"::1"}, []address{{hosts: []string{"::1"}, port: 7}}},
		{[]string{"*"}, []address{{hosts: []string{""}, port: 7}}},
		{[]string{"*:0"}, []address{{hosts: []string{""}, port: 0}}},
		{[]string{"a:-1"}, []address{{hosts: []string{"a"}, port: 0}}},
		{[]string{",a,,"}, []address{{hosts: []string{"a"}, port: 7}}},
		{[]string{"tag[abc]:a:1"}, []address{{hosts: []string{"a"}, port: 1, tag: "abc"}}},
		{[]string{"tag_12345678_:[::1]:1"}, []address{{hosts: []string{"::1"}, port: 1, tag: "12345678"}}},
		{[]string{"proto[ascii]:tag_b_:a"}, []address{{hosts: []string{"a"}, port: 7, protocol: protocolASCII, tag: "b"}}},
		{[]string{"proto[negotiating]:a"}, []address{{hosts: []string{"a"}, port: 7}}},
		{[]string{"proto[binary]:a:1", "proto[b]:c"}, []address{
			{hosts: []string{"a"}, port: 1, protocol: protocolBinary}, {hosts: []string{"c"}, port: 7, protocol: protocolBinary}}},
		{[]string{"proto[nonsense]:a"}, []address{{hosts: []string{"a"}, port: 7}}},
		{[]string{"notls:a,btls:a", "mtls:proto[ascii]:tag[b]:a:1"}, []address{
			{hosts: []string{"a"}, port: 7, security: securityNone},
			{hosts: []string{"a"}, port: 7, security: securityBasic},
			{hosts: []string{"a"}, port: 1, protocol: protocolASCII, security: securityMutual, tag: "b"}}},
		{[]string{"tagged.example:5"}, []address{{hosts: []string{"tagged.example"}, port: 5}}},
	}
	for _, tt := range tests {
		got, err := parseListen(tt.list, 7, protocolAuto)
		if err != nil {
			t.Errorf("%q: %v", tt.list, err)
			continue
		}
		same := func(a, b address) bool {
			return slices.Equal(a.hosts, b.hosts) && a.port == b.port && a.tag == b.tag && a.protocol == b.protocol && a.security == b.security && a.optional == b.optional
		}
		if !slices.EqualFunc(got, tt.want, same) {
			t.Errorf("%q: got %+v, want %+v", tt.list, got, tt.want)
		}
	}
	for _, bad := range []string{
		"a:x", "a:", "a:70000", "a:-2", "[::1", "[::1]x", "[::1]:", ":5",
		"notls:", "tls:a", "btls:mtls:a", "proto[proxy]:a", "proto[ascii",
		"tag[]:a", "tag_123456789_:a", "tag[abc:a",
	} {
		if got, err := parseListen([]string{bad}, 7, protocolAuto); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, got)
		}
	}
}

func TestListenError(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tt := range []struct {
		cfg  Config
		line string
	}{
		{Config{Listen: []string{"192.0.2.77:0", "b"}}, "failed to listen on one of interface(s) 192.0.2.77:0,b: "},
		{Config{Listen: []string{taken.Addr().String()}}, "failed to listen on one of interface(s) " + taken.Addr().String() + ": "},
		{Config{Listen: []string{"mtls:127.0.0.1:0"}}, "failed to listen on one of interface(s) mtls:127.0.0.1:0: " +
			"'mtls' option is valid only when SSL is enabled"},
		{Config{Listen: []string{"a:x"}}, "failed to listen on one of interface(s) a:x: "},
		{Config{UnixSocket: "/no/such/folder/s"}, "failed to listen on UNIX socket: /no/such/folder/s: "},
	} {
		tt.cfg.Logger = slog.New(slog.DiscardHandler)
		s, err := New(tt.cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Start(context.Background())
		var le *ListenError
		if !errors.As(err, &le) || !strings.HasPrefix(err.Error(), tt.line) {
			t.Errorf("got %v, want a ListenError that begins with %q", err, tt.line)
		}
		s.Wait() // a failed start leaves nothing behind
	}
}

// version asks c for the version: it works.
func version(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("version\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && line != "VERSION "+Version+"\r\n" {
		err = fmt.Errorf("got %q", line)
	}
	return err
}

func TestListenAddresses(t *testing.T) {
	portFile := filepath.Join(t.TempDir(), "ports")
	s, _ := startServer(t, Config{Listen: []string{"127.0.0.1,[::1];tag_b_:localhost:0", "*"}, PortFile: portFile})
	var want string
	for _, a := range s.Addrs() {
		c, err := net.Dial("tcp", a.String())
		if err != nil {
			t.Fatal(err)
		}
		if err := version(c); err != nil {
			t.Errorf("%v: %v", a, err)
		}
		c.Close()
		tcp := a.(*net.TCPAddr)
		family := "INET"
		if tcp.IP.To4() == nil {
			family = "INET6"
		}
		want += fmt.Sprintf("TCP %s: %d\n", family, tcp.Port)
	}
	if n := len(s.Addrs()); n < 5 {
		t.Errorf("got %d addresses, want at least 5: %v", n, s.Addrs())
	}
	got, err := os.ReadFile(portFile)
	if err != nil || string(got) != want {
		t.Errorf("port file: got %q, %v, want %q", got, err, want)
	}
	if s.listeners[2].tag != "b" || s.listeners[0].tag != "" {
		t.Errorf("tags: got %q and %q, want b and none", s.listeners[2].tag, s.listeners[0].tag)
	}
}

// Both loopback addresses get one port, so that localhost works either way.
func TestListenDefault(t *testing.T) {
	s, _ := startServer(t, Config{})
	addrs := s.Addrs()
	if !addrs[0].(*net.TCPAddr).IP.Equal(net.IPv4(127, 0, 0, 1)) {
		t.Errorf("got %v first, want 127.0.0.1", addrs[0])
	}
	if len(addrs) > 1 && addrs[0].(*net.TCPAddr).Port != addrs[1].(*net.TCPAddr).Port {
		t.Errorf("got %v, want one port", addrs)
	}
}

func TestListenBacklog(t *testing.T) {
	s, _ := startServer(t, Config{Backlog: 7})
	info, err := unix.GetsockoptTCPInfo(s.listeners[0].fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	if info.Sacked != 7 { // of a listener that is its backlog
		t.Errorf("backlog: got %d, want 7", info.Sacked)
	}
}

func TestSocketMark(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can mark sockets")
	}
	s, _ := startServer(t, Config{SocketMark: 7, UDPPort: -1})
	for _, fd := range []int{s.listeners[0].fd, int(s.udp[0].fd.Load())} {
		if mark, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK); err != nil || mark != 7 {
			t.Errorf("descriptor %d: got mark %d, %v want 7", fd, mark, err)
		}
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, mask := range []uint32{0, 0o770} { // the second time an old file is there
		s, err := New(Config{UnixSocket: path, UnixMask: mask, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(defaultUnixMask)
		if mask != 0 {
			want = os.FileMode(mask)
		}
		if fi.Mode().Perm() != want {
			t.Errorf("mode: got %o, want %o", fi.Mode().Perm(), want)
		}
		for range 3 {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := version(c); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket file is to stay: %v", err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{UnixSocket: other, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(context.Background()); err == nil {
		t.Error("a file that is no socket was removed")
	}
}
