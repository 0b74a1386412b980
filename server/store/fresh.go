package store

import (
	"bytes"
	cryptorand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
)

// Freshness: values that have a version and deadlines, floors under the
// versions of a key, and grants: the right to fill a key once.
//
// The state of a key is
//
//	value or absence, version, soft, hard, read, stale · floor · token
//
// and each request is one step of it, taken under the shard's lock: lookup in
// lookup.go, what stores in fill.go, what invalidates in notice.go. Floor and
// token outlive the value: while the key has a versioned item, the floor is in
// its header (extra.go), else in the shard's records (records.go), where
// tokens always are. How many tokens may be out is the budget's (budget.go).
//
// A key that never met any of this has no extra header and no record, and a
// shard that has neither skips all of it.

// FreshConfig bounds what freshness may take. The zero value is the defaults.
type FreshConfig struct {
	GrantMaxMillis  int64 // the longest life of a token. 1000, at most GrantMillisLimit
	RetentionMillis int64 // a floor is kept for so long after it was raised, at least. 30,000
	SkewMaxMillis   int64 // by which clocks may differ. 100
	RecordsMax      int   // floors of keys without a value, and tokens, in all shards; 0 by the limit, see recordsFor

	RateForeground int  // grants in any second, foreground and strong; 0 no limit
	RateBackground int  // the same for background
	InflightMax    int  // tokens out at once; 0 no limit
	Adapt          bool // find how many by the times that fills take

	EarlyBeta float64 // how early the server asks for a refresh before soft (XFetch). 1; negative is never

	VersionRanges []VersionRange // how far a minimum version may be above what is known
	GrantOnly     []string       // prefixes of keys that Set refuses without a grant or a version

	Seed uint64 // of the random numbers, for tests; 0 is a random one
}

// VersionRange says that the minimum versions of keys with a prefix are at
// most Max above the version or floor that is known.
type VersionRange struct {
	Prefix string
	Max    uint64
}

const (
	grantMaxDefault  = 1000
	retentionDefault = 30_000
	skewMaxDefault   = 100

	// GrantMillisLimit bounds GrantMaxMillis.
	GrantMillisLimit = 60_000
	// RetentionMillisLimit bounds RetentionMillis.
	RetentionMillisLimit = 24 * 60 * 60 * 1000

	// recordsPerByte: one record for so many bytes of the limit, which is 3 %
	// of it when all are in use.
	recordsPerByte = 4 << 10
	recordsMin     = 4 << 10

	// DeadlineMax is the latest deadline, in ms of Unix time: 48 bits.
	DeadlineMax = 1<<48 - 1
)

func (c *FreshConfig) withDefaults() FreshConfig {
	d := *c
	if d.GrantMaxMillis == 0 {
		d.GrantMaxMillis = grantMaxDefault
	}
	if d.RetentionMillis == 0 {
		d.RetentionMillis = retentionDefault
	}
	if d.SkewMaxMillis == 0 {
		d.SkewMaxMillis = skewMaxDefault
	}
	if d.EarlyBeta == 0 {
		d.EarlyBeta = 1
	}
	return d
}

// Validate reports what is out of range.
func (c *FreshConfig) Validate() error {
	switch {
	case c.GrantMaxMillis < 0 || c.GrantMaxMillis > GrantMillisLimit:
		return fmt.Errorf("store: grants of %d ms: want at most %d", c.GrantMaxMillis, GrantMillisLimit)
	case c.RetentionMillis < 0 || c.RetentionMillis > RetentionMillisLimit:
		return fmt.Errorf("store: floors kept for %d ms: want at most %d", c.RetentionMillis, RetentionMillisLimit)
	case min(c.SkewMaxMillis, int64(c.RecordsMax), int64(c.RateForeground), int64(c.RateBackground), int64(c.InflightMax)) < 0:
		return fmt.Errorf("store: freshness %+v: negative", *c)
	}
	return nil
}

// recordsFor is the records of one shard.
func (c *FreshConfig) recordsFor(limit int64, shards int) int {
	n := c.RecordsMax
	if n == 0 {
		n = int(max(limit/recordsPerByte, recordsMin))
	}
	return max(n/shards, 1)
}

// freshness is what the shards share.
type freshness struct {
	cfg         FreshConfig
	incarnation uint32 // of this start: random
	recordsSeed uint64
	noncesSeed  [32]byte
	budget      budget
	offset      atomic.Int64 // deadlines are judged at Time + offset
	paused      atomic.Bool  // no grants, whoever asks
	untrusted   atomic.Bool  // the clock: nothing with a deadline is served or stored
}

// open begins with the defaults filled into c.
func (f *freshness) open(c *FreshConfig) {
	f.cfg = c.withDefaults()
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], f.cfg.Seed)
	if f.cfg.Seed == 0 {
		_, _ = cryptorand.Read(seed[:]) // it never fails
	}
	// What is told of one of these numbers tells nothing of another.
	r := rand.NewChaCha8(seed)
	f.incarnation, f.recordsSeed = uint32(r.Uint64()), r.Uint64()
	_, _ = r.Read(f.noncesSeed[:])
	f.budget.foreground.max = f.cfg.RateForeground
	f.budget.background.max = f.cfg.RateBackground
	f.budget.inflightMax = f.cfg.InflightMax
	if f.cfg.Adapt {
		f.budget.adapt = newAdapter()
	}
}

