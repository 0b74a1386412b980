package bench

import (
	"bytes"
	"fmt"
)

// replyLineBytesMax bounds a reply's line: the longest has a key, and no
// error line of memcached is longer.
const replyLineBytesMax = 512

// kind is what a request does.
type kind uint8

const (
	kindGet kind = iota
	kindSet
	kindFill // a set after a miss
)

// request is one request in flight. Its keys are queue.keysOf(i).
type request struct {
	sinceNS int64 // when its latency began
	kind    kind
	next    int // its keys before this one are answered
}

// queue is the requests in flight on one connection, oldest first, in a ring.
// Requests are counted from the connection's start: head is the oldest one's
// number, and the slot of request i is i modulo the ring's length.
type queue struct {
	ring       []request
	keys       []uint64 // stride for each slot
	stride     int
	head, tail int
}

// newQueue has room for at least n requests of up to stride keys.
func newQueue(n, stride int) queue {
	size := 1
	for size < n {
		size *= 2
	}
	return queue{ring: make([]request, size), keys: make([]uint64, size*stride), stride: stride}
}

func (q *queue) len() int          { return q.tail - q.head }
func (q *queue) slot(i int) int    { return i & (len(q.ring) - 1) }
func (q *queue) at(i int) *request { return &q.ring[q.slot(i)] }

// keysOf is the keys of request i.
func (q *queue) keysOf(i int) []uint64 {
	start := q.slot(i) * q.stride
	if q.at(i).kind != kindGet {
		return q.keys[start : start+1]
	}
	return q.keys[start : start+q.stride]
}

// push adds a request and returns its keys, which the caller sets.
func (q *queue) push(k kind, sinceNS int64) []uint64 {
	if q.len() == len(q.ring) {
		panic(fmt.Sprintf("bench: queue of %d is full", len(q.ring)))
	}
	*q.at(q.tail) = request{sinceNS: sinceNS, kind: k}
	q.tail++
	return q.keysOf(q.tail - 1)
}

// replies holds what a connection receives against what it asked for. It is
// a state machine over bytes: where the bytes are cut makes no difference.
type replies struct {
	queue    queue
	encoder  *encoder // whose keys and values are expected
	verify   bool     // compare data
	keepMiss bool     // collect missed

	counts     *counts
	missed     []uint64 // keys of misses that nobody has stored yet
	firstError string   // the first error line

	// The data block being received; none when left is 0. left includes the
	// line end after the data, key and offset say what should come next.
	left   int
	key    uint64
	offset int
	broken bool // data differed
}

// counts is what happened, in numbers.
type counts struct {
	requests uint64 // answered
	hits     uint64 // keys found
	misses   uint64 // keys asked for and not found
	sets     uint64 // stored, fills included
	fills    uint64 // stored after a miss
	errors   uint64 // replies that were an error, or refused a set
	corrupt  uint64 // hits whose data was not the key's value (verify)

	sentBytes     uint64
	receivedBytes uint64
	latencySumNS  uint64
}

// operations is keys asked for or stored, or refused.
func (c counts) operations() uint64 { return c.hits + c.misses + c.sets + c.errors }

// minus is what happened since earlier.
func (c counts) minus(earlier counts) counts {
	c.requests -= earlier.requests
	c.hits -= earlier.hits
	c.misses -= earlier.misses
	c.sets -= earlier.sets
	c.fills -= earlier.fills
	c.errors -= earlier.errors
	c.corrupt -= earlier.corrupt
	c.sentBytes -= earlier.sentBytes
	c.receivedBytes -= earlier.receivedBytes
	c.latencySumNS -= earlier.latencySumNS
	return c
}

// plus is both together.
func (c counts) plus(other counts) counts {
	var none counts
	return c.minus(none.minus(other)) // the difference wraps round twice
}

