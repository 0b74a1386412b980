package server

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quarrycache/quarry/server/store"
)

// TLS is what -Z and the sub-options of -o that begin with ssl_ say. The zero
// value is no TLS. Files are PEM.
type TLS struct {
	Enabled   bool   // -Z
	ChainCert string // ssl_chain_cert: path of the certificate and those that signed it
	Key       string // ssl_key: path of its private key; "" is in ChainCert
	CACert    string // ssl_ca_cert: path of those who may sign clients' certificates

	VerifyMode   int    // ssl_verify_mode, one of the Verify constants
	MinVersion   uint16 // ssl_min_version: tls.VersionTLS10 and so on; 0 is 1.2
	Ciphers      string // ssl_ciphers: OpenSSL's names; up to TLS 1.2
	SessionCache bool   // ssl_session_cache: clients may resume sessions

	// Shown in settings, and without effect here.
	WriteBufferBytes int  // ssl_wbuf_size; 0 is 16 KiB
	Kernel           bool // ssl_kernel_tls
}

// What is wanted of clients' certificates: the values of ssl_verify_mode.
const (
	VerifyNone    = iota // none is asked for
	VerifyRequest        // one is asked for, and must be good if it is sent
	VerifyRequire        // there must be one, and a good one
	VerifyOnce           // as VerifyRequire: without renegotiation it is the same
)

// Defaults of TLS. Source: memcached 1.6.45.
const (
	defaultTLSMinVersion       = tls.VersionTLS12
	defaultTLSWriteBufferBytes = 16 << 10
)

// security is how a listener guards its connections.
type security uint8

const (
	securityDefault security = iota // as ssl_verify_mode says, or not at all without -Z
	securityNone                    // notls: not at all
	securityBasic                   // btls: no certificate is asked for
	securityMutual                  // mtls: there must be a certificate, and a good one
	securityKinds
)

// securityNames are the prefixes in -l.
var securityNames = [securityKinds]string{securityNone: "notls", securityBasic: "btls", securityMutual: "mtls"}

// withDefaults is c with all that was not given filled in.
func (c TLS) withDefaults() TLS {
	if c.MinVersion == 0 {
		c.MinVersion = defaultTLSMinVersion
	}
	if c.WriteBufferBytes == 0 {
		c.WriteBufferBytes = defaultTLSWriteBufferBytes
	}
	return c
}

// validateTLS reports what cannot be. The files are looked at by New.
func (c *Config) validateTLS() error {
	t := &c.TLS
	_, known := tlsVersionNames[t.MinVersion]
	switch {
	case t.VerifyMode < VerifyNone || t.VerifyMode > VerifyOnce:
		return &ConfigError{"-o ssl_verify_mode", strconv.Itoa(t.VerifyMode),
			"Invalid ssl_verify_mode. Use help to see valid options.", ExitFailure}
	case !known:
		return &ConfigError{"-o ssl_min_version", strconv.Itoa(int(t.MinVersion)),
			"Invalid ssl_min_version. Use help to see valid options.", ExitFailure}
	case t.Enabled && c.TCPOff:
		return &ConfigError{"-Z", "", "ERROR: You cannot enable SSL without a TCP port.", ExitUsage}
	}
	if !t.Enabled {
		return nil
	}
	_, err := parseCiphers(t.Ciphers)
	return err
}

// tlsState is what all TLS connections of a server share.
type tlsState struct {
	mu        sync.Mutex                      // one load of certificates at a time
	configs   atomic.Pointer[tlsConfigs]      // of connections to come; nil without -Z
	expires   atomic.Int64                    // Unix second of the certificate's end
	refreshed atomic.Int64                    // store.Time of the last good load
	slots     chan struct{}                   // one is held by each handshake that computes
	files     struct{ chain, key, ca string } // absolute: a daemon changes its folder

	// What follows is zeroed by stats reset.
	newSessions, handshakeErrors, protoErrors atomic.Uint64
}

// tlsConfigs is what connections are made with, by the security of their
// listener. Each has ticket keys of its own: a session that began with one
// kind of listener, or with other certificates, is resumed by no other.
type tlsConfigs [securityKinds]*tls.Config

// initTLS loads the certificates for the first time.
func (s *Server) initTLS() error {
	c := &s.cfg.TLS
	if !c.Enabled {
		return nil
	}
	t := &s.tls
	// As many handshakes compute at once as leave processors to the loops: one
	// takes a millisecond with an RSA key, and cannot be interrupted.
	t.slots = make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1))
	t.files.chain, t.files.key, t.files.ca = absolute(c.ChainCert), absolute(c.Key), absolute(c.CACert)
	if t.files.key == "" {
		t.files.key = t.files.chain
	}
	if c.VerifyMode != VerifyNone && c.CACert == "" {
		s.log.Warn("without ssl_ca_cert no client's certificate is good", "ssl_verify_mode", c.VerifyMode)
	}
	return s.loadCertificates()
}

