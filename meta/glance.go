package meta

import (
	"bytes"
	"encoding/binary"
)

// GlanceLine takes a quick look at the command line that b begins with, so
// that its keys can be prepared for before it is executed. keys is where they
// are, for NextKey; n is the length of the request, its data block included,
// which may be more than there is in b. It knows the common forms alone, and
// says n = 0 of all others. It does not judge: what it takes for a key may be
// refused when the line is parsed.
func GlanceLine(b []byte) (keys []byte, n int) {
	end := bytes.IndexByte(b, '\n')
	if end < lineBytesMin {
		return nil, 0
	}
	line := b[:end]
	if line[end-1] == '\r' {
		line = line[:end-1]
	}
	word := firstWord(line)
	rest := line[len(word):]
	switch string(word) {
	case "get", "gets":
		return rest, end + 1
	case "mg", "md", "ma", "delete", "incr", "decr", "touch":
		key, _ := NextKey(rest)
		return key, end + 1
	case "ms":
		key, after := NextKey(rest)
		length, _, ok := plainNumber(after)
		if !ok {
			return nil, 0
		}
		return key, end + 1 + int(length) + len("\r\n")
	case "set", "add", "replace", "append", "prepend":
		key, after := NextKey(rest)
		_, after, ok1 := plainNumber(after)
		_, after, ok2 := plainNumber(after)
		length, _, ok3 := plainNumber(after)
		if !ok1 || !ok2 || !ok3 {
			return nil, 0
		}
		return key, end + 1 + int(length) + len("\r\n")
	}
	return nil, 0
}

// GlancePacket is GlanceLine for a packet.
func GlancePacket(b []byte) (key []byte, n int) {
	if len(b) < PacketHeaderBytes || b[0] != PacketMagic {
		return nil, 0
	}
	keyAt := PacketHeaderBytes + int(b[4])
	keyEnd := keyAt + int(binary.BigEndian.Uint16(b[2:]))
	body := binary.BigEndian.Uint32(b[8:])
	if body > PacketBodyMax || keyEnd > PacketHeaderBytes+int(body) || keyEnd > len(b) {
		return nil, 0
	}
	return b[keyAt:keyEnd:keyEnd], PacketHeaderBytes + int(body)
}
