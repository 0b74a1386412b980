package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// Server is a cache server. All its goroutines start in Start and have ended
// when Close returns.
type Server struct {
	cfg   Config // with defaults filled in
	log   *slog.Logger
	clock Clock

	store     *store.Store
	totals    totals
	latencies latencies
	prefixes  prefixTable
	hot       hotKeys
	node      *node // nil: not in a cluster
	guard     clockGuard
	epoch     epoch // of clock, where that is the system's
	automove  automove
	stalls    *store.Stalls // nil without -o stalls
	lru       lruSettings
	crawler   crawler
	debug     *debugState
	tls       tlsState
	watch     watch
	started   store.Time

	buffers       buffers
	aheadItemsMin int // see the constant; tests have none

	batchMax int // requests of one batch: -R, or fewer for want of memory; 0 is no bound

	credentials atomic.Pointer[credentials] // nil without -Y
	saslUsers   *saslUsers                  // nil without -S

	verbosity atomic.Int32  // -v, until a client says otherwise
	flushedAt atomic.Uint32 // second of the last flush_all, 0 if there was none

	listeners []*listener
	udp       []*udpSocket
	admin     *admin // nil without --admin-listen
	loops     []*loop
	conns     registry
	counts    connCounts
	pauses    pauses

	stop      chan struct{}  // closed when the server starts to close
	cancel    func()         // ends the store's background work
	accepting sync.WaitGroup // the goroutines that accept, or serve UDP
	chores    sync.WaitGroup // the background goroutines
	closeOnce sync.Once
	serving   atomic.Bool   // Start has succeeded
	closed    chan struct{} // closed when all has ended

	askOnce sync.Once
	asked   chan struct{} // closed when a client said shutdown

	askedGraceful bool        // set before asked is closed
	saving        atomic.Bool // the items are to outlive the server, see CloseGracefully
}

// connCounts counts connections.
type connCounts struct {
	current atomic.Int64 // places in -c that are taken
	highest atomic.Int64 // current has ever been
	aside   atomic.Int64 // in no loop now: they have pending output, or watch

	// What follows is zeroed by stats reset.
	total     atomic.Uint64 // opened
	rejected  atomic.Uint64 // refused, for -c
	idleKicks atomic.Uint64
	asides    atomic.Uint64 // times that a connection left its loop
}

// connFigures are the figures of connections in `stats`, counted as memcached
// counts them: listeners and sockets of UDP are connections too.
type connFigures struct {
	Current, Total, Rejected, Structures, IdleKicks uint64
	Accepting, ListenDisabled, ListenDisabledMicros uint64

	Aside, Asides uint64 // in no loop now, and how often one left its loop
}

// connStats is the state of all connections now.
func (s *Server) connStats() connFigures {
	n := uint64(len(s.listeners) + len(s.udp))
	f := connFigures{
		Current:    uint64(s.counts.current.Load()) + n - min(n, 1), // memcached leaves one out
		Total:      s.counts.total.Load() + n,
		Structures: uint64(s.counts.highest.Load()) + n,
		Rejected:   s.counts.rejected.Load(),
		IdleKicks:  s.counts.idleKicks.Load(),
		Aside:      uint64(s.counts.aside.Load()),
		Asides:     s.counts.asides.Load(),
	}
	f.Accepting, f.ListenDisabled, f.ListenDisabledMicros = s.pauses.stats()
	return f
}

// resetConnStats zeroes what was counted; what is so now stays.
func (s *Server) resetConnStats() {
	s.counts.total.Store(0)
	s.counts.rejected.Store(0)
	s.counts.idleKicks.Store(0)
	s.counts.asides.Store(0)
	s.pauses.reset()
}

