package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/link"
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// A request that is relayed goes to the owner of its key as a meta request with
// P, so that it is never relayed twice, and leaves a hole in the output. When
// the output is to be written, the replies are waited for, in their order, and
// put into their holes in the form in which they were asked for. Requests to
// one owner stay in their order, as they go over one connection.

const (
	// relaysMax bounds the holes in one output. A connection begins with
	// relaysStart, and has more when the replies turn out to be small, fewer
	// when they are large: what one output waits for is about
	// relayReplyBytes.
	relaysMax       = 64
	relaysStart     = 16
	relayReplyBytes = 1 << 20

	// relayValueMax bounds the bytes of values that one output may be waiting
	// to send on, one value aside.
	relayValueMax = 1 << 20
)

// relay is a request that was sent on.
type relay struct {
	block            // the request as it came, with its texts
	call  *link.Call // to the owner
	err   error      // it could not be sent
	at    int        // of the hole in the output
	v     *view      // the map by which it went
	key   bool       // of a get line: its END is not ours

	to      *peer      // that it went to
	instead meta.Error // what is answered whatever the owner says, ErrNone for what it says

	value []byte // of a set: a copy, to be sent again if it must be
}

var relayPool = sync.Pool{New: func() any { return new(relay) }}

// relays are the holes in an output.
type relays struct {
	list     []*relay
	most     int  // of them at once
	values   int  // bytes
	sent     bool // there have been some
	deadline time.Time
}

// drop leaves the calls whose connection has ended.
func (l *relays) drop() {
	if len(l.list) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, x := range l.list {
		if x.call != nil && x.call.Wait(ctx) == ctx.Err() {
			x.call = nil // it is not ours any more
		}
		x.free()
	}
	clear(l.list)
	l.list, l.values = l.list[:0], 0
}

// full reports whether the output should be written before there are more.
func (l *relays) full() bool {
	return len(l.list) > 0 && (len(l.list) >= l.most || l.values >= relayValueMax)
}

// learn sets how many holes there may be by what the replies to the last ones
// were.
func (s *session) learn(holes, replyBytes int) {
	switch {
	case replyBytes > relayReplyBytes:
		s.holesMax = uint8(max(holes*relayReplyBytes/replyBytes, 1))
	case replyBytes < relayReplyBytes/4:
		s.holesMax = uint8(min(2*s.holes(), relaysMax))
	}
}

// holes is how many there may be in one output.
func (s *session) holes() int {
	if s.holesMax == 0 {
		return relaysStart
	}
	return int(s.holesMax)
}

// relay sends w.req on to the owner of bucket b. It returns the bytes of rest
// that belong to its data block and were there; the others are gathered.
func (s *session) relay(w *worker, v *view, b int, rest []byte) (used int) {
	r := &w.req
	x := relayPool.Get().(*relay)
	x.keep(r)
	x.v, x.err, x.key, x.instead = v, nil, false, meta.ErrNone
	if r.Op != meta.OpSet {
		s.sendOn(w, x, nil)
		return 0
	}
	n, tail := r.ValueLen, r.BlockTail()
	if n > s.srv.cfg.ItemMaxBytes {
		s.refuseRelay(w, x, meta.ErrTooLarge)
		return 0
	}
	if len(rest) >= n+tail {
		used = n + tail
		if tail > 0 && string(rest[n:used]) != "\r\n" {
			x.free()
			w.fail(r, meta.ErrBadChunk)
			return used
		}
		s.sendOn(w, x, rest[:n])
		return used
	}
	if !s.srv.node.takeGather(n) {
		s.refuseRelay(w, x, meta.ErrStoreNoMemory)
		return 0
	}
	s.gather = &gathered{x, append(make([]byte, 0, min(n+tail, gatherStartBytes)), rest...)}
	s.phase = phaseGather
	return len(rest)
}

// refuseRelay answers e to x, a set whose value is not taken, and throws that
// away. What the owner has must not be left to be read, as it is not here: it is
// deleted.
func (s *session) refuseRelay(w *worker, x *relay, e meta.Error) {
	r := &x.req
	size := r.ValueLen + r.BlockTail()
	if r.Verb != meta.VerbSet && r.Verb != meta.VerbMetaSet {
		w.fail(r, e)
		x.free()
	} else {
		x.instead = e
		s.sendOn(w, x, nil)
	}
	s.skipBytes(size)
}

