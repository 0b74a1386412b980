package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// Config of a Link. The zero value but for Addr is fine.
type Config struct {
	Addr     string        // host:port, or the path of a unix socket
	Timeout  time.Duration // without a byte from the peer while calls wait. 200 ms
	Dial     time.Duration // for making a connection. Timeout
	CallsMax int           // that wait. 4096
	OutMax   int           // bytes that wait to be written, 8 MiB
	ReplyMax int           // bytes of one reply. 64 MiB
	TLS      *tls.Config   // nil is plain TCP

	// Users and passwords of a server with -Y; no user is none.
	User, Password string

	// IdleProbe is how long a connection may have been idle before it is asked
	// whether it is still there, before a request is sent on it. 30 s
	IdleProbe time.Duration

	// DialFunc makes connections; nil is the network.
	DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Defaults of a Config.
const (
	defaultTimeout   = 200 * time.Millisecond
	defaultCallsMax  = 4096
	defaultOutMax    = 8 << 20
	defaultReplyMax  = 64 << 20
	defaultIdleProbe = 30 * time.Second

	// After a dial that failed, others wait: backoffMin at first, twice as long
	// each time, backoffMax at most, and up to as much again by chance.
	backoffMin = 50 * time.Millisecond
	backoffMax = 2 * time.Second

	readBufferBytes = 64 << 10
	outKeepBytes    = 256 << 10
)

func (c Config) withDefaults() Config {
	fill := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	fill(&c.Timeout, defaultTimeout)
	fill(&c.Dial, c.Timeout)
	fill(&c.IdleProbe, defaultIdleProbe)
	if c.CallsMax == 0 {
		c.CallsMax = defaultCallsMax
	}
	if c.OutMax == 0 {
		c.OutMax = defaultOutMax
	}
	if c.ReplyMax == 0 {
		c.ReplyMax = defaultReplyMax
	}
	return c
}

// Stats of a link.
type Stats struct {
	Calls     uint64 // accepted
	Failed    uint64 // of them, without a reply
	Dials     uint64
	DialFails uint64
	Waiting   int // calls now
	Connected bool
}

// Link is a connection to a node, made when it is first used and made again
// when it was lost. It is safe for concurrent use.
type Link struct {
	cfg Config

	mu      sync.Mutex // all below
	conn    *conn      // nil: there is none
	closed  bool
	backoff time.Duration // before the next dial
	dialAt  time.Time     // no dial before
	dialErr error         // of the last dial
	gone    sync.WaitGroup

	calls, failed, dials, dialFails atomic.Uint64
}

// New makes a link. It dials when it is first used.
func New(c Config) *Link { return &Link{cfg: c.withDefaults()} }

// Addr is where the link goes.
func (l *Link) Addr() string { return l.cfg.Addr }

// Stats are the figures of the link.
func (l *Link) Stats() Stats {
	s := Stats{Calls: l.calls.Load(), Failed: l.failed.Load(), Dials: l.dials.Load(), DialFails: l.dialFails.Load()}
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c != nil {
		c.mu.Lock()
		s.Waiting, s.Connected = c.queue.n, c.ready
		c.mu.Unlock()
	}
	return s
}

// Close ends the connection. Calls that wait fail with ErrClosed. It returns
// when all goroutines of the link have ended.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	c := l.conn
	l.mu.Unlock()
	if c != nil {
		c.fail(ErrClosed)
	}
	l.gone.Wait()
}

// Do sends the calls, all in one go, and waits for their replies, or until ctx
// ends. The error is that of the first call that has none; the others that
// failed have it as Err. When ctx has ended, the calls that had no reply yet
// must not be touched any more, not even freed.
func (l *Link) Do(ctx context.Context, list ...*Call) error {
	err := l.do(ctx, list)
	if errors.Is(err, ErrUnsent) {
		// An idle connection was gone, and nothing was sent on it.
		for _, c := range list {
			c.state.Store(waiting)
		}
		err = l.do(ctx, list)
	}
	return err
}