// New makes a server. It has its memory and its limit of descriptors, which may
// need root, but does not listen before Start, which should not.
func New(c Config) (*Server, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	debug := newDebugState(&c)
	d := c.withDefaults()
	if err := raiseDescriptorLimit(&d, d.Logger); err != nil {
		return nil, err
	}
	var users *saslUsers
	if d.SASL {
		var err error
		if users, err = openUsers(d.SASLFile); err != nil {
			return nil, &ConfigError{flagSASLFile, d.SASLFile, err.Error(), ExitFailure}
		}
	}
	if c.Extended.CompatSlabs && c.Extended.LRUPolicy == "" {
		d.Extended.LRUPolicy = compatPolicy
	}
	s := &Server{
		cfg:       d,
		log:       d.Logger,
		clock:     d.Clock,
		saslUsers: users,
		debug:     debug,
		stop:      make(chan struct{}),
		cancel:    func() {},
		closed:    make(chan struct{}),
		asked:     make(chan struct{}),
	}
	var err error
	if s.node, err = newNode(s, d.Cluster); err != nil {
		return nil, err
	}
	s.buffers.setLimit(int64(d.Extended.ReadBufferMaxBytes), d.Threads)
	s.aheadItemsMin = aheadItemsMin
	s.batchMax = d.ReqsPerEvent
	if n := s.buffers.repliesMax; n > 0 && (s.batchMax == 0 || n < s.batchMax) {
		s.batchMax = n
	}
	s.guard.log, s.guard.wall = d.Logger, d.Wall
	if c.Clock == nil && c.Wall == nil {
		s.epoch = newEpoch()
		s.clock = func() store.Time { return s.epoch.at(time.Now()) }
	}
	s.watch.init(d.Threads, &d.Extended)
	s.hot.init(d.Threads, d.Cluster.KeyCapacity)
	s.prefixes.delimiter = d.PrefixDelim
	s.prefixes.on.Store(d.DetailOn)
	s.verbosity.Store(int32(d.Verbosity))
	x := &d.Extended
	s.automove.level, s.automove.window = x.SlabAutomove, x.SlabAutomoveWindow
	s.automove.ratio, s.automove.freeRatio = x.SlabAutomoveRatio, x.SlabAutomoveFreeRatio
	s.lru.lruFigures = newLRUFigures(&c.Extended)
	s.crawler.sleepMicros, s.crawler.itemsMax = x.LRUCrawlerSleepMicros, x.LRUCrawlerItemsMax
	s.crawler.crawls = make(chan *store.PageWalk, 1)
	s.started = s.clock()
	if x.Stalls {
		s.stalls = store.NewStalls(store.SystemStallClocks(), runtime.GOMAXPROCS(0))
	}
	if err := s.initTLS(); err != nil {
		return nil, err
	}
	if d.MemoryFile != "" {
		return s, nil // Start opens the file, as the user that the server runs as
	}
	if err := s.openStore(); err != nil {
		return nil, err
	}
	return s, nil
}

