package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
	"github.com/quarrycache/quarry/cluster/controller"
)

// clusterCommands are those of quarry cluster.
type clusterCommands struct {
	Init      clusterInit      `cmd:"" help:"Publish the first map of a cluster."`
	Show      clusterShow      `cmd:"" help:"Show the map, and how the nodes are."`
	Plan      clusterPlan      `cmd:"" help:"Show what a change would do, and publish nothing. Without a change: what restoring the balance would do."`
	Add       clusterAdd       `cmd:"" help:"Let nodes join."`
	Remove    clusterRemove    `cmd:"" help:"Let nodes leave."`
	SetWeight clusterSetWeight `cmd:"" help:"Change the weights of nodes."`

	SetAddress clusterSetAddress `cmd:"" help:"Change the addresses under which nodes are reached. No bucket moves, and nothing is lost."`

	Set       clusterSet       `cmd:"" help:"Change how many copies there are, and the budget."`
	Rebalance clusterRebalance `cmd:"" help:"Restore the balance, and copies that are missing; publishes, too, what nodes know when the store is behind them."`
	Split     clusterSplit     `cmd:"" help:"Split a key that is read too often for one node."`
	Unsplit   clusterUnsplit   `cmd:"" help:"End the split of a key."`
	Settle    clusterSettle    `cmd:"" help:"Forget the places that split keys had before, once the longest life has passed."`
	History   clusterHistory   `cmd:"" help:"List the last maps."`
	Rollback  clusterRollback  `cmd:"" help:"Publish an earlier map again, under a higher epoch."`
	Restore   clusterRestore   `cmd:"" help:"Fill a store that has lost its map, from a backup and from what nodes know."`

	ReplaceController clusterReplaceController `cmd:"" help:"Give up one process of quarry control that is lost with its data, so that another one can take its place (quarry control --join)."`
}

// storeFlags say where the map is.
type storeFlags struct {
	Cluster  string `required:"" env:"QUARRY_CLUSTER" placeholder:"STORE" help:"Where the map is: file:PATH or etcd:HOST:PORT,..."`
	EtcdCA   string `name:"etcd-ca" type:"path" placeholder:"FILE" help:"etcd speaks TLS, with certificates that are signed by these."`
	EtcdCert string `name:"etcd-cert" type:"path" placeholder:"FILE" help:"Our certificate for etcd."`
	EtcdKey  string `name:"etcd-key" type:"path" placeholder:"FILE" help:"Its key."`
}

func (f *storeFlags) open() (control.Store, error) {
	return control.Open(f.Cluster, control.Options{CA: f.EtcdCA, Cert: f.EtcdCert, Key: f.EtcdKey})
}

// publishFlags are those of every command that publishes a map.
type publishFlags struct {
	storeFlags
	wireFlags
	Yes        bool `short:"y" help:"Publish without asking."`
	DryRun     bool `help:"Show the plan, and publish nothing."`
	JSON       bool `name:"json" help:"Print the plan as JSON; together with --yes or --dry-run."`
	TrustStore bool `xor:"silent" help:"Publish though most nodes do not answer: the store is known to have the newest map."`
	Takeover   bool `xor:"silent" help:"Publish though nobody knows which map is the newest: begin a term, in which every node begins empty."`
}

// planFunc makes the next map.
type planFunc func(base *bucket.Map) (*bucket.Map, error)

func change(c bucket.Change) planFunc {
	return func(base *bucket.Map) (*bucket.Map, error) { return base.Plan(c) }
}

// errNotPublished is what remains to be said of a plan that nobody wanted.
var errNotPublished = errors.New("quarry: not published")

// publish shows what plan does, asks, and publishes it.
func (f *publishFlags) publish(ctx context.Context, k *kong.Kong, plan planFunc) error {
	return f.publishAsking(ctx, k, f.mapOf, plan)
}

// publishAsking is publish where ask asks nodes for their maps.
func (f *publishFlags) publishAsking(ctx context.Context, k *kong.Kong, ask control.Ask, plan planFunc) error {
	store, err := f.open()
	if err != nil {
		return err
	}
	defer store.Close()
	stock, err := control.Take(ctx, store, ask, control.Known{})
	if err != nil {
		return err
	}
	if stock.Base == nil {
		return fmt.Errorf("%w: quarry cluster init publishes the first one", control.ErrNoMap)
	}
	return f.publishStock(ctx, k, store, stock, plan)
}