// newFreshShard is what shard id begins with, at a moment when nothing is
// known of floors.
func (f *freshness) newShard(s *Store, id int) (freshShard, error) {
	retention := Time(f.cfg.RetentionMillis)
	grantMax := Time(f.cfg.GrantMaxMillis)
	records, err := newRecords(f.cfg.recordsFor(s.cfg.LimitBytes, s.cfg.Shards), retention, grantMax, f.recordsSeed)
	seed := f.noncesSeed
	seed[0], seed[1] = seed[0]^byte(id), seed[1]^byte(id>>8)
	return freshShard{
		records: records,
		random:  rand.New(rand.NewChaCha8(seed)),
	}, err
}

// Reason is why something was refused. The numbers are those of the wire.
type Reason uint8

// The reasons, in the order in which they are judged.
const (
	ReasonNone        Reason = 0
	ReasonIncarnation Reason = 3  // the token is of another start
	ReasonOwnership   Reason = 4  // the token is of an earlier ownership of the bucket
	ReasonToken       Reason = 1  // the token is not known, was used or replaced
	ReasonExpired     Reason = 2  // the token's time has passed
	ReasonClock       Reason = 7  // the clock is not trusted, or the read time is implausible
	ReasonPast        Reason = 6  // the hard deadline has passed already
	ReasonFloor       Reason = 5  // below the floor, or not newer than what is stored
	ReasonUnequal     Reason = 10 // nothing equal to revalidate
	ReasonQuota       Reason = 8
	ReasonGrantOnly   Reason = 11 // nothing is set under this prefix without a grant
	reasons                  = 12
)

// Deadlines of a value, in ms of Unix time; 0 is none.
type Deadlines struct {
	Hard Time // not served from then on
	Soft Time // served, but due to be refreshed, from then on
	Read Time // when the read of the source began
}

// FillKind is what a fill says of the source.
type FillKind uint8

// The kinds of fills.
const (
	FillValue      FillKind = iota
	FillRevalidate          // the source still has the version that is stored
	FillAbsent              // the source has no such row
)

// Fill says that what is stored has a version. With a token it is the fill of
// a grant; without one it is a versioned write.
type Fill struct {
	Kind     FillKind
	HasToken bool
	Token    Token
	BadToken bool // the token could not be read: it is of no start
	Version  uint64
	Deadlines

	// FromOwner says that this is what the owner of the key has, for a copy of
	// it: judged by its version alone, which may be the one that is stored.
	FromOwner bool
}

// Ask is what a lookup wants to know beyond the value, and what it is told.
// The store fills in what is behind the blank line.
type Ask struct {
	Class     GrantClass // of the grant that is asked for, if one is due
	MaxMillis int64      // its longest life
	Min       uint64     // the lowest version that is of use
	NoGrant   bool       // there is none to be had for this key

	Granted    bool
	Token      Token
	LifeMillis int64 // of the token
	Waits      bool  // another caller has the token (Z)
	WaitMillis int64 // until it makes sense to ask again
	Denied     bool  // a grant is due, but there is none to be had for WaitMillis
	Absent     bool  // known to be absent, at Version
	OutOfRange bool  // Min is too far above what is known
	Version    uint64
	Floor      uint64
}

// FreshStats count what became of requests that use versions and grants.
// Counters count since the start or the last reset.
type FreshStats struct {
	GrantsForeground, GrantsBackground, GrantsStrong uint64
	GrantsEarly                                      uint64 // of those: before soft
	Waits, Denials                                   uint64
	AbsentHits                                       uint64 // lookups that were told of a known absence
	Fills, Revalidations, Absences, VersionedWrites  uint64
	GivenBack                                        uint64
	TokensExpired                                    uint64
	Notices, Takedowns                               uint64
	Raises                                           uint64 // of floors
	OutOfRange                                       uint64
	FloorsDropped                                    uint64          // for want of room
	Refused                                          [reasons]uint64 // by Reason

	// Gauges.
	Records, RecordsMax int
	RecordBytes         int64
	Versioned           uint64 // items with an extra header
	Inflight            int    // tokens out
	InflightMax         int    // as adapted, 0 no limit
	OldestFloorMillis   int64  // since the oldest floor without a value was raised
	FloorsUnknown       int    // shards in which floors are unknown now
	FillMillis          int64  // a fill takes, in the mean
}

// add adds the counters of n.
func (f *FreshStats) add(n *FreshStats) {
	f.GrantsForeground += n.GrantsForeground
	f.GrantsBackground += n.GrantsBackground
	f.GrantsStrong += n.GrantsStrong
	f.GrantsEarly += n.GrantsEarly
	f.Waits += n.Waits
	f.Denials += n.Denials
	f.AbsentHits += n.AbsentHits
	f.Fills += n.Fills
	f.Revalidations += n.Revalidations
	f.Absences += n.Absences
	f.VersionedWrites += n.VersionedWrites
	f.GivenBack += n.GivenBack
	f.TokensExpired += n.TokensExpired
	f.Notices += n.Notices
	f.Takedowns += n.Takedowns
	f.Raises += n.Raises
	f.OutOfRange += n.OutOfRange
	f.FloorsDropped += n.FloorsDropped
	for i := range f.Refused {
		f.Refused[i] += n.Refused[i]
	}
}

