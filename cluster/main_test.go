package cluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server"
	"github.com/quarrycache/quarry/server/store"
)

// bg is the context of tests that need none.
var bg = context.Background()

// startServer starts a server on a free port and returns its address.
func startServer(t testing.TB, cfg server.Config) string {
	t.Helper()
	_, addr := startServerToo(t, cfg)
	return addr
}

func startServerToo(t testing.TB, cfg server.Config) (*server.Server, string) {
	t.Helper()
	leakless(t)
	cfg.Port = -1
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(bg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s, s.Addrs()[0].String()
}

// nodes are real servers that are the nodes of one map.
type nodes struct {
	list  []*server.Server
	addrs []string
	m     *bucket.Map
	clock serverClock
}

func startNodes(t testing.TB, n, copies int) *nodes {
	t.Helper()
	ns := new(nodes)
	ns.clock.behind.Store(time.Minute.Milliseconds())
	var list []bucket.Node
	for i := range n {
		cfg := patient()
		cfg.Threads = 1
		cfg.Clock = ns.clock.now
		cfg.Cluster = server.ClusterConfig{NodeID: fmt.Sprintf("n%02d", i), HasStore: true}
		s, addr := startServerToo(t, cfg)
		ns.list, ns.addrs = append(ns.list, s), append(ns.addrs, addr)
		list = append(list, bucket.Node{ID: cfg.Cluster.NodeID, Addr: addr, Zone: cfg.Cluster.NodeID})
	}
	m, err := bucket.First("test", list, copies, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	ns.publish(t, m)
	ns.clock.behind.Store(0) // floors are known
	return ns
}

// serverClock is a server's clock that may be behind.
type serverClock struct{ behind atomic.Int64 }

// forward moves the clocks of the nodes and of clients.
func (ns *nodes) forward(k *clock, d time.Duration) {
	ns.clock.behind.Add(-d.Milliseconds())
	k.forward(d)
}

// now is the time in ms.
func (k *serverClock) now() store.Time { return store.Time(time.Now().UnixMilli() - k.behind.Load()) }

func (ns *nodes) publish(t testing.TB, m *bucket.Map) {
	t.Helper()
	ns.m = m
	for _, s := range ns.list {
		if err := s.ApplyMap(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range ns.addrs { // grants are given
		waitFor(t, "the map", func() bool {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "stats cluster\r\n"); err != nil {
				t.Fatal(err)
			}
			for r := bufio.NewScanner(c); r.Scan() && r.Text() != "END"; {
				if r.Text() == "STAT confirmed yes" {
					return true
				}
			}
			return false
		})
	}
}

// newClient makes a client that ends with the test, and looks whether anything
// of it is left then.
func newClient(t testing.TB, o Options) *Client {
	t.Helper()
	leakless(t)
	fill(&o.Timeout, 3*time.Second) // machines that run tests may be busy
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// fake is a node of a cluster that is no more than a map of items: it can be
// made to fail in all the ways that a server should not.
type fake struct {
	addr  string
	l     net.Listener
	gone  sync.WaitGroup
	mute  atomic.Bool  // takes requests and answers none
	delay atomic.Int64 // before each answer, in ns

	gets, sets, configs, moved, open atomic.Int64

	mu    sync.Mutex // all below
	conns map[net.Conn]bool
	items map[string]fakeItem
	m     *bucket.Map
	say   func(r *meta.Request) (reply []byte, ok bool) // answers instead
}

type fakeItem struct {
	value   string
	flags   uint32
	version uint64
	meta.Deadlines
}

func startFake(t testing.TB) *fake {
	t.Helper()
	leakless(t)
	f := &fake{conns: map[net.Conn]bool{}, items: map[string]fakeItem{}}
	f.listen(t, "127.0.0.1:0")
	f.addr = f.l.Addr().String()
	t.Cleanup(f.stop)
	return f
}

func (f *fake) listen(t testing.TB, addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f.l = l
	f.gone.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[nc] = true
			f.mu.Unlock()
			f.open.Add(1)
			f.gone.Go(func() { f.serve(nc) })
		}
	})
}

// stop ends the node: nobody is listening any more.
func (f *fake) stop() {
	_ = f.l.Close()
	f.mu.Lock()
	for nc := range f.conns {
		_ = nc.Close()
	}
	f.mu.Unlock()
	f.gone.Wait()
}

func (f *fake) setMap(m *bucket.Map) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.m = m
}

func (f *fake) put(key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.items[key] = fakeItem{value: value}
}

