package server

import (
	"sync"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// lruPercentMax bounds hot and warm together. Source: memcached's
// process_lru_command.
const lruPercentMax = 80

// lruFigures are what -o says of the order of items, and `lru` since then. The
// ages tell memcached how old the tails of its lists may become, and are kept
// to be shown.
type lruFigures struct {
	flat             bool // lru mode flat
	hotPct, warmPct  int
	hotGiven         bool // else the window follows the load, and hotPct is
	warmGiven        bool // memcached's default; warmPct likewise
	hotAge, warmAge  float64
	temporary        bool // lru temp_ttl
	temporarySeconds int
	eager            bool // -o compat_slabs
}

// lruSettings are the figures that hold now.
type lruSettings struct {
	mu sync.Mutex
	lruFigures
}

func (l *lruSettings) figures() lruFigures {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lruFigures
}

// newLRUFigures are those of the sub-options x, which have no defaults filled
// in yet.
func newLRUFigures(x *Extended) lruFigures {
	d := x.withDefaults()
	return lruFigures{
		flat: x.LRUFlat, eager: x.CompatSlabs,
		hotPct: d.HotLRUPercent, hotGiven: x.HotLRUPercent != 0 || x.CompatSlabs,
		warmPct: d.WarmLRUPercent, warmGiven: x.WarmLRUPercent != 0 || x.CompatSlabs,
		hotAge: d.HotMaxFactor, warmAge: d.WarmMaxFactor,
		temporary: x.TempLRU, temporarySeconds: d.TemporaryTTLSeconds,
	}
}

// percentLeast stands for 0 where the store takes a 0 for not given.
const percentLeast = 0.01

// tuning is what the store is told.
func (f *lruFigures) tuning() store.Tuning {
	t := store.Tuning{Flat: f.flat, Eager: f.eager, TemporarySeconds: -1}
	if f.hotGiven {
		t.WindowPct = max(float64(f.hotPct), percentLeast)
	}
	if f.warmGiven {
		t.ProtectedPct = max(float64(f.warmPct), percentLeast)
	}
	if f.temporary {
		t.TemporarySeconds = int64(f.temporarySeconds)
	}
	return t
}

// lruCommand answers lru. Its words may be abbreviated.
func (s *session) lruCommand(w *worker) {
	r := &w.req
	if e := s.srv.setLRU(r.Args[1:r.NArgs]); e != meta.ErrNone {
		w.fail(r, e)
		return
	}
	w.ok()
}

// setLRU takes the words behind lru.
func (s *Server) setLRU(words [][]byte) meta.Error {
	maintained := !s.cfg.Extended.NoLRUMaintainer
	l := &s.lru
	l.mu.Lock()
	defer l.mu.Unlock()
	e := meta.ErrUnknown
	switch n := len(words); {
	case n >= 5 && abbreviates(words[0], "tune"):
		e = l.tune(words[1:])
	case n >= 2 && maintained && abbreviates(words[0], "mode"):
		switch {
		case abbreviates(words[1], "flat"):
			l.flat, e = true, meta.ErrNone
		case abbreviates(words[1], "segmented"):
			l.flat, e = false, meta.ErrNone
		}
	case n >= 2 && maintained && abbreviates(words[0], "temp_ttl"):
		ttl, ok := meta.ParseInt32(words[1])
		if !ok {
			break
		}
		e = meta.ErrNone
		if l.temporary = ttl >= 0; l.temporary {
			l.temporarySeconds = int(ttl)
		}
	}
	if e == meta.ErrNone {
		s.store.Tune(l.tuning())
	}
	return e
}

// tune takes the words behind lru tune.
func (f *lruFigures) tune(words [][]byte) meta.Error {
	hot, ok1 := meta.ParseUint32(words[0])
	warm, ok2 := meta.ParseUint32(words[1])
	var hotAge, warmAge float64
	if !ok1 || !ok2 ||
		setDouble(&hotAge, words[2:]) != meta.ErrNone || setDouble(&warmAge, words[3:]) != meta.ErrNone {
		return meta.ErrUnknown
	}
	switch {
	case uint64(hot)+uint64(warm) > lruPercentMax:
		return meta.ErrLRUPercent
	case !(hotAge > 0 && warmAge > 0):
		return meta.ErrLRUFactor
	}
	f.hotPct, f.warmPct, f.hotAge, f.warmAge = int(hot), int(warm), hotAge, warmAge
	f.hotGiven, f.warmGiven = true, true
	return meta.ErrNone
}
