package server

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// tryTLS connects to addr as c says, and sends one request.
func tryTLS(t testing.TB, addr string, c *tls.Config) error {
	t.Helper()
	conn := tls.Client(dial(t, addr), c)
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return version(conn)
}

// Each mode, on each kind of listener, lets in whom it should.
func TestTLSVerify(t *testing.T) {
	ours, others := newTestCA(t, "ours"), newTestCA(t, "others")
	none := ours.client(t)
	good := ours.client(t, "good")
	foreign := others.client(t, "foreign")
	foreign.RootCAs = none.RootCAs
	for _, tt := range []struct {
		prefix              string
		mode                int
		none, good, foreign bool // let in
	}{
		{"", VerifyNone, true, true, true},
		{"", VerifyRequest, true, true, false},
		{"", VerifyRequire, false, true, false},
		{"", VerifyOnce, false, true, false},
		{"btls:", VerifyNone, true, true, true},
		{"btls:", VerifyRequire, true, true, true},
		{"mtls:", VerifyNone, false, true, false},
		{"mtls:", VerifyRequest, false, true, false},
		{"mtls:", VerifyRequire, false, true, false},
	} {
		t.Run(fmt.Sprint(tt.prefix, tt.mode), func(t *testing.T) {
			cfg := Config{TLS: ours.server(t), Listen: []string{tt.prefix + "127.0.0.1:0"}}
			cfg.TLS.VerifyMode, cfg.TLS.CACert = tt.mode, ours.path
			s, addr := startServer(t, cfg)
			for _, client := range []struct {
				name string
				cfg  *tls.Config
				in   bool
			}{{"none", none, tt.none}, {"good", good, tt.good}, {"foreign", foreign, tt.foreign}} {
				before := s.tls.handshakeErrors.Load()
				if err := tryTLS(t, addr, client.cfg); (err == nil) != client.in {
					t.Errorf("client with certificate %s: got %v, want it let in: %v", client.name, err, client.in)
				}
				if !client.in {
					eventually(t, "the refusal is counted", func() bool { return s.tls.handshakeErrors.Load() == before+1 })
				}
			}
		})
	}
	t.Run("without a CA no certificate is good", func(t *testing.T) {
		cfg := Config{TLS: ours.server(t)}
		cfg.TLS.VerifyMode = VerifyRequest
		_, addr := startServer(t, cfg)
		if err := tryTLS(t, addr, none); err != nil {
			t.Error(err)
		}
		if err := tryTLS(t, addr, good); err == nil {
			t.Error("a certificate that nobody vouches for was let in")
		}
	})
}

// Listeners of several kinds serve the same items; a plain one speaks no TLS.
func TestTLSListeners(t *testing.T) {
	ca := newTestCA(t, "ca")
	cfg := Config{TLS: ca.server(t), Listen: []string{"notls:127.0.0.1:0,btls:127.0.0.1:0", "mtls:tag_t_:127.0.0.1:0"}}
	cfg.TLS.CACert = ca.path
	s, addr := startServer(t, cfg)
	plain := dial(t, addr)
	if err := version(plain); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(plain, "set k 0 0 1 noreply\r\nv\r\n")
	if err := version(plain); err != nil {
		t.Fatal(err)
	}
	for i, c := range []*tls.Config{1: ca.client(t), 2: ca.client(t, "client")} {
		if c == nil {
			continue
		}
		conn := dialTLS(t, s.Addrs()[i].String(), c)
		fmt.Fprint(conn, "get k\r\n")
		want := "VALUE k 0 1\r\nv\r\nEND\r\n"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Errorf("listener %d: got %q, %v", i, got, err)
		}
	}
	if got := s.listeners[2].tag; got != "t" {
		t.Errorf("tag: got %q, want t", got)
	}
	if err := tryTLS(t, addr, ca.client(t)); err == nil {
		t.Error("notls speaks TLS")
	}
}

// Unix sockets stay plain.
func TestTLSUnixSocketIsPlain(t *testing.T) {
	path := socketPath(t)
	startServer(t, Config{TLS: newTestCA(t, "ca").server(t), UnixSocket: path})
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := version(c); err != nil {
		t.Error(err)
	}
}

