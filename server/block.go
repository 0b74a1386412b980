package server

import (
	"sync"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// A data block that is whole in the input is stored from there in one call.
// One that is not goes into its chunks as it arrives, and is a block
// meanwhile.

// block is a set whose data block is half there.
type block struct {
	req    meta.Request // with its views in text
	text   [2*meta.KeyMax + meta.OpaqueMax + 1]byte
	opts   store.SetOptions
	fill   store.Fill // of opts
	upload store.Upload
	tail   [2]byte // what came after the value; of a packet, which has nothing there, what should have
	nTail  int
}

// blockBytes is the memory of a block, rounded up.
const blockBytes = 2 << 10

// blockPool lends sessions their blocks.
var blockPool = sync.Pool{New: func() any { return new(block) }}

// keep makes b hold a copy of r that does not depend on the line.
func (b *block) keep(r *meta.Request) {
	b.req, b.nTail = *r, 0
	if r.Packet {
		b.nTail = copy(b.tail[:], "\r\n")
	}
	text := b.text[:0]
	view := func(p []byte) []byte {
		i := len(text)
		text = append(text, p...)
		return text[i:len(text):len(text)]
	}
	b.req.Key = view(r.Key)
	b.req.KeyText = view(r.KeyText)
	b.req.Opaque = view(r.Opaque)
	b.req.Rest = nil
	clear(b.req.Args[:])
	b.req.NArgs = 0
}

// store stores the data block of w.req, as far as it is in in, and returns
// the bytes taken.
func (s *session) store(w *worker, in []byte) (n int) {
	r := &w.req
	if r.Verb != meta.VerbMetaSet && s.srv.prefixes.on.Load() {
		s.srv.prefixes.set(r.Key)
	}
	var o store.SetOptions
	setOptions(&o, r, w.now)
	if r.Has.Has('Y') {
		o.Fill = fillOf(&w.fill, r)
	}
	o.Observer = w.observer
	if n = r.ValueLen; len(in) >= n+2 && in[n] == '\r' && in[n+1] == '\n' {
		res := s.srv.store.Set(w.keyOf(r.Key), in[:n], &o, w.now)
		w.stored(r, res)
		return n + 2
	}
	s.beginBlock(w, &o)
	return 0
}

// beginBlock goes on in the data block of w.req, which is to be stored with o.
func (s *session) beginBlock(w *worker, o *store.SetOptions) {
	b := blockPool.Get().(*block)
	b.keep(&w.req)
	b.opts = *o
	if o.Fill != nil {
		b.fill = *o.Fill
		b.opts.Fill = &b.fill
	}
	s.block = b
	n := b.req.ValueLen
	st := s.srv.store.Begin(store.KeyOf(b.req.Key), n, &b.opts, w.now, &b.upload)
	switch {
	case st == store.Refused:
		w.refused(&b.req, b.upload.Refusal)
		n += b.tailLeft()
		s.dropBlock()
		s.skipBytes(n)
		return
	case st != store.OK:
		s.failBlock(w, errorOf(&b.req, st), n+b.tailLeft())
		return
	}
	s.phase = phaseBlock
}

// tailLeft is how many bytes are to come behind the value.
func (b *block) tailLeft() int { return len(b.tail) - b.nTail }

// whole reports whether all that belongs to the block has arrived.
func (b *block) whole() bool { return b.upload.Remaining() == 0 && b.tailLeft() == 0 }

// readBlock takes what has arrived of a data block.
func (s *session) readBlock(w *worker, in []byte) (n int) {
	b := s.block
	b.upload.Observe(w.observer)
	if left := b.upload.Remaining(); left > 0 {
		n = min(left, len(in))
		if st := b.upload.Write(in[:n], w.now); st != store.OK {
			s.failBlock(w, errorOf(&b.req, st), left+b.tailLeft())
			return 0
		}
		if n < left {
			return n
		}
	}
	k := copy(b.tail[b.nTail:], in[n:])
	b.nTail += k
	if n += k; b.tailLeft() > 0 {
		return n
	}
	if b.tail != [2]byte{'\r', '\n'} {
		s.failBlock(w, meta.ErrBadChunk, 0)
		return n
	}
	w.stored(&b.req, b.upload.Commit(w.now))
	s.dropBlock()
	s.phase = s.home
	return n
}

// blockLeft is how many bytes are to come of the value that is half there.
func (s *session) blockLeft() int {
	if s.phase != phaseBlock {
		return 0
	}
	return s.block.upload.Remaining()
}

// blockRoom is memory for the next of these bytes, nil when there are none. It
// reports false when there is no room for them, which is answered.
func (s *session) blockRoom(w *worker) (room []byte, ok bool) {
	left := s.blockLeft()
	if left == 0 {
		return nil, true
	}
	b := s.block
	b.upload.Observe(w.observer)
	room, st := b.upload.Room(w.now)
	if st != store.OK {
		s.failBlock(w, errorOf(&b.req, st), left+b.tailLeft())
	}
	return room, st == store.OK
}

// failBlock answers e to a set, and throws away the next n bytes, which
// belong to its data block.
func (s *session) failBlock(w *worker, e meta.Error, n int) {
	w.fail(&s.block.req, e)
	s.dropBlock()
	s.skipBytes(n)
}

// skipBytes throws the next n bytes away.
func (s *session) skipBytes(n int) {
	s.phase, s.skip = phaseSkip, n
}

// dropBlock ends a half-sent value, if there is one: unless it was committed,
// its memory goes back.
func (s *session) dropBlock() {
	if s.block == nil {
		return
	}
	s.block.upload.Abort()
	blockPool.Put(s.block)
	s.block = nil
}
