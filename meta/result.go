package meta

// Status is the outcome of a request that reached the store. What a client
// can cause is a Status, never an error.
type Status uint8

const (
	StatusOK           Status = iota // hit, stored, deleted, counted
	StatusMiss                       // no such item
	StatusNotStored                  // NS: add, replace, append, prepend did not apply
	StatusExists                     // EX: the CAS differs
	StatusTooLarge                   // SERVER_ERROR object too large for cache
	StatusNoMemory                   // SERVER_ERROR out of memory storing object
	StatusReadNoMemory               // SERVER_ERROR Out of memory during read
	StatusNonNumeric                 // CLIENT_ERROR cannot increment or decrement non-numeric value
)

// Item is what the store tells of an item, enough for every reply; and what a
// client reads from one. Numbers are as they were before the request where
// memcached says so (HitBefore, LastAccess).
type Item struct {
	CAS         uint64
	ClientFlags uint32
	Size        int    // value bytes
	TTL         int64  // seconds left, -1 none
	LastAccess  int64  // seconds since it was last read
	HitBefore   bool   // read since it was stored
	Won         bool   // W: this caller is to recache
	Stale       bool   // X
	WinSent     bool   // Z: another caller has won already
	Binary      bool   // the key was stored as base64
	Number      uint64 // arith: the number after it
	Class       int    // slab class, for me and watch
	Footprint   int    // bytes the item occupies with its header, for me
	Expiry      int64  // me: seconds left or -1
}
