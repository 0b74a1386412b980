package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Config of a controller.
type Config struct {
	Data   string // folder of its data
	Name   string // among its peers; "control" if empty
	Listen string // HOST:PORT for nodes and the tool; 127.0.0.1:2379 if empty

	// Peers are all the processes that agree, this one included; none is to be
	// alone.
	Peers      []Peer
	PeerListen string // HOST:PORT for the others, if it is not what Peers say
	Join       bool   // the others run already, and have been told of this one

	// Certificates, as files in PEM. Those who connect must have one that CA
	// has signed, and so must this one for its peers. Without them addresses
	// have to be on loopback.
	CA, Cert, Key string

	Prefix string // of the keys in etcd, as in control.Open
	Log    *slog.Logger

	// TickMs is the time between heartbeats among peers, in milliseconds; 0 is
	// 100. Who hears none for ten of them asks for an election.
	TickMs uint
}

// Peer is one of the processes that agree.
type Peer struct {
	Name string
	Addr string // HOST:PORT where the others reach it
}

// UnmarshalText reads NAME=HOST:PORT.
func (p *Peer) UnmarshalText(text []byte) error {
	name, addr, ok := strings.Cut(string(text), "=")
	if _, port, err := net.SplitHostPort(addr); !ok || name == "" || err != nil || port == "" {
		return fmt.Errorf("controller: peer %q: want NAME=HOST:PORT", text)
	}
	p.Name, p.Addr = name, addr
	return nil
}

const (
	nameDefault   = "control"
	listenDefault = "127.0.0.1:2379"
	tickMsDefault = 100
	ticksElection = 10

	// What etcd keeps of the past: so many changes, for those who watch, and
	// so many bytes in all. A map is 16 KB.
	revisionsKept = "1000"
	quotaBytes    = 512 << 20
)

// Validate sets the defaults and reports what is wrong.
func (c *Config) Validate() error {
	if c.Data == "" {
		return errors.New("controller: no folder for the data")
	}
	if c.Name == "" {
		c.Name = nameDefault
	}
	if c.Listen == "" {
		c.Listen = listenDefault
	}
	if c.TickMs == 0 {
		c.TickMs = tickMsDefault
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	addrs := []string{c.Listen}
	found := false
	for _, p := range c.Peers {
		addrs = append(addrs, p.Addr)
		if p.Name == c.Name {
			found = true
			if c.PeerListen == "" {
				c.PeerListen = p.Addr
			}
		}
	}
	if len(c.Peers) > 0 && !found {
		return fmt.Errorf("controller: %s is not among the peers", c.Name)
	}
	if c.Join && len(c.Peers) < 2 {
		return errors.New("controller: nobody to join: no peers are given")
	}
	if c.PeerListen != "" {
		addrs = append(addrs, c.PeerListen)
	}
	given := 0
	for _, file := range []string{c.CA, c.Cert, c.Key} {
		if file != "" {
			given++
		}
	}
	if given != 0 && given != 3 {
		return errors.New("controller: want all of the certificates: CA, certificate and key")
	}
	for _, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("controller: address %q: want HOST:PORT", addr)
		}
		if ip := net.ParseIP(host); given == 0 && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("controller: %s is open to the network: want certificates, or an address on loopback", addr)
		}
	}
	return nil
}

// etcd is what etcd is told.
func (c *Config) etcd(log *etcdLog) *embed.Config {
	scheme := "http"
	if c.CA != "" {
		scheme = "https"
	}
	at := func(addr string) []url.URL { return []url.URL{{Scheme: scheme, Host: addr}} }
	e := embed.NewConfig()
	e.Name, e.Dir = c.Name, c.Data
	e.ListenClientUrls, e.AdvertiseClientUrls = at(c.Listen), at(c.Listen)
	if len(c.Peers) == 0 {
		// etcd wants an address here, though nobody will come.
		e.ListenPeerUrls, e.AdvertisePeerUrls = at("127.0.0.1:0"), at("127.0.0.1:0")
		e.InitialCluster = e.InitialClusterFromName(c.Name)
	} else {
		var all []string
		for _, p := range c.Peers {
			all = append(all, p.Name+"="+scheme+"://"+p.Addr)
			if p.Name == c.Name {
				e.AdvertisePeerUrls = at(p.Addr)
			}
		}
		e.ListenPeerUrls = at(c.PeerListen)
		e.InitialCluster = strings.Join(all, ",")
	}
	e.InitialClusterToken = "quarry"
	if c.Join {
		e.ClusterState = embed.ClusterStateFlagExisting
	}
	if c.CA != "" {
		tls := transport.TLSInfo{CertFile: c.Cert, KeyFile: c.Key, TrustedCAFile: c.CA, ClientCertAuth: true}
		e.ClientTLSInfo, e.PeerTLSInfo = tls, tls
	}
	e.TickMs, e.ElectionMs = c.TickMs, c.TickMs*ticksElection
	e.AutoCompactionMode, e.AutoCompactionRetention = embed.CompactorModeRevision, revisionsKept
	e.QuotaBackendBytes = quotaBytes
	// Web pages must not talk to it, whatever name they find for loopback.
	e.EnableGRPCGateway = false
	e.CORS = map[string]struct{}{}
	e.HostWhitelist = map[string]struct{}{"localhost": {}, "127.0.0.1": {}, "::1": {}}
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapCore{etcdLog: log}))
	return e
}
