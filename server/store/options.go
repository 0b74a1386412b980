package store

import "github.com/cespare/xxhash/v2"

// Time is a moment: Unix time in milliseconds. The store has no clock of its
// own; every call that needs the time is given it. TTLs are counted in whole
// seconds, as memcached counts them: an item is gone when its second has come.
type Time int64

// Seconds is the Unix time in whole seconds.
func (t Time) Seconds() uint32 { return uint32(t / 1000) }

// RelativeMax is the largest exptime that counts from now; a larger one is
// absolute Unix time. Source: memcached's REALTIME_MAXDELTA, 30 days.
const RelativeMax = 60 * 60 * 24 * 30

// expiredAtOnce is the expiry of an item that must never be seen: any second
// long past, but not 0, which means no expiry.
const expiredAtOnce = 1

// Expiry turns a client's exptime into the second at which the item is gone:
// 0 is never, a negative exptime has passed already, up to 30 days is counted
// from now, and more than that is a Unix time.
func Expiry(exptime int64, now Time) uint32 {
	switch {
	case exptime == 0:
		return 0
	case exptime < 0:
		return expiredAtOnce
	case exptime <= RelativeMax:
		return now.Seconds() + uint32(exptime)
	case exptime > 1<<32-1:
		return 1<<32 - 1
	}
	return uint32(exptime)
}

// Key is a key and its hash, which is taken once.
type Key struct {
	Hash  uint64
	Bytes []byte // 1 to 250 bytes; the store copies it
}

// KeyOf hashes b: XXH64, seed 0. The top 12 bits of the hash are the
// cluster's bucket; other bits choose shard, index position and tag.
func KeyOf(b []byte) Key { return Key{Hash: xxhash.Sum64(b), Bytes: b} }

// Status is the outcome of an operation. What a client can cause is a
// Status, never an error.
type Status uint8

const (
	OK           Status = iota // hit, stored, deleted, counted
	Miss                       // no such item
	NotStored                  // add found an item; replace, append, prepend found none
	Exists                     // the CAS differs
	TooLarge                   // over the item limit
	NoMemory                   // no room, and nothing could be evicted
	ReadNoMemory               // room ran out while the value arrived
	NonNumeric                 // arith on a value that is no number
	Refused                    // a fill or a store that freshness does not allow, for a Reason
)

// Mode is the way a set stores.
type Mode uint8

const (
	ModeSet Mode = iota
	ModeAdd
	ModeReplace
	ModeAppend
	ModePrepend
)

// GetOptions say what a read does besides reading. The zero value is get.
type GetOptions struct {
	Observer      Observer
	Touch         bool // set the TTL to Expiry; counted as a touch, not as a get
	NoBump        bool // leave order and hit marks alone
	NoWin         bool // leave the right to refresh a stale item to others
	Vivify        bool // on a miss make an empty item with VivifyExpiry, and win
	Recache       bool // one caller wins when the item expires before the second RecacheBefore
	RecacheFirst  bool // Recache judges the TTL as it was before Touch
	HasNewCAS     bool // a vivified item gets NewCAS
	Expiry        uint32
	VivifyExpiry  uint32
	RecacheBefore uint32
	NewCAS        uint64

	// Ask, unless nil, asks for a grant or has a minimum version, and is told
	// what became of it.
	Ask *Ask

	// Reader, unless nil, may read without the lock. The Visitor may be called
	// for nothing then, before it is called again, or before a Miss: what it
	// did before is to be undone.
	Reader *Reader
}

// isPlain reports whether the read is to change nothing but what is known of
// its recency.
func (o *GetOptions) isPlain() bool {
	return o.Observer == nil && o.Ask == nil && !o.Touch && !o.NoBump && !o.Vivify && !o.Recache
}

// SetOptions say how a value is stored. The zero value is set.
type SetOptions struct {
	Observer     Observer
	Mode         Mode
	Binary       bool // remember that the key was sent as base64
	Compare      bool // store only over an item whose CAS is CompareCAS
	Invalidate   bool // with Compare: accept a lower CAS, and the item is stale then (ms I)
	HasNewCAS    bool // the item gets NewCAS instead of the next number
	Vivify       bool // append, prepend: on a miss store the value alone, with VivifyExpiry
	DropOnError  bool // TooLarge and NoMemory also delete the old item (set, ms)
	HasExpiry    bool // a revalidation sets the TTL to Expiry, too
	Flags        uint32
	Expiry       uint32
	VivifyExpiry uint32
	CompareCAS   uint64
	NewCAS       uint64

	// Fill, unless nil, says that the value has a version. Then Mode, Compare,
	// Invalidate, Vivify, HasNewCAS and DropOnError are not looked at.
	Fill *Fill
}

// SetResult is what a store answers.
type SetResult struct {
	Status Status
	Reason Reason // of Refused
	CAS    uint64 // of the new item; 0 when nothing was stored
	Size   int    // bytes of the whole value, after an append too
}

// DeleteOptions say what goes. The zero value is delete.
type DeleteOptions struct {
	Observer    Observer
	Compare     bool // only if the CAS is CompareCAS
	Invalidate  bool // I: mark stale, new CAS, clear the win; the item stays
	RemoveValue bool // x: the value goes, the item stays with Flags and Expiry
	Touch       bool // T: with Invalidate or RemoveValue, set Expiry
	HasNewCAS   bool // E: with Invalidate or RemoveValue
	Flags       uint32
	Expiry      uint32
	CompareCAS  uint64
	NewCAS      uint64
}

// ArithOptions say how to count. Delta is added, or taken away with Decr.
type ArithOptions struct {
	Observer     Observer
	Decr         bool
	Vivify       bool // on a miss make an item with Initial and VivifyExpiry
	Touch        bool
	Compare      bool
	HasNewCAS    bool
	Expiry       uint32
	VivifyExpiry uint32
	Delta        uint64
	Initial      uint64
	CompareCAS   uint64
	NewCAS       uint64
}

// Visitor is shown an item while its shard is locked: it must not block, and
// must not call the store again. The Item and all that it leads to end with
// the call, a Pin excepted.
type Visitor interface {
	VisitItem(it *Item)
}
