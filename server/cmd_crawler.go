package server

import (
	"bytes"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// crawlerSleepMax is the longest lru_crawler sleep, in microseconds.
const crawlerSleepMax = 1_000_000

// classesMemcached is the number of classes that memcached can have: numbers
// below are not wrong. Source: memcached's MAX_NUMBER_OF_SLAB_CLASSES.
const classesMemcached = 64

// crawlerCommand answers lru_crawler. Its words may be abbreviated, and the
// order of the cases decides between them.
func (s *session) crawlerCommand(w *worker) {
	r := &w.req
	var word []byte
	if r.NArgs > 1 {
		word = r.Args[1]
	}
	e := meta.ErrUnknown
	switch {
	case r.NArgs == 3 && abbreviates(word, "crawl"):
		e = s.srv.startCrawl(r.Args[2])
	case r.NArgs == 3 && abbreviates(word, "metadump"):
		s.startDump(w, &dump{}, meta.ErrMetadumpNotAllowed, meta.ErrMetadumpPipelined)
		return
	case r.NArgs == 3 && abbreviates(word, "mgdump"):
		s.startDump(w, &dump{mg: true}, meta.ErrMgdumpNotAllowed, meta.ErrMgdumpPipelined)
		return
	case r.NArgs == 3 && abbreviates(word, "tocrawl"):
		e = s.srv.setToCrawl(r.Args[2])
	case r.NArgs == 3 && abbreviates(word, "sleep"):
		e = s.srv.setCrawlerSleep(r.Args[2])
	case r.NArgs == 2 && abbreviates(word, "enable"):
		e = meta.ErrNone
		if !s.srv.enableCrawler(true) {
			e = meta.ErrCrawlerStart
		}
	case r.NArgs == 2 && abbreviates(word, "disable"):
		e = meta.ErrNone
		s.srv.enableCrawler(false)
	}
	if e != meta.ErrNone {
		w.fail(r, e)
		return
	}
	w.ok()
}

// startCrawl begins to free what has expired in the classes of list.
func (s *Server) startCrawl(list []byte) meta.Error {
	if !s.crawler.figures().on {
		return meta.ErrCrawlerDisabled
	}
	only, e := s.parseClasses(list)
	if e != meta.ErrNone {
		return e
	}
	if string(list) == "hash" { // memcached can only dump in that order
		return meta.ErrCrawlerFailed
	}
	if e := s.crawler.begin(); e != meta.ErrNone {
		return e
	}
	s.crawler.crawls <- s.store.NewPageWalk(only, s.crawler.figures().itemsMax) // there is room: one runs at a time
	return meta.ErrNone
}

func (s *Server) setToCrawl(word []byte) meta.Error {
	n, ok := meta.ParseUint32(word)
	if !ok {
		return meta.ErrBadLine
	}
	s.crawler.mu.Lock()
	defer s.crawler.mu.Unlock()
	s.crawler.itemsMax = int(n)
	return meta.ErrNone
}

func (s *Server) setCrawlerSleep(word []byte) meta.Error {
	n, ok := meta.ParseUint32(word)
	switch {
	case !ok:
		return meta.ErrBadLine
	case n > crawlerSleepMax:
		return meta.ErrCrawlerSleep
	}
	s.crawler.mu.Lock()
	defer s.crawler.mu.Unlock()
	s.crawler.sleepMicros = int(n)
	return meta.ErrNone
}

// parseClasses reads a list of class numbers, or all, or hash, which is all
// too. Numbers that no class has yet are no mistake, as far as memcached's go.
func (s *Server) parseClasses(list []byte) (store.ClassSet, meta.Error) {
	switch string(list) {
	case "all", "hash":
		return nil, meta.ErrNone
	}
	only := make(store.ClassSet, max(s.store.Classes()+1, classesMemcached))
	found := false
	for word := range bytes.SplitSeq(list, []byte(",")) {
		if len(word) == 0 {
			continue // as strtok, which takes several commas for one
		}
		n, ok := meta.ParseUint32(word)
		if !ok || n < 1 || int64(n) >= int64(len(only)) {
			return nil, meta.ErrCrawlerClass
		}
		only.Add(int(n))
		found = true
	}
	if !found {
		return nil, meta.ErrCrawlerNoItems
	}
	return only, meta.ErrNone
}