// absolute is path from the root, whatever becomes of the working folder.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// RefreshCerts reads the certificates again, for connections to come; those
// that are there keep what they have. When something is wrong with the new
// ones, which is the error, the old ones stay.
func (s *Server) RefreshCerts() error {
	if !s.cfg.TLS.Enabled {
		return errNoTLS
	}
	if err := s.loadCertificates(); err != nil {
		return err
	}
	s.log.Info("certificates renewed")
	return nil
}

// reloadCertificates is RefreshCerts on a signal: what is wrong is logged.
func (s *Server) reloadCertificates() {
	if !s.cfg.TLS.Enabled {
		return
	}
	if err := s.RefreshCerts(); err != nil {
		s.log.Warn("Could not reload TLS certificates on SIGHUP", "error", err)
	}
}

// errNoTLS is what a refresh without -Z ends with. Source: memcached's
// load_server_certificates.
var errNoTLS = &ConfigError{Flag: "-Z", Line: "Error TLS not enabled", Exit: ExitUsage}

// loadCertificates makes configurations of the files and puts them in place.
// The lines of its errors are memcached's up to the cause.
func (s *Server) loadCertificates() error {
	c, t := &s.cfg.TLS, &s.tls
	t.mu.Lock()
	defer t.mu.Unlock()
	fail := func(flag, path, line string, err error) error {
		return &ConfigError{"-o " + flag, path, line + " : " + oneLine(err), ExitUsage}
	}
	chain, leaf, err := readChain(t.files.chain)
	if err != nil {
		return fail("ssl_chain_cert", c.ChainCert, "Error loading the certificate chain: "+orNone(c.ChainCert), err)
	}
	key, err := readKey(t.files.key)
	if err != nil {
		return fail("ssl_key", c.Key, "Error loading the key: "+orNone(c.Key), err)
	}
	if pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !pub.Equal(leaf.PublicKey) {
		return &ConfigError{"-o ssl_key", c.Key,
			"Error validating the certificate: the key is not that of the certificate", ExitUsage}
	}
	roots := x509.NewCertPool() // not nil: that would be the system's
	if t.files.ca != "" {
		if err := readRoots(roots, t.files.ca); err != nil {
			return fail("ssl_ca_cert", c.CACert, "Error loading the CA certificate: "+c.CACert, err)
		}
	}
	ciphers, err := parseCiphers(c.Ciphers)
	if err != nil {
		return err
	}
	configs := new(tlsConfigs)
	for kind := range configs {
		if security(kind) == securityNone {
			continue
		}
		configs[kind] = &tls.Config{
			Certificates:           []tls.Certificate{{Certificate: chain, PrivateKey: key, Leaf: leaf}},
			ClientAuth:             clientAuth(security(kind), c.VerifyMode),
			ClientCAs:              roots,
			MinVersion:             c.MinVersion,
			CipherSuites:           ciphers,
			SessionTicketsDisabled: !c.SessionCache,

			// The first replies go out in large records too, as with OpenSSL.
			DynamicRecordSizingDisabled: true,
		}
	}
	t.configs.Store(configs)
	t.expires.Store(leaf.NotAfter.Unix())
	t.refreshed.Store(int64(s.clock()))
	return nil
}

// clientAuth is what a listener wants of its clients.
func clientAuth(kind security, mode int) tls.ClientAuthType {
	switch {
	case kind == securityBasic:
		return tls.NoClientCert
	case kind == securityMutual:
		return tls.RequireAndVerifyClientCert
	}
	switch mode {
	case VerifyNone:
		return tls.NoClientCert
	case VerifyRequest:
		return tls.VerifyClientCertIfGiven
	}
	return tls.RequireAndVerifyClientCert
}

// orNone is path as memcached prints it.
func orNone(path string) string {
	if path == "" {
		return "(null)"
	}
	return path
}

// oneLine is what went wrong, without the path of a file, which stands before
// it already, and without line ends, which would end the reply.
func oneLine(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// What PEM files hold.
const (
	pemCertificate = "CERTIFICATE"
	pemKeySuffix   = "PRIVATE KEY"
)

// certFileMaxBytes bounds a file of certificates or keys. The system's own
// collection has a quarter of a megabyte.
const certFileMaxBytes = 4 << 20

// readPEM gives the blocks of a file.
func readPEM(path string) ([]*pem.Block, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("not a file")
	}
	if fi.Size() > certFileMaxBytes {
		return nil, errors.New("too large")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var blocks []*pem.Block
	for {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			return blocks, nil
		}
		blocks = append(blocks, b)
	}
}

