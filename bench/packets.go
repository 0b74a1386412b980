package bench

import (
	"encoding/binary"
	"fmt"

	"github.com/quarrycache/quarry/meta"
)

// The requests and replies of the binary protocol.

// Parts of a packet's header that meta has no name for.
const (
	packetReplyMagic    = 0x81
	packetSetExtras     = 8
	packetStatusMiss    = 1
	packetGetExtras     = 4 // of the reply to a hit
	packetReplyBodyMax  = valueBytesMax + packetGetExtras + keyBytesMax
	packetExtrasAndKeys = packetGetExtras + keyBytesMax
)

// packetHeader appends the header of a packet with a key.
func (e *encoder) packetHeader(dst []byte, op meta.Opcode, keyBytes, extras, body int) []byte {
	var h [meta.PacketHeaderBytes]byte
	h[0], h[1], h[4] = meta.PacketMagic, byte(op), byte(extras)
	binary.BigEndian.PutUint16(h[2:], uint16(keyBytes))
	binary.BigEndian.PutUint32(h[8:], uint32(body))
	return append(dst, h[:]...)
}

// packetGet appends a get, or a quiet getk for each key and a noop.
func (e *encoder) packetGet(dst []byte, ks []uint64) []byte {
	size := e.keys.size()
	if len(ks) == 1 {
		return e.keys.append(e.packetHeader(dst, meta.OpcodeGet, size, 0, size), ks[0])
	}
	for _, k := range ks {
		dst = e.keys.append(e.packetHeader(dst, meta.OpcodeGetKQ, size, 0, size), k)
	}
	return e.packetHeader(dst, meta.OpcodeNoop, 0, 0, 0)
}

// packetSet appends a set of key k's value.
func (e *encoder) packetSet(dst []byte, k uint64) []byte {
	size := e.keys.size()
	dst = e.packetHeader(dst, meta.OpcodeSet, size, packetSetExtras, packetSetExtras+size+e.values.size(k))
	var flagsAndExptime [packetSetExtras]byte
	dst = append(dst, flagsAndExptime[:]...)
	return e.values.append(e.keys.append(dst, k), k)
}

// scanPackets is scan for packets: it takes headers with all that is before
// the value in one piece.
func (rs *replies) scanPackets(b []byte) (used int, err error) {
	for {
		rest := b[used:]
		if rs.left > 0 {
			n := min(len(rest), rs.left)
			if rs.verify && !rs.broken && !rs.encoder.values.holds(rs.key, rs.offset, rest[:n]) {
				rs.broken = true
			}
			rs.left -= n
			rs.offset += n
			used += n
			if rs.left > 0 {
				return used, nil
			}
			rs.packetHit()
			continue
		}
		n, err := rs.packet(rest)
		if n == 0 || err != nil {
			return used, err
		}
		used += n
	}
}

// packetHit counts a value that is complete.
func (rs *replies) packetHit() {
	rs.counts.hits++
	if rs.verify && (rs.broken || rs.offset != rs.encoder.values.size(rs.key)) {
		rs.counts.corrupt++
	}
	if rs.queue.stride == 1 {
		rs.finish()
	}
}

// packet takes one reply up to its value. n is 0 when it is not there yet.
func (rs *replies) packet(b []byte) (n int, err error) {
	if len(b) < meta.PacketHeaderBytes {
		return 0, nil
	}
	keyBytes, extras, body := int(binary.BigEndian.Uint16(b[2:])), int(b[4]), int(binary.BigEndian.Uint32(b[8:]))
	op, status := meta.Opcode(b[1]), binary.BigEndian.Uint16(b[6:])
	if b[0] != packetReplyMagic || keyBytes+extras > body || body > packetReplyBodyMax || keyBytes+extras > packetExtrasAndKeys {
		return 0, rs.unexpected(b[:meta.PacketHeaderBytes], "it is no reply")
	}
	if rs.queue.len() == 0 {
		return 0, rs.unexpected(b[:meta.PacketHeaderBytes], "nothing was asked")
	}
	isGet := op == meta.OpcodeGet || op == meta.OpcodeGetKQ
	head := meta.PacketHeaderBytes + extras + keyBytes
	if !isGet || status != 0 { // what is behind it is a message
		head = meta.PacketHeaderBytes + body
	}
	if len(b) < head {
		return 0, nil
	}
	get := rs.queue.at(rs.queue.head)
	switch {
	case isGet && status == 0 && get.kind == kindGet:
		return head, rs.packetValue(b[:head], get, b[head-keyBytes:head], body-extras-keyBytes)
	case (op == meta.OpcodeGet && status == packetStatusMiss || op == meta.OpcodeNoop) && get.kind == kindGet:
		rs.missUntil(get, rs.queue.stride)
		rs.finish()
	case op == meta.OpcodeSet && status == 0 && get.kind != kindGet:
		rs.stored(get)
	case status != 0:
		rs.refuse(fmt.Appendf(nil, "status %d: %s", status, b[meta.PacketHeaderBytes:head]))
	default:
		return 0, rs.unexpected(b[:meta.PacketHeaderBytes], "it answers something else")
	}
	return head, nil
}

// packetValue begins the value of size bytes of the next key of get, whose text
// is key (empty: the only one). Keys passed over are misses.
func (rs *replies) packetValue(head []byte, get *request, key []byte, size int) error {
	ks := rs.queue.keysOf(rs.queue.head)
	i := get.next
	if len(key) > 0 {
		k, ok := rs.encoder.keys.number(key)
		if !ok {
			return rs.unexpected(head, "the key is none of ours")
		}
		for i < len(ks) && ks[i] != k {
			i++
		}
	}
	if i == len(ks) {
		return rs.unexpected(head, "the key was not asked for")
	}
	rs.missUntil(get, i)
	get.next = i + 1
	rs.key, rs.offset, rs.broken, rs.left = ks[i], 0, false, size
	if size == 0 {
		rs.packetHit()
	}
	return nil
}
