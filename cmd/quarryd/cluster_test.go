package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
)

// freePort is a port that nobody has now.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// converse sends a command and returns all of the reply.
func converse(t testing.TB, addr, command string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, command+"\r\nmn\r\n"); err != nil {
		t.Fatal(err)
	}
	var reply strings.Builder
	for r := bufio.NewReader(conn); ; {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			t.Fatalf("%s: %v", command, err)
		case line == "MN\r\n":
			return reply.String()
		}
		reply.WriteString(line)
	}
}

// Three processes and a map in a file: any client at any node; a new map is
// taken; without the store a node starts from its disk, and serves.
func TestCluster(t *testing.T) {
	dir := t.TempDir()
	name := "file:" + filepath.Join(dir, "map.json")
	var nodes []bucket.Node
	for i := range 3 {
		nodes = append(nodes, bucket.Node{ID: fmt.Sprint("n", i), Addr: "127.0.0.1:" + freePort(t)})
	}
	maps, err := control.Open(name, control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	first, err := bucket.First("test", nodes, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.CompareAndSwap(context.Background(), nil, first); err != nil {
		t.Fatal(err)
	}
	run := func(i int) *process {
		_, port, _ := net.SplitHostPort(nodes[i].Addr)
		return start(t, "-p", port, "-l", "127.0.0.1", "--cluster", name, "--node-id", nodes[i].ID, "--data", filepath.Join(dir, nodes[i].ID),
			"--relay-timeout", "5s") // the machine may be busy
	}
	var all []*process
	for i := range nodes {
		all = append(all, run(i))
	}
	epochAt := func(i int, e bucket.Epoch) func() bool {
		return func() bool {
			stats := converse(t, nodes[i].Addr, "stats cluster")
			return strings.Contains(stats, "STAT epoch "+e.String()+"\r\n") && strings.Contains(stats, "STAT confirmed yes")
		}
	}
	for i := range nodes {
		all[i].tcp(t)
		await(t, "the map", epochAt(i, first.Epoch))
	}
	const keys = 60
	for k := range keys {
		if got := converse(t, nodes[k%3].Addr, fmt.Sprintf("set k%d 0 0 2\r\n%02d", k, k)); got != "STORED\r\n" {
			t.Fatalf("set k%d: %q", k, got)
		}
	}
	found := func(i int) (n int) {
		for k := range keys {
			if converse(t, nodes[i].Addr, fmt.Sprintf("mg k%d v", k)) == fmt.Sprintf("VA 2\r\n%02d\r\n", k) {
				n++
			}
		}
		return n
	}
	for i := range nodes {
		if n := found(i); n != keys {
			t.Errorf("through node %d: %d of %d keys", i, n, keys)
		}
	}

	next, err := first.Plan(bucket.Change{Weights: map[string]int{"n0": 2}})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.CompareAndSwap(context.Background(), first, next); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		await(t, "the new map", epochAt(i, next.Epoch))
	}
	moved := 0
	for k := range keys {
		b := bucket.Of(fmt.Appendf(nil, "k%d", k))
		if first.OwnerOf(b).ID != next.OwnerOf(b).ID {
			moved++
		}
	}
	if n := found(1); n != keys-moved {
		t.Errorf("%d keys after %d have moved, want the other %d", n, moved, keys-moved)
	}

	// No store any more, and a node that starts.
	if err := os.Rename(filepath.Join(dir, "map.json"), filepath.Join(dir, "gone.json")); err != nil {
		t.Fatal(err)
	}
	all[0].end(t, unix.SIGTERM)
	all[0] = run(0)
	all[0].tcp(t)
	await(t, "the map from disk, confirmed by the others", epochAt(0, next.Epoch))
	if got := converse(t, nodes[0].Addr, "set again 0 0 1\r\nx"); got != "STORED\r\n" {
		t.Errorf("without the store: %q", got)
	}
	for _, p := range all {
		p.end(t, unix.SIGTERM)
	}
}

// startNodes starts processes that are the nodes of a map with copies in a file,
// with flags of their own each, and waits until they have it.
func startNodes(t *testing.T, copies int, budget bucket.Budget, flags ...[]string) (m *bucket.Map, all []*process, dial []func() net.Conn) {
	t.Helper()
	dir := t.TempDir()
	name := "file:" + filepath.Join(dir, "map.json")
	var nodes []bucket.Node
	for i := range flags {
		nodes = append(nodes, bucket.Node{ID: fmt.Sprint("n", i), Addr: "127.0.0.1:" + freePort(t), Zone: fmt.Sprint("z", i)})
	}
	maps, err := control.Open(name, control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	if m, err = bucket.First("test", nodes, copies, budget); err != nil {
		t.Fatal(err)
	}
	if err := maps.CompareAndSwap(context.Background(), nil, m); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		_, port, _ := net.SplitHostPort(nodes[i].Addr)
		args := append([]string{"-p", port, "-l", "127.0.0.1", "--cluster", name, "--node-id", nodes[i].ID, "--relay-timeout", "5s"}, flags[i]...)
		p := start(t, args...)
		p.tcp(t)
		all = append(all, p)
		dial = append(dial, func() net.Conn {
			c, err := net.Dial("tcp", nodes[i].Addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			_ = c.SetDeadline(time.Now().Add(patience))
			return c
		})
	}
	return m, all, dial
}

// say sends text over c and returns what comes back up to the answer to mn.
func say(t *testing.T, c net.Conn, text string) string {
	t.Helper()
	if _, err := io.WriteString(c, text+"mn\r\n"); err != nil {
		t.Fatal(err)
	}
	var reply strings.Builder
	for r := bufio.NewReader(c); ; {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			t.Fatalf("%q, then %v", reply.String(), err)
		case line == "MN\r\n":
			return reply.String()
		}
		reply.WriteString(line)
	}
}

// keyOn is a key that node i of m owns.
func keyOn(m *bucket.Map, i int) string {
	for n := 0; ; n++ {
		if key := fmt.Sprint("key", n); int(m.Buckets[bucket.Of([]byte(key))].Owner) == i {
			return key
		}
	}
}

// Nodes with a shared secret reach each other with it, and not without it.
func TestClusterSecret(t *testing.T) {
	dir := t.TempDir()
	users, peers := filepath.Join(dir, "users"), filepath.Join(dir, "peers")
	for name, text := range map[string]string{users: "app:secret\npeer:between nodes\n", peers: "peer:between nodes\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	with := []string{"-Y", users, "--peer-auth-file", peers}
	m, _, dial := startNodes(t, 0, bucket.Budget{}, with, []string{"-Y", users}, with)
	login := func(i int) net.Conn {
		c := dial[i]()
		if got := say(t, c, "set auth 0 0 10\r\napp secret\r\n"); got != "STORED\r\n" {
			t.Fatalf("login: %q", got)
		}
		return c
	}
	key := keyOn(m, 2)
	ready := func(i int) func() bool {
		return func() bool { return strings.Contains(say(t, login(i), "stats cluster\r\n"), "STAT confirmed yes") }
	}
	for i := range dial {
		await(t, "the map", ready(i))
	}
	set := fmt.Sprintf("set %s 0 0 1\r\nx\r\n", key)
	// A node that was asked before it listened is not asked again at once.
	await(t, "a set with the secret", func() bool { return say(t, login(0), set) == "STORED\r\n" })
	if got := say(t, login(1), set); got != "SERVER_ERROR owner unreachable\r\n" {
		t.Errorf("without it: %q", got)
	}
	if got := say(t, login(2), "get "+key+"\r\n"); got != "VALUE "+key+" 0 1\r\nx\r\nEND\r\n" {
		t.Errorf("at the owner: %q", got)
	}
}

// Links between nodes are encrypted, and each shows the other its certificate.
func TestClusterTLS(t *testing.T) {
	dir := t.TempDir()
	ca, caKey := writeCA(t, dir)
	cert, key := writeCert(t, dir, "node", ca, caKey)
	flags := func(more ...string) []string {
		return append([]string{"-Z", "-o", "ssl_chain_cert=" + cert + ",ssl_key=" + key + ",ssl_verify_mode=2,ssl_ca_cert=" + filepath.Join(dir, "ca.pem")}, more...)
	}
	all := []string{"--peer-ca", filepath.Join(dir, "ca.pem"), "--peer-cert", cert, "--peer-key", key}
	m, _, dial := startNodes(t, 0, bucket.Budget{}, flags(all...), flags(all...), flags("--peer-ca", filepath.Join(dir, "ca.pem")))
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	secure := func(i int) net.Conn {
		return tls.Client(dial[i](), &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", Certificates: []tls.Certificate{pair}})
	}
	for i := range dial {
		await(t, "the map", func() bool { return strings.Contains(say(t, secure(i), "stats cluster\r\n"), "STAT confirmed yes") })
	}
	name := keyOn(m, 1)
	set := fmt.Sprintf("set %s 0 0 1\r\nx\r\n", name)
	// A node that was asked before it listened is not asked again at once.
	await(t, "a set with a certificate", func() bool { return say(t, secure(0), set) == "STORED\r\n" })
	if got := say(t, secure(2), set); got != "SERVER_ERROR owner unreachable\r\n" {
		t.Errorf("without one: %q", got)
	}
}

func TestClusterRefusals(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--cluster file:map.json", "quarryd: --cluster, --data and --advertise: want --node-id, too\n"},
		{"--node-id a", "quarryd: --node-id a: want --cluster, or --data with a map in it\n"},
		{"--node-id a --cluster nothing:x", "quarryd: --cluster nothing:x: "},
		{"--node-id a --cluster file:m.json --misrouted away", "quarryd: --misrouted away: want forward, local or refuse\n"},
		{"--node-id a --cluster file:m.json --peer-auth-file /dev/null", "quarryd: --peer-auth-file /dev/null: want one line USER:PASSWORD\n"},
		{"--node-id a --cluster file:m.json --peer-ca /dev/null", "quarryd: --peer-ca /dev/null: no certificates in it\n"},
	} {
		if got := finish(t, quarryd, "", strings.Fields(tt.args)...); got.code == 0 || !strings.HasPrefix(got.stderr, tt.want) {
			t.Errorf("%s: got %+v, want %q", tt.args, got, tt.want)
		}
	}
}

// writeCA makes a certificate that signs others, in dir.
func writeCA(t testing.TB, dir string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, filepath.Join(dir, "ca.pem"), c, key, c, key), key
}

// writeCert makes a certificate of 127.0.0.1, for either end of a connection.
func writeCert(t testing.TB, dir, name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (cert, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	cert, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	sign(t, cert, c, key, ca, caKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return cert, keyFile
}

// sign writes c, signed by ca, into file.
func sign(t testing.TB, file string, c *x509.Certificate, key *ecdsa.PrivateKey, ca *x509.Certificate, caKey *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}