// addFresh adds what the shard has to f.
func (sh *shard) addFresh(f *FreshStats, now Time) {
	rs := &sh.records
	rs.turn(now, sh.uncount) // which counts
	f.add(&sh.fresh)
	f.FloorsDropped += rs.nDropped
	f.Records += rs.n
	f.RecordsMax += rs.max
	f.RecordBytes += rs.bytes()
	f.Versioned += uint64(sh.nExtra)
	f.OldestFloorMillis = max(f.OldestFloorMillis, int64(rs.oldestFloor(now)))
	if now < max(sh.unknownUntil, rs.unknownUntil()) {
		f.FloorsUnknown++
	}
}

// settleFresh adds what the shards share.
func (s *Store) settleFresh(f *FreshStats, now Time) {
	b := &s.fresh.budget
	f.Inflight = b.inflight(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	f.InflightMax = b.outMax(GrantForeground)
	f.FillMillis = int64(b.fills.mean)
}

// grantOnly reports whether nothing is set under key without a grant.
func (c *FreshConfig) grantOnly(key []byte) bool {
	for _, p := range c.GrantOnly {
		if bytes.HasPrefix(key, []byte(p)) {
			return true
		}
	}
	return false
}

// inRange reports whether least is a minimum version that key may be asked
// for, when known is the highest version or floor that is known, 0 none.
func (c *FreshConfig) inRange(key []byte, known, least uint64) bool {
	if known == 0 || least <= known {
		return true
	}
	for _, r := range c.VersionRanges {
		if bytes.HasPrefix(key, []byte(r.Prefix)) {
			return least-known <= r.Max
		}
	}
	return true
}

// FreshLimits is the FreshConfig that holds, its defaults filled in.
func (s *Store) FreshLimits() FreshConfig { return s.fresh.cfg }

// SetDeadlineClock says that deadlines are judged offset after the Time of
// each call, and whether that clock can be trusted. While it cannot, values
// with deadlines are misses, and nothing with one is stored.
func (s *Store) SetDeadlineClock(offset Time, trusted bool) {
	s.fresh.offset.Store(int64(offset))
	s.fresh.untrusted.Store(!trusted)
}

// PauseGrants says that no grants are given, or that they are again: the owner
// of keys may be another one by now.
func (s *Store) PauseGrants(pause bool) { s.fresh.paused.Store(pause) }

// Rebase is SetDeadlineClock after the clock was found to have been wrong: it
// ends all tokens, and drops every value with a deadline.
func (s *Store) Rebase(offset Time, now Time) {
	s.fresh.untrusted.Store(true)
	for _, sh := range s.shards {
		sh.lock()
		sh.enter(now)
		sh.endTokens()
		sh.rebased = sh.casOf(sh.seq)
		sh.keepMarks()
		sh.sweepAll()
		sh.freeExplicit(func(it item) bool { return it.extra().Hard != 0 })
		sh.unlock()
	}
	s.SetDeadlineClock(offset, true)
}

// LoseFloors says that floors from before now are not there, as is so at the
// start of an empty store: for as long as floors are kept they are unknown.
func (s *Store) LoseFloors(now Time) {
	for _, sh := range s.shards {
		sh.lock()
		sh.unknownUntil = max(sh.unknownUntil, now+Time(s.fresh.cfg.RetentionMillis))
		sh.unlock()
	}
}

// deadlineTime is the moment at which deadlines are judged.
func (sh *shard) deadlineTime(now Time) Time { return now + Time(sh.s.fresh.offset.Load()) }

// usesFresh reports whether any key of the shard has a version, floor or token.
func (sh *shard) usesFresh() bool { return sh.nExtra|sh.records.n != 0 }

// floorsUnknown reports whether floors may have been lost of late.
func (sh *shard) floorsUnknown(k Key, now Time) bool {
	until := max(sh.unknownUntil, sh.records.unknownUntil())
	if sh.owned != nil {
		until = max(until, sh.owned.unknownUntil[k.Bucket()])
	}
	return now < until
}

// freshShard is what a shard keeps for freshness.
type freshShard struct {
	// What plain commands look at comes first.
	now     Time       // of the request under way
	nExtra  int        // items with an extra header
	owned   *ownership // nil: no bucket has ever changed its owner
	records records

	tokenSeq     uint64 // tokens given
	tokenMark    uint64 // tokens with a sequence up to this are ended
	rebased      uint64 // items with a deadline and a CAS up to this are gone
	unknownUntil Time   // floors are unknown until then, whatever was dropped
	filling      uint64 // hash of the key that room is being made for by a fill, 0 none

	changes *keyChanges // nil: nobody wants to know

	viewFresh ItemFreshness // of view

	random *rand.Rand
	fresh  FreshStats // its counters
}
