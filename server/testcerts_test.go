package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// testCA signs certificates for tests.
type testCA struct {
	dir  string
	path string // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newTestCA makes a CA with its files in a folder of the test.
func newTestCA(t testing.TB, name string) *testCA {
	t.Helper()
	ca := &testCA{dir: t.TempDir(), key: newTestKey(t)}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, ca.key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	ca.path = ca.write(t, name+".ca.pem", pemCertificate, der)
	return ca
}

func newTestKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (ca *testCA) write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(ca.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue signs a certificate for 127.0.0.1 and gives the paths of it and its
// key, which are named after it.
func (ca *testCA) issue(t testing.TB, name string) (certPath, keyPath string) {
	t.Helper()
	key := newTestKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return ca.write(t, name+".pem", pemCertificate, der), ca.write(t, name+".key", "PRIVATE KEY", keyDER)
}

// server is the TLS of a server with a certificate of its own.
func (ca *testCA) server(t testing.TB) TLS {
	t.Helper()
	cert, key := ca.issue(t, "server")
	return TLS{Enabled: true, ChainCert: cert, Key: key}
}

// client is the configuration of a client that trusts the CA and has the
// certificate that names names, if any.
func (ca *testCA) client(t testing.TB, names ...string) *tls.Config {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	c.RootCAs.AddCert(ca.cert)
	for _, name := range names {
		pair, err := tls.LoadX509KeyPair(ca.issue(t, name))
		if err != nil {
			t.Fatal(err)
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &pair, nil // whoever is asked for
		}
	}
	return c
}

// dialTLS connects to addr; the connection is closed with the test.
func dialTLS(t testing.TB, addr string, c *tls.Config) *tls.Conn {
	t.Helper()
	conn := tls.Client(dial(t, addr), c)
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	return conn
}
