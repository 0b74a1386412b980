package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Options of a Client. One of Seeds and Servers is needed; everything else has
// a default that is safe.
type Options struct {
	// Seeds are addresses, host:port or paths of unix sockets, of some nodes of
	// a cluster. The client gets the map from any of them, and finds the
	// others in it. One server that is no node of a cluster will do, too.
	Seeds []string

	// Servers are addresses of servers without a map, all of them: memcached,
	// or quarryd on its own. Ring says which has which keys.
	Servers []string
	Ring    Ring

	Timeout     time.Duration // for one answer of one node. 200 ms
	Connections int           // to each node. 2
	TLS         *tls.Config   // nil is plain TCP
	User        string        // for servers with -Y; "" is none
	Password    string

	BreakerFailures int           // in a row, after which a node is asked nothing more for a while. 5
	BreakerPause    time.Duration // before it is tried again. 1 s

	MapPoll time.Duration // how often the map is asked for, unasked. 30 s
	MapGap  time.Duration // between two such questions, at least. 1 s

	Near     NearOptions
	Fetch    FetchOptions
	Policies []Policy // the first whose prefix a key has is used

	Rollout Rollout

	// ClientID is who this client is: it decides which place of a split key
	// the client reads. It should be the same after a restart. By chance
	ClientID    string
	SplitChoice SplitChoice

	// Publisher numbers this client's notices: for a change log that is read
	// again from where it was, the same after a restart. By chance
	Publisher uint64

	// Now is the clock, nil the system's. Deadlines are wall time.
	Now func() time.Time

	// DialFunc makes connections; nil is the network.
	DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Defaults of Options.
const (
	defaultTimeout         = 200 * time.Millisecond
	defaultConnections     = 2
	defaultBreakerFailures = 5
	defaultBreakerPause    = time.Second
	defaultMapPoll         = 30 * time.Second
	defaultMapGap          = time.Second
)

// Bounds of Options.
const (
	serversMax     = 1024
	connectionsMax = 64
	timeoutMax     = time.Minute
)

// fill makes v the value of f if it has none.
func fill[T comparable](f *T, v T) {
	var zero T
	if *f == zero {
		*f = v
	}
}

func (o Options) withDefaults() Options {
	fill(&o.Timeout, defaultTimeout)
	fill(&o.Connections, defaultConnections)
	fill(&o.BreakerFailures, defaultBreakerFailures)
	fill(&o.BreakerPause, defaultBreakerPause)
	fill(&o.MapPoll, defaultMapPoll)
	fill(&o.MapGap, defaultMapGap)
	o.Near.setDefaults()
	o.Fetch.setDefaults()
	fill(&o.Rollout.Budget, o.Fetch.Budget)
	if o.ClientID == "" {
		o.ClientID = rand.Text()
	}
	if o.Publisher == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // it never fails
		o.Publisher = binary.BigEndian.Uint64(b[:]) | 1
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Validate reports the first value that a client cannot work with.
func (o *Options) Validate() error {
	d := o.withDefaults()
	switch {
	case len(o.Seeds) == 0 && len(o.Servers) == 0:
		return errors.New("cluster: Options.Seeds and Options.Servers are empty: one of them is needed")
	case len(o.Seeds) > 0 && len(o.Servers) > 0:
		return errors.New("cluster: Options.Seeds and Options.Servers are both given: a client has a map or it has not")
	case len(o.Seeds) > serversMax || len(o.Servers) > serversMax:
		return fmt.Errorf("cluster: %d addresses: want at most %d", len(o.Seeds)+len(o.Servers), serversMax)
	case o.Ring != RingJump && o.Ring != RingKetama:
		return fmt.Errorf("cluster: Options.Ring %d: want RingJump or RingKetama", o.Ring)
	case o.SplitChoice != SplitSticky && o.SplitChoice != SplitRandom:
		return fmt.Errorf("cluster: Options.SplitChoice %d: want SplitSticky or SplitRandom", o.SplitChoice)
	case d.Connections < 1 || d.Connections > connectionsMax:
		return fmt.Errorf("cluster: Options.Connections %d: want 1 to %d", o.Connections, connectionsMax)
	case d.BreakerFailures < 1:
		return fmt.Errorf("cluster: Options.BreakerFailures %d: want 1 or more", o.BreakerFailures)
	case strings.ContainsAny(o.User+o.Password, "\r\n"):
		return errors.New("cluster: Options.User or Password has a line end in it")
	}
	if err := errors.Join(d.Near.validate(), d.Fetch.validate(), validatePolicies(o.Policies), o.Rollout.validate()); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, addr := range append(append([]string(nil), o.Seeds...), o.Servers...) {
		if err := validateAddr(addr); err != nil {
			return err
		}
		if seen[addr] {
			return fmt.Errorf("cluster: address %s is given twice", addr)
		}
		seen[addr] = true
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"Timeout", d.Timeout}, {"BreakerPause", d.BreakerPause}, {"MapPoll", d.MapPoll}, {"MapGap", d.MapGap}} {
		if d.v < time.Millisecond || d.name == "Timeout" && d.v > timeoutMax {
			return fmt.Errorf("cluster: Options.%s %s: want 1ms or more, and for Timeout at most %s", d.name, d.v, timeoutMax)
		}
	}
	return nil
}

func validateAddr(addr string) error {
	if strings.HasPrefix(addr, "/") {
		return nil
	}
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return fmt.Errorf("cluster: address %q: want HOST:PORT, or the path of a unix socket", addr)
	}
	return nil
}
