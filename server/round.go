package server

import (
	"context"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// Where many connections have something to say at once, a loop reads from all
// of them before it serves any. What their first requests need is prefetched
// then, so that they wait for memory together, and the kernel's code for
// reading and for writing runs many times in a row instead of in turn.
//
// gnet calls back for each connection that can be read, and does not say when
// it has called for all. So the first one asks the loop to run the round when
// it is through with those that it has found ready; that costs a write to the
// loop's eventfd. Where few are ready at once that is not worth it, and they
// are served as they come.
const (
	// roundMax connections are in one round at most, and roundBytes of what
	// they say.
	roundMax   = 64
	roundBytes = 64 << 10

	// roundInputMax is the most that one of them may say: who says more has a
	// batch of its own, which is looked at ahead by itself.
	roundInputMax = 4 << 10

	// roundMin connections in a round make it worth while, if their replies
	// have roundReplyBytes in the mean at most: the first of them waits for
	// all reads, and with larger ones the others' writes make that a long time
	// for nothing. After another round as many reads are served as they come as
	// roundPauseMin at first, and twice as many each time, up to roundPauseMax.
	roundMin        = 4
	roundReplyBytes = 32 << 10
	roundPauseMin   = 32
	roundPauseMax   = 1024
)

// round is the input that waits until a loop has read from all connections
// that are ready.
type round struct {
	turns  []roundTurn // in the order in which they were read
	in     []byte      // what they said
	began  time.Time   // when the first of them was read
	called bool        // the loop was asked to run the round
	joined int         // turns since it was asked
	wrote  int         // bytes of replies since then
	direct int         // reads that are served as they come
	pause  int         // what direct was set to last
	keys   [store.PrefetchMax]store.Key
}

// roundTurn is what one connection said.
type roundTurn struct {
	c        *conn // nil: it was not to wait
	gc       gnet.Conn
	from, to int // in round.in
}

// joinRound puts p, which c has just said, into the round. It reports false
// when c is to be served at once.
func (l *loop) joinRound(c *conn, gc gnet.Conn, p []byte) bool {
	r := &l.round
	if len(p) == 0 || len(p) > roundInputMax || c.again || len(c.rest) > 0 {
		return false
	}
	if r.direct > 0 {
		r.direct--
		return false
	}
	if len(r.turns) == roundMax || len(r.in)+len(p) > roundBytes {
		l.serveRound()
	}
	if !r.called {
		if gc.EventLoop().Execute(context.Background(), l) != nil {
			return false // the loop stops
		}
		r.called, r.joined, r.wrote = true, 0, 0
	}
	if len(r.turns) == 0 {
		r.began = time.Now()
	}
	from := len(r.in)
	r.in = append(r.in, p...)
	r.turns = append(r.turns, roundTurn{c, gc, from, len(r.in)})
	r.joined++
	c.roundAt = len(r.turns)
	return true
}

// Run runs the round, when gnet has called back for all that were ready. It
// implements gnet.Runnable.
func (l *loop) Run(context.Context) error {
	if l.turns.stalls != nil {
		l.turns.called()
	}
	r := &l.round
	l.serveRound()
	r.called = false
	if r.joined >= roundMin && r.wrote <= r.joined*roundReplyBytes || l.srv.cfg.alwaysRounds {
		r.pause = 0
	} else {
		r.pause = min(max(2*r.pause, roundPauseMin), roundPauseMax)
		r.direct = r.pause
	}
	return nil
}

// serveRound serves all that are in the round.
func (l *loop) serveRound() {
	r := &l.round
	if len(r.turns) == 0 {
		return
	}
	l.w.n.rounds++
	l.prefetchRound()
	now := l.srv.now()
	for i := range r.turns {
		t := &r.turns[i]
		if t.c == nil {
			continue
		}
		t.c.roundAt = 0
		l.w.n.roundTurns++
		if l.serve(t.c, r.in[t.from:t.to], now, r.began) == gnet.Close {
			_ = t.gc.EventLoop().Close(t.gc) // says what is in gnet's log already
		}
	}
	clear(r.turns)
	r.turns, r.in = r.turns[:0], r.in[:0]
	l.yields.yield()
}

// leaveRound takes c out of the round: what it said becomes input that waits
// for its next turn.
func (l *loop) leaveRound(c *conn) {
	r := &l.round
	t := &r.turns[c.roundAt-1]
	c.roundAt, t.c = 0, nil
	c.keepRest(r.in[t.from:t.to])
}

// prefetchRound prefetches what the first request of each in the round needs.
func (l *loop) prefetchRound() {
	s, r := l.srv, &l.round
	if len(r.turns) < 2 || s.store.ItemsAbout() < s.aheadItemsMin {
		return
	}
	n := 0
	for i := range r.turns {
		t := &r.turns[i]
		if t.c == nil {
			continue
		}
		var key []byte
		switch in := r.in[t.from:t.to]; t.c.session.phase {
		case phaseLine:
			key, _ = meta.GlanceLine(in)
			key, _ = meta.NextKey(key)
		case phasePacket:
			key, _ = meta.GlancePacket(in)
		}
		if len(key) == 0 {
			continue
		}
		r.keys[n] = store.KeyOf(key)
		if n++; n == len(r.keys) {
			s.store.Prefetch(r.keys[:n])
			n = 0
		}
	}
	s.store.Prefetch(r.keys[:n])
}
