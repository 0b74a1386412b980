package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
)

// flight is one Fetch of a key that others of this process wait for.
type flight struct {
	key  string
	done chan struct{} // closed by end
	once sync.Once

	result Result // valid when done is closed
	left   bool   // the leader's caller went away before there was a result
}

// flights are those under way, by key.
type flights struct {
	waitersMax int64
	waiters    atomic.Int64

	flightsMax int64
	under      atomic.Int64

	merged atomic.Uint64
	shards [32]flightShard
}

type flightShard struct {
	mu  sync.Mutex
	key map[string]*flight
}

func (f *flights) shard(key string) *flightShard {
	return &f.shards[xxhash.Sum64String(key)%uint64(len(f.shards))]
}

// join is the flight for a key; lead says that the caller is to fly it. It is
// nil when there are too many.
func (f *flights) join(key string) (fl *flight, lead bool) {
	s := f.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if fl := s.key[key]; fl != nil {
		f.merged.Add(1)
		return fl, false
	}
	if f.under.Add(1) > f.flightsMax {
		f.under.Add(-1)
		return nil, false
	}
	fl = &flight{key: key, done: make(chan struct{})}
	if s.key == nil {
		s.key = make(map[string]*flight)
	}
	s.key[key] = fl
	return fl, true
}

// end gives the flight its result, if it has none yet. Whoever asks for the key
// from now on begins another one.
func (f *flights) end(fl *flight, r Result, left bool) {
	fl.once.Do(func() {
		s := f.shard(fl.key)
		s.mu.Lock()
		if s.key[fl.key] == fl {
			delete(s.key, fl.key)
		}
		s.mu.Unlock()
		f.under.Add(-1)
		fl.result, fl.left = r, left
		close(fl.done)
	})
}

// wait waits for the result of a flight. The error says that there is none for
// this caller.
func (f *flights) wait(ctx context.Context, fl *flight, deadline time.Time) error {
	select {
	case <-fl.done:
		return nil
	default:
	}
	if f.waiters.Add(1) > f.waitersMax {
		f.waiters.Add(-1)
		return ErrBusy
	}
	defer f.waiters.Add(-1)
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	select {
	case <-fl.done:
		return nil
	case <-t.C:
		return ErrTimeout
	case <-ctx.Done():
		return ctx.Err()
	}
}
