package server

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/quarrycache/quarry/meta"
)

// Packets in transcripts. A line is a packet:
//
//	>: set key=k flags=5 exp=0 value=hello opaque=7
//	<: set ok cas={c} opaque=7
//	<: get notfound
//	<~: stat ok key=pid value={#}    skip packets up to that one
//
// First the opcode, by name or as 0xNN; in a reply, the status. Then fields:
//
//	key, value          text, as in other lines
//	cas, opaque         numbers of the header
//	flags, exp          extras of 32 bits, in the order given
//	delta, init         extras of 64 bits
//	number              a value of 64 bits
//	extras              extras in hex
//	magic, klen, xlen, blen   what the header says instead of what is so
//
// A number may be {name}, which is remembered or compared as elsewhere, or in
// a reply *, which is any. What is not given is 0 or empty; a reply with an
// error has the text of its status.

var packetOpcodes = map[string]meta.Opcode{
	"get": meta.OpcodeGet, "getq": meta.OpcodeGetQ, "getk": meta.OpcodeGetK, "getkq": meta.OpcodeGetKQ,
	"set": meta.OpcodeSet, "setq": meta.OpcodeSetQ, "add": meta.OpcodeAdd, "addq": meta.OpcodeAddQ,
	"replace": meta.OpcodeReplace, "replaceq": meta.OpcodeReplaceQ,
	"append": meta.OpcodeAppend, "appendq": meta.OpcodeAppendQ, "prepend": meta.OpcodePrepend, "prependq": meta.OpcodePrependQ,
	"delete": meta.OpcodeDelete, "deleteq": meta.OpcodeDeleteQ,
	"incr": meta.OpcodeIncr, "incrq": meta.OpcodeIncrQ, "decr": meta.OpcodeDecr, "decrq": meta.OpcodeDecrQ,
	"touch": meta.OpcodeTouch, "gat": meta.OpcodeGat, "gatq": meta.OpcodeGatQ, "gatk": meta.OpcodeGatK, "gatkq": meta.OpcodeGatKQ,
	"quit": meta.OpcodeQuit, "quitq": meta.OpcodeQuitQ, "flush": meta.OpcodeFlush, "flushq": meta.OpcodeFlushQ,
	"noop": meta.OpcodeNoop, "version": meta.OpcodeVersion, "stat": meta.OpcodeStat,
	"mechs": meta.OpcodeAuthList, "auth": meta.OpcodeAuthStart, "step": meta.OpcodeAuthStep,
}

var packetStatuses = map[string]struct {
	status meta.PacketStatus
	text   string
}{
	"ok":         {meta.PacketOK, ""},
	"notfound":   {meta.PacketNotFound, "Not found"},
	"exists":     {meta.PacketExists, "Data exists for key."},
	"toolarge":   {meta.PacketTooLarge, "Too large."},
	"invalid":    {meta.PacketInvalid, "Invalid arguments"},
	"notstored":  {meta.PacketNotStored, "Not stored."},
	"nonnumeric": {meta.PacketNonNumeric, "Non-numeric server-side value for incr or decr"},
	"autherror":  {meta.PacketAuthError, "Auth failure."},
	"continue":   {meta.PacketAuthContinue, ""},
	"unknown":    {meta.PacketUnknown, "Unknown command"},
	"nomemory":   {meta.PacketNoMemory, "Out of memory"},
}

// noop ends a case of packets, as mn does one of lines.
func noop(line int) []action {
	const opaque = 0x4d4e
	packet := packetLine{magic: meta.PacketMagic, klen: -1, xlen: -1, blen: -1, opaque: bigEndian(4, opaque), cas: bigEndian(8, 0)}
	send := action{kind: actSend, line: line, packet: true, text: packet.template(meta.OpcodeNoop, meta.PacketOK)}
	packet.magic = 0x81
	expect := action{kind: actExpect, line: line, packet: true, text: packet.template(meta.OpcodeNoop, meta.PacketOK)}
	return []action{send, expect}
}

// packetLine is a packet being read from a transcript.
type packetLine struct {
	key, value, extras template
	opaque, cas        template
	magic              uint64
	klen, xlen, blen   int // -1: what is so
}

