package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// driver is a kind of store, for the suite that each has to pass.
type driver struct {
	name string

	// restart ends it without a warning, calls meanwhile, and starts it again
	// with its data.
	restart func(t *testing.T, meanwhile func())

	// backup gives what puts the data back that it has now.
	backup func(t *testing.T) (restore func())

	// tamper puts a map in behind the store's back.
	tamper func(t *testing.T, m *bucket.Map)

	// compact forgets what has been before.
	compact func(t *testing.T)
}

func fileDriver(t *testing.T) driver {
	path := filepath.Join(t.TempDir(), "map.json")
	write := func(t *testing.T, text []byte) {
		t.Helper()
		// In place, as an editor or a copy would.
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return driver{
		name: "file:" + path,
		restart: func(t *testing.T, meanwhile func()) {
			aside := path + ".aside"
			if err := os.Rename(path, aside); err != nil {
				t.Fatal(err)
			}
			meanwhile()
			if err := os.Rename(aside, path); err != nil {
				t.Fatal(err)
			}
		},
		backup: func(t *testing.T) func() {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return func() { write(t, text) }
		},
		tamper:  func(t *testing.T, m *bucket.Map) { write(t, m.JSON()) },
		compact: func(t *testing.T) {},
	}
}

func etcdDriver(t *testing.T) driver {
	s := newEtcd(t)
	return driver{
		name: s.name(),
		restart: func(t *testing.T, meanwhile func()) {
			s.kill()
			meanwhile()
			s.start(t)
		},
		backup: func(t *testing.T) func() {
			s.kill()
			copied := filepath.Join(t.TempDir(), "backup")
			if err := os.CopyFS(copied, os.DirFS(s.dir)); err != nil {
				t.Fatal(err)
			}
			s.start(t)
			return func() {
				s.kill()
				if err := os.RemoveAll(s.dir); err != nil {
					t.Fatal(err)
				}
				if err := os.CopyFS(s.dir, os.DirFS(copied)); err != nil {
					t.Fatal(err)
				}
				s.start(t)
			}
		},
		tamper: func(t *testing.T, m *bucket.Map) {
			c, ctx := s.admin(t)
			if _, err := c.Put(ctx, "/quarry/map", string(encodeEntry(m, time.Now()))); err != nil {
				t.Fatal(err)
			}
		},
		compact: func(t *testing.T) {
			c, ctx := s.admin(t)
			resp, err := c.Put(ctx, "/other", "x")
			if err == nil {
				_, err = c.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	}
}

// quick are options that let tests be short.
var quick = Options{LeaseSeconds: 1, CheckInterval: 300 * time.Millisecond}

func (d driver) open(t testing.TB) Store {
	t.Helper()
	leakless(t)
	s, err := Open(d.name, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func eachDriver(t *testing.T, test func(t *testing.T, d driver)) {
	t.Run("file", func(t *testing.T) { test(t, fileDriver(t)) })
	t.Run("etcd", func(t *testing.T) { test(t, etcdDriver(t)) })
}

func node(i int) bucket.Node {
	return bucket.Node{ID: fmt.Sprintf("n%d", i), Addr: fmt.Sprintf("127.0.0.1:%d", 20000+i), Weight: 1, State: bucket.Active}
}

// first publishes the first map, of two nodes.
func first(t testing.TB, s Store) *bucket.Map {
	t.Helper()
	m, err := bucket.First("test", []bucket.Node{node(1), node(2)}, 1, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CompareAndSwap(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// after is the map after m, in which the first node has that weight.
func after(t testing.TB, m *bucket.Map, weight int) *bucket.Map {
	t.Helper()
	next, err := m.Plan(bucket.Change{Weights: map[string]int{"n1": weight}})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// publish publishes the map after m.
func publish(t testing.TB, s Store, m *bucket.Map, weight int) *bucket.Map {
	t.Helper()
	next := after(t, m, weight)
	if err := s.CompareAndSwap(t.Context(), m, next); err != nil {
		t.Fatal(err)
	}
	return next
}

// wait takes events until one is good.
func wait(t testing.TB, c <-chan Event, what string, good func(Event) bool) {
	t.Helper()
	end := time.After(time.Minute)
	var last Event
	for {
		select {
		case e, ok := <-c:
			if !ok {
				t.Fatalf("the watch ended before %s", what)
			}
			if last = e; good(e) {
				return
			}
		case <-end:
			t.Fatalf("no event of %s; the last was %+v", what, last)
		}
	}
}

func waitMap(t testing.TB, c <-chan Event, m *bucket.Map) {
	t.Helper()
	wait(t, c, "map "+m.Epoch.String(), func(e Event) bool { return e.Map != nil && e.Map.Digest() == m.Digest() })
}

func TestPublish(t *testing.T) {
	eachDriver(t, func(t *testing.T, d driver) {
		s := d.open(t)
		if m, err := s.Get(t.Context()); !errors.Is(err, ErrNoMap) {
			t.Fatalf("an empty store has %v, %v", m, err)
		}
		if h, err := s.History(t.Context()); err != nil || len(h) != 0 {
			t.Fatalf("an empty store has the history %v, %v", h, err)
		}
		begun := time.Now()
		m := first(t, s)
		other, err := bucket.First("other", []bucket.Node{node(1)}, 0, bucket.Budget{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CompareAndSwap(t.Context(), nil, other); !errors.Is(err, ErrConflict) {
			t.Errorf("a second first map: %v", err)
		}
		stranger := after(t, other, 3)
		if err := s.CompareAndSwap(t.Context(), m, stranger); err == nil {
			t.Error("a map of another cluster is stored")
		}
		if err := s.CompareAndSwap(t.Context(), m, m); err == nil {
			t.Error("a map is stored after itself")
		}
		old := m
		published := []*bucket.Map{m}
		for i := range HistoryMax + 3 {
			m = publish(t, s, m, i%3+1)
			published = append(published, m)
		}
		if err := s.CompareAndSwap(t.Context(), old, after(t, old, 9)); !errors.Is(err, ErrConflict) {
			t.Errorf("a map in the place of one that has gone: %v", err)
		}
		if got, err := d.open(t).Get(t.Context()); err != nil || got.Digest() != m.Digest() {
			t.Errorf("got map %v, %v, want %s", got, err, m.Epoch)
		}
		h, err := s.History(t.Context())
		if err != nil || len(h) != HistoryMax {
			t.Fatalf("the history has %d maps, %v, want %d", len(h), err, HistoryMax)
		}
		for i, e := range h {
			if want := published[len(published)-1-i]; e.Map.Digest() != want.Digest() {
				t.Errorf("map %d of the history is %s, want %s", i, e.Map.Epoch, want.Epoch)
			}
			if e.Published.Before(begun.Add(-time.Second)) || e.Published.After(time.Now().Add(time.Second)) {
				t.Errorf("map %s was published at %s", e.Map.Epoch, e.Published)
			}
		}
	})
}

// Of those who publish at once one succeeds, and nobody's map gets lost.
func TestCompareAndSwapRaces(t *testing.T) {
	eachDriver(t, func(t *testing.T, d driver) {
		last := first(t, d.open(t)).Epoch
		const publishers, each = 4, 4
		var won sync.Map // epoch → digest
		var conflicts atomic.Int64
		var wg sync.WaitGroup
		for i := range publishers {
			s := d.open(t)
			wg.Go(func() {
				for n := 0; n < each; {
					m, err := s.Get(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					next := after(t, m, 1+i*each+n)
					switch err := s.CompareAndSwap(t.Context(), m, next); {
					case err == nil:
						if _, twice := won.LoadOrStore(next.Epoch, next.Digest()); twice {
							t.Errorf("epoch %s was published twice", next.Epoch)
						}
						n++
					case errors.Is(err, ErrConflict):
						conflicts.Add(1)
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		m, err := d.open(t).Get(t.Context())
		if err != nil || m.Epoch != last+publishers*each {
			t.Fatalf("the last map is %v, %v, want %s", m.Epoch, err, last+publishers*each)
		}
		if conflicts.Load() == 0 {
			t.Error("nobody met anybody: this shows nothing")
		}
	})
}

func TestWatch(t *testing.T) {
	eachDriver(t, func(t *testing.T, d driver) {
		s := d.open(t)
		ctx, cancel := context.WithCancel(t.Context())
		c := s.Watch(ctx)
		wait(t, c, "no map", func(e Event) bool { return errors.Is(e.Err, ErrNoMap) })
		other := d.open(t)
		m := first(t, other)
		waitMap(t, c, m)
		for i := range 5 { // faster than anybody looks
			m = publish(t, other, m, i+2)
		}
		waitMap(t, c, m)
		late := s.Watch(ctx)
		waitMap(t, late, m)
		cancel()
		for range c { // it ends
		}
		for range late {
		}
		c = s.Watch(t.Context())
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for range c {
		}
		if _, err := s.Get(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("a closed store says %v", err)
		}
	})
}

// A watch survives the end of its store, says so, and misses nothing, also when
// what it has not seen is forgotten by then.
func TestWatchOverRestart(t *testing.T) {
	eachDriver(t, func(t *testing.T, d driver) {
		s := d.open(t)
		m := first(t, s)
		c := s.Watch(t.Context())
		waitMap(t, c, m)
		d.restart(t, func() {
			wait(t, c, "an error", func(e Event) bool { return e.Err != nil })
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := s.Get(ctx); err == nil {
				t.Error("a store that is away gives a map")
			}
		})
		other := d.open(t)
		m = publish(t, other, m, 2)
		m = publish(t, other, m, 3)
		d.compact(t)
		m = publish(t, other, m, 4)
		d.compact(t)
		waitMap(t, c, m)
		publish(t, s, m, 5)
	})
}

// The store is an epoch behind, since somebody has restored a backup: those who
// watch see it, and the next publisher goes above what nodes know.
func TestRestoredBackup(t *testing.T) {
	eachDriver(t, func(t *testing.T, d driver) {
		s := d.open(t)
		m := first(t, s)
		restore := d.backup(t)
		lost := publish(t, s, publish(t, s, m, 2), 3)
		c := s.Watch(t.Context())
		waitMap(t, c, lost)
		restore()
		waitMap(t, c, m)

		ask := func(_ context.Context, n bucket.Node) (*bucket.Map, error) {
			if n.ID == "n1" {
				return lost, nil
			}
			return m, nil
		}
		k, err := Take(t.Context(), s, ask, Known{})
		if err != nil {
			t.Fatal(err)
		}
		if !k.Behind() || k.Base.Digest() != lost.Digest() || k.Stored.Digest() != m.Digest() {
			t.Errorf("the store has map %s, and the newest is %s", k.Stored.Epoch, k.Base.Epoch)
		}
		next, err := k.Next(func(base *bucket.Map) (*bucket.Map, error) { return after(t, base, 5), nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CompareAndSwap(t.Context(), k.Stored, next); err != nil {
			t.Fatal(err)
		}
		waitMap(t, c, next)
		if next.Epoch != lost.Epoch.Next() {
			t.Errorf("published %s, after %s", next.Epoch, lost.Epoch)
		}
		// A node that missed what was lost must not take its old values for new.
		for b := range next.Buckets {
			if next.Differs(m, b) && next.Buckets[b].Since <= m.Epoch {
				t.Fatalf("bucket %d has its owner since %s", b, next.Buckets[b].Since)
			}
		}
	})
}

// Somebody has edited a map on one host only: two maps of one epoch.
func TestTamperedMap(t *testing.T) {
	eachDriver(t, func(t *testing.T, d driver) {
		s := d.open(t)
		m := publish(t, s, first(t, s), 2)
		c := s.Watch(t.Context())
		waitMap(t, c, m)
		edited := m.Clone()
		for b := range 10 {
			edited.Buckets[b].Owner = 1 - edited.Buckets[b].Owner
			edited.Buckets[b].Copies = []bucket.NodeIndex{1 - edited.Buckets[b].Owner}
		}
		d.tamper(t, edited)
		waitMap(t, c, edited)
		if err := s.CompareAndSwap(t.Context(), m, after(t, m, 3)); !errors.Is(err, ErrConflict) {
			t.Errorf("a map that does not know of the edited one: %v", err)
		}
		k, err := Take(t.Context(), s, func(context.Context, bucket.Node) (*bucket.Map, error) { return m, nil }, Known{})
		if err != nil || len(k.Contested()) != 2 {
			t.Fatalf("%d nodes contest the map, %v, want 2", len(k.Contested()), err)
		}
		next, err := k.Next(func(base *bucket.Map) (*bucket.Map, error) { return base.Plan(bucket.Change{}) })
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CompareAndSwap(t.Context(), k.Stored, next); err != nil {
			t.Fatal(err)
		}
		for b := range next.Buckets {
			if want := b < 10 || next.OwnerOf(b).ID != edited.OwnerOf(b).ID; (next.Buckets[b].Since == next.Epoch) != want {
				t.Errorf("bucket %d has its owner since %s, in map %s", b, next.Buckets[b].Since, next.Epoch)
			}
		}
		waitMap(t, c, next)
	})
}

// What is no map is reported, and not stored over.
func TestDamagedMap(t *testing.T) {
	d := fileDriver(t)
	s := d.open(t)
	m := first(t, s)
	c := s.Watch(t.Context())
	waitMap(t, c, m)
	path := d.name[len("file:"):]
	if err := os.WriteFile(path, m.JSON()[:1000], 0o644); err != nil {
		t.Fatal(err)
	}
	wait(t, c, "the damage", func(e Event) bool { return e.Err != nil && !errors.Is(e.Err, ErrNoMap) })
	if err := s.CompareAndSwap(t.Context(), m, after(t, m, 2)); err == nil {
		t.Error("published over half a map")
	}
	// Half a map that is whole soon is no damage.
	if err := os.WriteFile(path, m.JSON(), 0o644); err != nil {
		t.Fatal(err)
	}
	waitMap(t, c, m)
	m = after(t, m, 2)
	if err := os.WriteFile(path, m.JSON()[:1000], 0o644); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*filePollInterval, func() {
		if err := os.WriteFile(path, m.JSON(), 0o644); err != nil {
			t.Error(err)
		}
	})
	if e := <-c; e.Err != nil || e.Map.Digest() != m.Digest() {
		t.Errorf("while the file was copied: %v", e.Err)
	}
}

func TestFileKnowsNobody(t *testing.T) {
	s := fileDriver(t).open(t)
	s.Announce(Presence{ID: "a"})
	if l, err := s.Liveness(t.Context()); !errors.Is(err, ErrNoLiveness) {
		t.Errorf("a file says %v, %v", l, err)
	}
}

// The file's lock is held over all processes: one who cannot get it says why.
func TestFileLock(t *testing.T) {
	d := fileDriver(t)
	s := d.open(t)
	unlock, err := d.open(t).(*fileStore).lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	m, err := bucket.First("test", []bucket.Node{node(1)}, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CompareAndSwap(ctx, nil, m); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("published without the lock: %v", err)
	}
	unlock()
	if err := s.CompareAndSwap(t.Context(), nil, m); err != nil {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, name := range []string{"", "file", "file:", "etcd:", "etcd:host", "etcd:a:1,b", "etcd:/x", "zk:host:1"} {
		if s, err := Open(name, Options{}); err == nil {
			t.Errorf("%q is opened", name)
			_ = s.Close()
		}
	}
	if _, err := Open("etcd:h:1", Options{CA: "/nowhere"}); err == nil {
		t.Error("certificates that are not there are taken")
	}
}