// readChain gives the certificates of a file: the server's comes first.
func readChain(path string) (chain [][]byte, leaf *x509.Certificate, err error) {
	blocks, err := readPEM(path)
	if err != nil {
		return nil, nil, err
	}
	for _, b := range blocks {
		if b.Type != pemCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, nil, err
		}
		if leaf == nil {
			leaf = cert
		}
		chain = append(chain, b.Bytes)
	}
	if leaf == nil {
		return nil, nil, errors.New("no certificate in it")
	}
	return chain, leaf, nil
}

// readKey gives the first private key of a file.
func readKey(path string) (crypto.Signer, error) {
	blocks, err := readPEM(path)
	if err != nil {
		return nil, err
	}
	for _, b := range blocks {
		if strings.HasSuffix(b.Type, pemKeySuffix) {
			return parseKey(b)
		}
	}
	return nil, errors.New("no private key in it")
}

// parseKey reads a key in any of the forms that OpenSSL writes.
func parseKey(b *pem.Block) (crypto.Signer, error) {
	if strings.HasPrefix(b.Type, "ENCRYPTED") || b.Headers["DEK-Info"] != "" {
		return nil, errors.New("the key has a password")
	}
	if key, err := x509.ParsePKCS1PrivateKey(b.Bytes); err == nil {
		return key, nil
	}
	if key, err := x509.ParseECPrivateKey(b.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key cannot sign")
	}
	return signer, nil
}

// readRoots puts the certificates of a file into roots.
func readRoots(roots *x509.CertPool, path string) error {
	blocks, err := readPEM(path)
	if err != nil {
		return err
	}
	n := 0
	for _, b := range blocks {
		if b.Type != pemCertificate {
			continue
		}
		cert, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return err
		}
		roots.AddCert(cert)
		n++
	}
	if n == 0 {
		return errors.New("no certificate in it")
	}
	return nil
}

// tlsFigures are the figures of TLS.
type tlsFigures struct {
	NewSessions, HandshakeErrors, ProtoErrors uint64

	RefreshedSeconds uint64 // since the last good load of certificates
	ExpiresSeconds   uint64 // Unix time of the certificate's end
}

// tlsStats is the state of TLS now.
func (s *Server) tlsStats(now store.Time) tlsFigures {
	t := &s.tls
	return tlsFigures{
		NewSessions:      t.newSessions.Load(),
		HandshakeErrors:  t.handshakeErrors.Load(),
		ProtoErrors:      t.protoErrors.Load(),
		RefreshedSeconds: uint64(idleSeconds(store.Time(t.refreshed.Load()), now)),
		ExpiresSeconds:   uint64(max(t.expires.Load(), 0)),
	}
}

// tls are the lines of TLS in stats.
func (l *statLines) tls(c *TLS, f *tlsFigures) {
	if !c.Enabled {
		return
	}
	if c.SessionCache {
		l.num("ssl_new_sessions", f.NewSessions)
	}
	l.num("ssl_handshake_errors", f.HandshakeErrors)
	l.num("ssl_proto_errors", f.ProtoErrors)
	l.num("time_since_server_cert_refresh", f.RefreshedSeconds)
}

// tlsSettings are the lines of TLS in stats settings.
func (l *statLines) tlsSettings(c *TLS) {
	l.yes("ssl_enabled", c.Enabled)
	l.text("ssl_chain_cert", orNone(c.ChainCert))
	l.text("ssl_key", orNone(c.Key))
	l.num("ssl_verify_mode", opensslVerifyModes[c.VerifyMode])
	l.num("ssl_keyformat", 1) // PEM
	l.text("ssl_ciphers", orNull(c.Ciphers))
	l.text("ssl_ca_cert", orNull(c.CACert))
	l.num("ssl_wbuf_size", uint64(c.WriteBufferBytes))
	l.yes("ssl_session_cache", c.SessionCache)
	l.yes("ssl_kernel_tls", c.Kernel)
	l.text("ssl_min_version", tlsVersionNames[c.MinVersion])
}

// opensslVerifyModes are the modes as OpenSSL numbers them.
var opensslVerifyModes = [...]uint64{VerifyNone: 0, VerifyRequest: 1, VerifyRequire: 3, VerifyOnce: 7}

// tlsVersionNames are the versions as memcached prints them.
var tlsVersionNames = map[uint16]string{
	tls.VersionTLS10: "tlsv1.0",
	tls.VersionTLS11: "tlsv1.1",
	tls.VersionTLS12: "tlsv1.2",
	tls.VersionTLS13: "tlsv1.3",
}

// reset zeroes what was counted.
func (t *tlsState) reset() {
	t.newSessions.Store(0)
	t.handshakeErrors.Store(0)
	t.protoErrors.Store(0)
}
