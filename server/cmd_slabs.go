package server

import (
	"strconv"
	"sync"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// Limits of cache_memlimit in MB. Source: memcached's
// process_memlimit_command.
const (
	memlimitMinMB = 8
	memlimitMaxMB = 1_000_000_000
)

// compatPolicy is how -o compat_slabs evicts where -o lru_policy does not say.
const compatPolicy = "segmented"

// Limits of slabs automove window. Source: memcached's
// process_slabs_automove_command.
const (
	automoveWindowMin = 3
	automoveWindowMax = 1800
)

// doubleMax is the longest number with a point, in bytes. Source: memcached's
// mc_toktod.
const doubleMax = 31

// automove is what `slabs automove` can change. The level is obeyed; the rest
// tells memcached's mover how to judge, and is kept to be shown.
type automove struct {
	mu        sync.Mutex // all below
	level     int        // 0 off, 1 and 2 on
	ratio     float64
	freeRatio float64
	window    int
}

// get is the settings as they are now.
func (a *automove) get() (level, window int, ratio, freeRatio float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.level, a.window, a.ratio, a.freeRatio
}

// memlimit answers cache_memlimit: the memory for items is another one from
// now on. A lower limit is reached in the background.
func (s *session) memlimit(w *worker) {
	r := &w.req
	switch mb := r.Delta; {
	case mb < memlimitMinMB:
		w.fail(r, meta.ErrMemlimitTooSmall)
	case mb > memlimitMaxMB:
		w.fail(r, meta.ErrMemlimitTooLarge)
	case s.srv.store.SetLimit(int64(mb)<<20) != nil:
		w.fail(r, meta.ErrMemlimitFixed)
	default:
		s.srv.log.Info("memory limit changed", "memory_mb", mb)
		w.ok()
	}
}

// slabs answers slabs reassign and slabs automove.
func (s *session) slabs(w *worker) {
	r := &w.req
	switch {
	case r.NArgs == 4 && abbreviates(r.Args[1], "reassign"):
		s.reassign(w)
	case r.NArgs > 2 && abbreviates(r.Args[1], "automove"):
		if e := s.srv.setAutomove(r.Args[2:r.NArgs]); e != meta.ErrNone {
			w.fail(r, e)
			return
		}
		w.ok()
	default:
		w.fail(r, meta.ErrUnknown)
	}
}

// reassign begins to move a page from one class to another.
func (s *session) reassign(w *worker) {
	r := &w.req
	if s.srv.cfg.Extended.NoSlabReassign {
		w.fail(r, meta.ErrReassignDisabled)
		return
	}
	from, okFrom := meta.ParseInt32(r.Args[2])
	to, okTo := meta.ParseInt32(r.Args[3])
	if !okFrom || !okTo {
		w.fail(r, meta.ErrBadLine)
		return
	}
	switch s.srv.store.Reassign(int(from), int(to)) {
	case store.ReassignOK:
		w.ok()
	case store.ReassignBusy:
		w.fail(r, meta.ErrReassignBusy)
	case store.ReassignBadClass:
		w.fail(r, meta.ErrReassignClass)
	case store.ReassignSame:
		w.fail(r, meta.ErrReassignSame)
	case store.ReassignNoSpare:
		if from < 0 {
			w.fail(r, meta.ErrReassignClass) // memcached has found no class to take it from
			return
		}
		w.fail(r, meta.ErrReassignNoSpare)
	}
}

// setAutomove takes the words behind slabs automove, of which there is one at
// least.
func (s *Server) setAutomove(words [][]byte) meta.Error {
	a := &s.automove
	a.mu.Lock()
	defer a.mu.Unlock()
	switch word := words[0]; {
	case abbreviates(word, "ratio"):
		return setDouble(&a.ratio, words[1:])
	case abbreviates(word, "freeratio"):
		return setDouble(&a.freeRatio, words[1:])
	case abbreviates(word, "window"):
		if len(words) < 2 {
			return meta.ErrBadLine
		}
		n, ok := meta.ParseUint32(words[1])
		if !ok {
			return meta.ErrBadLine
		}
		if n < automoveWindowMin || n > automoveWindowMax {
			return meta.ErrAutomoveWindow
		}
		a.window = int(n)
	default:
		n, ok := meta.ParseUint32(word)
		if !ok {
			return meta.ErrBadLine
		}
		if n > 2 {
			return meta.ErrUnknown
		}
		a.level = int(n)
		s.obeyAutomove()
	}
	return meta.ErrNone
}

// setDouble sets v to the first word, if it is a number with a point.
func setDouble(v *float64, words [][]byte) meta.Error {
	if len(words) == 0 || len(words[0]) > doubleMax {
		return meta.ErrUnknown
	}
	f, err := strconv.ParseFloat(string(words[0]), 64)
	if err != nil {
		return meta.ErrUnknown
	}
	*v = f
	return meta.ErrNone
}

// obeyAutomove tells the store whether pages are to move. Where moving by hand
// is forbidden too, they do not, as in memcached, whose mover is not there
// then.
func (s *Server) obeyAutomove() {
	s.store.SetAutomove(s.automove.level > 0 && !s.cfg.Extended.NoSlabReassign)
}
