package server

import (
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// setOptions puts r, a set of any kind, into o, which is zero.
func setOptions(o *store.SetOptions, r *meta.Request, now store.Time) {
	if r.Mode <= meta.ModePrepend {
		o.Mode = store.Mode(r.Mode)
	}
	o.Binary = r.Binary
	o.Flags = r.ClientFlags
	o.Expiry = store.Expiry(int64(r.TTL), now)
	o.HasExpiry = r.Has.Has('T')
	o.HasNewCAS, o.NewCAS = r.NewCAS != 0, r.NewCAS // E0 is no CAS here, as in memcached
	// A value that cannot be stored must not leave an older one to be read.
	o.DropOnError = r.Verb == meta.VerbSet || r.Verb == meta.VerbMetaSet
	switch r.Mode {
	case meta.ModeSet, meta.ModeReplace:
		// With a CAS to compare, either is a cas, and a cas alone may be stale.
		o.Compare, o.CompareCAS = r.Has.Has('C'), r.CompareCAS
		o.Invalidate = o.Compare && r.Has.Has('I')
	case meta.ModeAppend, meta.ModePrepend:
		o.Compare, o.CompareCAS = r.Has.Has('C'), r.CompareCAS
		o.Vivify, o.VivifyExpiry = r.Has.Has('N'), store.Expiry(int64(r.VivifyTTL), now)
	}
}

// stored answers a set of any kind.
func (w *worker) stored(r *meta.Request, res store.SetResult) {
	if res.Status == store.Refused {
		w.refused(r, res.Reason)
		return
	}
	item := meta.Item{CAS: res.CAS, Size: res.Size}
	w.answer(r, res.Status, &item)
}
