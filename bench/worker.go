package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

const (
	readBytes       = 256 << 10 // what one read takes at most
	eventsMax       = 256       // connections that one round serves
	preloadPipeline = 64        // sets in flight while keys are stored
	preloadBytes    = 64 << 10  // or fewer, when they are this long together
	tickMS          = 50        // how late a worker may see a change of phase
	spinNS          = 20_000    // a shorter wait is not worth a timer
	latencyMaxNS    = 100_000_000_000
	latencyDigits   = 3
)

// worker drives its connections from one OS thread.
type worker struct {
	config     Config
	control    *control
	encoder    *encoder
	popularity popularity
	random     *rand.PCG

	poll  *poll
	conns []*conn
	in    []byte // read buffer of all connections

	feed     func(c *conn, sinceNS int64) bool // adds a request, or has none left
	inFlight int
	lastNS   int64 // when a reply came last, or the first request went
	turn     int   // of the cycle of sets and gets
	left     uint64
	limited  bool // left is the number of requests yet to send

	preloadKey, preloadEnd uint64 // keys yet to store

	// Open loop: request i is due at firstNS + i*intervalNS.
	firstNS    float64
	intervalNS float64
	due        uint64 // i of the next one
	nextConn   int    // whose turn it is

	counts    counts // of this worker's connections
	recording bool   // replies go into latency
	latency   *hdrhistogram.Histogram

	mu        sync.Mutex // published
	published counts     // counts, as the last round left them
}

