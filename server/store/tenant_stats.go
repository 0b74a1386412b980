package store

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quarrycache/quarry/slab"
)

// tenantCounts are what is counted in a row.
type tenantCounts struct {
	hits, misses, sets                       uint64
	evicted, evictedOwn                      uint64
	refusedMemory, refusedRate, refusedValue uint64
}

func (n *tenantCounts) add(o *tenantCounts) {
	n.hits += o.hits
	n.misses += o.misses
	n.sets += o.sets
	n.evicted += o.evicted
	n.evictedOwn += o.evictedOwn
	n.refusedMemory += o.refusedMemory
	n.refusedRate += o.refusedRate
	n.refusedValue += o.refusedValue
}

// TenantStats is one tenant over all shards that have a row for it. Counters
// count since the start or the last reset.
type TenantStats struct {
	Name  string
	Named bool // it has a quota of its own
	Quota Quota

	Items, Bytes  uint64 // bytes of headers, keys and values
	Grants        uint64 // to fill, out now; only of tenants with a quota of them
	Hits, Misses  uint64 // reads
	Sets          uint64 // values to be stored that were not refused
	Evicted       uint64 // live items that made room, its own quota's included
	EvictedOwn    uint64 // of them, for its own quota
	RefusedMemory uint64 // over its memory, with nothing to evict
	RefusedRate   uint64 // new keys too fast
	RefusedValue  uint64 // too large a value
}

// stats are the figures of row r.
func (r *tenant) stats() TenantStats {
	return TenantStats{
		Items: uint64(r.items), Bytes: uint64(r.bytes), Grants: uint64(r.inflight),
		Hits: r.n.hits, Misses: r.n.misses, Sets: r.n.sets,
		Evicted: r.n.evicted, EvictedOwn: r.n.evictedOwn,
		RefusedMemory: r.n.refusedMemory, RefusedRate: r.n.refusedRate, RefusedValue: r.n.refusedValue,
	}
}

// add adds the figures of o.
func (s *TenantStats) add(o TenantStats) {
	s.Items += o.Items
	s.Grants += o.Grants
	s.Bytes += o.Bytes
	s.Hits += o.Hits
	s.Misses += o.Misses
	s.Sets += o.Sets
	s.Evicted += o.Evicted
	s.EvictedOwn += o.EvictedOwn
	s.RefusedMemory += o.RefusedMemory
	s.RefusedRate += o.RefusedRate
	s.RefusedValue += o.RefusedValue
}

// Tenants is a snapshot of the tenants: those with a quota of their own in
// the order of the Config, then at most most of the others, the largest
// first, and all that is left as one. It is empty without a delimiter.
func (s *Store) Tenants(most int) (rows []TenantStats, other TenantStats) {
	c := &s.cfg.Tenants
	if c.Delimiter == 0 {
		return nil, other
	}
	at := make(map[string]int)
	for _, q := range c.Quotas {
		at[q.Name] = len(rows)
		rows = append(rows, TenantStats{Name: q.Name, Named: true, Quota: q.Quota})
	}
	other.Quota = c.Default
	for _, sh := range s.shards {
		sh.lock()
		step := sh.beginStep("tenants")
		t := sh.tenants
		other.add(t.other().stats())
		for i := range t.rows[1:] {
			r := &t.rows[1+i]
			n, ok := at[string(r.name)]
			if !ok {
				n = len(rows)
				name := string(r.name)
				at[name] = n
				rows = append(rows, TenantStats{Name: name, Quota: c.Default})
			}
			rows[n].add(r.stats())
		}
		sh.endStep(&step)
		sh.unlock()
	}
	rest := rows[len(c.Quotas):]
	slices.SortFunc(rest, func(a, b TenantStats) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name))
	})
	for _, r := range rest[min(most, len(rest)):] {
		other.add(r)
	}
	return rows[:len(c.Quotas)+min(most, len(rest))], other
}

// countGet counts a read of key.
func (t *tenants) countGet(key []byte, hit bool) {
	r := t.findOrOther(key)
	if hit {
		r.n.hits++
	} else {
		r.n.misses++
	}
}

// resetCounts sets all counters to zero; gauges stay.
func (t *tenants) resetCounts() {
	for i := range t.rows {
		t.rows[i].n = tenantCounts{}
	}
}

// checkTenants recounts the account from the items, and its table.
func (sh *shard) checkTenants() []error {
	t := sh.tenants
	if t == nil {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("store: "+format, args...)) }
	type sum struct{ items, bytes int64 }
	found := make(map[*tenant]sum)
	for n := uint32(1); n < sh.a.Pages(); n++ {
		chunks := sh.a.Page(n)
		for i := range chunks.N {
			it := sh.item(chunks.At(i))
			if it.tag.State() < slab.StateItem {
				continue
			}
			r := t.charged(it)
			f := found[r]
			found[r] = sum{f.items + 1, f.bytes + int64(it.footprint())}
		}
	}
	for i := range t.rows {
		r := &t.rows[i]
		if f := found[r]; f.items != r.items || f.bytes != r.bytes {
			bad("tenant %d %q: %d items of %d bytes counted, %d of %d found", i, r.name, r.items, r.bytes, f.items, f.bytes)
		}
		if i == 0 {
			continue
		}
		if got := t.lookUp(r.name, r.hash); got != r {
			bad("tenant %d %q is not found in the table", i, r.name)
		}
	}
	return errs
}