func (l *Link) do(ctx context.Context, list []*Call) error {
	if err := ctx.Err(); err != nil {
		return l.refuse(err, list)
	}
	if err := l.Send(list...); err != nil {
		return err
	}
	var first error
	for _, call := range list {
		if err := call.Wait(ctx); err != nil {
			l.failed.Add(1)
			if first == nil {
				first = err
			}
		}
	}
	return first
}

// Send sends the calls, all in one go, and does not wait for their replies: Wait
// is to be called for each. After an error none was sent, and none is to be
// waited for.
func (l *Link) Send(list ...*Call) error {
	c, err := l.connection()
	if err != nil {
		return l.refuse(err, list)
	}
	if err := c.submit(list); err != nil {
		return l.refuse(err, list)
	}
	l.calls.Add(uint64(len(list)))
	return nil
}

func (l *Link) refuse(err error, list []*Call) error {
	for _, c := range list {
		c.err = err
	}
	return err
}

// Err is why the call has no reply, nil if it has one.
func (c *Call) Err() error { return c.err }

// Wait waits for the reply of a call that was sent, or until ctx ends: then the
// call must not be touched any more, not even freed.
func (c *Call) Wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.leave() {
			return ctx.Err()
		}
		<-c.done
	}
	return c.read()
}

// read reads the reply of a call that has ended.
func (c *Call) read() error {
	if c.err != nil {
		return c.err
	}
	if _, _, err := c.Reply.Parse(c.text[c.last:]); err != nil {
		c.err = err
	}
	return c.err
}

// connection is the connection to use, which may still be dialling.
func (l *Link) connection() (*conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.conn != nil:
		return l.conn, nil
	case time.Now().Before(l.dialAt):
		return nil, l.dialErr
	}
	c := &conn{link: l, queue: newQueue(), ended: make(chan struct{})}
	l.conn = c
	l.gone.Go(c.run)
	return c, nil
}

// lost says that c is no connection any more.
func (l *Link) lost(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == c {
		l.conn = nil
	}
}

// dialed notes how a dial went.
func (l *Link) dialed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dials.Add(1)
	if err == nil {
		l.backoff = 0
		return
	}
	l.dialFails.Add(1)
	l.dialErr = err
	l.backoff = min(max(2*l.backoff, backoffMin), backoffMax)
	l.dialAt = time.Now().Add(l.backoff + rand.N(l.backoff))
}

// conn is one connection.
type conn struct {
	link *Link

	mu      sync.Mutex // all below
	nc      net.Conn   // nil while dialling
	ready   bool       // requests may be written
	writing bool       // somebody writes
	out     []byte     // to be written
	spare   []byte     // the buffer that was written last
	queue   queue      // calls whose replies are to come
	probing bool       // the first reply is to a probe of ours
	err     error      // why it has ended
	last    time.Time  // something came, or was asked after nothing waited

	ended chan struct{} // closed with err
}

// run dials, and then reads until the connection ends.
func (c *conn) run() {
	nc, err := c.dial()
	c.link.dialed(err)
	if err != nil {
		c.fail(err)
		return
	}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		_ = nc.Close()
		return
	}
	c.nc, c.ready, c.last = nc, true, time.Now()
	c.mu.Unlock()
	c.link.gone.Go(c.watch)
	c.flush()
	c.fail(c.read(nc))
}

func (c *conn) dial() (net.Conn, error) {
	cfg := &c.link.cfg
	ctx, cancel := context.WithTimeout(context.Background(), cfg.Dial)
	defer cancel()
	network := "tcp"
	if len(cfg.Addr) > 0 && cfg.Addr[0] == '/' {
		network = "unix"
	}
	dial := cfg.DialFunc
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	nc, err := dial(ctx, network, cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDial, err)
	}
	if cfg.TLS != nil {
		t := tls.Client(nc, cfg.tlsFor())
		if err := t.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("%w: %s: %w", ErrDial, cfg.Addr, err)
		}
		nc = t
	}
	if cfg.User != "" {
		if err := login(ctx, nc, cfg.User, cfg.Password); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("%w: %s: %w", ErrDial, cfg.Addr, err)
		}
	}
	return nc, nil
}

// tlsFor is TLS, with the name that the peer's certificate is to have.
func (c *Config) tlsFor() *tls.Config {
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil || c.TLS.ServerName != "" {
		return c.TLS
	}
	t := c.TLS.Clone()
	t.ServerName = host
	return t
}

