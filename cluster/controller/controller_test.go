package controller

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
)

// logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// wait waits for a line with all of these words.
func (l *logged) wait(t testing.TB, words ...string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		l.mu.Lock()
		text := l.buf.String()
		l.mu.Unlock()
	lines:
		for line := range strings.Lines(text) {
			for _, w := range words {
				if !strings.Contains(line, w) {
					continue lines
				}
			}
			return
		}
	}
	t.Fatalf("no line with %q in the log:\n%s", words, l.buf.String())
}

func start(t testing.TB, c Config) (*Controller, *logged) {
	t.Helper()
	leakless(t)
	log := new(logged)
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	c.TickMs = 10
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	k, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-k.Ready():
	case <-time.After(time.Minute):
		t.Fatalf("it is not ready:\n%s", log.buf.String())
	}
	return k, log
}

func open(t testing.TB, k *Controller, o control.Options) control.Store {
	t.Helper()
	o.LeaseSeconds = 1
	s, err := control.Open("etcd:"+k.Addr(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestAlone(t *testing.T) {
	dir := t.TempDir()
	k, log := start(t, Config{Data: dir})
	if _, err := Start(Config{Data: dir, Listen: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second one in the same folder: %v", err)
	}
	s := open(t, k, control.Options{})
	m, err := bucket.First("test", []bucket.Node{{ID: "a", Addr: "h:1"}, {ID: "b", Addr: "h:2"}}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CompareAndSwap(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
	log.wait(t, "controller: map", "epoch=0.1")
	log.wait(t, "node is down", "node=b")
	a := open(t, k, control.Options{})
	a.Announce(control.Presence{ID: "a", Addr: "h:1", Epoch: m.Epoch, Digest: m.Digest()})
	log.wait(t, "node is up", "node=a")
	a.Announce(control.Presence{ID: "a", Addr: "h:1", Epoch: m.Epoch, Digest: bucket.Digest{1}})
	log.wait(t, "WARN", "node is differs", "node=a")
	a.Announce(control.Presence{ID: "a", Addr: "h:1", Epoch: m.Epoch + 1, Digest: m.Digest()})
	log.wait(t, "WARN", "node is ahead", "restored from a backup")
	a.Announce(control.Presence{ID: "a", Addr: "h:1", Epoch: m.Epoch - 1, Digest: m.Digest()})
	log.wait(t, "WARN", "node is behind", "node=a")
	next, err := m.Plan(bucket.Change{Remove: []string{"b"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CompareAndSwap(t.Context(), m, next); err != nil {
		t.Fatal(err)
	}
	log.wait(t, "node has left", "node=b")
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}

	k, _ = start(t, Config{Data: dir})
	defer k.Close()
	if got, err := open(t, k, control.Options{}).Get(t.Context()); err != nil || got.Digest() != next.Digest() {
		t.Errorf("after a restart it has %v, %v", got, err)
	}
}

// Without a certificate that is known nobody gets in, and with one they do.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, filepath.Join(dir, "ca"))
	cert, key := ca.issue(t, filepath.Join(dir, "server"))
	k, _ := start(t, Config{Data: filepath.Join(dir, "data"), CA: ca.path, Cert: cert, Key: key})
	t.Cleanup(func() { _ = k.Close() }) // after those that run in parallel
	m, err := bucket.First("test", []bucket.Node{{ID: "a", Addr: "h:1"}}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	clientCert, clientKey := ca.issue(t, filepath.Join(dir, "client"))
	if err := open(t, k, control.Options{CA: ca.path, Cert: clientCert, Key: clientKey}).CompareAndSwap(t.Context(), nil, m); err != nil {
		t.Error(err)
	}
	other := newAuthority(t, filepath.Join(dir, "other"))
	otherCert, otherKey := other.issue(t, filepath.Join(dir, "stranger"))
	for name, o := range map[string]control.Options{
		"in the clear":               {},
		"without a certificate":      {CA: ca.path},
		"with one of somebody else":  {CA: ca.path, Cert: otherCert, Key: otherKey},
		"who trusts somebody else":   {CA: other.path, Cert: clientCert, Key: clientKey},
		"who trusts the public ones": {Cert: clientCert, Key: clientKey},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if m, err := open(t, k, o).Get(ctx); err == nil {
				t.Errorf("one gets map %s", m.Epoch)
			}
		})
	}
}

// Three agree over TLS, and a stranger's certificate is none of theirs.
func TestPeerCertificates(t *testing.T) {
	leakless(t, ofEtcdPeers...)
	dir := t.TempDir()
	ca := newAuthority(t, filepath.Join(dir, "ca"))
	cert, key := ca.issue(t, filepath.Join(dir, "peer"))
	var peers []Peer
	for _, name := range []string{"x", "y", "z"} {
		peers = append(peers, Peer{name, freeAddr(t)})
	}
	config := func(name string) Config {
		return Config{
			Data: filepath.Join(dir, name), Name: name, Listen: "127.0.0.1:0", Peers: peers,
			CA: ca.path, Cert: cert, Key: key, TickMs: 20,
		}
	}
	begin := func(c Config) *Controller {
		k, err := Start(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = k.Close() })
		return k
	}
	x := begin(config("x"))
	stranger := config("z")
	other := newAuthority(t, filepath.Join(dir, "other"))
	stranger.CA = other.path
	stranger.Cert, stranger.Key = other.issue(t, filepath.Join(dir, "stranger"))
	s := begin(stranger)
	select {
	case <-x.Ready():
		t.Fatal("x agrees with a stranger")
	case <-time.After(time.Second):
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	y := begin(config("y"))
	for _, k := range []*Controller{x, y} {
		select {
		case <-k.Ready():
		case <-time.After(20 * time.Second):
			t.Fatal("two of three do not agree")
		}
	}
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// etcd says the same many times a second: the log has it once, and what is new.
func TestEtcdLog(t *testing.T) {
	var buf bytes.Buffer
	l := &etcdLog{log: slog.New(slog.NewTextHandler(&buf, nil))}
	z := zap.New(zapCore{etcdLog: l}).With(zap.String("member", "x"))
	for range 5 {
		z.Warn("a peer is away", zap.Int("peer", 3))
	}
	z.Info("nothing")
	z.Warn("simple token is not cryptographically signed")
	z.Error("the disk is full")
	l.said["a peer is away"] = time.Now().Add(-2 * logAgainInterval)
	z.Warn("a peer is away")
	l.close()
	z.Error("closed")
	lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `level=WARN msg="etcd: a peer is away" member=x peer=3`) || !strings.Contains(lines[1], "level=ERROR") {
		t.Errorf("the log is\n%s", buf.String())
	}
}

func TestValidate(t *testing.T) {
	peers := []Peer{{"a", "127.0.0.1:1"}, {"b", "127.0.0.1:2"}, {"c", "127.0.0.1:3"}}
	certs := func(c Config) Config { c.CA, c.Cert, c.Key = "ca", "cert", "key"; return c }
	for _, tt := range []struct {
		name string
		c    Config
		want string // of the error, "" for none
	}{
		{"the least", Config{Data: "d"}, ""},
		{"three", Config{Data: "d", Name: "b", Peers: peers}, ""},
		{"localhost", Config{Data: "d", Listen: "localhost:1"}, ""},
		{"IPv6", Config{Data: "d", Listen: "[::1]:1"}, ""},
		{"open with certificates", certs(Config{Data: "d", Listen: "0.0.0.0:1"}), ""},
		{"no data", Config{}, "no folder"},
		{"open", Config{Data: "d", Listen: "0.0.0.0:1"}, "open to the network"},
		{"open to all names", Config{Data: "d", Listen: ":1"}, "open to the network"},
		{"a name", Config{Data: "d", Listen: "host:1"}, "open to the network"},
		{"a peer that is open", Config{Data: "d", Name: "a", Peers: []Peer{{"a", "10.0.0.1:1"}}}, "open to the network"},
		{"peers that listen openly", Config{Data: "d", Name: "a", Peers: peers, PeerListen: "0.0.0.0:1"}, "open to the network"},
		{"half the certificates", Config{Data: "d", CA: "ca", Cert: "cert"}, "all of the certificates"},
		{"no port", Config{Data: "d", Listen: "127.0.0.1"}, "want HOST:PORT"},
		{"not among the peers", Config{Data: "d", Peers: peers}, "not among"},
		{"nobody to join", Config{Data: "d", Join: true}, "nobody to join"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.c.Validate()
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestPeerText(t *testing.T) {
	var p Peer
	if err := p.UnmarshalText([]byte("a=[::1]:2380")); err != nil || p != (Peer{"a", "[::1]:2380"}) {
		t.Errorf("got %v, %v", p, err)
	}
	for _, bad := range []string{"", "a", "a=", "=h:1", "a=h", "h:1"} {
		if err := p.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is a peer", bad)
		}
	}
}

// authority is a CA of the tests.
type authority struct {
	path string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, path string) *authority {
	t.Helper()
	a := &authority{path: path + ".pem"}
	a.cert, a.key = a.sign(t, path, true)
	return a
}

// issue writes a certificate for loopback, and its key.
func (a *authority) issue(t testing.TB, path string) (cert, key string) {
	t.Helper()
	a.sign(t, path, false)
	return path + ".pem", path + ".key"
}

func (a *authority) sign(t testing.TB, path string, ca bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: filepath.Base(path)},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, parentKey := template, key
	if !ca {
		parent, parentKey = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		path + ".pem": {Type: "CERTIFICATE", Bytes: der},
		path + ".key": {Type: "EC PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
