package cluster

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Rollout is for the first days with a cache: Fetch serves from the source, and
// goes through the cache for some keys, or only looks whether it would have
// said the same. Whatever goes round the cache is bounded by a rate, so that
// switching it off does not turn all readers loose on the source.
type Rollout struct {
	// Shadow has Fetch ask the cache, load, compare, fill, and answer what the
	// source says. Stats count what the cache would have answered.
	Shadow bool

	// Percent of the keys of each tenant go through the cache; Tenants has
	// those for which it is another part. 0 is all in Percent, and none in
	// Tenants; -1 is none in Percent.
	Percent int
	Tenants map[string]int

	// TenantOf is whose a key is; nil is the function TenantOf.
	TenantOf func(key string) string

	// Budget bounds the loads of what goes round the cache. nil is that of
	// direct loads.
	Budget *Budget
}

func (r *Rollout) validate() error {
	if r.Percent < -1 || r.Percent > 100 {
		return fmt.Errorf("cluster: Options.Rollout.Percent %d: want -1 to 100", r.Percent)
	}
	for tenant, p := range r.Tenants {
		if p < 0 || p > 100 {
			return fmt.Errorf("cluster: Options.Rollout.Tenants[%q] %d: want 0 to 100", tenant, p)
		}
	}
	return nil
}

// through reports whether a key goes through the cache. The same keys do for a
// higher percentage, and more.
func (r *Rollout) through(key string) bool {
	percent := r.Percent
	switch percent {
	case 0:
		percent = 100
	case -1:
		percent = 0
	}
	if len(r.Tenants) > 0 {
		of := r.TenantOf
		if of == nil {
			of = TenantOf
		}
		if p, ok := r.Tenants[of(key)]; ok {
			percent = p
		}
	}
	return percent == 100 || int(xxhash.Sum64String(key)%100) < percent
}

// rolling reports whether Fetch has to look at Rollout at all.
func (r *Rollout) rolling() bool { return r.Shadow || r.Percent != 0 || len(r.Tenants) > 0 }

// fetchRound is a Fetch that goes round the cache.
func (c *Client) fetchRound(ctx context.Context, key string, load Loader) Result {
	if !c.opt.Rollout.Budget.take() {
		c.counters.bypassDenied.Add(1)
		return unavailable(ErrDenied)
	}
	c.counters.bypassed.Add(1)
	return c.fromSource(ctx, key, nil, load, nil)
}

// fetchShadow is a Fetch that is served from the source, and looks what the
// cache would have said. Without budget the cache has to do.
func (c *Client) fetchShadow(ctx context.Context, key string, load Loader) Result {
	if !c.opt.Rollout.Budget.take() {
		c.counters.bypassDenied.Add(1)
		return c.fetch(ctx, key, load, 0)
	}
	m := c.floors.mark()
	place, s := c.place(ctx, key)
	l := c.look(ctx, place, c.floors.of(key))
	var r Result
	if l.Token != "" {
		cached := l.Result
		l.Result = Result{} // the loader is to read the value, whatever is known
		r, _ = c.load(ctx, key, nil, s, load, l, m)
		l.Result = cached
	} else {
		r = c.fromSource(ctx, key, nil, load, nil)
	}
	if l.Outcome == Hit && r.Outcome == Hit {
		switch {
		case l.Version < r.Version:
			c.counters.shadowOlder.Add(1)
		case l.Version == r.Version && (l.Flags != r.Flags || !bytes.Equal(l.Value, r.Value)), l.Hard != 0 && r.Read >= l.Hard:
			c.counters.shadowDiffers.Add(1)
		default:
			c.counters.shadowSame.Add(1)
		}
	}
	return r
}
