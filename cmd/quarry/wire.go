package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
)

// wireFlags say how servers are reached.
type wireFlags struct {
	Timeout  time.Duration `default:"1s" help:"Give a server so long to answer."`
	CA       string        `name:"ca" type:"path" placeholder:"FILE" help:"Servers speak TLS, with certificates that are signed by these."`
	Cert     string        `name:"cert" type:"path" placeholder:"FILE" help:"Our certificate, for servers that want one."`
	Key      string        `name:"key" type:"path" placeholder:"FILE" help:"Its key."`
	User     string        `help:"Log in as this user (quarryd -Y)."`
	Password string        `env:"QUARRY_PASSWORD" help:"Its password."`
}

// tls is nil for connections in the clear.
func (f *wireFlags) tls(addr string) (*tls.Config, error) {
	c, err := f.tlsConfig()
	if c == nil || err != nil {
		return nil, err
	}
	if c.ServerName, _, err = net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf("quarry: server %q: %w", addr, err)
	}
	return c, nil
}

// tlsConfig is tls of servers that are not known yet.
func (f *wireFlags) tlsConfig() (*tls.Config, error) {
	if f.CA == "" && f.Cert == "" && f.Key == "" {
		return nil, nil
	}
	c := new(tls.Config)
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("quarry: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("quarry: %s: no certificate in it", f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("quarry: certificate %q, key %q: %w", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// wire is a connection to a server, for one request at a time.
type wire struct {
	addr    string
	conn    net.Conn
	timeout time.Duration
	buf     []byte // what came and was not taken yet
	reply   meta.Reply
	used    int // bytes of buf that reply takes
}

// dial connects, and logs in.
func (f *wireFlags) dial(ctx context.Context, addr string) (*wire, error) {
	network := "tcp"
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("quarry: %w", err)
	}
	w := &wire{addr: addr, conn: conn, timeout: f.Timeout}
	if network == "tcp" {
		c, err := f.tls(addr)
		if err != nil {
			w.close()
			return nil, err
		}
		if c != nil {
			w.conn = tls.Client(conn, c)
		}
	}
	if f.User != "" {
		if err := w.login(f.User, f.Password); err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

func (w *wire) close() { _ = w.conn.Close() }

func (w *wire) login(user, password string) error {
	secret := user + " " + password
	rep, err := w.ask(fmt.Appendf(nil, "set auth 0 0 %d\r\n%s\r\n", len(secret), secret))
	if err == nil && rep.Code != meta.CodeStored {
		err = fmt.Errorf("quarry: %s: log in as %s: %s %s", w.addr, user, rep.Code, rep.Text)
	}
	return err
}

// send sends a request.
func (w *wire) send(request []byte) error {
	if err := w.conn.SetDeadline(time.Now().Add(w.timeout)); err != nil {
		return fmt.Errorf("quarry: %w", err)
	}
	if _, err := w.conn.Write(request); err != nil {
		return fmt.Errorf("quarry: %w", err)
	}
	return nil
}

// next is the next reply, as long as nothing else is read.
func (w *wire) next() (*meta.Reply, error) {
	w.buf = w.buf[:copy(w.buf, w.buf[w.used:])]
	w.used = 0
	for {
		n, need, err := w.reply.Parse(w.buf)
		switch {
		case err != nil:
			return nil, fmt.Errorf("quarry: %s: %w", w.addr, err)
		case n > 0:
			w.used = n
			return &w.reply, nil
		}
		had := len(w.buf)
		size := max(need, had+bufio.MaxScanTokenSize)
		if cap(w.buf) < size {
			w.buf = append(make([]byte, 0, size), w.buf...)
		}
		got, err := w.conn.Read(w.buf[had:cap(w.buf)])
		if err != nil && got == 0 {
			return nil, fmt.Errorf("quarry: %s: %w", w.addr, err)
		}
		w.buf = w.buf[:had+got]
	}
}

// ask sends a request and is its reply.
func (w *wire) ask(request []byte) (*meta.Reply, error) {
	if err := w.send(request); err != nil {
		return nil, err
	}
	return w.next()
}

// errRefused says that a server answered, and does not do what it was asked.
var errRefused = errors.New("refused")

// stats are the pairs that stats gives, in their order.
func (w *wire) stats(what string) ([][2]string, error) {
	if err := w.send([]byte(strings.TrimSpace("stats "+what) + "\r\n")); err != nil {
		return nil, err
	}
	var pairs [][2]string
	for {
		rep, err := w.next()
		switch {
		case err != nil:
			return nil, err
		case rep.Code == meta.CodeEnd:
			return pairs, nil
		case rep.Code != meta.CodeStat:
			return nil, fmt.Errorf("quarry: %s: stats %s: %w: %s %s", w.addr, what, errRefused, rep.Code, rep.Text)
		}
		name, value, _ := strings.Cut(string(rep.Text), " ")
		pairs = append(pairs, [2]string{name, value})
	}
}

// errLogin says that a server wants a login first.
var errLogin = errors.New("it wants a login first (--user)")

// config is the map by which a server serves: nil if it has none.
func (w *wire) config() (*bucket.Map, error) {
	rep, err := w.ask([]byte("config get quarry\r\n"))
	switch {
	case err != nil:
		return nil, err
	case rep.Code == meta.CodeClientError && strings.Contains(string(rep.Text), "unauthenticated"):
		return nil, fmt.Errorf("quarry: %s: %w", w.addr, errLogin)
	case rep.Code != meta.CodeConfig:
		return nil, nil
	}
	m, err := bucket.Decode(rep.Value)
	if err != nil {
		return nil, fmt.Errorf("quarry: %s: %w", w.addr, err)
	}
	return m, nil
}

// mapOf asks a node for its map.
func (f *wireFlags) mapOf(ctx context.Context, n bucket.Node) (*bucket.Map, error) {
	w, err := f.dial(ctx, n.Addr)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.config()
}

// raw is the reply that came last, as it came.
func (w *wire) raw() []byte { return w.buf[:w.used] }
