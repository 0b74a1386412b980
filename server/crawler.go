package server

import (
	"runtime"
	"sync"
	"time"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// crawlsASleep is how many items a crawl or a dump goes through before it
// sleeps for lru_crawler_sleep. Source: memcached's LRU_CRAWLER_CRAWLS_PERSLEEP.
const crawlsASleep = 1000

// crawler is what lru_crawler is about: the walks over all items that clients
// ask for, one at a time, and whether the background frees what has expired.
type crawler struct {
	mu          sync.Mutex // all below
	on          bool       // lru_crawler enable
	running     bool       // a crawl or a dump is under way
	starts      uint64     // of them
	sleepMicros int        // lru_crawler sleep
	itemsMax    int        // lru_crawler tocrawl: items of each class that a crawl looks at; 0 is all

	crawls chan *store.PageWalk // begun, for Server.crawl; holds one
}

// crawlerFigures are what `stats` and `stats settings` say of a crawler.
type crawlerFigures struct {
	on, running           bool
	starts                uint64
	sleepMicros, itemsMax int
}

func (cr *crawler) figures() crawlerFigures {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	return crawlerFigures{cr.on, cr.running, cr.starts, cr.sleepMicros, cr.itemsMax}
}

// begin takes the crawler for one walk, or tells why it cannot be had. end
// gives it back.
func (cr *crawler) begin() meta.Error {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	switch {
	case !cr.on:
		return meta.ErrCrawlerDisabled
	case cr.running:
		return meta.ErrCrawlerBusy
	}
	cr.running = true
	cr.starts++
	return meta.ErrNone
}

func (cr *crawler) end() {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.running = false
}

// reset zeroes what is counted.
func (cr *crawler) reset() {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.starts = 0
}

// enableCrawler turns the crawler on or off. It reports false when it was on
// already. What is under way goes on.
//
// The background frees what has expired as long as memcached's crawler or its
// maintainer would. It counts as the maintainer's, where there is one, since that
// is at work all the time there, too.
func (s *Server) enableCrawler(on bool) bool {
	cr := &s.crawler
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if on && cr.on {
		return false
	}
	cr.on = on
	maintained := !s.cfg.Extended.NoLRUMaintainer
	s.store.SetSweep(on || maintained, maintained)
	return true
}

// crawl does the crawls that clients ask for, while the server runs.
func (s *Server) crawl() {
	for {
		select {
		case <-s.stop:
			return
		case w := <-s.crawler.crawls:
			s.crawlOnce(w)
			s.crawler.end()
		}
	}
}

// crawlOnce frees what has expired of the items in w, a step at a time.
func (s *Server) crawlOnce(w *store.PageWalk) {
	for looked, more := 0, true; more; {
		var n int
		n, more = s.store.CrawlStep(w, s.clock())
		if looked += n; looked >= crawlsASleep {
			looked = 0
			s.sleepAsCrawler()
		}
		if s.stopping() {
			return
		}
		runtime.Gosched()
	}
}

// sleepAsCrawler sleeps for lru_crawler_sleep.
func (s *Server) sleepAsCrawler() {
	if micros := s.crawler.figures().sleepMicros; micros > 0 {
		s.pause(time.Duration(micros) * time.Microsecond)
	}
}

// stopping reports whether the server closes.
func (s *Server) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}
