package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/cluster"
	"github.com/quarrycache/quarry/cluster/bucket"
)

// newClient is the Go client of the nodes of m.
func newClient(t testing.TB, m *bucket.Map, o cluster.Options) *cluster.Client {
	t.Helper()
	leakless(t)
	for i := range m.Nodes {
		o.Seeds = append(o.Seeds, m.Nodes[i].Addr)
	}
	c, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// awaitConfirmed waits until all nodes have a map that is confirmed.
func awaitConfirmed(t testing.TB, dial []func() net.Conn) {
	t.Helper()
	for i := range dial {
		await(t, "the map", func() bool {
			return strings.Contains(converse(t, addrOf(dial[i]()), "stats cluster"), "STAT confirmed yes")
		})
	}
}

func addrOf(c net.Conn) string {
	defer c.Close()
	return c.RemoteAddr().String()
}

// startTwemproxy starts nutcracker in front of servers and gives its address, ""
// where it is not installed.
func startTwemproxy(t testing.TB, servers []bucket.Node) string {
	t.Helper()
	nutcracker, err := exec.LookPath("nutcracker")
	if err != nil {
		if _, err := os.Stat("/usr/sbin/nutcracker"); err != nil {
			return ""
		}
		nutcracker = "/usr/sbin/nutcracker"
	}
	dir, addr := t.TempDir(), "127.0.0.1:"+freePort(t)
	config := fmt.Sprintf("quarry:\n  listen: %s\n  hash: fnv1a_64\n  distribution: ketama\n  timeout: 20000\n  servers:\n", addr)
	for i := range servers {
		config += fmt.Sprintf("   - %s:1 server%d\n", servers[i].Addr, i)
	}
	path := filepath.Join(dir, "nutcracker.yml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nutcracker, "-c", path, "-p", filepath.Join(dir, "pid"), "-o", filepath.Join(dir, "log"), "-a", "127.0.0.1", "-s", freePort(t))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	await(t, "nutcracker's port", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return addr
}

// inParallel runs f for each of n, many at once.
func inParallel(n int, f func(i int)) {
	const atOnce = 32
	var next atomic.Int64
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	all.Wait()
}

// Three processes. What the Go client writes, which goes to the owners, is read
// by a client that knows no map, connected to any single node, and through
// twemproxy, which puts keys elsewhere than the map does; and what those write is
// read by the Go client: the same values, and flags, of 100,000 keys each way.
func TestClusterEveryClient(t *testing.T) {
	keys := 100_000
	if testing.Short() {
		keys = 4_000
	}
	m, _, dial := startNodes(t, 0, bucket.Budget{}, nil, nil, nil)
	awaitConfirmed(t, dial)
	goClient := newClient(t, m, cluster.Options{Timeout: patience})
	plain := map[string]*memcache.Client{}
	for i := range m.Nodes {
		plain[m.Nodes[i].ID] = memcache.New(m.Nodes[i].Addr)
	}
	if addr := startTwemproxy(t, m.Nodes); addr != "" {
		plain["twemproxy"] = memcache.New(addr)
	} else {
		t.Log("nutcracker is not installed: without twemproxy")
	}
	var names []string
	for name, c := range plain {
		c.Timeout, c.MaxIdleConns = patience, 32
		defer c.Close()
		names = append(names, name)
	}
	slices.Sort(names)
	value := func(key string) []byte { return bytes.Repeat([]byte(key+"."), 1+len(key)*7%5) }
	const batch = 500
	var failed atomic.Int64
	fail := func(format string, args ...any) {
		if failed.Add(1) < 10 {
			t.Errorf(format, args...)
		}
	}
	key := func(writer string, i int) string { return writer + ":" + strconv.Itoa(i) }
	keysFrom := func(writer string, from int) (list []string) {
		for i := from; i < min(from+batch, keys); i++ {
			list = append(list, key(writer, i))
		}
		return list
	}
	step := func(what string, begin time.Time) {
		t.Logf("%d keys, %s: %s", keys, what, time.Since(begin).Round(time.Millisecond))
	}

	begin := time.Now()
	inParallel(keys, func(i int) {
		k := key("go", i)
		if err := goClient.Set(t.Context(), &cluster.Item{Key: k, Value: value(k), Flags: uint32(i)}); err != nil {
			fail("%s: %v", k, err)
		}
	})
	step("written by the Go client", begin)
	for _, name := range names {
		begin := time.Now()
		inParallel((keys+batch-1)/batch, func(b int) {
			list := keysFrom("go", b*batch)
			items, err := plain[name].GetMulti(list)
			if err != nil || len(items) != len(list) {
				fail("through %s: %d of %d keys, %v", name, len(items), len(list), err)
				return
			}
			for i, k := range list {
				if it := items[k]; !bytes.Equal(it.Value, value(k)) || it.Flags != uint32(b*batch+i) {
					fail("%s through %s: got %q, flags %d", k, name, it.Value, it.Flags)
				}
			}
		})
		step("read through "+name, begin)
	}

	begin = time.Now()
	inParallel(keys, func(i int) {
		k := key("plain", i)
		if err := plain[names[i%len(names)]].Set(&memcache.Item{Key: k, Value: value(k), Flags: uint32(i)}); err != nil {
			fail("%s through %s: %v", k, names[i%len(names)], err)
		}
	})
	step("written through "+strings.Join(names, ", "), begin)
	begin = time.Now()
	inParallel((keys+batch-1)/batch, func(b int) {
		list := keysFrom("plain", b*batch)
		got := goClient.GetMulti(t.Context(), list)
		for i, k := range list {
			if r := got[k]; r.Outcome != cluster.Hit || !bytes.Equal(r.Value, value(k)) || r.Flags != uint32(b*batch+i) {
				fail("%s by the Go client: got %v %q, flags %d, %v", k, r.Outcome, r.Value, r.Flags, r.Cause)
			}
		}
	})
	step("read by the Go client", begin)
	if n := failed.Load(); n > 0 {
		t.Errorf("%d failures", n)
	}
}

// hiccups measures how late a goroutine is that only sleeps: what a busy machine
// adds to everything.
func hiccups(ctx context.Context) *atomic.Int64 {
	most := new(atomic.Int64)
	go func() {
		for ctx.Err() == nil {
			begin := time.Now()
			time.Sleep(time.Millisecond)
			if late := int64(time.Since(begin) - time.Millisecond); late > most.Load() {
				most.Store(late)
			}
		}
	}()
	return most
}

// rows is a source of rows with versions.
type rows struct {
	keys    []string
	version []atomic.Uint64
	known   []atomic.Uint64 // the newest version of which all owners have heard
	loads   atomic.Int64
}

func newRows(keys []string) *rows {
	r := &rows{keys: keys, version: make([]atomic.Uint64, len(keys)), known: make([]atomic.Uint64, len(keys))}
	for i := range keys {
		r.version[i].Store(1)
	}
	return r
}

func (r *rows) loader(i int) cluster.Loader {
	return func(context.Context, cluster.LoadRequest) (cluster.Loaded, error) {
		r.loads.Add(1)
		v := r.version[i].Load()
		return cluster.Loaded{Value: strconv.AppendUint(nil, v, 10), Version: v}, nil
	}
}

// change changes a row and invalidates it.
func (r *rows) change(ctx context.Context, c *cluster.Client, i int) {
	v := r.version[i].Add(1)
	if n := c.Invalidate(ctx, r.keys[i], v); n.Err() == nil {
		r.known[i].Store(v)
	}
}

// S3-12 … S3-14, S3-17, S3-18: a node is killed under load while another has
// copies of its buckets. Reads of what it owned go on from there, within two
// timeouts; its breaker opens; when the node is back it is asked again. Nothing
// is ever read as fresh that is older than what its owner has been told.
func TestClusterKilledNode(t *testing.T) {
	const timeout = 500 * time.Millisecond
	nRows, nReads := 150, int64(1000)
	if testing.Short() {
		nRows, nReads = 60, 400
	}
	m, all, dial := startNodes(t, 1, bucket.Budget{}, nil, nil, nil)
	awaitConfirmed(t, dial)
	o := cluster.Options{Timeout: timeout, BreakerPause: 100 * time.Millisecond, Near: cluster.NearOptions{Bytes: -1}}
	c, writer := newClient(t, m, o), newClient(t, m, o)
	var keys []string
	for i := range nRows {
		keys = append(keys, fmt.Sprint("row", i))
	}
	src := newRows(keys)
	of := make([]bool, len(keys)) // the node that is killed owns it
	for i, key := range keys {
		of[i] = m.OwnerOf(bucket.Of([]byte(key))).ID == "n0"
		await(t, "first value", func() bool { return c.Fetch(t.Context(), key, src.loader(i)).Outcome == cluster.Hit })
	}
	for i, key := range keys { // all are at their copies
		at := m.Nodes[m.Buckets[bucket.Of([]byte(key))].Copies[0]].Addr
		tries := 0
		await(t, "value at the copy", func() bool {
			if tries++; tries%100 == 0 { // it was told when the link to it was not there yet: once more
				src.change(t.Context(), writer, i)
				c.Fetch(t.Context(), key, src.loader(i))
			}
			return !of[i] || strings.HasPrefix(converse(t, at, fmt.Sprintf("mg %s v P%d,c", key, m.Epoch)), "VA ")
		})
	}

	const before, down, after = 0, 1, 2
	var phase atomic.Int32
	var counts [3]struct {
		reads, outcomes [8]atomic.Int64 // by outcome
		longest         atomic.Int64    // ns
	}
	ctx, stop := context.WithCancel(t.Context())
	late := hiccups(ctx)
	var load sync.WaitGroup
	for g := range 8 {
		load.Go(func() {
			for n := g; ctx.Err() == nil; n += 7 {
				i := n % len(keys)
				p := &counts[phase.Load()]
				floor := src.known[i].Load()
				begin := time.Now()
				var r cluster.Result
				switch n % 4 {
				default:
					r = c.Get(ctx, keys[i])
				case 1:
					// What it finds may have been on its way to another caller
					// already when this one asked.
					r, floor = c.Fetch(ctx, keys[i], src.loader(i)), 0
				case 3:
					r = c.Fetch(ctx, keys[i], src.loader(i), cluster.MinVersion(floor))
				}
				took := int64(time.Since(begin))
				if ctx.Err() != nil {
					return
				}
				if r.Outcome == cluster.Hit && r.Version < floor {
					t.Errorf("%s: version %d is read as fresh from %v, and its owner knows of %d", keys[i], r.Version, r.From, floor)
				}
				if r.Found() && string(r.Value) != strconv.FormatUint(r.Version, 10) {
					t.Errorf("%s: value %q of version %d", keys[i], r.Value, r.Version)
				}
				if of[i] {
					p.outcomes[r.Outcome].Add(1)
				}
				for old := p.longest.Load(); took > old && !p.longest.CompareAndSwap(old, took); old = p.longest.Load() {
				}
			}
		})
	}
	load.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			src.change(ctx, writer, n*13%len(keys))
			time.Sleep(2 * time.Millisecond)
		}
	})
	got := func(p int, o cluster.Outcome) int64 { return counts[p].outcomes[o].Load() }
	killed := func() cluster.NodeStats {
		stats := c.Stats()
		return stats.Nodes[slices.IndexFunc(stats.Nodes, func(n cluster.NodeStats) bool { return n.Addr == m.Nodes[0].Addr })]
	}
	await(t, "load", func() bool { return got(before, cluster.Hit) > nReads })
	phase.Store(down)
	_ = unix.Kill(all[0].cmd.Process.Pid, unix.SIGKILL)
	<-all[0].ended
	await(t, "breaker", func() bool { return killed().Open })
	await(t, "reads of copies", func() bool { return got(down, cluster.Stale) > nReads })
	phase.Store(after)
	start(t, all[0].cmd.Args[1:]...).tcp(t)
	await(t, "closed breaker", func() bool { return !killed().Open })
	await(t, "hits at the node", func() bool { return got(after, cluster.Hit) > nReads })
	stop()
	load.Wait()

	for p, name := range []string{"before", "while it is down", "after"} {
		sum := int64(0)
		for o := range counts[p].outcomes {
			sum += counts[p].outcomes[o].Load()
		}
		share := func(o cluster.Outcome) float64 { return 100 * float64(got(p, o)) / float64(max(sum, 1)) }
		t.Logf("%s: %d reads of what the node owned: %.1f %% hit, %.1f %% stale, %.1f %% miss, %.1f %% unavailable; the longest read took %s", name, sum,
			share(cluster.Hit), share(cluster.Stale), share(cluster.Miss), share(cluster.Unavailable), time.Duration(counts[p].longest.Load()).Round(time.Millisecond))
		// What the machine did to a goroutine it may do to each of the processes
		// that a read goes through.
		if most := 2*timeout + 3*time.Duration(late.Load()); time.Duration(counts[p].longest.Load()) > most {
			t.Errorf("%s: a read took %s, want at most %s", name, time.Duration(counts[p].longest.Load()), most)
		}
	}
	t.Logf("the machine was late by %s at most; the breaker opened %d times", time.Duration(late.Load()).Round(time.Millisecond), killed().Opened)
	if n, most := got(down, cluster.Miss)+got(down, cluster.Unavailable), (got(down, cluster.Stale)+got(down, cluster.Hit))/4; n > most {
		t.Errorf("%d reads found nothing while copies were there, want at most %d", n, most)
	}
}