// relayKey sends a key of a get line on.
func (s *session) relayKey(w *worker, v *view, b int, key []byte) {
	r := &w.req
	r.Reset()
	r.Op, r.Verb, r.Key, r.Has = meta.OpGet, meta.VerbGet, key, s.has.With('v')
	if s.has.Has('c') {
		r.Verb = meta.VerbGets
	}
	// The owner takes a Unix second for what it is, but for the smallest.
	r.TTL = int64(s.expiry)
	if s.expiry != 0 && r.TTL <= store.RelativeMax {
		r.TTL = -1
	}
	x := relayPool.Get().(*relay)
	x.keep(r)
	x.v, x.err, x.key, x.instead = v, nil, true, meta.ErrNone
	s.sendOn(w, x, nil)
	r.Has = s.has
}

// relayKept executes the request that s.line keeps, now that the session may
// wait, and returns the bytes of in that were taken.
func (s *session) relayKept(w *worker, in []byte) (n int) {
	s.phase = s.home
	line := *s.line
	if s.home == phasePacket {
		r := &w.req
		_, e := r.ParsePacket(line)
		n = s.packet(w, e, line, in)
	} else {
		_, n = s.command(w, line, in)
	}
	s.dropLine()
	return n
}

// readGather takes what has arrived of a value that is to be sent on.
func (s *session) readGather(w *worker, in []byte) (n int) {
	g := s.gather
	size := g.x.req.ValueLen
	whole := size + g.x.req.BlockTail()
	n = min(len(in), whole-len(g.value))
	g.value = append(g.value, in[:n]...)
	if len(g.value) < whole {
		return n
	}
	x, value := g.x, g.value
	s.gather = nil
	s.srv.node.takeGather(-size)
	s.phase = s.home
	if len(value) > size && string(value[size:]) != "\r\n" {
		w.fail(&x.req, meta.ErrBadChunk)
		x.free()
		return n
	}
	s.sendOn(w, x, value[:size])
	return n
}

// dropGather ends a value that is half there.
func (s *session) dropGather() {
	if g := s.gather; g != nil {
		s.srv.node.takeGather(-g.x.req.ValueLen)
		g.x.free()
		s.gather = nil
	}
}

// gathered is a value on its way in that is to be sent on.
type gathered struct {
	x     *relay
	value []byte // what has come of it, with what ends it
}

const (
	// gatherMax bounds the bytes of values that all sessions gather to send on.
	gatherMax = 256 << 20

	// gatherStartBytes is the memory for a value that is promised; there is
	// more as it comes.
	gatherStartBytes = 64 << 10
)

func (n *node) takeGather(bytes int) bool {
	if n.gathering.Add(int64(bytes)) <= gatherMax || bytes < 0 {
		return true
	}
	n.gathering.Add(int64(-bytes))
	return false
}

// sendOn sends x on, and leaves a hole for its reply.
func (s *session) sendOn(w *worker, x *relay, value []byte) {
	n := s.srv.node
	x.at = len(w.out.buf)
	x.value = append(x.value[:0], value...)
	x.call = link.NewCall()
	x.ask(x.value)
	x.to = n.peer(x.owner())
	if x.err = errPeerRests; !x.to.rests() {
		x.err = x.to.Send(x.call)
	}
	if x.err != nil {
		x.call.Free()
		x.call = nil
	}
	n.relayed.Add(1)
	l := &w.relays
	l.sent, l.most = true, s.holes()
	if len(l.list) == 0 {
		l.deadline = time.Now().Add(n.cfg.RelayTimeout)
	}
	l.list = append(l.list, x)
	l.values += len(value)
}

// owner is the address of the node that owns the key of x.
func (x *relay) owner() string { return x.v.m.OwnerOf(bucket.Of(x.req.Key)).Addr }