// login says who we are to a server with -Y.
func login(ctx context.Context, nc net.Conn, user, password string) error {
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline)
	}
	secret := user + " " + password
	if _, err := fmt.Fprintf(nc, "set auth 0 0 %d\r\n%s\r\n", len(secret), secret); err != nil {
		return err
	}
	var buf [meta.ReplyLineMax]byte
	n := 0
	for {
		k, err := nc.Read(buf[n:])
		if err != nil {
			return fmt.Errorf("login: %w", err)
		}
		n += k
		var r meta.Reply
		switch used, _, err := r.Parse(buf[:n]); {
		case err != nil:
			return err
		case used == 0:
			continue
		case r.Code != meta.CodeStored || used != n:
			return fmt.Errorf("login as %s: %s %s", user, r.Code, r.Text)
		}
		return nc.SetDeadline(time.Time{})
	}
}

// submit appends the calls, all or none, and sees to it that somebody writes.
func (c *conn) submit(list []*Call) error {
	cfg := &c.link.cfg
	c.mu.Lock()
	switch {
	case c.err != nil:
		err := c.err
		c.mu.Unlock()
		return err
	case c.queue.n+len(list) > cfg.CallsMax || len(c.out) > cfg.OutMax:
		c.mu.Unlock()
		return ErrBusy
	}
	if c.queue.n == 0 {
		now := time.Now()
		if c.ready && !c.probing && now.Sub(c.last) > cfg.IdleProbe {
			// It may be gone without anyone having told us. The requests
			// wait in out until the answer is there.
			c.probing, c.ready = true, false
			c.link.gone.Go(c.probe)
		}
		c.last = now
	}
	for _, call := range list {
		call.text, call.last = call.text[:0], 0
		call.Request.ValueLen = len(call.Value)
		c.out = call.Request.AppendLine(c.out)
		if call.Request.Op == meta.OpSet {
			c.out = meta.AppendBlock(c.out, call.Value)
		}
		c.queue.push(call)
	}
	c.mu.Unlock()
	c.flush()
	return nil
}

// flush writes what is to be written, unless somebody does already.
func (c *conn) flush() {
	c.mu.Lock()
	for c.ready && !c.writing && len(c.out) > 0 && c.err == nil {
		c.writing = true
		if c.queue.n > 1 {
			// Others are at work, and may be about to ask for something: it goes
			// along in the same write, which is most of what a request costs.
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		}
		out := c.out
		c.out, c.spare = c.spare[:0], nil
		nc := c.nc
		c.mu.Unlock()
		_ = nc.SetWriteDeadline(time.Now().Add(c.link.cfg.Timeout))
		_, err := nc.Write(out)
		c.mu.Lock()
		c.writing = false
		if cap(out) <= outKeepBytes {
			c.spare = out[:0]
		}
		if err != nil {
			c.mu.Unlock()
			c.fail(err)
			return
		}
	}
	c.mu.Unlock()
}

// probe asks an idle connection whether it is still there.
func (c *conn) probe() {
	_ = c.nc.SetWriteDeadline(time.Now().Add(c.link.cfg.Timeout))
	if _, err := c.nc.Write([]byte("mn\r\n")); err != nil {
		c.fail(err)
	}
}

// probed says that the answer to the probe has come.
func (c *conn) probed() {
	c.mu.Lock()
	c.probing, c.ready, c.last = false, true, time.Now()
	c.mu.Unlock()
	c.flush()
}

// read gives replies to their calls until the connection ends.
func (c *conn) read(nc net.Conn) error {
	buf := make([]byte, readBufferBytes)
	start, end, need := 0, 0, 1
	for {
		for end-start < need {
			if need > c.link.cfg.ReplyMax+meta.ReplyLineMax {
				return fmt.Errorf("a reply of %d bytes: at most %d are accepted", need, c.link.cfg.ReplyMax)
			}
			if len(buf)-start < need || start == end {
				buf, start, end = makeRoom(buf, start, end, need)
			}
			n, err := nc.Read(buf[end:])
			if n > 0 {
				c.came()
			}
			end += n
			if err != nil {
				return err
			}
		}
		n, more, err := c.take(buf[start:end])
		if err != nil {
			return err
		}
		start += n
		need = max(more, 1)
	}
}

