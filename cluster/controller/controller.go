package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
)

// Controller is a running control plane, or a member of one.
type Controller struct {
	c    Config
	lock *os.File
	etcd *embed.Etcd
	log  *etcdLog

	end     context.CancelFunc
	wg      sync.WaitGroup // run
	ready   chan struct{}  // closed when etcd serves
	closing sync.Once
}

// lookInterval is how often the active controller looks at the nodes.
const lookInterval = time.Second

// Start starts a controller. It serves when Ready is closed: as soon as most of
// the peers are there.
func Start(c Config) (*Controller, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	lock, err := lockFolder(c.Data)
	if err != nil {
		return nil, err
	}
	log := &etcdLog{log: c.Log}
	e, err := embed.StartEtcd(c.etcd(log))
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("controller: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k := &Controller{c: c, lock: lock, etcd: e, log: log, end: cancel, ready: make(chan struct{})}
	k.wg.Go(func() { k.run(ctx) })
	return k, nil
}

// lockFolder takes a folder for this process alone.
func lockFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("controller: another process uses %s", dir)
		}
		return nil, fmt.Errorf("controller: lock %s: %w", dir, err)
	}
	return lock, nil
}

// Addr is where it listens for nodes and the tool.
func (k *Controller) Addr() string { return k.etcd.Clients[0].Addr().String() }

// Ready is closed when it serves.
func (k *Controller) Ready() <-chan struct{} { return k.ready }

// Wait returns when ctx ends, or with the error that ended the controller.
func (k *Controller) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-k.etcd.Err():
		return fmt.Errorf("controller: %w", err)
	case <-k.etcd.Server.StopNotify():
		return errors.New("controller: etcd has stopped by itself")
	}
}

// Close ends it. Its data stays.
func (k *Controller) Close() error {
	var err error
	k.closing.Do(func() {
		k.end()
		k.wg.Wait()
		k.log.close()
		// Without this it waits for those who watch and hold leases to go by
		// themselves.
		k.etcd.Server.Stop()
		k.etcd.Close()
		err = k.lock.Close()
	})
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}

// run takes its turn as the active controller, until ctx ends.
func (k *Controller) run(ctx context.Context) {
	select {
	case <-k.etcd.Server.ReadyNotify():
	case <-k.etcd.Server.StopNotify():
		return
	case <-ctx.Done():
		return
	}
	client := v3client.New(k.etcd.Server)
	defer client.Close()
	store := control.NewEtcd(client, k.c.Prefix, control.Options{Log: k.c.Log})
	defer store.Close()
	close(k.ready)
	store.Lead(ctx, k.c.Name, func(ctx context.Context) {
		k.c.Log.Info("controller: active", "name", k.c.Name)
		k.lead(ctx, store)
		k.c.Log.Info("controller: not active any more", "name", k.c.Name)
	})
}

// lead looks at the nodes, and says what has changed, until ctx ends.
func (k *Controller) lead(ctx context.Context, store control.Store) {
	var w watcher
	for {
		m, err := store.Get(ctx)
		var l control.Liveness
		if err == nil {
			l, err = store.Liveness(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		w.look(k.c.Log, m, l, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookInterval):
		}
	}
}

// watcher remembers what it has seen and said.
type watcher struct {
	epoch   bucket.Epoch
	seen    map[string]control.NodeState // at the last look
	said    map[string]control.NodeState
	problem string
}

// look says what is otherwise than at the last look.
func (w *watcher) look(log *slog.Logger, m *bucket.Map, l control.Liveness, err error) {
	switch {
	case errors.Is(err, control.ErrNoMap):
		return
	case err != nil:
		if w.problem != err.Error() {
			w.problem = err.Error()
			log.Error("controller: cannot look at the nodes", "error", err)
		}
		return
	}
	w.problem = ""
	if m.Epoch != w.epoch {
		log.Info("controller: map", "epoch", m.Epoch, "nodes", len(m.Nodes))
		w.epoch = m.Epoch
	}
	seen := make(map[string]control.NodeState, len(m.Nodes))
	said := make(map[string]control.NodeState, len(m.Nodes))
	for i := range m.Nodes {
		id := m.Nodes[i].ID
		state := l.StateOf(m, id)
		seen[id], said[id] = state, w.said[id]
		// A node may take a moment to follow: only the second look counts.
		if state == w.said[id] || state == control.Behind && w.seen[id] != control.Behind {
			continue
		}
		said[id] = state
		level := slog.LevelWarn
		if state == control.Up {
			level = slog.LevelInfo
		}
		log.Log(context.Background(), level, "controller: node is "+string(state), "node", id, "meaning", state.Meaning())
	}
	for id := range w.said {
		if _, ok := said[id]; !ok {
			log.Info("controller: node has left the map", "node", id)
		}
	}
	w.seen, w.said = seen, said
}