func (f *fake) serve(nc net.Conn) {
	defer func() {
		_ = nc.Close()
		f.mu.Lock()
		delete(f.conns, nc)
		f.mu.Unlock()
		f.open.Add(-1)
	}()
	buf := make([]byte, 0, 64<<10)
	var r meta.Request
	for {
		i := bytes.IndexByte(buf, '\n')
		if i < 0 {
			if len(buf) == cap(buf) {
				return
			}
			n, err := nc.Read(buf[len(buf):cap(buf)])
			if err != nil {
				return
			}
			buf = buf[:len(buf)+n]
			continue
		}
		e := r.ParseLine(buf[:i])
		used := i + 1
		var value []byte
		if r.Op == meta.OpSet && e == meta.ErrNone {
			need := used + r.ValueLen + 2
			for len(buf) < need {
				n, err := io.ReadAtLeast(nc, buf[len(buf):cap(buf)], need-len(buf))
				if err != nil {
					return
				}
				buf = buf[:len(buf)+n]
			}
			value = buf[used : need-2]
			used = need
		}
		var out []byte
		if e != meta.ErrNone {
			out = []byte(e.String())
		} else {
			out = f.answer(&r, string(value))
		}
		rest := append([]byte(nil), buf[used:]...)
		buf = append(buf[:0], rest...)
		if d := f.delay.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
		if f.mute.Load() {
			continue
		}
		if _, err := nc.Write(out); err != nil {
			return
		}
	}
}

func (f *fake) answer(r *meta.Request, value string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.say != nil {
		if out, ok := f.say(r); ok {
			return out
		}
	}
	switch r.Op {
	case meta.OpConfig:
		f.configs.Add(1)
		if f.m == nil {
			return []byte("ERROR\r\n")
		}
		return meta.AppendConfig(nil, "quarry", f.m.Compact())
	case meta.OpNoop:
		return []byte("MN\r\n")
	case meta.OpVersion:
		return []byte("VERSION 1\r\n")
	case meta.OpStats:
		return []byte("STAT grants 1\r\nSTAT more 2\r\nEND\r\n")
	}
	if f.m != nil {
		b := bucket.Of(r.Key)
		k := &f.m.Buckets[b]
		self := -1
		for i := range f.m.Nodes {
			if f.m.Nodes[i].Addr == f.addr {
				self = i
			}
		}
		mine := int(k.Owner) == self
		for _, c := range k.Copies {
			if r.Route.Copy && int(c) == self {
				mine, r.Route.AsCopy = true, true
			}
		}
		if !mine {
			f.moved.Add(1)
			return r.AppendMoved(nil, &meta.Moved{Epoch: uint64(f.m.Epoch), Bucket: b, Addr: f.m.OwnerOf(b).Addr})
		}
		if uint64(f.m.Epoch) > r.Route.Epoch {
			r.Route.Newer = uint64(f.m.Epoch)
		}
	}
	it, ok := f.items[string(r.Key)]
	switch r.Op {
	case meta.OpGet:
		f.gets.Add(1)
		if !ok {
			return r.AppendMetaReply(nil, meta.CodeEN, nil)
		}
		item := meta.Item{Size: len(it.value), ClientFlags: it.flags, CAS: 1,
			Fresh: &meta.ItemFreshness{Version: it.version, Deadlines: it.Deadlines}}
		if !r.Has.Has('v') {
			return r.AppendMetaReply(nil, meta.CodeHD, &item)
		}
		return meta.AppendBlock(r.AppendMetaReply(nil, meta.CodeVA, &item), []byte(it.value))
	case meta.OpSet:
		f.sets.Add(1)
		f.items[string(r.Key)] = fakeItem{value, r.ClientFlags, r.Fresh.Version, r.Fresh.Deadlines}
		return r.AppendMetaReply(nil, meta.CodeHD, &meta.Item{CAS: 1})
	case meta.OpDelete:
		delete(f.items, string(r.Key))
		if !ok && !r.Has.Has('Y') {
			return r.AppendMetaReply(nil, meta.CodeNF, nil)
		}
		return r.AppendMetaReply(nil, meta.CodeHD, nil)
	}
	return []byte("ERROR\r\n")
}

// fakes are nodes with one map.
func startFakes(t testing.TB, n, copies int) ([]*fake, *bucket.Map) {
	t.Helper()
	var list []*fake
	var nodes []bucket.Node
	for i := range n {
		f := startFake(t)
		list = append(list, f)
		nodes = append(nodes, bucket.Node{ID: fmt.Sprintf("n%02d", i), Addr: f.addr})
	}
	m, err := bucket.First("test", nodes, copies, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		f.setMap(m)
	}
	return list, m
}

// change is the map after a change.
func change(t testing.TB, m *bucket.Map, c bucket.Change) *bucket.Map {
	t.Helper()
	next, err := m.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// ownedBy is a key whose owner in m is node i.
func ownedBy(m *bucket.Map, i int, name string) string {
	for n := 0; ; n++ {
		key := fmt.Sprintf("%s%d", name, n)
		if int(m.Buckets[bucket.Of([]byte(key))].Owner) == i {
			return key
		}
	}
}

// waitFor waits until ok, and fails the test if that takes too long.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("%s: not after a minute", what)
		}
	}
}

func seeds(list []*fake) []string {
	var s []string
	for _, f := range list {
		s = append(s, f.addr)
	}
	return s
}

// long is a text of n bytes.
func long(n int) string { return strings.Repeat("x", n) }
