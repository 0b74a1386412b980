package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quarrycache/quarry/cluster/control"
	"github.com/quarrycache/quarry/server"
)

// cluster reads the flags that make the server a node of a cluster.
func (f *flags) cluster(x *extended) error {
	c := &x.Cluster
	if f.NodeID == "" {
		if f.Cluster != "" || f.Data != "" || f.Advertise != "" {
			return refuse(exitUsage, "quarryd: --cluster, --data and --advertise: want --node-id, too")
		}
		return nil
	}
	if f.Cluster == "" && f.Data == "" {
		return refuse(exitUsage, "quarryd: --node-id %s: want --cluster, or --data with a map in it", f.NodeID)
	}
	c.NodeID, c.DataDir, c.HasStore = f.NodeID, f.Data, f.Cluster != ""
	c.RelayTimeout, c.KeyCapacity = time.Duration(f.RelayTimeout)*time.Millisecond, int(f.KeyCapacity)
	switch c.Misrouted = server.Misrouted(f.Misrouted); c.Misrouted {
	case server.MisroutedForward, server.MisroutedLocal, server.MisroutedRefuse:
	default:
		return refuse(exitUsage, "quarryd: --misrouted %s: want forward, local or refuse", f.Misrouted)
	}
	if f.PeerAuthFile != "" {
		text, err := os.ReadFile(f.PeerAuthFile)
		if err != nil {
			return refuse(exitError, "quarryd: --peer-auth-file: %v", err)
		}
		user, password, ok := strings.Cut(strings.TrimRight(string(text), "\r\n"), ":")
		if !ok || user == "" || strings.ContainsAny(user, " \r\n") || strings.Contains(password, "\n") {
			return refuse(exitError, "quarryd: --peer-auth-file %s: want one line USER:PASSWORD", f.PeerAuthFile)
		}
		c.Peer.User, c.Peer.Password = user, password
	}
	if f.PeerCA == "" && f.PeerCert == "" && f.PeerKey == "" {
		return nil
	}
	t, err := peerTLS(f.PeerCA, f.PeerCert, f.PeerKey)
	if err != nil {
		return refuse(exitError, "quarryd: %v", err)
	}
	c.Peer.TLS = t
	return nil
}

// peerTLS is how links to other nodes are encrypted.
func peerTLS(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("--peer-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--peer-ca %s: no certificates in it", ca)
		}
	}
	if cert == "" && key == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--peer-cert, --peer-key: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// openCluster opens the map store, nil if there is none.
func (f *flags) openCluster() (control.Store, error) {
	if f.Cluster == "" {
		return nil, nil
	}
	s, err := control.Open(f.Cluster, control.Options{CA: f.ClusterCA, Cert: f.ClusterCert, Key: f.ClusterKey})
	if err != nil {
		return nil, refuse(exitUsage, "quarryd: --cluster %s: %v", f.Cluster, err)
	}
	return s, nil
}

// follow gives the server each map that the store has, and tells the store what
// the server serves by, until ctx ends.
func (f *flags) follow(ctx context.Context, s control.Store, srv *server.Server) {
	last := ""
	for e := range s.Watch(ctx) {
		err := e.Err
		if err == nil {
			err = srv.ApplyMap(e.Map)
		}
		// The same trouble is told once.
		if text := fmt.Sprint(err); err != nil && text != last {
			slog.Warn("the map store", "error", err)
			last = text
		} else if err == nil {
			last = ""
		}
		epoch, digest := srv.MapEpoch()
		s.Announce(control.Presence{ID: f.NodeID, Addr: f.advertised(srv), Epoch: epoch, Digest: digest})
	}
}

// advertised is where others reach this node: what --advertise says, or the
// first address that the server listens on.
func (f *flags) advertised(srv *server.Server) string {
	if f.Advertise != "" {
		return f.Advertise
	}
	for _, a := range srv.Addrs() {
		if t, ok := a.(*net.TCPAddr); ok {
			host := t.IP.String()
			if t.IP.IsUnspecified() {
				if name, err := os.Hostname(); err == nil {
					host = name
				}
			}
			return net.JoinHostPort(host, strconv.Itoa(t.Port))
		}
	}
	return ""
}