// newWorker connects worker number i of c.Threads.
func newWorker(c Config, i int, ctl *control, e *encoder) (*worker, error) {
	w := &worker{
		config:     c,
		control:    ctl,
		encoder:    e,
		popularity: newPopularity(c),
		random:     rand.NewPCG(c.Seed, uint64(i)),
		turn:       i,
		in:         make([]byte, readBytes),
		latency:    hdrhistogram.New(1, latencyMaxNS, latencyDigits),
	}
	share := c.Keys / uint64(c.Threads)
	w.preloadKey, w.preloadEnd = share*uint64(i), share*uint64(i+1)
	if i == c.Threads-1 {
		w.preloadEnd = c.Keys
	}
	if c.Requests > 0 {
		w.left = c.Requests / uint64(c.Threads)
		if uint64(i) < c.Requests%uint64(c.Threads) {
			w.left++
		}
	}
	if c.Rate > 0 {
		w.intervalNS = 1e9 / c.Rate * float64(c.Threads)
		w.firstNS = 1e9 / c.Rate * float64(i)
	}
	var err error
	if w.poll, err = newPoll(eventsMax); err != nil {
		return nil, err
	}
	room := c.Pipeline
	if c.Preload {
		room = max(room, preloadPipeline)
	}
	for n := i; n < c.Conns; n += c.Threads {
		if err := w.connect(room); err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

func (w *worker) connect(room int) error {
	fd, err := dial(w.config.Server, w.config.TLS, w.config.Stall)
	if err != nil {
		return err
	}
	c := &conn{fd: fd, index: len(w.conns), poll: w.poll}
	c.replies = replies{
		queue:   newQueue(room, w.config.Multiget),
		encoder: w.encoder,
		verify:  w.config.Verify,
		counts:  &w.counts,
	}
	w.conns = append(w.conns, c)
	return w.poll.add(fd, c.index)
}

func (w *worker) close() {
	for _, c := range w.conns {
		c.close()
	}
	w.poll.close()
}

// preload stores this worker's share of the keys.
func (w *worker) preload() error {
	w.feed = w.feedPreload
	return w.run(preloadPipeline, false)
}

// load does what the configuration asks for, until the phase is over.
func (w *worker) load() error {
	w.feed = w.feedLoad
	for _, c := range w.conns {
		c.keepMiss = w.config.Lookaside
	}
	open := w.config.Rate > 0
	if open {
		w.firstNS += float64(w.control.nowNS())
	}
	return w.run(w.config.Pipeline, open)
}

// run feeds the connections, each with up to pipeline requests in flight,
// until there is nothing left to feed and all is answered. In a closed loop
// a connection gets its next batch when the last is answered; in an open
// loop a request goes when it is due.
func (w *worker) run(pipeline int, open bool) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w.lastNS = w.control.nowNS()
	w.seePhase()
	if !open {
		for _, c := range w.conns {
			if err := w.refill(c, pipeline); err != nil {
				return err
			}
		}
	}
	for {
		w.seePhase()
		timeoutMS := tickMS
		if open {
			var err error
			if timeoutMS, err = w.dispatch(pipeline); err != nil {
				return err
			}
		}
		if w.inFlight == 0 && w.over() {
			w.publish()
			return nil
		}
		events, err := w.poll.wait(timeoutMS)
		if err != nil {
			return err
		}
		for i := range events {
			if err := w.serve(&events[i], pipeline, open); err != nil {
				return err
			}
		}
		w.publish()
		if len(events) == 0 {
			if err := w.checkStall(); err != nil {
				return err
			}
		}
	}
}

// over reports whether no request will follow.
func (w *worker) over() bool {
	return w.control.phase() == phaseStopped ||
		w.limited && w.left == 0 ||
		w.control.phase() == phasePreload && w.preloadKey == w.preloadEnd
}

// serve does what the poll found ready.
func (w *worker) serve(event *unix.EpollEvent, pipeline int, open bool) error {
	if event.Fd == timerIndex {
		return nil
	}
	c := w.conns[event.Fd]
	if event.Events&unix.EPOLLOUT != 0 {
		if err := c.flush(); err != nil {
			return err
		}
	}
	if event.Events&^unix.EPOLLOUT == 0 {
		return nil
	}
	before := c.queue.head
	if err := c.receive(w.in); err != nil {
		return err
	}
	if c.queue.head != before {
		w.answered(c, before)
	}
	if open {
		return w.sendFills(c, pipeline)
	}
	if c.queue.len() == 0 {
		return w.refill(c, pipeline)
	}
	return nil
}

// answered records the latency of c's requests from number first on that
// have been answered. Requests that began together are recorded together.
func (w *worker) answered(c *conn, first int) {
	now := w.control.nowNS()
	w.lastNS = now
	w.inFlight -= c.queue.head - first
	for i := first; i < c.queue.head; {
		since, n := c.queue.at(i).sinceNS, 0
		for i < c.queue.head && c.queue.at(i).sinceNS == since {
			i, n = i+1, n+1
		}
		latency := min(max(now-since, 1), latencyMaxNS)
		w.counts.latencySumNS += uint64(latency) * uint64(n)
		if w.recording {
			// The histogram reaches to latencyMaxNS: there is no error.
			_ = w.latency.RecordValues(latency, int64(n))
		}
	}
}

// refill gives c its next batch and writes it.
func (w *worker) refill(c *conn, pipeline int) error {
	now := w.control.nowNS()
	if w.inFlight == 0 {
		w.lastNS = now
	}
	before := c.queue.len()
	w.feedFills(c, pipeline, now)
	for c.queue.len() < pipeline && w.feed(c, now) {
	}
	w.inFlight += c.queue.len() - before
	return c.flush()
}

// feedPreload adds a set of the next key to be stored.
func (w *worker) feedPreload(c *conn, sinceNS int64) bool {
	if w.preloadKey == w.preloadEnd || len(c.out) > preloadBytes || w.control.phase() == phaseStopped {
		return false
	}
	w.addSet(c, kindSet, w.preloadKey, sinceNS)
	w.preloadKey++
	return true
}

// feedLoad adds the next request of the load.
func (w *worker) feedLoad(c *conn, sinceNS int64) bool {
	if w.limited {
		if w.left == 0 {
			return false
		}
		w.left--
	}
	if w.control.phase() == phaseStopped {
		return false
	}
	ratio := w.config.Ratio
	isSet := w.turn < ratio.Sets
	if w.turn++; w.turn >= ratio.Sets+ratio.Gets {
		w.turn = 0
	}
	if isSet {
		w.addSet(c, kindSet, w.popularity.draw(w.random), sinceNS)
		return true
	}
	ks := c.queue.push(kindGet, sinceNS)
	for i := range ks {
		ks[i] = w.popularity.draw(w.random)
	}
	c.out = w.encoder.get(c.out, ks)
	return true
}

// feedFills adds sets of the keys that c missed, as many as there is room
// for.
func (w *worker) feedFills(c *conn, pipeline int, sinceNS int64) {
	for len(c.missed) > 0 && c.queue.len() < pipeline {
		last := len(c.missed) - 1
		w.addSet(c, kindFill, c.missed[last], sinceNS)
		c.missed = c.missed[:last]
	}
}

func (w *worker) addSet(c *conn, k kind, key uint64, sinceNS int64) {
	c.queue.push(k, sinceNS)[0] = key
	c.out = w.encoder.set(c.out, key)
}

// sendFills writes sets of what c missed (open loop).
func (w *worker) sendFills(c *conn, pipeline int) error {
	if len(c.missed) == 0 {
		return nil
	}
	before := c.queue.len()
	w.feedFills(c, pipeline, w.control.nowNS())
	w.inFlight += c.queue.len() - before
	return c.flush()
}

// dispatch sends what is due and returns how long to wait for more, in
// milliseconds. While all connections are full, requests become late, and
// their latency counts from when they were due.
func (w *worker) dispatch(pipeline int) (timeoutMS int, err error) {
	now := w.control.nowNS()
	for {
		at := w.dueNS()
		if at > now {
			if at-now < spinNS {
				return 0, nil
			}
			return tickMS, w.poll.wakeAfter(at - now)
		}
		c := w.roomy(pipeline)
		if c == nil || w.over() {
			return tickMS, nil
		}
		if w.inFlight == 0 {
			w.lastNS = now
		}
		for c.queue.len() < pipeline && w.dueNS() <= now && w.feed(c, w.dueNS()) {
			w.inFlight++
			w.due++
		}
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
}

// dueNS is when the next request is due.
func (w *worker) dueNS() int64 { return int64(w.firstNS + float64(w.due)*w.intervalNS) }

// roomy is the next connection with room for a request, nil if none has.
func (w *worker) roomy(pipeline int) *conn {
	for range w.conns {
		c := w.conns[w.nextConn]
		if w.nextConn++; w.nextConn == len(w.conns) {
			w.nextConn = 0
		}
		if c.queue.len() < pipeline && len(c.missed) == 0 {
			return c
		}
	}
	return nil
}

// late is the number of requests that were due before endNS and never sent.
func (w *worker) late(endNS int64) uint64 {
	if w.config.Rate == 0 || endNS < w.dueNS() {
		return 0
	}
	return uint64((float64(endNS)-w.firstNS)/w.intervalNS) + 1 - w.due
}

// seePhase begins to record, and to count requests down, with the measured
// time.
func (w *worker) seePhase() {
	measuring := w.control.phase() == phaseMeasure
	if measuring && !w.recording && w.config.Requests > 0 {
		w.limited = true
	}
	w.recording = measuring
}

// publish lets others see the counts.
func (w *worker) publish() {
	w.mu.Lock()
	w.published = w.counts
	w.mu.Unlock()
}

// snapshot is the counts that the last round left.
func (w *worker) snapshot() counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.published
}

// checkStall is an error when the server has not answered for too long.
func (w *worker) checkStall() error {
	silent := time.Duration(w.control.nowNS() - w.lastNS)
	if w.inFlight == 0 || silent < w.config.Stall {
		return nil
	}
	return fmt.Errorf("bench: no reply for %v with %d requests in flight", silent.Round(time.Millisecond), w.inFlight)
}