func TestTLSVersionsAndCiphers(t *testing.T) {
	ca := newTestCA(t, "ca")
	for _, tt := range []struct {
		name          string
		server        TLS
		client        uint16 // the one version that it speaks
		clientCiphers []uint16
		in            bool
		cipher        uint16 // 0 is any
	}{
		{"default takes 1.2", TLS{}, tls.VersionTLS12, nil, true, 0},
		{"default refuses 1.1", TLS{}, tls.VersionTLS11, nil, false, 0},
		{"1.0", TLS{MinVersion: tls.VersionTLS10}, tls.VersionTLS10, nil, true, 0},
		{"1.1 refuses 1.0", TLS{MinVersion: tls.VersionTLS11}, tls.VersionTLS10, nil, false, 0},
		{"1.3 refuses 1.2", TLS{MinVersion: tls.VersionTLS13}, tls.VersionTLS12, nil, false, 0},
		{"1.3", TLS{MinVersion: tls.VersionTLS13}, tls.VersionTLS13, nil, true, 0},
		{"a cipher", TLS{Ciphers: "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384"}, tls.VersionTLS12, nil, true,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384},
		{"no common cipher", TLS{Ciphers: "ECDHE-ECDSA-AES256-GCM-SHA384"}, tls.VersionTLS12,
			[]uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, false, 0},
		{"ciphers are not for 1.3", TLS{Ciphers: "ECDHE-ECDSA-AES256-GCM-SHA384"}, tls.VersionTLS13, nil, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{TLS: ca.server(t)}
			cfg.TLS.MinVersion, cfg.TLS.Ciphers = tt.server.MinVersion, tt.server.Ciphers
			_, addr := startServer(t, cfg)
			client := ca.client(t)
			client.MinVersion, client.MaxVersion, client.CipherSuites = tt.client, tt.client, tt.clientCiphers
			if err := tryTLS(t, addr, client); (err == nil) != tt.in {
				t.Fatalf("got %v, want it let in: %v", err, tt.in)
			}
			if !tt.in || tt.cipher == 0 {
				return
			}
			if got := dialTLS(t, addr, client).ConnectionState().CipherSuite; got != tt.cipher {
				t.Errorf("cipher: got %s, want %s", tls.CipherSuiteName(got), tls.CipherSuiteName(tt.cipher))
			}
		})
	}
}

// Every cipher of crypto/tls up to TLS 1.2 that is worth a name has one, and
// they are what they are called.
func TestTLSCipherNames(t *testing.T) {
	named := map[uint16]bool{}
	for name, id := range cipherNames {
		named[id] = true
		// TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA is ECDHE-RSA-AES128-SHA.
		got := tls.CipherSuiteName(id)
		for _, r := range [][2]string{
			{"TLS_RSA_WITH_", ""}, {"TLS_", ""}, {"_WITH_", "_"}, {"AES_", "AES"}, {"POLY1305_SHA256", "POLY1305"},
			{"3DES_EDE_CBC", "DES_CBC3"}, {"128_CBC", "128"}, {"256_CBC", "256"}, {"_", "-"},
		} {
			got = strings.ReplaceAll(got, r[0], r[1])
		}
		if got != name {
			t.Errorf("%s is called %s, want %s", tls.CipherSuiteName(id), name, got)
		}
	}
	for _, c := range tls.CipherSuites() {
		if c.SupportedVersions[0] <= tls.VersionTLS12 && !named[c.ID] {
			t.Errorf("%s has no name", c.Name)
		}
	}
}

// What cannot be loaded is refused in one line, memcached's where it has one.
func TestTLSErrors(t *testing.T) {
	ca := newTestCA(t, "ca")
	good := ca.server(t)
	_, otherKey := ca.issue(t, "other")
	junk := ca.write(t, "junk.pem", "JUNK", []byte("junk"))
	broken := ca.write(t, "broken.pem", pemCertificate, []byte("junk"))
	brokenKey := ca.write(t, "broken.key", "PRIVATE KEY", []byte("junk"))
	locked := ca.write(t, "locked.key", "ENCRYPTED PRIVATE KEY", []byte("junk"))
	const chain, key, authority = "Error loading the certificate chain: ", "Error loading the key: ", "Error loading the CA certificate: "
	for _, tt := range []struct {
		name string
		set  func(*TLS)
		want string // the line, or how it begins where it ends in a space
	}{
		{"no chain", func(c *TLS) { c.ChainCert = "" }, chain + "(null) : no such file or directory"},
		{"no such chain", func(c *TLS) { c.ChainCert = "/no/such" }, chain + "/no/such : no such file or directory"},
		{"chain is a folder", func(c *TLS) { c.ChainCert = ca.dir }, chain + ca.dir + " : not a file"},
		{"nothing in chain", func(c *TLS) { c.ChainCert = junk }, chain + junk + " : no certificate in it"},
		{"broken chain", func(c *TLS) { c.ChainCert = broken }, chain + broken + " : "},
		{"no such key", func(c *TLS) { c.Key = "/no/such" }, key + "/no/such : no such file or directory"},
		{"key not in chain", func(c *TLS) { c.Key = "" }, key + "(null) : no private key in it"},
		{"broken key", func(c *TLS) { c.Key = brokenKey }, key + brokenKey + " : "},
		{"key with a password", func(c *TLS) { c.Key = locked }, key + locked + " : the key has a password"},
		{"key of another", func(c *TLS) { c.Key = otherKey }, "Error validating the certificate: the key is not that of the certificate"},
		{"no such CA", func(c *TLS) { c.CACert = "/no/such" }, authority + "/no/such : no such file or directory"},
		{"nothing in CA", func(c *TLS) { c.CACert = junk }, authority + junk + " : no certificate in it"},
		{"cipher", func(c *TLS) { c.Ciphers = "AES128-SHA:HIGH" },
			"Error setting the provided cipher(s): AES128-SHA:HIGH: no cipher HIGH here"},
		{"no cipher", func(c *TLS) { c.Ciphers = ":" }, "Error setting the provided cipher(s): :: no cipher in it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Config{TLS: good}
			tt.set(&cfg.TLS)
			s, err := New(cfg)
			if err == nil {
				s.Close(t.Context())
				t.Fatal("the server is there")
			}
			ce, ok := err.(*ConfigError)
			if !ok {
				t.Fatalf("got %v, want a ConfigError", err)
			}
			prefix := strings.HasSuffix(tt.want, " ")
			if ce.Exit != ExitUsage || ce.Line != tt.want && !(prefix && strings.HasPrefix(ce.Line, tt.want)) ||
				strings.ContainsAny(ce.Line, "\r\n") {
				t.Errorf("got %d %q, want 64 %q", ce.Exit, ce.Line, tt.want)
			}
		})
	}
	if _, err := New(Config{TLS: good, TCPOff: true}); err == nil ||
		err.(*ConfigError).Line != "ERROR: You cannot enable SSL without a TCP port." {
		t.Errorf("TLS with -p 0: got %v", err)
	}
}

