package store_test

import (
	"fmt"

	"github.com/quarrycache/quarry/server/store"
)

// printer shows what it is given.
type printer struct{}

func (printer) VisitItem(it *store.Item) {
	fmt.Printf("%s = %s (%d s left)\n", it.Key, it.AppendValue(nil), it.TTL)
}

func Example() {
	s, err := store.Open(store.Config{LimitBytes: 16 << 20})
	if err != nil {
		panic(err)
	}
	defer s.Close()

	now := store.Time(1_700_000_000_000)
	k := store.KeyOf([]byte("greeting"))
	s.Set(k, []byte("hello"), &store.SetOptions{Expiry: store.Expiry(30, now)}, now)
	s.Get(k, &store.GetOptions{}, now+10_000, printer{})

	st := s.Get(k, &store.GetOptions{}, now+30_000, printer{})
	fmt.Println("after 30 s it is a miss:", st == store.Miss)
	// Output:
	// greeting = hello (20 s left)
	// after 30 s it is a miss: true
}

func ExampleUpload() {
	s, err := store.Open(store.Config{LimitBytes: 16 << 20})
	if err != nil {
		panic(err)
	}
	defer s.Close()

	now := store.Time(1_700_000_000_000)
	k := store.KeyOf([]byte("parts"))
	var u store.Upload
	if st := s.Begin(k, 10, &store.SetOptions{}, now, &u); st != store.OK {
		panic(st)
	}
	u.Write([]byte("01234"), now)
	fmt.Println("half there:", s.Get(k, &store.GetOptions{}, now, nil) == store.OK)
	u.Write([]byte("56789"), now)
	u.Commit(now)
	s.Get(k, &store.GetOptions{}, now, printer{})
	// Output:
	// half there: false
	// parts = 0123456789 (-1 s left)
}
