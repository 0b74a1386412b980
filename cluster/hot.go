package cluster

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/quarrycache/quarry/meta"
)

// Hot keys. What the near cache answers the servers do not see, so the client
// counts it: each entry its own reads, which come here when the entry goes. The
// counts are kept for a few keys, those with the most (space saving), halved
// from time to time, and told to the owners when the map is asked for. The
// servers say of a key that it is hot with n, and then it goes up the ladder:
// one lookup for all who ask at once, near cache, copies, and places of its own.

const (
	hotKeysMax   = 64          // that are counted
	hotReportMax = 16          // that are reported at once
	hotHintLife  = time.Minute // how long a server's word holds
	hotHintsMax  = 1024
)

// HotKey is a key that is read often.
type HotKey struct {
	Key string

	// Reads is how many the near cache has answered, those long ago counted
	// less. It may be too high by those of a key that was replaced.
	Reads uint64

	// Places is in how many places the servers would have it, 0 they have not
	// said.
	Places int
}

// hot counts reads that the near cache hid, and keeps what servers say.
type hot struct {
	some atomic.Bool // there have been hints

	mu     sync.Mutex // all below
	counts map[string]hotCount
	hints  map[string]hotHint
}

type hotCount struct {
	reads uint64 // fading
	fresh uint64 // of them, not told to a server yet
}

type hotHint struct {
	places int
	until  time.Time
}

// hid adds reads of a key that servers did not see.
func (h *hot) hid(key string, reads uint64) {
	if reads == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = make(map[string]hotCount, hotKeysMax)
	}
	n, ok := h.counts[key]
	if !ok && len(h.counts) >= hotKeysMax {
		least := ""
		for k, n := range h.counts {
			if least == "" || n.reads < h.counts[least].reads {
				least = k
			}
		}
		n.reads = h.counts[least].reads
		delete(h.counts, least)
	}
	n.reads += reads
	n.fresh += reads
	h.counts[key] = n
}

// unreported are the keys with the most reads that no server was told of.
func (h *hot) unreported() []HotKey {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []HotKey
	for k, n := range h.counts {
		if n.fresh > 0 {
			list = append(list, HotKey{Key: k, Reads: n.fresh})
		}
	}
	slices.SortFunc(list, func(a, b HotKey) int { return cmp.Compare(b.Reads, a.Reads) })
	return list[:min(len(list), hotReportMax)]
}

// reported notes that a server was told.
func (h *hot) reported(key string, reads uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n, ok := h.counts[key]; ok {
		n.fresh -= min(reads, n.fresh)
		h.counts[key] = n
	}
}

// hint takes what a server says of a key: that it is hot, and how many places
// would do.
func (h *hot) hint(key string, places int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hints == nil {
		h.hints = make(map[string]hotHint)
	}
	if _, ok := h.hints[key]; !ok && len(h.hints) >= hotHintsMax {
		for k, x := range h.hints {
			if now.After(x.until) || len(h.hints) >= hotHintsMax {
				delete(h.hints, k)
			}
		}
	}
	h.some.Store(true)
	h.hints[key] = hotHint{places, now.Add(hotHintLife)}
}

// is reports whether a server has lately said that a key is hot.
func (h *hot) is(key string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	x, ok := h.hints[key]
	return ok && now.Before(x.until)
}

// list are the keys that are read most, and those that servers call hot.
func (h *hot) list(now time.Time) []HotKey {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []HotKey
	for k, n := range h.counts {
		list = append(list, HotKey{Key: k, Reads: n.reads})
	}
	for k, x := range h.hints {
		if now.After(x.until) {
			continue
		}
		if i := slices.IndexFunc(list, func(y HotKey) bool { return y.Key == k }); i >= 0 {
			list[i].Places = x.places
		} else {
			list = append(list, HotKey{Key: k, Places: x.places})
		}
	}
	slices.SortFunc(list, func(a, b HotKey) int {
		return cmp.Or(cmp.Compare(b.Reads, a.Reads), cmp.Compare(b.Places, a.Places), cmp.Compare(a.Key, b.Key))
	})
	return list
}

// decay halves the counts, so that they follow what is read now.
func (h *hot) decay() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, n := range h.counts {
		n.reads /= 2
		if n.fresh /= 2; n.reads == 0 {
			delete(h.counts, k)
		} else {
			h.counts[k] = n
		}
	}
}

// readCopy reads a hot key from one of the nodes with a copy, now and then from
// its owner, where the policy lets it be read so. ok is false when the owner is
// to be asked.
func (c *Client) readCopy(ctx context.Context, key, place string, least uint64) (r Result, ok bool) {
	if !c.hot.some.Load() {
		return r, false
	}
	policy := c.policy(key)
	if policy == nil || !policy.Copies || !c.hot.is(place, time.Now()) {
		return r, false
	}
	v := c.view.Load()
	q := newRequest(meta.OpGet, meta.VerbMetaGet, place, "vfcya")
	p := v.of(place, q.hash)
	copies := v.copies(p.bucket)
	i := rand.IntN(len(copies) + 1)
	if i == len(copies) || v.nodes[copies[i]] == p.owner {
		return r, false
	}
	q.reads = true
	a, err := c.askNode(ctx, &q, v.nodes[copies[i]], p, time.Now().Add(c.opt.Timeout))
	if err != nil {
		return r, false
	}
	defer a.Free()
	if a.Reply.Code != meta.CodeVA {
		return r, false
	}
	r = c.result(&a)
	if r.Outcome != Stale || r.Version < least {
		return r, false
	}
	c.counters.copyReads.Add(1)
	return r, true
}

// HotKeys are the keys that this client reads most from its near cache, and
// those of which servers say that they are hot, the most read first.
func (c *Client) HotKeys() []HotKey { return c.hot.list(time.Now()) }

// report tells the owners of the keys that the near cache hides most how many
// reads they have not seen.
func (c *Client) report() {
	v := c.view.Load()
	if v == nil || v.m == nil {
		return
	}
	for _, k := range c.hot.unreported() {
		if !meta.ValidTextKey([]byte(k.Key)) {
			continue
		}
		n := v.of(k.Key, xxhash.Sum64String(k.Key)).owner
		err := n.ask(c.base, func(r *meta.Reply) error {
			if r.Code != meta.CodeOK {
				return serverError(n.addr, r)
			}
			return nil
		}, "config", "report", k.Key, strconv.FormatUint(k.Reads, 10))
		if err == nil {
			c.hot.reported(k.Key, k.Reads)
		}
	}
}