// makeRoom moves what is in buf[start:end] to the front of a buffer that need
// bytes fit in. A buffer that grew for a large reply goes back to its size.
func makeRoom(buf []byte, start, end, need int) ([]byte, int, int) {
	next := buf
	switch {
	case need > len(buf):
		next = make([]byte, need+readBufferBytes)
	case len(buf) > 2*readBufferBytes && need < readBufferBytes && end-start < readBufferBytes:
		next = make([]byte, readBufferBytes)
	}
	return next, 0, copy(next, buf[start:end])
}

func (c *conn) came() {
	c.mu.Lock()
	c.last = time.Now()
	c.mu.Unlock()
}

// take gives the replies in p to their calls. n is how much of p they were, and
// need how much of what is left must be there before it makes sense to try
// again.
func (c *conn) take(p []byte) (n, need int, err error) {
	var r meta.Reply
	for n < len(p) {
		used, need, err := r.Parse(p[n:])
		if err != nil || used == 0 {
			return n, need, err
		}
		switch call, probe := c.next(r.Code); {
		case probe:
			c.probed()
		case call == nil:
			return n, 0, errors.New("a reply that nobody asked for")
		case call.Lines && r.Code == meta.CodeStat:
			call.line(p[n : n+used])
		default:
			call.end(p[n:n+used], nil)
		}
		n += used
	}
	return n, 0, nil
}

// next is the call that a reply belongs to, nil if there is none, or whether it
// is the answer to a probe. A call whose reply goes on stays in the queue.
func (c *conn) next(code meta.Code) (call *Call, probe bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probing {
		return nil, true
	}
	if first := c.queue.first(); code == meta.CodeStat && first != nil && first.Lines {
		return first, false
	}
	return c.queue.pop(), false
}

// watch ends the connection when calls wait and nothing comes.
func (c *conn) watch() {
	timeout := c.link.cfg.Timeout
	tick := time.NewTicker(max(timeout/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-c.ended:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		stuck := c.queue.n > 0 && time.Since(c.last) > timeout
		c.mu.Unlock()
		if stuck {
			c.fail(ErrTimeout)
			return
		}
	}
}

// fail ends the connection, and all calls on it, for err.
func (c *conn) fail(err error) {
	c.mu.Lock()
	unsent := c.probing
	c.mu.Unlock()
	switch {
	case errors.Is(err, ErrDial), errors.Is(err, ErrClosed):
	case unsent:
		err = fmt.Errorf("%w: %s: %w", ErrUnsent, c.link.cfg.Addr, err)
	case errors.Is(err, ErrTimeout):
		err = fmt.Errorf("%w: %s: %w", ErrBroken, c.link.cfg.Addr, err)
	default:
		var t interface{ Timeout() bool }
		if errors.As(err, &t) && t.Timeout() {
			err = ErrTimeout
		}
		err = fmt.Errorf("%w: %s: %w", ErrBroken, c.link.cfg.Addr, err)
	}
	c.link.lost(c)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	close(c.ended)
	nc := c.nc
	q := c.queue
	c.queue = newQueue()
	c.out, c.spare = nil, nil
	c.mu.Unlock()
	if nc != nil {
		_ = nc.Close()
	}
	for call := q.pop(); call != nil; call = q.pop() {
		call.end(nil, err)
	}
}

// queue is a ring of calls.
type queue struct {
	ring []*Call // a power of two
	head int
	n    int
}

func newQueue() queue { return queue{ring: make([]*Call, 16)} }

func (q *queue) push(c *Call) {
	if q.n == len(q.ring) {
		ring := make([]*Call, 2*len(q.ring))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)&(len(q.ring)-1)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = c
	q.n++
}

// first is the call that is next, nil if there is none.
func (q *queue) first() *Call {
	if q.n == 0 {
		return nil
	}
	return q.ring[q.head]
}

func (q *queue) pop() *Call {
	if q.n == 0 {
		return nil
	}
	c := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return c
}
