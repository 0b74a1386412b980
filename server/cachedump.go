package server

import (
	"strconv"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// cachedumpMaxBytes bounds the answer to stats cachedump. Source: memcached's
// item_cachedump.
const cachedumpMaxBytes = 2 << 20

// cachedump is a stats cachedump that a session is in the middle of. It goes
// on a step at a time, as dump does.
type cachedump struct {
	walk  *store.PageWalk
	items int // yet to show
	bytes int // of the answer yet

	now store.Time // of the step
	buf []byte     // the worker's output, lent for the step
}

// startCachedump answers stats cachedump: the keys of one class. Behind it
// stands how many at most, 0 for all. The highest number that memcached can
// have is all classes from there on: clients that want all keys, as memcdump
// does, ask no further.
func (s *session) startCachedump(w *worker) {
	r := &w.req
	if s.srv.cfg.NoDump {
		w.fail(r, meta.ErrStatsDumpNotAllow)
		return
	}
	if r.NArgs < 4 {
		w.fail(r, meta.ErrStatsLine)
		return
	}
	class, ok1 := meta.ParseUint32(r.Args[2])
	limit, ok2 := meta.ParseUint32(r.Args[3])
	if !ok1 || !ok2 {
		w.fail(r, meta.ErrBadLine)
		return
	}
	if class >= classesMemcached {
		w.fail(r, meta.ErrStatsClass)
		return
	}
	only := make(store.ClassSet, max(s.srv.store.Classes()+1, classesMemcached))
	only.Add(int(class))
	for c := classesMemcached; class == classesMemcached-1 && c < len(only); c++ {
		only.Add(c)
	}
	c := &cachedump{walk: s.srv.store.NewPageWalk(only, 0), items: int(limit)}
	if limit == 0 {
		c.items = cachedumpMaxBytes // more than fit
	}
	s.cachedump, s.phase = c, phaseCachedump
}

// goOnCachedump does a step of the session's cachedump.
func (s *session) goOnCachedump(w *worker) {
	c := s.cachedump
	c.now, c.buf = w.now, w.out.buf
	more := s.srv.store.ShowStep(c.walk, min(c.items, dumpItemsALock), w.now, c)
	w.out.buf, c.buf = c.buf, nil
	if more && c.items > 0 {
		return
	}
	w.out.buf = append(w.out.buf, statsEnd...)
	s.cachedump, s.phase = nil, phaseLine
}

// VisitItem appends the line of an item, if it fits. Keys that may hold
// anything are left out.
func (c *cachedump) VisitItem(it *store.Item) {
	if it.Binary || c.items == 0 {
		return
	}
	expiry := int64(0)
	if it.TTL >= 0 {
		expiry = int64(c.now.Seconds()) + it.TTL
	}
	b := append(append(c.buf, "ITEM "...), it.Key...)
	b = strconv.AppendInt(append(b, " ["...), int64(it.Size), 10)
	b = strconv.AppendInt(append(b, " b; "...), expiry, 10)
	b = append(b, " s]\r\n"...)
	n := len(b) - len(c.buf)
	if c.bytes+n+len(statsEnd) > cachedumpMaxBytes {
		c.items = 0
		return
	}
	c.buf = b
	c.bytes += n
	c.items--
}
