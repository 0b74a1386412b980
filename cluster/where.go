package cluster

import (
	"context"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/cluster/bucket"
)

// Place says where a key is.
type Place struct {
	Key    string // as asked; of a split key, that of the place this client reads
	Bucket int
	Epoch  bucket.Epoch // of the map that says so, 0 without one
	Owner  string       // address
	Copies []string     // addresses
	Split  int          // places of the key, 0 it is not split
}

// Where is the place of a key.
func (c *Client) Where(ctx context.Context, key string) (Place, error) {
	v, err := c.current(ctx)
	if err != nil {
		return Place{}, err
	}
	at, s := c.place(ctx, key)
	p := v.of(at, xxhash.Sum64String(at))
	w := Place{Key: at, Bucket: bucket.Of([]byte(at)), Epoch: bucket.Epoch(p.epoch), Owner: p.owner.addr}
	for _, i := range v.copies(p.bucket) {
		w.Copies = append(w.Copies, v.nodes[i].addr)
	}
	if s != nil {
		w.Split = s.n
	}
	return w, nil
}

// Map is the map that the client goes by, nil without one. It is not to be
// changed.
func (c *Client) Map(ctx context.Context) (*bucket.Map, error) {
	v, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	return v.m, nil
}