// scan takes the bytes that arrived. It uses used of them; the rest, less
// than a line or a line end, must come again in front of what arrives next.
func (rs *replies) scan(b []byte) (used int, err error) {
	if rs.encoder.protocol == Binary {
		return rs.scanPackets(b)
	}
	for {
		rest := b[used:]
		if rs.left > 0 {
			n, err := rs.data(rest)
			used += n
			if err != nil || rs.left > 0 {
				return used, err
			}
			continue
		}
		i := bytes.IndexByte(rest, '\n')
		switch {
		case i > replyLineBytesMax, i < 0 && len(rest) > replyLineBytesMax:
			return used, fmt.Errorf("bench: reply line of more than %d bytes: %.40q", replyLineBytesMax, rest)
		case i < 0:
			return used, nil
		case i == 0 || rest[i-1] != '\r':
			return used, fmt.Errorf("bench: reply line without carriage return: %.40q", rest[:i])
		}
		used += i + 1
		if err := rs.line(rest[:i-1]); err != nil {
			return used, err
		}
	}
}

// data takes bytes of a data block. It takes the line end in one piece.
func (rs *replies) data(b []byte) (used int, err error) {
	const lineEnd = "\r\n"
	if n := min(len(b), rs.left-len(lineEnd)); n > 0 {
		if rs.verify && !rs.broken && !rs.encoder.values.holds(rs.key, rs.offset, b[:n]) {
			rs.broken = true
		}
		rs.left -= n
		rs.offset += n
		used = n
	}
	if rs.left > len(lineEnd) || len(b)-used < len(lineEnd) {
		return used, nil
	}
	if string(b[used:used+len(lineEnd)]) != lineEnd {
		return used, fmt.Errorf("bench: data block of key %d, %d bytes, ends in %q", rs.key, rs.offset, b[used:used+len(lineEnd)])
	}
	rs.left = 0
	rs.hit()
	return used + len(lineEnd), nil
}

// hit counts a complete data block.
func (rs *replies) hit() {
	rs.counts.hits++
	if rs.verify && (rs.broken || rs.offset != rs.encoder.values.size(rs.key)) {
		rs.counts.corrupt++
	}
	switch {
	case rs.encoder.protocol == Redis:
		rs.respAnswered()
	case rs.encoder.protocol == Meta && rs.queue.stride == 1:
		rs.finish()
	}
}

// line takes one reply line, without its end.
func (rs *replies) line(line []byte) error {
	if rs.queue.len() == 0 {
		return rs.unexpected(line, "nothing was asked")
	}
	if rs.encoder.protocol == Redis {
		return rs.respLine(line)
	}
	if isError(line) {
		rs.refuse(line)
		return nil
	}
	oldest := rs.queue.at(rs.queue.head)
	switch {
	case oldest.kind != kindGet:
		return rs.setLine(line, oldest)
	case rs.encoder.protocol == Text:
		return rs.textGetLine(line, oldest)
	}
	return rs.metaGetLine(line, oldest)
}

func (rs *replies) setLine(line []byte, set *request) error {
	stored := "STORED"
	if rs.encoder.protocol == Meta {
		stored = "HD"
	}
	if string(line) == stored {
		rs.stored(set)
		return nil
	}
	switch string(line) {
	case "NOT_STORED", "EXISTS", "NOT_FOUND", "NS", "EX", "NF":
		rs.refuse(line)
		return nil
	}
	return rs.unexpected(line, "the request was a set")
}

// stored counts a set that was done.
func (rs *replies) stored(set *request) {
	rs.counts.sets++
	if set.kind == kindFill {
		rs.counts.fills++
	}
	rs.finish()
}

