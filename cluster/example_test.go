package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quarrycache/quarry/cluster"
	"github.com/quarrycache/quarry/server"
)

var ctx = context.Background()

// startServer starts a server, as quarryd would be started elsewhere.
func startServer() (addr string, stop func()) {
	s, err := server.New(server.Config{Port: -1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	if err := s.Start(ctx); err != nil {
		panic(err)
	}
	return s.Addrs()[0].String(), func() { _ = s.Close(ctx) }
}

// Seeds are some of a cluster's nodes, or the one server there is.
func ExampleNew() {
	addr, stop := startServer()
	defer stop()
	c, err := cluster.New(cluster.Options{Seeds: []string{addr}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	fmt.Println(c.Set(ctx, &cluster.Item{Key: "greeting", Value: []byte("hello"), TTL: time.Minute}))
	r := c.Get(ctx, "greeting")
	fmt.Printf("%s: %s\n", r.Outcome, r.Value)
	// Output:
	// <nil>
	// hit: hello
}

// A cache that cannot be asked is a miss with a cause.
func ExampleResult() {
	c, err := cluster.New(cluster.Options{Servers: []string{"127.0.0.1:1"}}) // nobody is there
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	r := c.Get(ctx, "greeting")
	fmt.Println(r.Outcome, r.Found(), r.Cause != nil)
	// Output: unavailable false true
}

// Fetch loads what is not in the cache, once for all who ask.
func ExampleClient_Fetch() {
	addr, stop := startServer()
	defer stop()
	c, err := cluster.New(cluster.Options{Seeds: []string{addr}, Timeout: time.Second, Near: cluster.NearOptions{Life: 5 * time.Second}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	items := cluster.NewKeySpace("catalog", 1)
	load := func(ctx context.Context, q cluster.LoadRequest) (cluster.Loaded, error) {
		fmt.Println("load", q.Key)
		return cluster.Loaded{Value: []byte("a lamp"), Version: 41}, nil // SELECT …, version
	}
	for range 2 {
		r := c.Fetch(ctx, items.Key("acme", "7"), load)
		fmt.Printf("%s from %s: %s, version %d\n", r.Outcome, r.From, r.Value, r.Version)
	}
	// What the source does not have is known for two seconds.
	r := c.Fetch(ctx, items.Key("acme", "8"), func(context.Context, cluster.LoadRequest) (cluster.Loaded, error) {
		return cluster.Loaded{}, cluster.ErrNotFound
	})
	fmt.Println(r.Outcome)
	// Output:
	// load catalog:v1:acme:7
	// hit from source: a lamp, version 41
	// hit from near: a lamp, version 41
	// negative
}

// After a change is committed, its version is told to the cache. Nothing older
// is served as fresh from then on, or stored by a load that began before.
func ExampleClient_Invalidate() {
	addr, stop := startServer()
	defer stop()
	c, err := cluster.New(cluster.Options{Seeds: []string{addr}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	price, version := "10", uint64(41)
	load := func(context.Context, cluster.LoadRequest) (cluster.Loaded, error) {
		return cluster.Loaded{Value: []byte(price), Version: version}, nil
	}
	r := c.Fetch(ctx, "price:7", load)
	fmt.Printf("%s\n", r.Value)
	price, version = "12", 42 // UPDATE …; COMMIT
	n := c.Invalidate(ctx, "price:7", 42)
	fmt.Println(n.Err())
	r = c.Fetch(ctx, "price:7", load)
	fmt.Printf("%s\n", r.Value)
	// Output:
	// 10
	// <nil>
	// 12
}

// A caller that knows that there is a newer version asks for it.
func ExampleMinVersion() {
	addr, stop := startServer()
	defer stop()
	c, err := cluster.New(cluster.Options{Seeds: []string{addr}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	version := uint64(1)
	load := func(context.Context, cluster.LoadRequest) (cluster.Loaded, error) {
		return cluster.Loaded{Value: fmt.Append(nil, "v", version), Version: version}, nil
	}
	c.Fetch(ctx, "k", load)
	version = 2
	r := c.Fetch(ctx, "k", load, cluster.MinVersion(2))
	fmt.Printf("%s\n", r.Value)
	// Output: v2
}

func ExampleClient_GetMulti() {
	addr, stop := startServer()
	defer stop()
	c, err := cluster.New(cluster.Options{Seeds: []string{addr}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	_ = c.Set(ctx, &cluster.Item{Key: "a", Value: []byte("1")})
	got := c.GetMulti(ctx, []string{"a", "b"})
	a, b := got["a"], got["b"]
	fmt.Printf("%s %s, %s\n", a.Outcome, a.Value, b.Outcome)
	// Output: hit 1, miss
}

func ExampleItem() {
	addr, stop := startServer()
	defer stop()
	c, err := cluster.New(cluster.Options{Seeds: []string{addr}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	_ = c.Set(ctx, &cluster.Item{Key: "cart", Value: []byte("1")})
	r := c.Get(ctx, "cart")
	it := &cluster.Item{Key: "cart", Value: []byte("2"), CAS: r.CAS}
	fmt.Println(c.CompareAndSwap(ctx, it))
	fmt.Println(errors.Is(c.CompareAndSwap(ctx, it), cluster.ErrCASConflict))
	// Output:
	// <nil>
	// true
}

// Lookup, Fill and GiveBack are what Fetch is made of.
func ExampleClient_Lookup() {
	addr, stop := startServer()
	defer stop()
	c, err := cluster.New(cluster.Options{Seeds: []string{addr}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	ask := cluster.LookupOptions{Grant: time.Second}
	first, second := c.Lookup(ctx, "k", ask), c.Lookup(ctx, "k", ask)
	fmt.Println(first.Token != "", second.Token != "", second.Wait > 0)

	read := uint64(time.Now().UnixMilli()) // the source is read after the grant
	v := cluster.Versioned{Value: []byte("v"), Version: 1, Deadlines: cluster.Deadlines{Hard: read + 30_000, Read: read}}
	fmt.Println(c.Fill(ctx, "k", first.Token, v))

	// Told of version 2, the cache takes no more fills of version 1.
	c.Invalidate(ctx, "k", 2)
	next := c.Lookup(ctx, "k", ask)
	fmt.Println(next.Outcome, next.Version, c.Fill(ctx, "k", next.Token, v))
	// Output:
	// true false true
	// <nil>
	// stale 1 cluster: refused: the version is too old
}

// A number that is counted up too often for one node is kept in shards.
func ExampleCounter() {
	addr, stop := startServer()
	defer stop()
	c, err := cluster.New(cluster.Options{Seeds: []string{addr}, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	views, err := c.Counter("views:7", 8, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 100 {
		_ = views.Add(ctx, 1)
	}
	fmt.Println(views.Sum(ctx))
	// Output: 100 <nil>
}

// Two clients of one source, such as the old and the new schema of its data,
// load it no more often than one.
func ExampleBudget() {
	shared := cluster.NewBudget(20)
	for schema := range uint32(2) {
		c, err := cluster.New(cluster.Options{
			Servers: []string{"127.0.0.1:1"}, // nobody is there
			Fetch:   cluster.FetchOptions{Budget: shared},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		for range 100 {
			c.Fetch(ctx, cluster.NewKeySpace("catalog", schema).Key("", "7"), func(context.Context, cluster.LoadRequest) (cluster.Loaded, error) {
				return cluster.Loaded{}, errors.New("the source is slow today")
			})
		}
		s := c.Stats()
		fmt.Println(s.DirectLoads+s.DirectDenied, s.DirectLoads < 50)
		_ = c.Close()
	}
	// Output:
	// 100 true
	// 100 true
}
