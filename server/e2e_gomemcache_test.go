package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// TestGomemcache uses the Go client that most programs use, over TCP, over a
// unix socket and over TLS.
func TestGomemcache(t *testing.T) {
	for _, transport := range allThree {
		t.Run(transport, func(t *testing.T) { testGomemcache(t, newClientHost(t, transport)) })
	}
}

func testGomemcache(t *testing.T, h *clientHost) {
	c := memcache.New(h.addr)
	defer c.Close()
	if h.ca != nil {
		c.DialContext = (&tls.Dialer{Config: h.ca.client(t)}).DialContext
	}
	c.Timeout = testTimeout
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	want := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
	value := func(key, want string) *memcache.Item {
		t.Helper()
		it, err := c.Get(key)
		must("get "+key, err)
		if string(it.Value) != want {
			t.Fatalf("get %s: got %q, want %q", key, it.Value, want)
		}
		return it
	}

	must("ping", c.Ping())
	_, err := c.Get("miss")
	want("get of a miss", err, memcache.ErrCacheMiss)

	must("set", c.Set(&memcache.Item{Key: "k", Value: []byte("one"), Flags: 123}))
	if it := value("k", "one"); it.Flags != 123 {
		t.Errorf("flags: got %d, want 123", it.Flags)
	}
	want("add over an item", c.Add(&memcache.Item{Key: "k", Value: []byte("x")}), memcache.ErrNotStored)
	must("add", c.Add(&memcache.Item{Key: "l", Value: []byte("new")}))
	want("replace of a miss", c.Replace(&memcache.Item{Key: "m", Value: []byte("x")}), memcache.ErrNotStored)
	must("replace", c.Replace(&memcache.Item{Key: "k", Value: []byte("two")}))
	must("append", c.Append(&memcache.Item{Key: "k", Value: []byte("+")}))
	must("prepend", c.Prepend(&memcache.Item{Key: "k", Value: []byte("-")}))
	value("k", "-two+")

	it := value("k", "-two+")
	it.Value = []byte("three")
	must("compare and swap", c.CompareAndSwap(it))
	want("compare and swap again", c.CompareAndSwap(it), memcache.ErrCASConflict)
	value("k", "three")
	must("delete", c.Delete("k"))
	want("compare and swap of a miss", c.CompareAndSwap(it), memcache.ErrCacheMiss)
	want("delete of a miss", c.Delete("k"), memcache.ErrCacheMiss)

	must("set of a number", c.Set(&memcache.Item{Key: "n", Value: []byte("42")}))
	n, err := c.Increment("n", 8)
	if must("increment", err); n != 50 {
		t.Errorf("increment: got %d, want 50", n)
	}
	n, err = c.Decrement("n", 49)
	if must("decrement", err); n != 1 {
		t.Errorf("decrement: got %d, want 1", n)
	}
	_, err = c.Increment("miss", 1)
	want("increment of a miss", err, memcache.ErrCacheMiss)

	must("touch", c.Touch("n", 1000))
	want("touch of a miss", c.Touch("miss", 1000), memcache.ErrCacheMiss)
	got, err := c.GetAndTouch("l", 1000)
	if must("get and touch", err); string(got.Value) != "new" {
		t.Errorf("get and touch: got %q, want %q", got.Value, "new")
	}

	must("set with a time", c.Set(&memcache.Item{Key: "t", Value: []byte("x"), Expiration: 100}))
	h.clock.Advance(101 * time.Second)
	_, err = c.Get("t")
	want("get of an expired item", err, memcache.ErrCacheMiss)
	value("l", "new")
	h.clock.Advance(1000 * time.Second)
	_, err = c.Get("l")
	want("get of one that was touched", err, memcache.ErrCacheMiss)

	var keys []string
	for i := range 200 {
		key := fmt.Sprintf("multi-%d", i)
		keys = append(keys, key)
		if i%2 == 0 {
			must("set "+key, c.Set(&memcache.Item{Key: key, Value: []byte(key)}))
		}
	}
	items, err := c.GetMulti(keys)
	if must("get of many", err); len(items) != 100 {
		t.Errorf("get of many: got %d items, want 100", len(items))
	}
	for key, it := range items {
		if string(it.Value) != key {
			t.Errorf("get of many: %s has %q", key, it.Value)
		}
	}

	large := bytes.Repeat([]byte("0123456789abcdef"), 1000000/16)
	must("set of a large value", c.Set(&memcache.Item{Key: "large", Value: large}))
	got, err = c.Get("large")
	if must("get of a large value", err); !bytes.Equal(got.Value, large) {
		t.Error("get of a large value: not the bytes that were set")
	}
	if err := c.Set(&memcache.Item{Key: "large", Value: make([]byte, 2<<20)}); err == nil {
		t.Error("set of a value over the limit: got no error")
	}

	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				key := fmt.Sprintf("worker-%d-%d", g, i%10)
				if err := c.Set(&memcache.Item{Key: key, Value: []byte(key)}); err != nil {
					t.Errorf("set %s: %v", key, err)
					return
				}
				if it, err := c.Get(key); err != nil || string(it.Value) != key {
					t.Errorf("get %s: got %v, %v", key, it, err)
					return
				}
			}
		})
	}
	wg.Wait()

	must("flush", c.DeleteAll())
	_, err = c.Get("n")
	want("get after flush", err, memcache.ErrCacheMiss)
	want("set with a key too long", c.Set(&memcache.Item{Key: strings.Repeat("k", 251)}), memcache.ErrMalformedKey)

	// What was cached is gone with the server, and the idle connections break;
	// then the client connects anew.
	must("set", c.Set(&memcache.Item{Key: "before", Value: []byte("x")}))
	h.restart(t)
	for range 20 {
		if _, err = c.Get("before"); errors.Is(err, memcache.ErrCacheMiss) {
			break
		}
	}
	want("get of what the server took with it", err, memcache.ErrCacheMiss)
	must("set", c.Set(&memcache.Item{Key: "after", Value: []byte("x")}))
	value("after", "x")
	if _, err := memcache.New("127.0.0.1:1").Get("k"); err == nil || errors.Is(err, memcache.ErrCacheMiss) {
		t.Errorf("get without a server: got %v", err)
	}
}