// ask makes the call: what the client asked for, as a meta request with P.
func (x *relay) ask(value []byte) {
	r, q := &x.req, &x.call.Request
	if x.instead != meta.ErrNone {
		q.Op, q.Verb, q.Key, q.Binary = meta.OpDelete, meta.VerbMetaDelete, r.Key, r.Binary
	} else if r.Verb.Meta() {
		*q = *r
		q.Quiet = false
		q.DropFlag('q')
	} else {
		q.Op, q.Mode, q.Decr, q.Binary = r.Op, r.Mode, r.Decr, r.Binary
		q.Key = r.Key
		q.CopyFields(r)
		switch r.Op {
		case meta.OpGet:
			q.Verb = meta.VerbMetaGet
			q.AddFlags("fc")
			if r.Has.Has('v') {
				q.AddFlag('v')
			}
			if r.Has.Has('T') {
				q.AddFlag('T')
			}
		case meta.OpSet:
			q.Verb = meta.VerbMetaSet
			q.AddFlags("cFTM")
			if r.Has.Has('C') {
				q.AddFlag('C')
			}
		case meta.OpDelete:
			q.Verb = meta.VerbMetaDelete
			if r.Has.Has('C') {
				q.AddFlag('C')
			}
		case meta.OpArith:
			q.Verb = meta.VerbMetaArith
			q.AddFlags("vcDM")
			if r.Has.Has('N') {
				q.AddFlags("NJ")
			}
		}
		if !meta.ValidTextKey(q.Key) {
			q.Binary = true
		}
	}
	if !q.Has.Has('P') {
		q.AddFlag('P')
	}
	q.Route = meta.Route{Known: true, Epoch: uint64(x.v.m.Epoch), Plain: r.Op == meta.OpGet && !r.Verb.Meta()}
	x.call.Value = value
}

// free gives x back.
func (x *relay) free() {
	if x.call != nil {
		x.call.Free()
		x.call = nil
	}
	x.v, x.to = nil, nil
	if cap(x.value) > pooledKeepBytes {
		x.value = nil
	}
	relayPool.Put(x)
}

// settle waits for the replies that are to go into the holes of the output, and
// puts them there. Nothing of the output has been written.
func (w *worker) settle(s *session) {
	l := &w.relays
	if len(l.list) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), l.deadline)
	defer cancel()
	n := s.srv.node
	whole := w.out
	w.out = output{}
	from, cut := 0, 0
	upTo := func(at int) {
		// Pinned values before the hole move with what stands before them.
		for ; cut < len(whole.cuts) && whole.cuts[cut].at <= at; cut++ {
			c := whole.cuts[cut]
			w.out.buf = append(w.out.buf, whole.buf[from:c.at]...)
			from = c.at
			w.out.addPin(c.pin)
		}
		w.out.buf = append(w.out.buf, whole.buf[from:at]...)
		from = at
	}
	replies := 0
	for _, x := range l.list {
		upTo(x.at)
		n.answer(ctx, w, x)
		if x.call != nil {
			replies += len(x.call.Raw())
		}
		x.free()
	}
	upTo(len(whole.buf))
	s.learn(len(l.list), replies)
	whole.forget()
	clear(l.list)
	l.list, l.values = l.list[:0], 0
}

// answer waits for the reply to x and answers with it.
func (n *node) answer(ctx context.Context, w *worker, x *relay) {
	err := x.err
	if err == nil {
		err = x.wait(ctx)
	}
	if err == nil && !n.follow(ctx, x) {
		err = errPeerRests
	}
	if err == nil && x.call.Reply.Code.IsError() && meta.ErrorOf(x.call.Raw()) == meta.ErrUnauthenticated {
		// That is about this node, and not about the client.
		err = errPeerLogin
		n.complain("another node does not let this one in: --peer-auth-file", x.to.Addr(), err)
	}
	switch {
	case err != nil:
		n.relayFailed.Add(1)
		w.unreachable(x)
	case x.instead != meta.ErrNone:
		w.fail(&x.req, x.instead)
	default:
		w.passOn(x)
	}
}

// wait waits for the reply to x, and notes whether its peer does its work.
func (x *relay) wait(ctx context.Context) error {
	err := x.call.Wait(ctx)
	switch {
	case err == nil:
		x.to.answered()
	case err == ctx.Err():
		x.call = nil // it was left, and is not ours any more
		x.to.failed(false)
	case !errors.Is(err, link.ErrBusy) && !errors.Is(err, link.ErrClosed):
		x.to.failed(true)
	}
	return err
}

const (
	// relayHopsMax is how often a request may be told that its key is elsewhere.
	relayHopsMax = 4

	// movedPause is how long an owner has to hear of a map that we have already.
	movedPause = 10 * time.Millisecond
)