// copyFile replaces to by from.
func copyFile(t testing.TB, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// peerName is whom the server's certificate names.
func peerName(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].Subject.CommonName }

// Certificates are renewed while requests are under way: none is lost, old
// connections stay, new ones get the new certificate. Bad ones change nothing.
func TestTLSRenewal(t *testing.T) {
	ca := newTestCA(t, "ca")
	clock := newTestClock()
	cfg := Config{TLS: ca.server(t), Clock: clock.Now}
	s, addr := startServer(t, cfg)
	client := ca.client(t)
	old := dialTLS(t, addr, client)

	const workers = 4
	stop := make(chan struct{})
	errs := make(chan error)
	for w := range workers {
		lasting := dialTLS(t, addr, client)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					errs <- nil
					return
				default:
				}
				if err := version(lasting); err != nil {
					errs <- fmt.Errorf("lasting connection %d: %w", w, err)
					return
				}
				c, err := tls.Dial("tcp", addr, client)
				if err == nil {
					err = version(c)
					c.Close()
				}
				if err != nil {
					errs <- fmt.Errorf("new connection: %w", err)
					return
				}
			}
		}()
	}
	ask := func(want string) {
		t.Helper()
		fmt.Fprint(old, "refresh_certs\r\n")
		if got, err := bufio.NewReader(old).ReadString('\n'); err != nil || got != want {
			t.Errorf("refresh_certs: got %q, %v, want %q", got, err, want)
		}
	}
	rounds := 20
	if raceEnabled {
		rounds = 5
	}
	for i := range rounds {
		name := fmt.Sprint("server-", i)
		cert, key := ca.issue(t, name)
		copyFile(t, cfg.TLS.ChainCert, cert)
		ask("Error validating the certificate: the key is not that of the certificate\r\n")
		copyFile(t, cfg.TLS.Key, key)
		clock.Advance(time.Minute)
		ask("OK\r\n")
		if got := peerName(dialTLS(t, addr, client)); got != name {
			t.Errorf("new connection: got the certificate of %s, want %s", got, name)
		}
	}
	close(stop)
	for range workers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := peerName(old); got != "server" {
		t.Errorf("old connection: got the certificate of %s", got)
	}
	last := fmt.Sprint("server-", rounds-1)

	if err := os.WriteFile(cfg.TLS.ChainCert, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Minute)
	s.Reload()
	if got := peerName(dialTLS(t, addr, client)); got != last {
		t.Errorf("after a bad one: got the certificate of %s, want %s", got, last)
	}
	if got := statOf(t, s, clock, "time_since_server_cert_refresh"); got != "60" {
		t.Errorf("time_since_server_cert_refresh: got %s, want 60: a failed one does not count", got)
	}
	cert, key := ca.issue(t, "reloaded")
	copyFile(t, cfg.TLS.ChainCert, cert)
	copyFile(t, cfg.TLS.Key, key)
	s.Reload()
	if got := peerName(dialTLS(t, addr, client)); got != "reloaded" {
		t.Errorf("after Reload: got the certificate of %s", got)
	}
	if got := statOf(t, s, clock, "time_since_server_cert_refresh"); got != "0" {
		t.Errorf("time_since_server_cert_refresh: got %s, want 0", got)
	}
}

