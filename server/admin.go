package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// Admin HTTP: figures for people, for Prometheus and for whatever asks if the
// server lives. It changes nothing and needs no password, so it is off unless
// asked for, and on the loopback unless told otherwise.

// Bounds of admin HTTP.
const (
	adminConnsMax      = 64
	adminHeaderBytes   = 8 << 10
	adminHeaderTimeout = 5 * time.Second
	adminReadTimeout   = 10 * time.Second
	adminWriteTimeout  = 30 * time.Second
	adminIdleTimeout   = 60 * time.Second
	adminCloseTimeout  = time.Second // then what is under way is cut off
)

const (
	flagAdminListen = "--admin-listen"
	flagAdminPprof  = "--admin-pprof"
)

// admin is the HTTP server of a Server.
type admin struct {
	srv  *Server
	http *http.Server
	ln   *adminListener

	serving sync.WaitGroup
	cancel  func()     // ends the requests under way
	mu      sync.Mutex // stopped, and the store while it is read
	// stopped: the store is about to go.
	stopped bool
}

// parseAdmin reads --admin-listen: a port, or an address with one.
func parseAdmin(text string) (address, error) {
	a := loopback
	if _, err := strconv.Atoi(text); err == nil {
		text = ":" + text
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return a, errors.New("want a port, or an address and a port")
	}
	a.port, err = strconv.Atoi(port)
	if err != nil || a.port < 0 || a.port > portMax {
		return a, fmt.Errorf("invalid port number: %q", port)
	}
	switch host {
	case "": // the loopback
	case "*":
		a.hosts, a.optional = []string{""}, false
	default:
		a.hosts, a.optional = []string{host}, false
	}
	return a, nil
}

// validateAdmin is the part of Validate about admin HTTP.
func (c *Config) validateAdmin() error {
	if c.AdminListen == "" {
		if c.AdminPprof {
			return &ConfigError{flagAdminPprof, "on", "there is no admin port without " + flagAdminListen, ExitUsage}
		}
		return nil
	}
	if _, err := parseAdmin(c.AdminListen); err != nil {
		return &ConfigError{flagAdminListen, c.AdminListen, err.Error(), ExitUsage}
	}
	return nil
}

// listenAdmin opens admin HTTP, if there is to be one.
func (s *Server) listenAdmin(ctx context.Context) error {
	if s.cfg.AdminListen == "" {
		return nil
	}
	a, err := parseAdmin(s.cfg.AdminListen)
	if err != nil {
		return err
	}
	ln, err := openAdmin(ctx, a)
	if err != nil {
		return &ListenError{"admin address " + s.cfg.AdminListen, err}
	}
	s.admin = newAdmin(s, ln)
	return nil
}

// openAdmin listens on all addresses of a.
func openAdmin(ctx context.Context, a address) (*adminListener, error) {
	l := &adminListener{
		places:  make(chan struct{}, adminConnsMax),
		arrived: make(chan net.Conn),
		closed:  make(chan struct{}),
	}
	var lc net.ListenConfig
	err := a.openAll(ctx, func(family string, at netip.AddrPort) (port int, err error) {
		ln, err := lc.Listen(ctx, "tcp"+family, at.String())
		if err != nil {
			return 0, err
		}
		l.listeners = append(l.listeners, ln)
		return ln.Addr().(*net.TCPAddr).Port, nil
	})
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	for _, ln := range l.listeners {
		l.accepting.Go(func() { l.accept(ln) })
	}
	return l, nil
}

// adminListener takes connections of several addresses, at most adminConnsMax
// at once: others wait in the backlog.
type adminListener struct {
	listeners []net.Listener
	places    chan struct{} // has one for each open connection, and for each listener that could take one
	arrived   chan net.Conn
	closeOnce sync.Once
	closed    chan struct{}
	accepting sync.WaitGroup
	conns     sync.WaitGroup // open connections
}

func (l *adminListener) accept(ln net.Listener) {
	for {
		select {
		case l.places <- struct{}{}:
		case <-l.closed:
			return
		}
		nc, err := ln.Accept()
		if err != nil {
			<-l.places
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select { // out of descriptors: others have to end first
			case <-time.After(acceptRetry):
			case <-l.closed:
				return
			}
			continue
		}
		l.conns.Add(1)
		c := &adminConn{Conn: nc, l: l}
		select {
		case l.arrived <- c:
		case <-l.closed:
			_ = c.Close()
			return
		}
	}
}

// Accept implements net.Listener.
func (l *adminListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrived:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *adminListener) Close() error {
	var errs []error
	l.closeOnce.Do(func() {
		close(l.closed)
		for _, ln := range l.listeners {
			errs = append(errs, ln.Close())
		}
		l.accepting.Wait()
	})
	return errors.Join(errs...)
}

