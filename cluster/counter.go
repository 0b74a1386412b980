package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// Counter is a number that is counted up too often for one node: it is in
// several shards, key#0, key#1, …, of which each count goes to one at random.
// The sum is read.
type Counter struct {
	c      *Client
	key    string
	shards int
	ttl    time.Duration
}

// shardsMax bounds the shards of a Counter.
const shardsMax = 256

// Counter is the counter under a key. Everyone must give it the same number of
// shards, 1 to 256; a shard that is not counted for ttl goes, 0 is never.
func (c *Client) Counter(key string, shards int, ttl time.Duration) (*Counter, error) {
	if key == "" || shards < 1 || shards > shardsMax {
		return nil, fmt.Errorf("cluster: counter %q of %d shards: want a key, and 1 to %d", key, shards, shardsMax)
	}
	return &Counter{c, key, shards, ttl}, nil
}

// Add counts up.
func (k *Counter) Add(ctx context.Context, delta uint64) error {
	_, err := k.c.count(ctx, splitKey(k.key, rand.IntN(k.shards)), delta, false, &firstCount{delta, k.ttl})
	return err
}

// Sum is the sum over the shards. The error says that some could not be read,
// and the sum is without them.
func (k *Counter) Sum(ctx context.Context) (sum uint64, err error) {
	keys := make([]string, k.shards)
	for i := range keys {
		keys[i] = splitKey(k.key, i)
	}
	var all []error
	for key, r := range k.c.GetMulti(ctx, keys) {
		switch n, ok := meta.ParseUint64(r.Value); {
		case r.Outcome == Miss:
		case !r.Found():
			all = append(all, fmt.Errorf("%s: %w", key, r.Err()))
		case !ok:
			all = append(all, fmt.Errorf("%s: %w", key, ErrNotANumber))
		default:
			sum += n
		}
	}
	return sum, errors.Join(all...)
}