// statOf is one line of stats.
func statOf(t testing.TB, s *Server, clock *testClock, name string) string {
	t.Helper()
	now := SystemClock()()
	if clock != nil {
		now = clock.Now()
	}
	return statIn(s.appendStats(nil, s.snapshot(now)), name)
}

// statIn is the value of name in an answer to stats.
func statIn(stats []byte, name string) string {
	_, rest, _ := bytes.Cut(stats, []byte("STAT "+name+" "))
	value, _, _ := bytes.Cut(rest, []byte("\r\n"))
	return string(value)
}

func TestRefreshWithoutTLS(t *testing.T) {
	s, addr := startServer(t, Config{})
	c := dial(t, addr)
	fmt.Fprint(c, "refresh_certs\r\n")
	if got, err := bufio.NewReader(c).ReadString('\n'); err != nil || got != "Error TLS not enabled\r\n" {
		t.Errorf("got %q, %v", got, err)
	}
	s.Reload() // has nothing to do
}

// With a session cache a client need not shake hands in full again, but not
// with another kind of listener, and not after the certificates were renewed.
func TestTLSResumption(t *testing.T) {
	ca := newTestCA(t, "ca")
	for _, v := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, cache := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s cache %v", tlsVersionNames[v], cache), func(t *testing.T) {
				cfg := Config{TLS: ca.server(t), Listen: []string{"127.0.0.1:0,mtls:127.0.0.1:0"}}
				cfg.TLS.SessionCache, cfg.TLS.CACert = cache, ca.path
				s, addr := startServer(t, cfg)
				client := ca.client(t, "client")
				client.MaxVersion = v
				client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
				resumed := func(addr string) bool {
					c := dialTLS(t, addr, client)
					if err := version(c); err != nil { // the ticket comes before the reply
						t.Fatal(err)
					}
					return c.ConnectionState().DidResume
				}
				if resumed(addr) {
					t.Fatal("the first one is resumed")
				}
				if got := resumed(addr); got != cache {
					t.Errorf("the second one: resumed %v, want %v", got, cache)
				}
				want := ""
				if cache {
					want = "1"
				}
				if got := statOf(t, s, nil, "ssl_new_sessions"); got != want {
					t.Errorf("ssl_new_sessions: got %q, want %q", got, want)
				}
				if resumed(s.Addrs()[1].String()) {
					t.Error("a session of one kind of listener is resumed with another")
				}
				if err := s.RefreshCerts(); err != nil {
					t.Fatal(err)
				}
				if resumed(s.Addrs()[1].String()) {
					t.Error("a session is resumed after the certificates were renewed")
				}
			})
		}
	}
}

func TestTLSStatsAndSettings(t *testing.T) {
	cfg := Config{TLS: newTestCA(t, "ca").server(t)}
	cfg.TLS.VerifyMode, cfg.TLS.MinVersion, cfg.TLS.WriteBufferBytes = VerifyOnce, tls.VersionTLS13, 64<<10
	cfg.TLS.Ciphers, cfg.TLS.Kernel = "AES128-SHA", true
	s, _ := startServer(t, cfg)
	for name, want := range map[string]string{
		"ssl_enabled": "yes", "ssl_chain_cert": cfg.TLS.ChainCert, "ssl_key": cfg.TLS.Key, "ssl_verify_mode": "7",
		"ssl_keyformat": "1", "ssl_ciphers": "AES128-SHA", "ssl_ca_cert": "NULL", "ssl_wbuf_size": "65536",
		"ssl_session_cache": "no", "ssl_kernel_tls": "yes", "ssl_min_version": "tlsv1.3",
	} {
		if got := statIn(s.appendSettings(nil), name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	names := func(s *Server) (in []string) {
		for line := range strings.Lines(string(s.appendStats(nil, s.snapshot(0)))) {
			if _, rest, ok := strings.Cut(line, "STAT ssl_"); ok {
				name, _, _ := strings.Cut(rest, " ")
				in = append(in, name)
			}
		}
		return in
	}
	if got := names(s); strings.Join(got, " ") != "handshake_errors proto_errors" {
		t.Errorf("stats: got %q", got)
	}
	plain, _ := startServer(t, Config{})
	if got := names(plain); got != nil {
		t.Errorf("stats without TLS: got %q", got)
	}
	s.tls.protoErrors.Store(3)
	s.resetStats()
	if got := statOf(t, s, nil, "ssl_proto_errors"); got != "0" {
		t.Errorf("after stats reset: got %s", got)
	}
}