// follow heeds MOVED in the reply to x, until the owner has answered. It is false
// when there is none that does.
func (n *node) follow(ctx context.Context, x *relay) bool {
	for range relayHopsMax {
		m, moved := x.call.Reply.Moved()
		if !moved {
			return true
		}
		// The owner has a newer map than we have, or we have one than it.
		n.movedHere.Add(1)
		if v := n.now.Load(); m.Epoch > uint64(v.m.Epoch) {
			n.fetch(ctx, x.owner())
		}
		if n.now.Load() == x.v && !pause(ctx, movedPause) || !n.again(ctx, x) {
			return false
		}
	}
	_, moved := x.call.Reply.Moved()
	return !moved
}

// pause reports whether so much time has passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// again sends x once more, by the map as it is now, and waits for the reply.
func (n *node) again(ctx context.Context, x *relay) bool {
	x.v = n.now.Load()
	// It may have come to us meanwhile. This goroutine serves no other
	// connection, so it can ask us as any node would.
	x.call.Free()
	x.call = link.NewCall()
	x.ask(x.value)
	x.to = n.peer(x.owner())
	if x.to.Send(x.call) != nil {
		x.call.Free()
		x.call = nil
		return false
	}
	return x.wait(ctx) == nil
}

// unreachable answers a request whose owner cannot be asked: reads miss, and
// whoever wants to change something is told.
func (w *worker) unreachable(x *relay) {
	r := &x.req
	if r.Op != meta.OpGet && r.Op != meta.OpDebug {
		w.fail(r, meta.ErrUnreachable)
		return
	}
	if !x.key {
		w.answer(r, store.Miss, nil)
	}
}

// passOn answers the request of x with what its owner has answered.
func (w *worker) passOn(x *relay) {
	r, rep := &x.req, &x.call.Reply
	if rep.Code.IsError() || rep.Code == meta.CodeText {
		w.passError(r, x.call.Raw())
		return
	}
	if r.Verb.Meta() {
		if !r.HidesReply(rep.Code, &rep.Fresh) {
			w.out.buf = meta.AppendPassedOn(w.out.buf, x.call.Raw())
		}
		return
	}
	item := meta.Item{CAS: rep.Item.CAS, ClientFlags: rep.Item.ClientFlags, Size: len(rep.Value)}
	switch {
	case r.Op == meta.OpGet && rep.Code == meta.CodeVA && r.Packet:
		w.out.buf = append(r.AppendPacketHit(w.out.buf, &item), rep.Value...)
	case r.Op == meta.OpGet && rep.Code == meta.CodeHD && r.Packet:
		w.out.buf = r.AppendPacketHit(w.out.buf, &item)
	case r.Op == meta.OpGet && rep.Code == meta.CodeVA:
		if r.Has.Has('c') {
			w.out.buf = meta.AppendValueHeaderCAS(w.out.buf, r.Key, item.ClientFlags, item.Size, item.CAS)
		} else {
			w.out.buf = meta.AppendValueHeader(w.out.buf, r.Key, item.ClientFlags, item.Size)
		}
		w.out.buf = append(append(w.out.buf, rep.Value...), "\r\n"...)
	case r.Op == meta.OpGet && rep.Code == meta.CodeEN && x.key:
	case r.Op == meta.OpArith && rep.Code == meta.CodeVA:
		number, _ := meta.ParseUint64(rep.Value)
		switch {
		case r.Quiet:
		case r.Packet:
			w.out.buf = r.AppendPacketNumber(w.out.buf, number, item.CAS)
		default:
			w.out.buf = append(append(w.out.buf, rep.Value...), "\r\n"...)
		}
	default:
		if r.Op == meta.OpSet {
			item.Size = r.ValueLen
		}
		w.answer(r, statusOf(rep.Code), &item)
	}
}

// passError answers with an error of the owner's.
func (w *worker) passError(r *meta.Request, raw []byte) {
	switch {
	case r.Packet:
		w.fail(r, meta.ErrorOf(raw))
	case !r.HideErrors:
		w.out.buf = meta.AppendPassedOn(w.out.buf, raw)
	}
}

// statusOf is the outcome that a meta code stands for.
func statusOf(c meta.Code) store.Status {
	switch c {
	case meta.CodeEN, meta.CodeNF:
		return store.Miss
	case meta.CodeNS:
		return store.NotStored
	case meta.CodeEX:
		return store.Exists
	}
	return store.OK
}
