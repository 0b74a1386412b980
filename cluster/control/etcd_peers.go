package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// ErrNoPeers says that a store is no quarry control of several processes.
var ErrNoPeers = errors.New("control: a file has no processes that agree")

// etcd changes its members only when most of them have been together for 5 s.
const (
	peersTimeout       = 15 * time.Second
	peersAgainInterval = 500 * time.Millisecond
)

// ReplacePeer tells those of quarry control that the one with a name is lost for
// good, and that another one of that name comes, for the others at addr
// (HOST:PORT). Most of them have to be there.
func ReplacePeer(ctx context.Context, s Store, name, addr string) error {
	e, ok := s.(*Etcd)
	if !ok {
		return ErrNoPeers
	}
	ctx, cancel := context.WithTimeout(ctx, peersTimeout)
	defer cancel()
	list, err := e.client.MemberList(ctx)
	if err != nil {
		return e.wrap(err)
	}
	var lost uint64
	url := e.scheme + addr
	for _, m := range list.Members {
		switch {
		case m.Name == "" && len(m.PeerURLs) == 1 && m.PeerURLs[0] == url:
			return nil // it was told before, and has not come yet
		case m.Name == name:
			lost = m.ID
		}
	}
	n := len(list.Members)
	switch {
	case lost == 0 && n%2 == 1: // else it was removed, and no other one added
		return fmt.Errorf("control: there is no process %q among them", name)
	case lost != 0 && n < 3:
		return fmt.Errorf("control: %s is one of %d: without it the others cannot agree", name, n)
	case lost != 0:
		err := e.whenHealthy(ctx, func() error {
			_, err := e.client.MemberRemove(ctx, lost)
			return err
		})
		if err != nil {
			return err
		}
	}
	return e.whenHealthy(ctx, func() error {
		_, err := e.client.MemberAdd(ctx, []string{url})
		return err
	})
}

// whenHealthy calls change until etcd lets it.
func (e *Etcd) whenHealthy(ctx context.Context, change func() error) error {
	for {
		err := change()
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, rpctypes.ErrUnhealthy) || ctx.Err() != nil:
			return e.wrap(err)
		}
		pause(ctx, peersAgainInterval)
	}
}