// S1-61: a node is killed whose buckets nobody has copies of. Its share of all
// misses does not reach the source: DirectLoads do, and no more.
func TestClusterDeadOwner(t *testing.T) {
	const rate = 50
	m, all, dial := startNodes(t, 0, bucket.Budget{}, nil, nil, nil)
	awaitConfirmed(t, dial)
	c := newClient(t, m, cluster.Options{Timeout: patience, Near: cluster.NearOptions{Bytes: -1}, Fetch: cluster.FetchOptions{DirectLoads: rate}})
	var keys []string
	for n := 0; len(keys) < 5000; n++ {
		if key := fmt.Sprint("row", n); m.OwnerOf(bucket.Of([]byte(key))).ID == "n0" {
			keys = append(keys, key)
		}
	}
	src := newRows(keys)
	_ = unix.Kill(all[0].cmd.Process.Pid, unix.SIGKILL)
	<-all[0].ended
	begin := time.Now()
	var found, none atomic.Int64
	for (found.Load() < rate/4 || none.Load() < int64(len(keys))/2) && time.Since(begin) < patience {
		inParallel(len(keys), func(i int) {
			switch r := c.Fetch(t.Context(), keys[i], src.loader(i)); {
			case r.Outcome == cluster.Hit && r.From == cluster.FromSource && r.Cause != nil:
				found.Add(1)
			case r.Outcome == cluster.Unavailable && !errors.Is(r.Cause, context.DeadlineExceeded):
				none.Add(1)
			default:
				t.Errorf("%s: got %v from %v, %v", keys[i], r.Outcome, r.From, r.Cause)
			}
		})
	}
	most := int64(time.Since(begin).Seconds()*rate) + 1
	t.Logf("%d reads: %d loads, want 1 to %d", found.Load()+none.Load(), src.loads.Load(), most)
	if n := src.loads.Load(); n != found.Load() || n < 1 || n > most {
		t.Errorf("%d loads for %d reads, want 1 to %d", n, found.Load(), most)
	}
}
