package bench

import (
	"errors"
	"fmt"
	"time"

	"github.com/quarrycache/quarry/cluster"
)

// Bounds of a run through clients.
const (
	clientsMax    = 1 << 12
	goroutinesMax = 1 << 16 // of all clients together
	sourceKeysMax = 1 << 24 // of a source, which knows the version of each
	sourceLateMax = 24 * time.Hour
)

// ClusterConfig says what a run through the Go client does: which load, as in
// Config, and which clients. What Config says of connections and of the words
// on them the clients decide: Server, Threads, Conns, TLS, Protocol, Pipeline,
// Stall and ServerPID are not used.
type ClusterConfig struct {
	Config

	// Client is how each client is made; its id, its near cache and its
	// policies are set by the fields below.
	Client     cluster.Options
	Clients    int // each as in a process of its own (1)
	Goroutines int // that ask at once, of each client (16)

	Near   time.Duration // life in the near caches (0: there are none)
	Copies bool          // hot keys may be read from nodes with copies

	// Fetch reads with Fetch in place of Get, from a source behind the cache.
	// A set is a change at the source then, and the notice after it.
	Fetch  bool
	Source SourceConfig
}

// WithDefaults is c with each zero field that has a default set to it.
func (c ClusterConfig) WithDefaults() ClusterConfig {
	setDefault(&c.Clients, 1)
	setDefault(&c.Goroutines, 16)
	c.Config = c.Config.WithDefaults()
	return c
}

// Validate names the first field that cannot be, and its value.
func (c ClusterConfig) Validate() error {
	c = c.WithDefaults()
	if err := c.Config.Validate(); err != nil {
		return err
	}
	o := c.options()
	switch {
	case c.Clients < 1 || c.Clients > clientsMax:
		return fmt.Errorf("bench: clients %d: want 1 to %d", c.Clients, clientsMax)
	case c.Goroutines < 1 || c.Clients*c.Goroutines > goroutinesMax:
		return fmt.Errorf("bench: goroutines %d of each of %d clients: want 1 or more, and at most %d together", c.Goroutines, c.Clients, goroutinesMax)
	case c.Near < 0 || c.Near > 0 && c.Near < time.Millisecond:
		return fmt.Errorf("bench: near %v: want 0 for none, or 1ms or more", c.Near)
	case c.Fetch && c.Multiget > 1:
		return fmt.Errorf("bench: multiget %d: Fetch reads one key", c.Multiget)
	case c.Fetch && c.Lookaside:
		return errors.New("bench: look-aside: Fetch loads what is missing by itself")
	case c.Copies && c.keys().prefix() == "":
		return fmt.Errorf("bench: key size %d: copies need keys with a prefix", c.KeyBytes)
	case !c.Fetch && c.Copies:
		return errors.New("bench: copies: they have what Fetch stores, and nothing else")
	case !c.Fetch && c.Source != (SourceConfig{}):
		return errors.New("bench: a source: Fetch alone reads it")
	case c.Fetch && c.Keys > sourceKeysMax:
		return fmt.Errorf("bench: keys %d: a source has at most %d", c.Keys, sourceKeysMax)
	}
	return errors.Join(c.Source.validate(), o.Validate())
}

// keys are those of the run. What Fetch stores has versions: it has names of its
// own.
func (c *ClusterConfig) keys() *keys {
	if c.Fetch {
		return newKeysOf("row-", c.Keys, c.KeyBytes)
	}
	return newKeys(c.Keys, c.KeyBytes)
}

// options are those of each client.
func (c *ClusterConfig) options() cluster.Options {
	o := c.Client
	o.Near = cluster.NearOptions{Life: c.Near, Gets: !c.Fetch}
	if c.Near == 0 {
		o.Near = cluster.NearOptions{Bytes: -1}
	}
	if c.Copies {
		o.Policies = []cluster.Policy{{Prefix: c.keys().prefix(), Copies: true}}
	}
	return o
}
