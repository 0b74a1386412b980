package server

import (
	"encoding/base64"
	"runtime"
	"strconv"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

const (
	// dumpItemsALock bounds what is dumped while a shard is locked, and before
	// others have a turn: some 10 µs, but 100 where there are millions of items,
	// none of which is in a cache.
	dumpItemsALock = 16
	// dumpItemsAStep bounds what a session that dumps does before its output
	// is written. It is then at most some 100 KiB, with the longest keys.
	dumpItemsAStep = 128
)

// dump is a dump of items that a session is in the middle of. It is made a
// step at a time, and what a step makes is sent before the next one: it takes
// no more memory however many items there are, and however slow its reader is.
type dump struct {
	walk  store.Walk
	only  store.ClassSet
	mg    bool // mgdump: keys alone
	items int  // since the last sleep

	now store.Time // of the step
	buf []byte     // the worker's output, lent for the step
}

// startDump begins metadump and mgdump, or fails with one of the errors.
func (s *session) startDump(w *worker, d *dump, notAllowed, pipelined meta.Error) {
	r := &w.req
	e := meta.ErrNone
	switch {
	case !s.srv.crawler.figures().on:
		e = meta.ErrCrawlerDisabled
	case s.srv.cfg.NoDump:
		e = notAllowed
	case w.out.pending() > 0:
		e = pipelined
	default:
		d.only, e = s.srv.parseClasses(r.Args[2])
	}
	if e == meta.ErrNone {
		e = s.srv.crawler.begin()
	}
	if e != meta.ErrNone {
		w.fail(r, e)
		return
	}
	w.out.buf = meta.CodeOK.AppendTo(w.out.buf)
	s.dump, s.phase = d, phaseDump
}

// goOnDumping does a step of the session's dump. It may sleep: the session is
// not in a loop.
func (s *session) goOnDumping(w *worker) {
	d := s.dump
	if s.srv.stopping() {
		s.close(closeShutdown)
		return
	}
	d.now, d.buf = w.now, w.out.buf
	more := true
	for n := 0; more && n < dumpItemsAStep; n += dumpItemsALock {
		if n > 0 {
			runtime.Gosched()
			w.now = s.srv.now()
			d.now = w.now
		}
		more = s.srv.store.Walk(&d.walk, dumpItemsALock, d.only, w.now, d)
	}
	w.out.buf, d.buf = d.buf, nil
	if !more {
		if d.mg {
			w.out.buf = meta.CodeEN.AppendTo(w.out.buf)
		} else {
			w.out.buf = append(w.out.buf, statsEnd...)
		}
		s.endDump()
		return
	}
	if d.items += dumpItemsAStep; d.items >= crawlsASleep {
		d.items = 0
		s.srv.sleepAsCrawler()
	}
}

// endDump ends the session's dump, if it has one.
func (s *session) endDump() {
	if s.dump == nil {
		return
	}
	s.dump, s.phase = nil, phaseLine
	s.srv.crawler.end()
}

// VisitItem appends the line of an item.
func (d *dump) VisitItem(it *store.Item) {
	b := d.buf
	if d.mg {
		b = append(b, "mg "...)
		if it.Binary {
			b = append(base64.StdEncoding.AppendEncode(b, it.Key), " b\r\n"...)
		} else {
			b = append(append(b, it.Key...), "\r\n"...)
		}
		d.buf = b
		return
	}
	now := int64(d.now.Seconds())
	b = appendURI(append(b, "key="...), it.Key)
	exp := int64(-1)
	if it.TTL >= 0 {
		exp = now + it.TTL
	}
	b = strconv.AppendInt(append(b, " exp="...), exp, 10)
	b = strconv.AppendInt(append(b, " la="...), now-it.LastAccess, 10)
	b = strconv.AppendUint(append(b, " cas="...), it.CAS, 10)
	if it.HitBefore {
		b = append(b, " fetch=yes"...)
	} else {
		b = append(b, " fetch=no"...)
	}
	b = strconv.AppendInt(append(b, " cls="...), int64(it.Class), 10)
	b = strconv.AppendInt(append(b, " size="...), int64(it.Footprint), 10)
	b = strconv.AppendUint(append(b, " flags="...), uint64(it.Flags), 10)
	d.buf = append(b, " \n"...)
}