func (f *publishFlags) publishStock(ctx context.Context, k *kong.Kong, store control.Store, stock *control.Stock, plan planFunc) error {
	stock.Trusted, stock.Takeover = f.TrustStore || f.DryRun, f.Takeover
	if f.Takeover {
		var random [8]byte
		_, _ = rand.Read(random[:])
		stock.Random = binary.BigEndian.Uint64(random[:])
	}
	next, err := stock.Next(plan)
	if errors.Is(err, control.ErrSilent) {
		return fmt.Errorf("%w\n%s\n--trust-store publishes all the same, if the store has not been restored from a backup; --takeover begins a term, and every node begins empty", err, strings.Join(silence(stock), "\n"))
	}
	if err != nil {
		return err
	}
	p := newPlanReport(f.Cluster, stock, next)
	p.expect(ctx, &f.wireFlags)
	if !f.JSON {
		p.write(k.Stdout)
	}
	publish := !f.DryRun
	if publish && !f.Yes {
		if publish, err = confirm(k, fmt.Sprintf("Publish map %s? [y/N] ", next.Epoch), f.JSON); err != nil {
			return err
		}
		if !publish {
			return errNotPublished
		}
	}
	if publish {
		if err := store.CompareAndSwap(ctx, stock.Stored, next); err != nil {
			return err
		}
		p.Published = true
	}
	if f.JSON {
		return printJSON(k.Stdout, p)
	}
	if publish {
		_, err = fmt.Fprintf(k.Stdout, "Published map %s.\n", next.Epoch)
	}
	return err
}

