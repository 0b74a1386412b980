package store

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// A tenant is what the keys with the same beginning, up to the first
// delimiter, have in common; a key without a delimiter belongs to the tenant
// with the empty name. Each shard keeps an account of its own, under its own
// lock:
//
//	row 0        other: all tenants that have no row
//	row 1 ...    those with a quota of their own, for good
//	     ...     the largest of the rest, at most TrackedMax
//
// Items do not know whom they are charged to: that follows from their key,
// and for a tenant that got its row while it may have had items already, from
// their CAS. What it stored before stays charged to other, as what a tenant
// leaves behind that loses its row does. So the table is bounded whatever the
// keys are, and every item is taken off the row that it was put on.
//
// Quotas are divided by the number of shards.

// Quota is what a tenant may use. 0 is no limit.
type Quota struct {
	MemoryBytes      int64 // headers, keys and values of its items
	ValueMaxBytes    int   // one value
	NewKeysPerSecond int   // keys stored that were not there
	GrantsInFlight   int   // tokens out at once, in each shard at least one
}

// TenantQuota is the quota of one tenant.
type TenantQuota struct {
	Name string
	Quota
}

// TenantConfig says what a tenant is, and what it may use. The zero value is
// no tenants.
type TenantConfig struct {
	Delimiter  byte          // ends a tenant's name in its keys; 0: there are no tenants
	Quotas     []TenantQuota // names are distinct and without the delimiter
	Default    Quota         // of each tenant not in Quotas; those without a row have it together
	TrackedMax int           // rows in a shard for tenants not in Quotas. 256
}

// Bounds of a TenantConfig.
const (
	TenantQuotasMax       = 1024          // Quotas
	TenantTrackedMax      = 1 << 14       // TrackedMax
	TenantRateMax         = 1_000_000_000 // NewKeysPerSecond
	tenantTrackedDefault  = 256
	tenantVotesDefault    = 16   // see contest
	tenantContestantsBits = 8    // log2 of the contestants a shard watches
	tenantRowsLookedAt    = 64   // of all rows, to find one that may lose its place
	tenantRecentMax       = 64   // see tenant.recent
	tenantSlotsPerRow     = 2    // of the hash table, at least
	millisPerSecond       = 1000 // of Time
)

func (c *TenantConfig) validate() error {
	switch {
	case c.Delimiter == 0:
		return nil
	case len(c.Quotas) > TenantQuotasMax:
		return fmt.Errorf("store: %d tenants with a quota, at most %d", len(c.Quotas), TenantQuotasMax)
	case c.TrackedMax < 0 || c.TrackedMax > TenantTrackedMax:
		return fmt.Errorf("store: %d tenants tracked: want 0 to %d", c.TrackedMax, TenantTrackedMax)
	case !c.Default.valid():
		return fmt.Errorf("store: default quota %+v: out of range", c.Default)
	}
	seen := make(map[string]bool)
	for _, q := range c.Quotas {
		if seen[q.Name] || strings.IndexByte(q.Name, c.Delimiter) >= 0 {
			return fmt.Errorf("store: tenant %q: twice, or with the delimiter in its name", q.Name)
		}
		if !q.Quota.valid() {
			return fmt.Errorf("store: tenant %q: quota %+v: out of range", q.Name, q.Quota)
		}
		seen[q.Name] = true
	}
	return nil
}

func (q *Quota) valid() bool {
	return min(q.MemoryBytes, int64(q.ValueMaxBytes), int64(q.NewKeysPerSecond), int64(q.GrantsInFlight)) >= 0 && q.NewKeysPerSecond <= TenantRateMax
}

// tenants is a shard's account.
type tenants struct {
	delimiter byte
	shards    int64
	def       Quota

	rows   []tenant // never moved: its capacity is its bound
	nNamed int      // rows[1:1+nNamed] never lose their place
	last   *tenant  // the row found last, nil if there is none

	// slots is a hash table from names to rows, by linear probing; 0 is
	// empty. The factor is random, so that names cannot be made to collide.
	slots  []uint16
	shift  uint
	factor uint64

	contestants [1 << tenantContestantsBits]contestant
	votesMin    uint32
	lookedAt    int // the row that was last looked at in the search for a small one

	hands []hand // by class, and one for all classes
}