// Addr implements net.Listener.
func (l *adminListener) Addr() net.Addr { return l.listeners[0].Addr() }

// adminConn gives its place back when it is closed.
type adminConn struct {
	net.Conn
	l    *adminListener
	once sync.Once
}

// Close implements net.Conn.
func (c *adminConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		<-c.l.places
		c.l.conns.Done()
	})
	return err
}

func newAdmin(s *Server, ln *adminListener) *admin {
	a := &admin{srv: s, ln: ln}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.http = &http.Server{
		Handler:           a.guard(a.routes()),
		MaxHeaderBytes:    adminHeaderBytes,
		ReadHeaderTimeout: adminHeaderTimeout,
		ReadTimeout:       adminReadTimeout,
		WriteTimeout:      adminWriteTimeout,
		IdleTimeout:       adminIdleTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(httpLog{s.log}, "", 0),
	}
	return a
}

// httpLog gives what net/http has to say to slog.
type httpLog struct{ log *slog.Logger }

// Write implements io.Writer.
func (l httpLog) Write(p []byte) (int, error) {
	l.log.Debug("admin http: " + strings.TrimSpace(string(p)))
	return len(p), nil
}

// mutexProfileOneIn of the waits for a lock is in /debug/pprof/mutex: few enough
// that those who do not wait pay nothing.
const mutexProfileOneIn = 100

// routes says who answers what. All is GET; a ServeMux refuses the rest.
func (a *admin) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", a.file("index.html", "text/html; charset=utf-8"))
	mux.HandleFunc("GET /page.css", a.file("page.css", "text/css; charset=utf-8"))
	mux.HandleFunc("GET /page.js", a.file("page.js", "text/javascript; charset=utf-8"))
	mux.HandleFunc("GET /icon.svg", a.file("icon.svg", "image/svg+xml"))
	mux.HandleFunc("GET /stats.json", a.figures)
	mux.HandleFunc("GET /metrics", a.metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", a.ready)
	if a.srv.cfg.AdminPprof {
		runtime.SetMutexProfileFraction(mutexProfileOneIn)
		// Not cmdline: how the program was called is nobody's business.
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// guard sets the headers that every answer has.
func (a *admin) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// respond answers with a word for machines.
func respond(w http.ResponseWriter, status int, word string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(word + "\n"))
}

// What the server does.
const (
	stateReady    = "ready"
	stateStarting = "starting"
	stateStopping = "stopping"
	stateFull     = "not accepting connections"
)

// state is what the server does now.
func (a *admin) state() string {
	switch accepting, _, _ := a.srv.pauses.stats(); {
	case a.srv.conns.isClosing():
		return stateStopping
	case !a.srv.serving.Load():
		return stateStarting
	case accepting == 0:
		return stateFull
	}
	return stateReady
}

// ready answers /readyz: whether the server takes connections.
func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	status, state := http.StatusOK, a.state()
	if state != stateReady {
		status = http.StatusServiceUnavailable
	}
	respond(w, status, state)
}

// metrics answers /metrics.
func (a *admin) metrics(w http.ResponseWriter, _ *http.Request) {
	var text []byte
	if !a.look(func(s *Server, now store.Time) {
		text = s.metricsText(s.fullSnapshot(now, tenantsExposedMax))
	}) {
		respond(w, http.StatusServiceUnavailable, stateStopping)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text) // who asked may be gone
}

// look calls f, which may look into the store, unless that is about to go. One
// looks at a time, so that those who ask often do not hold up the event loops.
func (a *admin) look(f func(s *Server, now store.Time)) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return false
	}
	f(a.srv, a.srv.clock())
	return true
}

// start answers until close.
func (a *admin) start() { a.serving.Go(a.serve) }

func (a *admin) serve() {
	if err := a.http.Serve(a.ln); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		a.srv.log.Warn("admin http ended", "error", err)
	}
}

// close ends all of it. The store is not looked at any more afterwards.
func (a *admin) close() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	a.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), adminCloseTimeout)
	defer cancel()
	if a.http.Shutdown(ctx) != nil {
		_ = a.http.Close()
	}
	_ = a.ln.Close() // also where it was never served
	a.serving.Wait()
	a.ln.conns.Wait()
}

// isOpen reports whether others than this machine can reach it.
func (a *admin) isOpen() bool {
	for _, ln := range a.ln.listeners {
		if tcp, ok := ln.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
			return true
		}
	}
	return false
}

// AdminAddr is the address that admin HTTP listens on, nil if it does not.
func (s *Server) AdminAddr() net.Addr {
	if s.admin == nil {
		return nil
	}
	return s.admin.ln.Addr()
}
