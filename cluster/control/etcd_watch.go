package control

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// Watch is Store.Watch. etcd pushes each change; besides, every CheckInterval
// the map is read again. That finds an etcd that is away, which a watch alone
// only waits for, and what a watch has missed: etcd was restored from a backup
// and counts from an earlier revision, or has compacted the one we were at.
func (e *Etcd) Watch(ctx context.Context) <-chan Event {
	c := make(chan Event, 1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.done, cancel)
	e.wg.Go(func() {
		defer close(c)
		defer cancel()
		defer stop()
		e.watch(ctx, c)
	})
	return c
}

// etcdAgainInterval is the least time between two readings of the map that no
// change has caused.
const etcdAgainInterval = 100 * time.Millisecond

func (e *Etcd) watch(ctx context.Context, c chan Event) {
	var (
		told    bool
		digest  bucket.Digest // of the map that was told last
		problem string        // or the error
	)
	for {
		there, err := e.check(ctx)
		if ctx.Err() != nil {
			return
		}
		known := err == nil // what the store has, if anything
		if known && there.Map == nil {
			err = ErrNoMap
		}
		switch {
		case err != nil && (!told || problem != err.Error()):
			offer(c, Event{Err: err})
			told, problem = true, err.Error()
		case err == nil && (!told || problem != "" || digest != there.Map.Digest()):
			offer(c, Event{Map: there.Map})
			told, problem, digest = true, "", there.Map.Digest()
		}
		if !known || !e.await(ctx, there.read) {
			pause(ctx, etcdAgainInterval)
		}
	}
}

// check reads the map, in the time between two checks.
func (e *Etcd) check(ctx context.Context) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.CheckInterval)
	defer cancel()
	return e.get(ctx)
}

// await returns true when the map has changed after a revision, or could have
// without a word of it: when CheckInterval is over.
func (e *Etcd) await(ctx context.Context, revision int64) bool {
	ctx, cancel := context.WithTimeout(ctx, e.o.CheckInterval)
	defer cancel()
	// A watch from a compacted revision is told so, and one whose etcd has lost
	// its majority is not left waiting: both end it.
	for resp := range e.client.Watch(clientv3.WithRequireLeader(ctx), e.prefix+"map", clientv3.WithRev(revision+1)) {
		if resp.Err() != nil {
			return false
		}
		if len(resp.Events) > 0 {
			return true
		}
	}
	return ctx.Err() != nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