// tenant is a row: a tenant, or other.
type tenant struct {
	hash  uint64
	name  []byte
	items int64
	bytes int64
	since uint64 // items with a CAS up to this, or an explicit one, are charged to other
	whole bool   // since and explicit CAS do not matter: there were no items before

	n tenantCounts

	memoryMax int64 // share of the quota, 0 none
	valueMax  int   // 0 none
	rate      int64 // new keys a second over all shards, 0 none
	credit    int64 // new keys that it may store now, times 1000, times the shards
	creditAt  Time  // when credit was so

	number      int // of the row
	inflight    int // tokens out
	inflightMax int // share of the quota, 0 none

	// recent are the hashes of the keys stored last, a ring: where no other
	// item of the tenant is found in time, one of these is. Only with a
	// memory quota.
	recent  [tenantRecentMax]uint64
	nRecent uint32 // ever put in
	gRecent uint32 // of them, taken out or overwritten
}

// contestant is a tenant without a row, as far as it is watched: one for all
// tenants whose hash falls on the same place. It gains a vote with each store
// of its own and loses one with each of another, so that among many that
// store once none gets far.
type contestant struct {
	hash  uint64
	bytes int64 // stored while it stood here
	votes uint32
}

func newTenants(c *TenantConfig, shards, classes int) *tenants {
	if c.Delimiter == 0 {
		return nil
	}
	tracked := c.TrackedMax
	if tracked == 0 {
		tracked = tenantTrackedDefault
	}
	most := 1 + len(c.Quotas) + tracked
	level := bits.Len(uint(most*tenantSlotsPerRow - 1))
	t := &tenants{
		delimiter: c.Delimiter,
		shards:    int64(shards),
		def:       c.Default,
		rows:      make([]tenant, 1, most),
		nNamed:    len(c.Quotas),
		slots:     make([]uint16, 1<<level),
		shift:     uint(64 - level),
		factor:    rand.Uint64() | 1,
		votesMin:  tenantVotesDefault,
		hands:     make([]hand, classes+1),
	}
	t.rows[0].setQuota(t.def, t.shards)
	t.rows[0].whole = true
	for _, q := range c.Quotas {
		name := []byte(q.Name)
		r := t.add(name, xxhash.Sum64(name))
		r.setQuota(q.Quota, t.shards)
		r.whole = true
	}
	return t
}

// setQuota gives r a shard's share of q, and the full credit.
func (r *tenant) setQuota(q Quota, shards int64) {
	r.memoryMax, r.valueMax, r.rate = 0, q.ValueMaxBytes, int64(q.NewKeysPerSecond)
	if q.MemoryBytes > 0 {
		r.memoryMax = max(q.MemoryBytes/shards, 1)
	}
	r.inflightMax = (q.GrantsInFlight + int(shards) - 1) / int(shards)
	r.credit, r.creditAt = r.creditMax(shards), 0
}

// other is the row of all tenants that have none.
func (t *tenants) other() *tenant { return &t.rows[0] }

// nameIn is the tenant that key belongs to.
func (t *tenants) nameIn(key []byte) []byte {
	return key[:max(bytes.IndexByte(key, t.delimiter), 0)]
}

// leads reports whether key begins with r's name and the delimiter. A name
// has no delimiter in it, so key belongs to r then.
func (r *tenant) leads(key []byte, delimiter byte) bool {
	n := len(r.name)
	return n < len(key) && key[n] == delimiter && bytes.Equal(key[:n], r.name)
}

// find is the row of the tenant that key belongs to, nil if it has none.
func (t *tenants) find(key []byte) *tenant {
	if r := t.last; r != nil && r.leads(key, t.delimiter) {
		return r
	}
	name := t.nameIn(key)
	return t.lookUp(name, xxhash.Sum64(name))
}

func (t *tenants) lookUp(name []byte, h uint64) *tenant {
	for i := t.slotOf(h); ; i = t.slotAfter(i) {
		n := t.slots[i]
		if n == 0 {
			return nil
		}
		if r := &t.rows[n]; r.hash == h && bytes.Equal(r.name, name) {
			t.last = r
			return r
		}
	}
}

func (t *tenants) slotOf(h uint64) uint64    { return h * t.factor >> t.shift }
func (t *tenants) slotAfter(i uint64) uint64 { return (i + 1) & uint64(len(t.slots)-1) }

// findOrOther is the row in which what happens to key is counted.
func (t *tenants) findOrOther(key []byte) *tenant {
	if r := t.find(key); r != nil {
		return r
	}
	return t.other()
}

// charged is the row that it is charged to, or would be.
func (t *tenants) charged(it item) *tenant {
	if r := t.find(it.key()); r != nil && r.holds(it) {
		return r
	}
	return t.other()
}

// holds reports whether an item of r's is charged to it.
func (r *tenant) holds(it item) bool {
	return r.whole || it.tag&explicitCAS == 0 && it.cas() > r.since
}

// owns is t.charged(it) == r, fast where r has a name.
func (t *tenants) owns(r *tenant, it item) bool {
	if len(r.name) > 0 {
		return r.leads(it.key(), t.delimiter) && r.holds(it)
	}
	return t.charged(it) == r
}

