package store

import "github.com/quarrycache/quarry/slab"

// Pin is a reader over the value of an item that keeps its memory for as long
// as it is being sent: overwritten, deleted, expired or evicted, the item is
// gone for everyone else at once, but its chunks are freed only when the last
// Pin is released. The zero value pins nothing.
type Pin struct {
	sh   *shard
	r    slab.Ref
	size int
	p    pieces
}

// Pin pins the value. False: too many bytes are pinned already.
func (v *Item) Pin() (Pin, bool) {
	sh, r := v.sh, v.it.r
	if sh.pins[r] == 0 {
		n := int64(v.Size)
		if sh.s.pinnedBytes.Add(n) > sh.s.pinnedMax() {
			sh.s.pinnedBytes.Add(-n)
			return Pin{}, false
		}
	}
	sh.pins[r]++
	return Pin{sh: sh, r: r, size: v.Size, p: v.it.pieces()}, true
}

// Len is the number of bytes not consumed yet.
func (p *Pin) Len() int { return p.p.len() }

// Peek appends views of the next bytes to dst, at most as many as dst has
// room for. They are valid until Release.
func (p *Pin) Peek(dst [][]byte) [][]byte {
	if p.sh == nil {
		return dst
	}
	for at := p.p; len(dst) < cap(dst); {
		b := at.bytes()
		if b == nil {
			break
		}
		dst = append(dst, b)
		at.advance(len(b))
	}
	return dst
}

// Advance consumes n bytes, at most Len.
func (p *Pin) Advance(n int) {
	for n > 0 {
		m := min(n, len(p.p.bytes()))
		p.p.advance(m)
		n -= m
	}
}

// Release ends the pin. It may be called more than once.
func (p *Pin) Release() {
	if p.sh == nil {
		return
	}
	sh := p.sh
	sh.lock()
	defer sh.unlock()
	sh.unpin(p.r)
	if sh.pins[p.r] == 0 {
		sh.s.pinnedBytes.Add(-int64(p.size))
	}
	*p = Pin{}
}

// unpin ends one reader's hold on item r.
func (sh *shard) unpin(r slab.Ref) {
	if sh.pins[r]--; sh.pins[r] > 0 {
		return
	}
	delete(sh.pins, r)
	if sh.a.Tag(r).State() == slab.StatePinned {
		it := sh.item(r)
		sh.goneBytes -= it.chunkBytes()
		sh.free(it)
	}
}

// WritevMax is the most pieces that one Writev takes, ReadvMax one Readv.
const (
	WritevMax = slab.WritevMax
	ReadvMax  = slab.ReadvMax
)

// Writev writes pieces, such as Peek gives, to the descriptor fd, which must
// not block, with one system call and without an allocation: at most WritevMax
// of them, none empty. It returns the bytes taken; an error is a unix.Errno.
func Writev(fd int, pieces [][]byte) (int, error) { return slab.Writev(fd, pieces) }

// Readv reads into pieces, such as Upload.Room, as Writev writes: at most
// ReadvMax of them. At the end of what there is to read it returns 0.
func Readv(fd int, pieces [][]byte) (int, error) { return slab.Readv(fd, pieces) }