// confirm asks at the terminal.
func confirm(k *kong.Kong, question string, quiet bool) (bool, error) {
	if quiet || !term.IsTerminal(int(os.Stdin.Fd())) {
		return false, errors.New("quarry: want --yes or --dry-run where nobody can be asked")
	}
	_, _ = io.WriteString(k.Stdout, question)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return false, fmt.Errorf("quarry: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// nodeSpec is a node as it is typed: ID=HOST:PORT[@ZONE][*WEIGHT].
type nodeSpec bucket.Node

// UnmarshalText reads one.
func (n *nodeSpec) UnmarshalText(text []byte) error {
	id, rest, ok := strings.Cut(string(text), "=")
	if !ok {
		return fmt.Errorf("node %q: want ID=HOST:PORT[@ZONE][*WEIGHT]", text)
	}
	rest, weight, weighed := strings.Cut(rest, "*")
	addr, zone, zoned := strings.Cut(rest, "@")
	*n = nodeSpec{ID: id, Addr: addr, Zone: zone, Weight: 1, State: bucket.Active}
	if zoned && zone == "" {
		return fmt.Errorf("node %q: no zone behind @", text)
	}
	if weighed {
		w, err := strconv.Atoi(weight)
		if err != nil || w < 1 {
			return fmt.Errorf("node %q: weight %q: want a number of 1 or more", text, weight)
		}
		n.Weight = w
	}
	return nil
}

func nodes(specs []nodeSpec) []bucket.Node {
	all := make([]bucket.Node, len(specs))
	for i, s := range specs {
		all[i] = bucket.Node(s)
	}
	return all
}

// budgetFlags are limits of the source behind the cache.
type budgetFlags struct {
	Foreground  *int `placeholder:"N" help:"Grants a second that the whole cluster gives to callers who wait; 0 is no limit."`
	Background  *int `placeholder:"N" help:"Grants a second to refresh ahead; 0 is no limit."`
	DirectLoads *int `placeholder:"N" help:"Loads a second that all clients together may make past the cache; 0 is no limit."`
}

// budget is b with what the flags say.
func (f *budgetFlags) budget(b bucket.Budget) bucket.Budget {
	for _, v := range []struct {
		from *int
		to   *int
	}{{f.Foreground, &b.Foreground}, {f.Background, &b.Background}, {f.DirectLoads, &b.DirectLoads}} {
		if v.from != nil {
			*v.to = *v.from
		}
	}
	return b
}

// clusterInit is quarry cluster init.
type clusterInit struct {
	publishFlags
	budgetFlags
	Node   []nodeSpec `required:"" sep:"none" placeholder:"ID=HOST:PORT[@ZONE][*WEIGHT]" help:"A node; give the flag once for each."`
	Name   string     `help:"Of the cluster. Default: one made by chance."`
	Copies *int       `placeholder:"N" help:"Copies of each bucket besides its owner. Default: 1 where there are other nodes."`
}

// Run publishes the first map.
func (c *clusterInit) Run(ctx context.Context, k *kong.Kong) error {
	if c.Takeover {
		return errors.New("quarry: there is nothing to take over; nodes that know a map have it from quarry cluster restore")
	}
	store, err := c.open()
	if err != nil {
		return err
	}
	defer store.Close()
	stock, err := control.Take(ctx, store, c.mapOf, control.Known{Nodes: nodes(c.Node)})
	if err != nil {
		return err
	}
	switch {
	case stock.Stored != nil:
		return fmt.Errorf("quarry: there is a map of cluster %s already, %s", stock.Stored.Cluster, stock.Stored.Epoch)
	case stock.Base != nil:
		return fmt.Errorf("quarry: nodes serve by map %s of cluster %s already: quarry cluster restore puts it into the store", stock.Base.Epoch, stock.Base.Cluster)
	}
	if c.Name == "" {
		var random [4]byte
		_, _ = rand.Read(random[:])
		c.Name = "quarry-" + hex.EncodeToString(random[:])
	}
	if c.Copies == nil {
		// As many as there can be, and one at most: nodes that join later
		// get theirs, too.
		one := 1
		c.Copies = &one
	}
	first, err := bucket.First(c.Name, nodes(c.Node), *c.Copies, c.budget(bucket.Budget{}))
	if err != nil {
		return err
	}
	// Nobody has to answer: they may all start later.
	stock.Base, stock.Nodes = first, nil
	return c.publishStock(ctx, k, store, stock, func(base *bucket.Map) (*bucket.Map, error) { return base, nil })
}

// clusterPlan is quarry cluster plan.
type clusterPlan struct {
	storeFlags
	wireFlags
	budgetFlags
	Add    []nodeSpec     `sep:"none" placeholder:"ID=HOST:PORT[@ZONE][*WEIGHT]" help:"A node that joins."`
	Remove []string       `placeholder:"ID" help:"A node that leaves."`
	Weight map[string]int `placeholder:"ID=WEIGHT" help:"A node's weight."`
	Copies *int           `placeholder:"N" help:"Copies of each bucket besides its owner."`
	JSON   bool           `name:"json" help:"Print the plan as JSON."`
}

// Run shows the plan.
func (c *clusterPlan) Run(ctx context.Context, k *kong.Kong) error {
	f := publishFlags{storeFlags: c.storeFlags, wireFlags: c.wireFlags, DryRun: true, JSON: c.JSON}
	return f.publish(ctx, k, func(base *bucket.Map) (*bucket.Map, error) {
		b := c.budget(base.Budget)
		return base.Plan(bucket.Change{Add: nodes(c.Add), Remove: c.Remove, Weights: c.Weight, Copies: c.Copies, Budget: &b})
	})
}

// clusterAdd is quarry cluster add.
type clusterAdd struct {
	publishFlags
	Node []nodeSpec `required:"" sep:"none" placeholder:"ID=HOST:PORT[@ZONE][*WEIGHT]" help:"A node that joins; give the flag once for each."`
}

// Run lets nodes join.
func (c *clusterAdd) Run(ctx context.Context, k *kong.Kong) error {
	return c.publish(ctx, k, change(bucket.Change{Add: nodes(c.Node)}))
}

// clusterRemove is quarry cluster remove.
type clusterRemove struct {
	publishFlags
	Node []string `required:"" placeholder:"ID" help:"A node that leaves; give the flag once for each."`
}

// Run lets nodes leave.
func (c *clusterRemove) Run(ctx context.Context, k *kong.Kong) error {
	return c.publish(ctx, k, change(bucket.Change{Remove: c.Node}))
}

// clusterSetWeight is quarry cluster set-weight.
type clusterSetWeight struct {
	publishFlags
	Weight map[string]int `arg:"" help:"A node and its weight: ID=WEIGHT. Nodes have buckets in proportion to their weights."`
}

// Run changes weights.
func (c *clusterSetWeight) Run(ctx context.Context, k *kong.Kong) error {
	return c.publish(ctx, k, change(bucket.Change{Weights: c.Weight}))
}

// clusterSetAddress is quarry cluster set-address.
type clusterSetAddress struct {
	publishFlags
	Address map[string]string `arg:"" help:"A node and its address: ID=HOST:PORT. The node listens there already, or will when it is started again."`
}

// Run changes addresses. A node that has moved already is asked where it is
// now.
func (c *clusterSetAddress) Run(ctx context.Context, k *kong.Kong) error {
	ask := func(ctx context.Context, n bucket.Node) (*bucket.Map, error) {
		if addr, ok := c.Address[n.ID]; ok {
			moved := n
			moved.Addr = addr
			if m, err := c.mapOf(ctx, moved); err == nil {
				return m, nil
			}
		}
		return c.mapOf(ctx, n)
	}
	return c.publishAsking(ctx, k, ask, func(base *bucket.Map) (*bucket.Map, error) { return base.Readdress(c.Address) })
}

// clusterSet is quarry cluster set.
type clusterSet struct {
	publishFlags
	budgetFlags
	Copies *int `placeholder:"N" help:"Copies of each bucket besides its owner."`
}

// Run changes what concerns all nodes.
func (c *clusterSet) Run(ctx context.Context, k *kong.Kong) error {
	return c.publish(ctx, k, func(base *bucket.Map) (*bucket.Map, error) {
		b := c.budget(base.Budget)
		if b == base.Budget && (c.Copies == nil || *c.Copies == base.CopiesWanted) {
			return nil, errors.New("quarry: that is so already")
		}
		return base.Plan(bucket.Change{Copies: c.Copies, Budget: &b})
	})
}

// clusterRebalance is quarry cluster rebalance.
type clusterRebalance struct{ publishFlags }

// Run plans again.
func (c *clusterRebalance) Run(ctx context.Context, k *kong.Kong) error {
	return c.publish(ctx, k, change(bucket.Change{}))
}

// clusterSplit is quarry cluster split.
type clusterSplit struct {
	publishFlags
	Key string `arg:"" help:"Key."`
	N   int    `arg:"" optional:"" help:"Into so many copies. Default: what --rate and --node-rate ask for."`

	Rate     float64 `placeholder:"N" help:"Reads a second of the key."`
	NodeRate float64 `placeholder:"N" help:"Reads a second of one key that a node stands."`
	Headroom float64 `default:"1.2" help:"Room above the rate."`
	Force    bool    `help:"Split it though nodes say that it is written too much for that."`
}

// Run splits a key.
func (c *clusterSplit) Run(ctx context.Context, k *kong.Kong) error {
	if c.N == 0 {
		var err error
		if c.N, err = splitInto(c.Rate, c.NodeRate, c.Headroom); err != nil {
			return err
		}
	}
	if c.N < 2 {
		return fmt.Errorf("quarry: key %q into %d: want 2 or more", c.Key, c.N)
	}
	return c.publish(ctx, k, func(base *bucket.Map) (*bucket.Map, error) {
		if len(base.Nodes) < 2 {
			return nil, errors.New("quarry: on one node a split key costs more and gains nothing")
		}
		if was, _ := base.SplitOf([]byte(c.Key)); c.N > was.N && !c.Force {
			use := c.useOf(ctx, base, c.Key)
			use.reads = max(use.reads, c.Rate)
			if err := use.allows(c.Key, c.N); err != nil {
				return nil, err
			}
		}
		return base.Plan(bucket.Change{Split: []bucket.Split{{Key: bucket.RawKey(c.Key), N: c.N}}})
	})
}

// clusterUnsplit is quarry cluster unsplit.
type clusterUnsplit struct {
	publishFlags
	Key string `arg:"" help:"Key."`
}

// Run ends a split.
func (c *clusterUnsplit) Run(ctx context.Context, k *kong.Kong) error {
	return c.publish(ctx, k, change(bucket.Change{Split: []bucket.Split{{Key: bucket.RawKey(c.Key), N: 1}}}))
}

// clusterSettle is quarry cluster settle.
type clusterSettle struct{ publishFlags }

// Run forgets former places.
func (c *clusterSettle) Run(ctx context.Context, k *kong.Kong) error {
	return c.publish(ctx, k, (*bucket.Map).Settle)
}

// clusterRollback is quarry cluster rollback.
type clusterRollback struct {
	publishFlags
	Epoch bucket.Epoch `arg:"" help:"Of the map to publish again, as quarry cluster history lists it."`
}

// Run publishes an earlier map.
func (c *clusterRollback) Run(ctx context.Context, k *kong.Kong) error {
	store, err := c.open()
	if err != nil {
		return err
	}
	defer store.Close()
	history, err := store.History(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(history, func(e control.Entry) bool { return e.Map.Epoch == c.Epoch })
	if i < 0 {
		return fmt.Errorf("quarry: the history has no map %s", c.Epoch)
	}
	return c.publish(ctx, k, func(base *bucket.Map) (*bucket.Map, error) { return base.Rollback(history[i].Map) })
}

// clusterRestore is quarry cluster restore.
type clusterRestore struct {
	publishFlags
	Map  string   `type:"existingfile" placeholder:"FILE" help:"A map that was saved: by quarry cluster show --map, or a node's."`
	Node []string `placeholder:"HOST:PORT" help:"Ask this node, too."`
}

// Run publishes what is known in a store that knows nothing.
func (c *clusterRestore) Run(ctx context.Context, k *kong.Kong) error {
	var known control.Known
	if c.Map != "" {
		text, err := os.ReadFile(c.Map)
		if err != nil {
			return fmt.Errorf("quarry: %w", err)
		}
		if known.Map, err = bucket.Decode(text); err != nil {
			return err
		}
	}
	for _, addr := range c.Node {
		known.Nodes = append(known.Nodes, bucket.Node{ID: addr, Addr: addr})
	}
	store, err := c.open()
	if err != nil {
		return err
	}
	defer store.Close()
	stock, err := control.Take(ctx, store, c.mapOf, known)
	switch {
	case err != nil:
		return err
	case stock.Stored != nil:
		return fmt.Errorf("quarry: the store has map %s: quarry cluster rollback goes back", stock.Stored.Epoch)
	case stock.Base == nil:
		return errors.New("quarry: nobody knows a map: give --map or --node")
	}
	return c.publishStock(ctx, k, store, stock, change(bucket.Change{}))
}

// clusterReplaceController is quarry cluster replace-controller.
type clusterReplaceController struct {
	storeFlags
	Peer controller.Peer `arg:"" placeholder:"NAME=HOST:PORT" help:"Its name, and where its successor of that name is for its peers."`
}

// Run tells the others.
func (c *clusterReplaceController) Run(ctx context.Context, k *kong.Kong) error {
	store, err := c.open()
	if err != nil {
		return err
	}
	defer store.Close()
	if err := control.ReplacePeer(ctx, store, c.Peer.Name, c.Peer.Addr); err != nil {
		return err
	}
	_, err = fmt.Fprintf(k.Stdout, "Now start quarry control --name %s --join there, with an empty --data.\n", c.Peer.Name)
	return err
}

// clusterHistory is quarry cluster history.
type clusterHistory struct {
	storeFlags
	JSON bool `name:"json" help:"Print it as JSON."`
}

// Run lists the last maps.
func (c *clusterHistory) Run(ctx context.Context, k *kong.Kong) error {
	store, err := c.open()
	if err != nil {
		return err
	}
	defer store.Close()
	history, err := store.History(ctx)
	if err != nil {
		return err
	}
	if len(history) == 0 {
		return control.ErrNoMap
	}
	report := newHistoryReport(history)
	if c.JSON {
		return printJSON(k.Stdout, report)
	}
	return report.write(k.Stdout)
}

// clusterShow is quarry cluster show.
type clusterShow struct {
	storeFlags
	wireFlags
	JSON bool `name:"json" xor:"form" help:"Print it as JSON."`
	Map  bool `xor:"form" help:"Print the map itself, in its readable form: a backup for quarry cluster restore."`
}

// Run shows the map.
func (c *clusterShow) Run(ctx context.Context, k *kong.Kong) error {
	store, err := c.open()
	if err != nil {
		return err
	}
	defer store.Close()
	if c.Map {
		m, err := store.Get(ctx)
		if err != nil {
			return err
		}
		_, err = k.Stdout.Write(m.JSON())
		return err
	}
	stock, err := control.Take(ctx, store, c.mapOf, control.Known{})
	if err != nil {
		return err
	}
	if stock.Stored == nil {
		return control.ErrNoMap
	}
	liveness, err := store.Liveness(ctx)
	if err != nil && !errors.Is(err, control.ErrNoLiveness) {
		return err
	}
	report := newShowReport(c.Cluster, stock, liveness, err == nil)
	if c.JSON {
		return printJSON(k.Stdout, report)
	}
	return report.write(k.Stdout)
}

// sortedKeys are the keys of a map in their order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