func (rs *replies) textGetLine(line []byte, get *request) error {
	const value = "VALUE "
	if string(line) == "END" {
		rs.missUntil(get, rs.queue.stride)
		rs.finish()
		return nil
	}
	keyEnd := len(value) + rs.encoder.keys.size()
	if len(line) <= keyEnd || string(line[:len(value)]) != value || line[keyEnd] != ' ' {
		return rs.unexpected(line, "the request was a get")
	}
	flagsAndLength := line[keyEnd+1:]
	i := bytes.IndexByte(flagsAndLength, ' ')
	if i < 0 {
		return rs.unexpected(line, "the request was a get")
	}
	return rs.value(line, get, line[len(value):keyEnd], flagsAndLength[i+1:])
}

func (rs *replies) metaGetLine(line []byte, get *request) error {
	single := rs.queue.stride == 1
	if single && string(line) == "EN" || !single && string(line) == "MN" {
		rs.missUntil(get, rs.queue.stride)
		rs.finish()
		return nil
	}
	const value = "VA "
	if len(line) <= len(value) || string(line[:len(value)]) != value {
		return rs.unexpected(line, "the request was an mg")
	}
	length, key, _ := bytes.Cut(line[len(value):], []byte(" "))
	if single {
		return rs.value(line, get, nil, length)
	}
	if len(key) == 0 || key[0] != 'k' {
		return rs.unexpected(line, "the request was an mg with k")
	}
	return rs.value(line, get, key[1:], length)
}

// value begins the data block that line announces, for the next key of get
// whose text is key (nil: the only one). Keys passed over are misses.
func (rs *replies) value(line []byte, get *request, key, length []byte) error {
	ks := rs.queue.keysOf(rs.queue.head)
	i := get.next
	if key != nil {
		k, ok := rs.encoder.keys.number(key)
		if !ok {
			return rs.unexpected(line, "the key is none of ours")
		}
		for i < len(ks) && ks[i] != k {
			i++
		}
	}
	if i == len(ks) {
		return rs.unexpected(line, "the key was not asked for")
	}
	size, ok := decimal(length)
	if !ok || size > valueBytesMax {
		return rs.unexpected(line, "the length is not a length")
	}
	rs.missUntil(get, i)
	get.next = i + 1
	rs.left = size + len("\r\n")
	rs.key, rs.offset, rs.broken = ks[i], 0, false
	return nil
}

// missUntil counts get's keys that were not answered, up to number end.
func (rs *replies) missUntil(get *request, end int) {
	rs.counts.misses += uint64(end - get.next)
	if rs.keepMiss {
		rs.missed = append(rs.missed, rs.queue.keysOf(rs.queue.head)[get.next:end]...)
	}
	get.next = end
}

// refuse counts a reply that did not do what was asked. In a get of several
// keys that is several requests one of them was refused, and the rest is still to come: its key
// will be counted as a miss besides.
func (rs *replies) refuse(line []byte) {
	rs.counts.errors++
	if rs.firstError == "" {
		rs.firstError = string(line)
	}
	several := rs.queue.stride > 1 && (rs.encoder.protocol == Meta || rs.encoder.protocol == Binary)
	if !several || rs.queue.at(rs.queue.head).kind != kindGet {
		rs.finish()
	}
}

// finish ends the oldest request.
func (rs *replies) finish() {
	rs.counts.requests++
	rs.queue.head++
}

func (rs *replies) unexpected(line []byte, why string) error {
	return fmt.Errorf("bench: reply %.80q: %s", line, why)
}

// isError reports whether line is one of memcached's three error replies. It
// looks at the first byte before all else: nearly every line is another.
func isError(line []byte) bool {
	if len(line) == 0 {
		return false
	}
	switch line[0] {
	case 'E':
		return string(line) == "ERROR" || bytes.HasPrefix(line, []byte("ERROR "))
	case 'C':
		return bytes.HasPrefix(line, []byte("CLIENT_ERROR "))
	case 'S':
		return bytes.HasPrefix(line, []byte("SERVER_ERROR "))
	}
	return false
}

// decimal reads up to ten digits.
func decimal(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 10 {
		return 0, false
	}
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + int(c)
	}
	return n, true
}