// parsePacket reads what stands behind >: and <:.
func parsePacket(s string, reply bool) (template, error) {
	words := strings.Fields(s)
	if len(words) == 0 || reply && len(words) == 1 {
		return nil, fmt.Errorf("no packet: %q", s)
	}
	opcode, ok := packetOpcodes[words[0]]
	if !ok {
		n, err := strconv.ParseUint(words[0], 0, 8)
		if err != nil {
			return nil, err
		}
		opcode = meta.Opcode(n)
	}
	words = words[1:]
	p := packetLine{magic: meta.PacketMagic, klen: -1, xlen: -1, blen: -1}
	p.opaque, p.cas = bigEndian(4, 0), bigEndian(8, 0)
	status := meta.PacketOK
	if reply {
		st, ok := packetStatuses[words[0]]
		if !ok {
			return nil, fmt.Errorf("no status %q", words[0])
		}
		status, p.magic = st.status, 0x81
		if st.text != "" {
			p.value = template{{lit: []byte(st.text)}}
		}
		words = words[1:]
	}
	for _, word := range words {
		name, text, ok := strings.Cut(word, "=")
		if !ok {
			return nil, fmt.Errorf("want field=value, got %q", word)
		}
		if err := p.field(name, text); err != nil {
			return nil, err
		}
	}
	return p.template(opcode, status), nil
}

// field reads one field.
func (p *packetLine) field(name, text string) (err error) {
	var plain uint64
	var number template
	switch name {
	case "key":
		p.key, err = parseTemplate(text)
	case "value":
		p.value, err = parseTemplate(text)
	case "number":
		p.value, err = parseNumber(8, text)
	case "opaque":
		p.opaque, err = parseNumber(4, text)
	case "cas":
		p.cas, err = parseNumber(8, text)
	case "flags", "exp":
		number, err = parseNumber(4, text)
		p.extras = append(p.extras, number...)
	case "delta", "init":
		number, err = parseNumber(8, text)
		p.extras = append(p.extras, number...)
	case "extras":
		var b []byte
		b, err = hex.DecodeString(text)
		p.extras = append(p.extras, part{lit: b})
	default:
		plain, err = strconv.ParseUint(text, 0, 32)
		switch name {
		case "magic":
			p.magic = plain
		case "klen":
			p.klen = int(plain)
		case "xlen":
			p.xlen = int(plain)
		case "blen":
			p.blen = int(plain)
		default:
			err = fmt.Errorf("no field %q", name)
		}
	}
	return err
}

// template puts the packet together.
func (p *packetLine) template(opcode meta.Opcode, status meta.PacketStatus) template {
	klen, kok := p.key.size()
	xlen, _ := p.extras.size()
	vlen, vok := p.value.size()
	length := func(bytes, n int, known bool, given int) template {
		switch {
		case given >= 0:
			return bigEndian(bytes, uint64(given))
		case !known:
			return template{{hole: "#", bytes: bytes}}
		}
		return bigEndian(bytes, uint64(n))
	}
	return slices.Concat(
		bigEndian(1, p.magic), bigEndian(1, uint64(opcode)), length(2, klen, kok, p.klen),
		length(1, xlen, true, p.xlen), bigEndian(1, 0), bigEndian(2, uint64(status)),
		length(4, klen+xlen+vlen, kok && vok, p.blen), p.opaque, p.cas,
		p.extras, p.key, p.value)
}

// size is how many bytes t stands for, if that does not depend on what comes.
func (t template) size() (n int, known bool) {
	for _, p := range t {
		if p.hole != "" && p.bytes == 0 {
			return 0, false
		}
		n += len(p.lit) + p.bytes
	}
	return n, true
}

// bigEndian is a number in so many bytes.
func bigEndian(bytes int, v uint64) template {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	return template{{lit: b[8-bytes:]}}
}

// parseNumber reads the number of a field that has so many bytes.
func parseNumber(bytes int, s string) (template, error) {
	if s == "*" {
		return template{{hole: "#", bytes: bytes}}, nil
	}
	if inner, ok := strings.CutPrefix(s, "{"); ok {
		p, err := parseHole(strings.TrimSuffix(inner, "}"))
		p.bytes = bytes
		return template{p}, err
	}
	v, err := strconv.ParseUint(s, 0, 64)
	return bigEndian(bytes, v), err
}

// readPacket reads a packet.
func (r *runner) readPacket() ([]byte, error) {
	got := make([]byte, meta.PacketHeaderBytes)
	if n, err := io.ReadFull(r.r, got); err != nil {
		return got[:n], err
	}
	head := len(got)
	body := binary.BigEndian.Uint32(got[8:])
	if body > meta.PacketBodyMax {
		return got, fmt.Errorf("a body of %d bytes", body)
	}
	got = append(got, make([]byte, body)...)
	n, err := io.ReadFull(r.r, got[head:])
	return got[:head+n], err
}

// expectPacket reads a packet and compares it; with actSeek, packets up to the
// one wanted, or to one without a key.
func (r *runner) expectPacket(act action) error {
	for {
		got, err := r.readPacket()
		switch {
		case err != nil:
			return fmt.Errorf("got %s and then %w, want %s", shorten(got), err, act.text)
		case act.text.match(got, r.names, r.tg.slack):
			return nil
		case act.kind != actSeek || got[2]|got[3] == 0:
			return fmt.Errorf("got %s, want %s", shorten(got), act.text)
		}
	}
}
