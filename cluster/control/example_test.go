package control_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
)

// A map is published, and then the one after it.
func ExampleStore() {
	dir, err := os.MkdirTemp("", "quarry")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	s, err := control.Open("file:"+filepath.Join(dir, "map.json"), control.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close()

	ctx := context.Background()
	m, err := bucket.First("example", []bucket.Node{{ID: "a", Addr: "127.0.0.1:11211"}}, 0, bucket.Budget{})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.CompareAndSwap(ctx, nil, m))
	next, err := m.Plan(bucket.Change{Add: []bucket.Node{{ID: "b", Addr: "127.0.0.1:11212"}}})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.CompareAndSwap(ctx, m, next))
	fmt.Println(s.CompareAndSwap(ctx, m, next))

	m, err = s.Get(ctx)
	fmt.Println(m.Epoch, m.Owned(), err)
	// Output:
	// <nil>
	// <nil>
	// control: the map in the store is another one by now
	// 0.2 [2048 2048] <nil>
}
