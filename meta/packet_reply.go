package meta

import (
	"bytes"
	"encoding/binary"
)

// packetFlagsBytes are the extras of a reply that tells client flags.
const packetFlagsBytes = 4

// appendPacket appends the header of a reply to r, for a body of these lengths.
func (r *Request) appendPacket(dst []byte, st PacketStatus, extras, key, body int, cas uint64) []byte {
	var h [PacketHeaderBytes]byte
	h[0], h[1] = packetReplyMagic, byte(r.Opcode)
	binary.BigEndian.PutUint16(h[2:], uint16(key))
	h[4] = byte(extras)
	binary.BigEndian.PutUint16(h[6:], uint16(st))
	binary.BigEndian.PutUint32(h[8:], uint32(body))
	binary.BigEndian.PutUint32(h[12:], r.PacketOpaque)
	binary.BigEndian.PutUint64(h[16:], cas)
	return append(dst, h[:]...)
}

// AppendPacketOK appends the reply to a packet that was done, with the CAS of
// the item, or 0.
func (r *Request) AppendPacketOK(dst []byte, cas uint64) []byte {
	return r.appendPacket(dst, PacketOK, 0, 0, 0, cas)
}

// AppendPacketText appends a reply whose body is text.
func (r *Request) AppendPacketText(dst []byte, st PacketStatus, text string) []byte {
	return append(r.appendPacket(dst, st, 0, 0, len(text), 0), text...)
}

// AppendPacketStatus appends the reply for an outcome that is no error in the
// text protocol, with its usual text.
func (r *Request) AppendPacketStatus(dst []byte, st PacketStatus) []byte {
	return r.AppendPacketText(dst, st, packetTexts[st])
}

// AppendPacketError appends the reply for e: nothing for an error that is
// silent.
func (r *Request) AppendPacketError(dst []byte, e Error) []byte {
	p := &packetErrors[e]
	switch {
	case p.status == PacketOK:
		return dst
	case p.text != "":
		return r.AppendPacketText(dst, p.status, p.text)
	}
	return r.AppendPacketStatus(dst, p.status)
}

// AppendPacketMiss appends the reply to get, gat and touch when there is no
// item. Where a hit has the key, so has the miss, and no text.
func (r *Request) AppendPacketMiss(dst []byte) []byte {
	if !r.Has.Has('k') {
		return r.AppendPacketStatus(dst, PacketNotFound)
	}
	return append(r.appendPacket(dst, PacketNotFound, 0, len(r.Key), len(r.Key), 0), r.Key...)
}

// AppendPacketHit appends the reply to get, gat and touch up to the value, which
// is to follow where r asks for it.
func (r *Request) AppendPacketHit(dst []byte, it *Item) []byte {
	key, body := 0, packetFlagsBytes
	if r.Has.Has('k') {
		key = len(r.Key)
	}
	if r.Has.Has('v') {
		body += it.Size
	}
	dst = r.appendPacket(dst, PacketOK, packetFlagsBytes, key, body+key, it.CAS)
	dst = binary.BigEndian.AppendUint32(dst, it.ClientFlags)
	return append(dst, r.Key[:key]...)
}

// AppendPacketNumber appends the reply to incr and decr.
func (r *Request) AppendPacketNumber(dst []byte, number, cas uint64) []byte {
	const numberBytes = 8
	dst = r.appendPacket(dst, PacketOK, 0, 0, numberBytes, cas)
	return binary.BigEndian.AppendUint64(dst, number)
}

// AppendPacketStat appends one statistic. Without a name it is the end of them.
func (r *Request) AppendPacketStat(dst, name, value []byte) []byte {
	dst = r.appendPacket(dst, PacketOK, 0, len(name), len(name)+len(value), 0)
	return append(append(dst, name...), value...)
}

// AppendPacketStats appends what the text protocol answers to stats, lines of
// STAT, name and value, as a packet for each, and the packet that ends them.
func (r *Request) AppendPacketStats(dst, lines []byte) []byte {
	for len(lines) > 0 {
		line, rest, _ := bytes.Cut(lines, []byte("\r\n"))
		lines = rest
		stat, ok := bytes.CutPrefix(line, []byte("STAT "))
		if !ok {
			continue // END
		}
		name, value, _ := bytes.Cut(stat, []byte(" "))
		dst = r.AppendPacketStat(dst, name, value)
	}
	return r.AppendPacketStat(dst, nil, nil)
}
