package meta

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

	Fresh *ItemFreshness // y, a and me; nil: there is none
}

// ItemFreshness is what is known of an item's version.
type ItemFreshness struct {
	Version   uint64 // of the value at the source, 0 none
	Floor     uint64 // under the versions of the key, 0 none
	Deadlines        // of the value
	Absent    bool   // known to be absent at the source
}