// add puts a row behind the others, which must have room for it.
func (t *tenants) add(name []byte, h uint64) *tenant {
	t.rows = t.rows[:len(t.rows)+1]
	n := len(t.rows) - 1
	r := &t.rows[n]
	r.name, r.hash, r.number = append(r.name[:0], name...), h, n
	t.index(n)
	return r
}

// index puts row n in the hash table.
func (t *tenants) index(n int) {
	i := t.slotOf(t.rows[n].hash)
	for t.slots[i] != 0 {
		i = t.slotAfter(i)
	}
	t.slots[i] = uint16(n)
}

// unindex takes row n out of the hash table, and closes the gap.
func (t *tenants) unindex(n int) {
	gap := t.slotOf(t.rows[n].hash)
	for t.slots[gap] != uint16(n) {
		gap = t.slotAfter(gap)
	}
	for i := t.slotAfter(gap); t.slots[i] != 0; i = t.slotAfter(i) {
		home := t.slotOf(t.rows[t.slots[i]].hash)
		if mask := uint64(len(t.slots) - 1); (i-home)&mask >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = 0
}

// claim is the row of the tenant of key, of which n bytes are to be stored.
// If it has none, it gets one: while there are free ones at once, and then
// when it deserves one more than another tenant.
func (sh *shard) claim(key []byte, n int) *tenant {
	t := sh.tenants
	if r := t.last; r != nil && r.leads(key, t.delimiter) {
		return r
	}
	name := t.nameIn(key)
	h := xxhash.Sum64(name)
	r := t.lookUp(name, h)
	switch {
	case r != nil:
		return r
	case len(t.rows) < cap(t.rows):
		r = t.add(name, h)
	case t.contest(h, n):
		if r = t.replace(name, h); r == nil {
			return t.other()
		}
	default:
		return t.other()
	}
	r.setQuota(t.def, t.shards)
	// If other is empty, no item of this tenant is charged to it.
	r.since, r.whole = sh.casOf(sh.seq), t.other().items == 0
	return r
}

// contest gives the tenant with hash h, which has no row, a vote, and reports
// whether it may try for one.
func (t *tenants) contest(h uint64, n int) bool {
	c := &t.contestants[h*t.factor>>(64-tenantContestantsBits)]
	switch {
	case c.hash == h && c.votes > 0:
		c.votes++
		c.bytes += int64(n)
	case c.votes > 0:
		c.votes--
		return false
	default:
		*c = contestant{hash: h, votes: 1, bytes: int64(n)}
	}
	return c.votes%t.votesMin == 0
}

// replace gives the tenant with that name the row of a smaller one, whose
// charges and counts go to other. nil: none was found. Only some rows are
// looked at, each time the next ones.
func (t *tenants) replace(name []byte, h uint64) *tenant {
	first := 1 + t.nNamed
	tracked := len(t.rows) - first
	small := 0
	for range min(tracked, tenantRowsLookedAt) {
		t.lookedAt = (t.lookedAt + 1) % tracked
		if n := first + t.lookedAt; small == 0 || t.rows[n].bytes < t.rows[small].bytes {
			small = n
		}
	}
	c := &t.contestants[h*t.factor>>(64-tenantContestantsBits)]
	if small == 0 || t.rows[small].bytes >= c.bytes {
		return nil
	}
	*c = contestant{}
	r := &t.rows[small]
	o := t.other()
	o.items += r.items
	o.bytes += r.bytes
	o.n.add(&r.n)
	t.unindex(small)
	*r = tenant{hash: h, name: append(r.name[:0], name...), number: small}
	t.index(small)
	t.last = nil
	return r
}

// adopt gives the tenant of key a row, if it has none and one is free. Nothing
// of the tenant is charged to anyone yet.
func (t *tenants) adopt(key []byte) {
	name := t.nameIn(key)
	h := xxhash.Sum64(name)
	if t.lookUp(name, h) != nil || len(t.rows) == cap(t.rows) {
		return
	}
	r := t.add(name, h)
	r.setQuota(t.def, t.shards)
	r.whole = true
}

// charge puts an item that is stored on its tenant's row.
func (sh *shard) charge(it item) {
	if sh.tenants == nil {
		return
	}
	r := sh.tenants.charged(it)
	r.items++
	r.bytes += int64(it.footprint())
}

// discharge takes an item off its row, before anything that charged looks at
// changes.
func (sh *shard) discharge(it item) {
	if sh.tenants == nil {
		return
	}
	r := sh.tenants.charged(it)
	r.items--
	r.bytes -= int64(it.footprint())
}
