package meta

import (
	"bytes"
	"strconv"
)

// Route is what the P flag says: the client knows the cluster's map, as it was
// at an epoch.
type Route struct {
	Known bool   // P has an epoch
	Epoch uint64 // of the client's map
	Copy  bool   // a copy will do
	Plain bool   // it was a get somewhere else: nobody is to be asked for a new value

	// Of L, where a copy is told something: it is the Sequence-th thing of the
	// bucket in Stream.
	Numbered         bool
	Stream, Sequence uint64

	// What a server adds to its answer.
	Copies uint32 // into how many copies it makes sense to split the key: n; 0 none
	Newer  uint64 // epoch of its map, where that is newer than the client's; else 0
	AsCopy bool   // the answer comes from a copy: it is stale, whatever it is
}

// parse reads "epoch", "epoch,c" or "epoch,g". memcached takes P with any
// argument, so what cannot be read is none.
func (t *Route) parse(arg []byte) {
	number, mode, more := bytes.Cut(arg, []byte{','})
	epoch, ok := ParseUint64(number)
	isCopy, isPlain := string(mode) == "c", string(mode) == "g"
	if !ok || len(number) == 0 || more && !isCopy && !isPlain {
		return
	}
	t.Known, t.Epoch, t.Copy, t.Plain = true, epoch, isCopy, isPlain
}

// parseNumber reads "stream.sequence" of L, which has other meanings elsewhere.
func (t *Route) parseNumber(arg []byte) {
	stream, sequence, _ := bytes.Cut(arg, []byte{'.'})
	a, okA := ParseUint64(stream)
	b, okB := ParseUint64(sequence)
	if okA && okB && len(stream) > 0 && len(sequence) > 0 {
		t.Numbered, t.Stream, t.Sequence = true, a, b
	}
}

func (t *Route) appendNumber(dst []byte) []byte {
	if !t.Numbered {
		return dst
	}
	dst = strconv.AppendUint(dst, t.Stream, 10)
	return strconv.AppendUint(append(dst, '.'), t.Sequence, 10)
}

func (t *Route) appendTo(dst []byte) []byte {
	if !t.Known {
		return dst
	}
	dst = strconv.AppendUint(dst, t.Epoch, 10)
	switch {
	case t.Copy:
		dst = append(dst, ",c"...)
	case t.Plain:
		dst = append(dst, ",g"...)
	}
	return dst
}

// ChangesPlain reports whether r changes what is stored under its key without
// telling a version of it.
func (r *Request) ChangesPlain() bool {
	switch r.Op {
	case OpSet, OpDelete, OpArith:
		return !r.Has.Has('Y') && !r.Has.Has('G')
	}
	return false
}

// CopyFields takes from r what its flags or words say, so that a request with
// other flags can say the same.
func (q *Request) CopyFields(r *Request) {
	q.ClientFlags, q.TTL, q.VivifyTTL, q.RecacheTTL = r.ClientFlags, r.TTL, r.VivifyTTL, r.RecacheTTL
	q.CompareCAS, q.NewCAS, q.Initial, q.Delta, q.ValueLen = r.CompareCAS, r.NewCAS, r.Initial, r.Delta, r.ValueLen
}

// AddFlags is AddFlag for each letter.
func (r *Request) AddFlags(letters string) {
	for i := range len(letters) {
		r.AddFlag(letters[i])
	}
}

// DropFlag takes flag c away, if r has it.
func (r *Request) DropFlag(c byte) {
	if !r.Has.Has(c) {
		return
	}
	r.Has &^= Letter(c)
	n := 0
	for _, f := range r.Flags[:r.NFlags] {
		if f != c {
			r.Flags[n] = f
			n++
		}
	}
	r.NFlags = n
}

// BlockTail is how many bytes end the value of a set: the \r\n of a line's data
// block, and nothing in a packet.
func (r *Request) BlockTail() int {
	if r.Packet {
		return 0
	}
	return len("\r\n")
}

// HidesReply reports whether a quiet r is not to be sent a reply with that code
// and answer.
func (r *Request) HidesReply(code Code, a *Answer) bool {
	switch {
	case !r.Quiet:
		return false
	case r.Op == OpGet:
		return code == CodeEN && !a.Tells()
	}
	return code == CodeHD || code == CodeVA
}

// AppendPassedOn appends raw, a reply to a meta request, without what it says
// to clients that know the map.
func AppendPassedOn(dst, raw []byte) []byte {
	line, rest := raw, raw[len(raw):]
	if i := bytes.IndexByte(raw, '\n'); i >= 0 {
		line, rest = raw[:i-1], raw[i-1:]
	}
	for first := true; len(line) > 0; first = false {
		var word []byte
		word, line, _ = bytes.Cut(line, []byte{' '})
		if len(word) > 1 && (word[0] == 'p' || word[0] == 'n') && !first {
			if _, ok := ParseUint64(word[1:]); ok {
				continue
			}
		}
		if !first {
			dst = append(dst, ' ')
		}
		dst = append(dst, word...)
	}
	return append(dst, rest...)
}

// ErrorOf is the error that a reply is, ErrUnreachable if it is none that a
// server of this kind would send.
func ErrorOf(raw []byte) Error {
	for e := range errorLines {
		if e > 0 && errorLines[e] == string(raw) {
			return Error(e)
		}
	}
	return ErrUnreachable
}

// Moved is what a node answers that does not own a key: at an epoch, the bucket
// is another one's.
type Moved struct {
	Epoch  uint64
	Bucket int
	Addr   string
}

const movedWord = "MOVED "

// AppendMoved appends the answer to r of a node that does not own its key.
func (r *Request) AppendMoved(dst []byte, m *Moved) []byte {
	dst = append(dst, "SERVER_ERROR "+movedWord...)
	dst = strconv.AppendUint(dst, m.Epoch, 10)
	dst = strconv.AppendInt(append(dst, ' '), int64(m.Bucket), 10)
	dst = append(append(dst, ' '), m.Addr...)
	for _, c := range r.Flags[:r.NFlags] {
		if answersKey.Has(c) {
			dst = r.appendFlag(append(dst, ' ', c), c, r.Binary, nil)
		}
	}
	return append(dst, "\r\n"...)
}

// Moved reads the answer of a node that does not own the key, and reports
// whether it is one.
func (rep *Reply) Moved() (m Moved, ok bool) {
	if rep.Code != CodeServerError || !bytes.HasPrefix(rep.Text, []byte(movedWord)) {
		return Moved{}, false
	}
	epoch, rest := NextKey(rep.Text[len(movedWord):])
	bucket, rest := NextKey(rest)
	addr, _ := NextKey(rest)
	m.Epoch, ok = ParseUint64(epoch)
	n, okBucket := ParseUint32(bucket)
	m.Bucket, m.Addr = int(n), string(addr)
	return m, ok && okBucket && len(epoch) > 0 && len(bucket) > 0 && len(addr) > 0
}

// AppendConfig appends what config get answers: the value under a name.
func AppendConfig(dst []byte, name string, value []byte) []byte {
	dst = append(append(dst, "CONFIG "...), name...)
	dst = append(dst, " 0 "...)
	dst = strconv.AppendInt(dst, int64(len(value)), 10)
	dst = append(dst, "\r\n"...)
	dst = append(dst, value...)
	return append(dst, "\r\nEND\r\n"...)
}
