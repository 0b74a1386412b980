package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// What ends with its holder hangs on a lease: what a node says of itself, and
// the part of the active controller.

const (
	leaseAgainInterval = 500 * time.Millisecond // to the next try of what did not work
	leaseRevokeTimeout = time.Second
)

// Announce is Store.Announce.
func (e *Etcd) Announce(p Presence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.presence = &p
	if e.announced == nil {
		e.announced = make(chan struct{}, 1)
		e.wg.Go(e.keepPresence)
	}
	select {
	case e.announced <- struct{}{}:
	default:
	}
}

// keepPresence keeps in etcd what was announced last, until the store is closed.
func (e *Etcd) keepPresence() {
	e.mu.Lock()
	announced := e.announced
	e.mu.Unlock()
	for e.done.Err() == nil {
		s, err := e.lease(e.done)
		if err != nil {
			e.o.Log.Warn("control: etcd gives no lease", "error", e.wrap(err))
			pause(e.done, leaseAgainInterval)
			continue
		}
		for held := true; held; {
			if err := e.putPresence(s.Lease()); err != nil {
				e.o.Log.Warn("control: etcd does not take our presence", "error", err)
				pause(e.done, leaseAgainInterval)
				break
			}
			select {
			case <-announced:
			case <-s.Done():
				held = false
			case <-e.done.Done():
				held = false
			}
		}
		e.revoke(s)
	}
}

func (e *Etcd) putPresence(lease clientv3.LeaseID) error {
	e.mu.Lock()
	p := *e.presence
	e.mu.Unlock()
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	ctx, cancel := e.call(e.done)
	defer cancel()
	if _, err := e.client.Put(ctx, e.prefix+"nodes/"+p.ID, string(text), clientv3.WithLease(lease)); err != nil {
		return e.wrap(err)
	}
	return nil
}

// lease is a lease that is kept alive, also after ctx has ended: so that it can
// be given back then.
func (e *Etcd) lease(ctx context.Context) (*concurrency.Session, error) {
	kept, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	s, err := concurrency.NewSession(e.client, concurrency.WithTTL(e.o.LeaseSeconds), concurrency.WithContext(kept))
	stop()
	if err != nil {
		cancel()
		return nil, err
	}
	context.AfterFunc(s.Ctx(), cancel)
	return s, nil
}

// revoke gives a lease back, so that nobody waits for its end.
func (e *Etcd) revoke(s *concurrency.Session) {
	s.Orphan()
	ctx, cancel := context.WithTimeout(context.Background(), leaseRevokeTimeout)
	defer cancel()
	_, _ = e.client.Revoke(ctx, s.Lease()) // else it ends by itself
}

// Lead calls while each time the caller has become the active controller, of
// which there is one: its context ends when that is over, and while must return
// then. Lead returns when ctx or the store ends.
func (e *Etcd) Lead(ctx context.Context, name string, while func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.done, cancel)()
	for ctx.Err() == nil {
		s, err := e.lease(ctx)
		if err == nil {
			err = e.leadOnce(ctx, s, name, while)
			e.revoke(s)
		}
		if err != nil && ctx.Err() == nil {
			e.o.Log.Warn("control: no part in the election of a controller", "error", e.wrap(err))
			pause(ctx, leaseAgainInterval)
		}
	}
}

// leadOnce waits for its turn, and has it.
func (e *Etcd) leadOnce(ctx context.Context, s *concurrency.Session, name string, while func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.Ctx(), cancel)()
	election := concurrency.NewElection(s, strings.TrimSuffix(e.prefix, "/")+"/controller")
	if err := election.Campaign(ctx, name); err != nil {
		if s.Ctx().Err() != nil {
			return errors.New("the lease has ended while others led")
		}
		return err
	}
	while(ctx)
	return nil
}