// Start listens and serves. It returns as soon as connections are accepted;
// ctx bounds the look-up of names in -l. When it fails, the server is closed:
// the error is a *ListenError when an address was the reason, a *ConfigError
// when a file was.
func (s *Server) Start(ctx context.Context) error {
	if err := s.start(ctx); err != nil {
		_ = s.Close(context.Background())
		return err
	}
	s.serving.Store(true)
	s.tellStart()
	s.log.Info("listening", "addresses", s.Addrs(), "memory_mb", s.cfg.MemoryMB, "gomaxprocs", runtime.GOMAXPROCS(0),
		"loops", s.cfg.Threads, "shards", s.store.Shards(), "pid", os.Getpid())
	if s.admin != nil {
		s.log.Info("admin page", "url", "http://"+s.AdminAddr().String()+"/", "pprof", s.cfg.AdminPprof)
		if s.admin.isOpen() {
			s.log.Warn("the admin page is open to the network, and asks for no password")
		}
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	if err := s.loadCredentials(); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	if err := s.listenAdmin(ctx); err != nil {
		return err
	}
	// Not before it is known that the server can start: metadata is read once.
	if s.store == nil {
		if err := s.openStore(); err != nil {
			return err
		}
	}
	for _, ln := range s.listeners {
		s.conns.numbers.first = max(s.conns.numbers.first, ln.fd+1)
	}
	for _, u := range s.udp {
		s.conns.numbers.first = max(s.conns.numbers.first, u.number+1)
	}
	for i := range s.cfg.Threads {
		l, err := newLoop(s, s.watch.rings[1+i], s.hot.tables[i])
		if err != nil {
			return fmt.Errorf("server: start loop: %w", err)
		}
		s.loops = append(s.loops, l)
	}
	for _, ln := range s.listeners {
		s.accepting.Go(func() { s.accept(ln) })
	}
	for _, u := range s.udp {
		s.accepting.Go(u.serve)
	}
	if s.admin != nil {
		s.admin.start()
	}
	var background context.Context
	background, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.chores.Go(func() { s.store.Background(background, s.clock) })
	s.chores.Go(s.crawl)
	s.chores.Go(func() { s.watch.run(s.stop) })
	s.chores.Go(func() { s.hot.run(s.stop, s.clusterMap) })
	if s.node != nil {
		s.chores.Go(func() { s.node.watch(background) })
		s.chores.Go(func() { s.node.copies.run(background) })
	}
	if s.cfg.IdleSeconds > 0 {
		s.chores.Go(s.kickIdleConns)
	}
	return nil
}

// Addrs are the addresses that the server listens on, those of UDP last.
func (s *Server) Addrs() []net.Addr {
	addrs := make([]net.Addr, 0, len(s.listeners)+len(s.udp))
	for _, ln := range s.listeners {
		addrs = append(addrs, ln.Addr())
	}
	for _, u := range s.udp {
		addrs = append(addrs, u.pc.LocalAddr())
	}
	return addrs
}

// Reload reads files again that may have changed, as a signal asks for: those
// of -Y and -S, and the certificates of -Z. What is not to be had as it should
// be is logged, and stays as it was.
func (s *Server) Reload() {
	s.reloadCredentials()
	s.reloadUsers()
	s.reloadCertificates()
}

// askShutdown is what the command shutdown does, if -A allows it.
func (s *Server) askShutdown(graceful bool) {
	s.askOnce.Do(func() {
		s.log.Info("a client asks for shutdown", "graceful", graceful)
		s.askedGraceful = graceful
		close(s.asked)
	})
}

// ShutdownAsked is closed when a client has sent shutdown, and may. Closing
// the server is left to its owner.
func (s *Server) ShutdownAsked() <-chan struct{} { return s.asked }

// GracefulAsked reports whether what closed ShutdownAsked was a shutdown
// graceful: CloseGracefully is to follow.
func (s *Server) GracefulAsked() bool { return s.askedGraceful }

// Wait returns when the server has been closed.
func (s *Server) Wait() { <-s.closed }

// Close stops accepting, closes all connections, and returns when every
// goroutine has ended and the memory is given back, or with ctx's error when
// ctx ends before; closing goes on then. It may be called again.
func (s *Server) Close(ctx context.Context) error {
	s.closeOnce.Do(func() { go s.shutDown() })
	select {
	case <-s.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// shutDown ends everything, in the one order that is safe: a loop that has
// ended neither lets a connection in nor may be woken, as its descriptors may
// be others by then.
func (s *Server) shutDown() {
	s.conns.close()
	close(s.stop)
	s.cancel()
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
	for _, u := range s.udp {
		_ = u.pc.Close()
	}
	s.accepting.Wait()
	s.conns.joining.Wait()
	if s.node != nil {
		s.node.close()
	}
	s.chores.Wait()
	for _, l := range s.loops {
		if err := l.client.Stop(); err != nil {
			s.log.Warn("event loop ended", "error", err)
		}
	}
	s.conns.closeAside()
	s.conns.aside.Wait()
	if s.admin != nil {
		s.admin.close()
	}
	s.debug.close()
	s.closeStore()
	if s.serving.Load() {
		s.log.Info("stopped")
	}
	close(s.closed)
}
