package server

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A record is what will be a line, in as few bytes as it takes. In a ring it
// lies as
//
//	 0  length   2  of all
//	 2  kind     1
//	 3  status   1
//	 4  cmd      1
//	 5  stream   1
//	 6  class    2
//	 8  gid      8
//	16  micros   8
//	24  ttl      8
//	32  size     4
//	36  idle     4
//	40  cfd      4
//	44  at       8
//	52  text, which is the key or the whole line
const (
	recordHeaderBytes = 52
	recordTextMax     = 512 // Source: memcached's reqlen in default_entries
	recordMaxBytes    = recordHeaderBytes + recordTextMax
)

// record is an event that somebody may watch.
type record struct {
	kind    lineKind
	status  uint8  // by kind, see watch_line.go
	cmd     uint8  // by kind
	streamI uint8  // of lineText: its stream is streamNames[streamI]
	class   uint16 // of the item
	gid     uint64 // its number among all records
	micros  int64  // Unix time
	ttl     int64
	size    uint32 // bytes of the value
	idle    uint32 // seconds since the last access
	cfd     int32  // number of the connection
	at      int64  // by kind: Unix time in ms, as the store was told
	text    []byte // the key, or the line; at most recordTextMax bytes
}

// appendTo appends the bytes of rec to b.
func (rec *record) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint16(b, uint16(recordHeaderBytes+len(rec.text)))
	b = append(b, byte(rec.kind), rec.status, rec.cmd, rec.streamI)
	b = le.AppendUint16(b, rec.class)
	b = le.AppendUint64(b, rec.gid)
	b = le.AppendUint64(b, uint64(rec.micros))
	b = le.AppendUint64(b, uint64(rec.ttl))
	b = le.AppendUint32(b, rec.size)
	b = le.AppendUint32(b, rec.idle)
	b = le.AppendUint32(b, uint32(rec.cfd))
	b = le.AppendUint64(b, uint64(rec.at))
	return append(b, rec.text...)
}

// read makes rec the record whose bytes are b. Its text is a view of b.
func (rec *record) read(b []byte) {
	le := binary.LittleEndian
	*rec = record{
		kind:    lineKind(b[2]),
		status:  b[3],
		cmd:     b[4],
		streamI: b[5],
		class:   le.Uint16(b[6:]),
		gid:     le.Uint64(b[8:]),
		micros:  int64(le.Uint64(b[16:])),
		ttl:     int64(le.Uint64(b[24:])),
		size:    le.Uint32(b[32:]),
		idle:    le.Uint32(b[36:]),
		cfd:     int32(le.Uint32(b[40:])),
		at:      int64(le.Uint64(b[44:])),
		text:    b[recordHeaderBytes:],
	}
}

// ring is a queue of records with a bound. Who puts records into it waits for
// others who do, but never for the one who takes them out.
type ring struct {
	capacity int // bytes

	mu      sync.Mutex // held by who puts
	buf     []byte     // nil before the first watcher
	scratch [recordMaxBytes]byte
	head    atomic.Uint64 // bytes ever put
	tail    atomic.Uint64 // bytes ever taken
	written atomic.Uint64 // records
	dropped atomic.Uint64 // records, for want of room
	puts    atomic.Uint32 // odd while one is under way

	// Of the one who takes.
	next   record // if has: what was put first
	has    bool
	memory [recordMaxBytes]byte // of next
}

// open gives the ring its memory, if it has none yet.
func (r *ring) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.buf == nil {
		r.buf = make([]byte, r.capacity)
	}
}

// put adds rec, with the next number and the time, or drops it. The records of
// a ring are in the order of their numbers.
func (r *ring) put(rec *record, serial *atomic.Uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	head := r.head.Load()
	n := recordHeaderBytes + len(rec.text)
	if len(r.buf)-int(head-r.tail.Load()) < n {
		r.dropped.Add(1)
		return
	}
	r.puts.Add(1)
	rec.gid, rec.micros = serial.Add(1), time.Now().UnixMicro()
	b := rec.appendTo(r.scratch[:0])
	k := copy(r.buf[head%uint64(len(r.buf)):], b)
	copy(r.buf, b[k:])
	r.head.Store(head + uint64(n))
	r.puts.Add(1)
	r.written.Add(1)
}

// settle waits until no record that has its number already is still on its way
// into the ring.
func (r *ring) settle() {
	for n := r.puts.Load(); n%2 == 1 && r.puts.Load() == n; {
		runtime.Gosched()
	}
}

// peek reports whether there is a record; it is r.next then.
func (r *ring) peek() bool {
	if r.has {
		return true
	}
	tail := r.tail.Load()
	if r.head.Load() == tail {
		return false
	}
	r.copyOut(r.memory[:2], tail)
	b := r.memory[:binary.LittleEndian.Uint16(r.memory[:])]
	r.copyOut(b, tail)
	r.next.read(b)
	r.has = true
	r.tail.Store(tail + uint64(len(b)))
	return true
}

// copyOut fills b with what lies in the ring from at on.
func (r *ring) copyOut(b []byte, at uint64) {
	k := copy(b, r.buf[at%uint64(len(r.buf)):])
	copy(b[k:], r.buf)
}

// take removes r.next.
func (r *ring) take() { r.has = false }
