package meta

import "encoding/binary"

// The binary protocol. A packet is a header and a body; numbers are big endian:
//
//	 0  magic: 80, in replies 81
//	 1  opcode
//	 2  key bytes (2)
//	 4  extras bytes
//	 5  data type: not looked at
//	 6  not looked at (2); in replies the status
//	 8  body bytes (4): extras, key, value
//	12  opaque (4)
//	16  CAS (8)
//	24  extras, key, value

const (
	// PacketHeaderBytes is the length of a packet's header.
	PacketHeaderBytes = 24

	// PacketMagic is the first byte of a packet, and of no command line: it
	// tells the protocols apart.
	PacketMagic = 0x80

	packetReplyMagic = 0x81

	// PacketBodyMax is the longest body in bytes. Source: memcached's
	// ITEM_SIZE_MAX_UPPER_LIMIT.
	PacketBodyMax = 1 << 30

	// PacketHeadMax is the longest head of a packet that does not close the
	// connection: header, extras and key.
	PacketHeadMax = PacketHeaderBytes + 255 + KeyMax
)

// Opcode is the command of a packet.
type Opcode uint8

const (
	OpcodeGet       Opcode = 0x00
	OpcodeSet       Opcode = 0x01
	OpcodeAdd       Opcode = 0x02
	OpcodeReplace   Opcode = 0x03
	OpcodeDelete    Opcode = 0x04
	OpcodeIncr      Opcode = 0x05
	OpcodeDecr      Opcode = 0x06
	OpcodeQuit      Opcode = 0x07
	OpcodeFlush     Opcode = 0x08
	OpcodeGetQ      Opcode = 0x09
	OpcodeNoop      Opcode = 0x0a
	OpcodeVersion   Opcode = 0x0b
	OpcodeGetK      Opcode = 0x0c
	OpcodeGetKQ     Opcode = 0x0d
	OpcodeAppend    Opcode = 0x0e
	OpcodePrepend   Opcode = 0x0f
	OpcodeStat      Opcode = 0x10
	OpcodeSetQ      Opcode = 0x11
	OpcodeAddQ      Opcode = 0x12
	OpcodeReplaceQ  Opcode = 0x13
	OpcodeDeleteQ   Opcode = 0x14
	OpcodeIncrQ     Opcode = 0x15
	OpcodeDecrQ     Opcode = 0x16
	OpcodeQuitQ     Opcode = 0x17
	OpcodeFlushQ    Opcode = 0x18
	OpcodeAppendQ   Opcode = 0x19
	OpcodePrependQ  Opcode = 0x1a
	OpcodeTouch     Opcode = 0x1c
	OpcodeGat       Opcode = 0x1d
	OpcodeGatQ      Opcode = 0x1e
	OpcodeAuthList  Opcode = 0x20
	OpcodeAuthStart Opcode = 0x21
	OpcodeAuthStep  Opcode = 0x22
	OpcodeGatK      Opcode = 0x23
	OpcodeGatKQ     Opcode = 0x24
)

// opcodesEnd is one more than the last Opcode.
const opcodesEnd = OpcodeGatKQ + 1

// counterNoExptime is the exptime of an incr or decr that is to make no number.
const counterNoExptime = 1<<32 - 1

// bodyRule is what the body of a packet may hold.
type bodyRule uint8

const (
	bodyNone     bodyRule = iota // nothing
	bodyExtras                   // extras or nothing
	bodyKey                      // extras and key, and nothing else
	bodyKeyLoose                 // extras and key; what follows is the next packet
	bodyAnyKey                   // as bodyKeyLoose, and the key may be empty
	bodyValue                    // extras, key, value
)

// opcode is what an Opcode means.
type opcode struct {
	op     Op
	verb   Verb
	mode   Mode
	has    Letters
	quiet  bool
	decr   bool
	body   bodyRule
	extras uint8 // bytes of extras
}

const (
	hasPacketGet = hasGets                 // v, f, c
	hasPacketKey = hasGets | 1<<('k'-'A')  // and k
	hasCounter   = hasArith | 1<<('c'-'A') // D, c
	hasVivify    = Letters(1<<('N'-'A')) | 1<<('J'-'A')
)

// opcodes are the opcodes that there are; op is OpNone for others.
var opcodes = [opcodesEnd]opcode{
	OpcodeGet:   {op: OpGet, verb: VerbGet, has: hasPacketGet, body: bodyKey},
	OpcodeGetQ:  {op: OpGet, verb: VerbGet, has: hasPacketGet, body: bodyKey, quiet: true},
	OpcodeGetK:  {op: OpGet, verb: VerbGet, has: hasPacketKey, body: bodyKey},
	OpcodeGetKQ: {op: OpGet, verb: VerbGet, has: hasPacketKey, body: bodyKey, quiet: true},

	OpcodeTouch: {op: OpGet, verb: VerbTouch, has: hasTouch | 1<<('f'-'A') | 1<<('c'-'A'), body: bodyKeyLoose, extras: 4},
	OpcodeGat:   {op: OpGet, verb: VerbGat, has: hasTouch | hasPacketGet, body: bodyKeyLoose, extras: 4},
	OpcodeGatQ:  {op: OpGet, verb: VerbGat, has: hasTouch | hasPacketGet, body: bodyKeyLoose, extras: 4, quiet: true},
	OpcodeGatK:  {op: OpGet, verb: VerbGat, has: hasTouch | hasPacketKey, body: bodyKeyLoose, extras: 4},
	OpcodeGatKQ: {op: OpGet, verb: VerbGat, has: hasTouch | hasPacketKey, body: bodyKeyLoose, extras: 4, quiet: true},

	OpcodeSet:      {op: OpSet, verb: VerbSet, has: hasSet, body: bodyValue, extras: 8},
	OpcodeSetQ:     {op: OpSet, verb: VerbSet, has: hasSet, body: bodyValue, extras: 8, quiet: true},
	OpcodeAdd:      {op: OpSet, verb: VerbAdd, mode: ModeAdd, has: hasSet, body: bodyValue, extras: 8},
	OpcodeAddQ:     {op: OpSet, verb: VerbAdd, mode: ModeAdd, has: hasSet, body: bodyValue, extras: 8, quiet: true},
	OpcodeReplace:  {op: OpSet, verb: VerbReplace, mode: ModeReplace, has: hasSet, body: bodyValue, extras: 8},
	OpcodeReplaceQ: {op: OpSet, verb: VerbReplace, mode: ModeReplace, has: hasSet, body: bodyValue, extras: 8, quiet: true},
	OpcodeAppend:   {op: OpSet, verb: VerbAppend, mode: ModeAppend, body: bodyValue},
	OpcodeAppendQ:  {op: OpSet, verb: VerbAppend, mode: ModeAppend, body: bodyValue, quiet: true},
	OpcodePrepend:  {op: OpSet, verb: VerbPrepend, mode: ModePrepend, body: bodyValue},
	OpcodePrependQ: {op: OpSet, verb: VerbPrepend, mode: ModePrepend, body: bodyValue, quiet: true},

	OpcodeDelete:  {op: OpDelete, verb: VerbDelete, body: bodyKey},
	OpcodeDeleteQ: {op: OpDelete, verb: VerbDelete, body: bodyKey, quiet: true},

	OpcodeIncr:  {op: OpArith, verb: VerbIncr, has: hasCounter, body: bodyKey, extras: 20},
	OpcodeIncrQ: {op: OpArith, verb: VerbIncr, has: hasCounter, body: bodyKey, extras: 20, quiet: true},
	OpcodeDecr:  {op: OpArith, verb: VerbDecr, has: hasCounter, body: bodyKey, extras: 20, decr: true},
	OpcodeDecrQ: {op: OpArith, verb: VerbDecr, has: hasCounter, body: bodyKey, extras: 20, decr: true, quiet: true},

	OpcodeNoop:    {op: OpNoop, verb: VerbOther},
	OpcodeVersion: {op: OpVersion, verb: VerbOther},
	OpcodeQuit:    {op: OpQuit, verb: VerbOther},
	OpcodeQuitQ:   {op: OpQuit, verb: VerbOther, quiet: true},
	OpcodeFlush:   {op: OpFlushAll, verb: VerbOther, body: bodyExtras, extras: 4},
	OpcodeFlushQ:  {op: OpFlushAll, verb: VerbOther, body: bodyExtras, extras: 4, quiet: true},
	OpcodeStat:    {op: OpStats, verb: VerbOther, body: bodyAnyKey},

	OpcodeAuthList:  {op: OpAuthList, verb: VerbOther},
	OpcodeAuthStart: {op: OpAuthStart, verb: VerbOther, body: bodyValue},
	OpcodeAuthStep:  {op: OpAuthStep, verb: VerbOther, body: bodyValue},
}

// allows reports whether a body of these lengths is one for o.
func (o *opcode) allows(extras, key, body int) bool {
	switch o.body {
	case bodyNone:
		return body == 0
	case bodyExtras:
		return key == 0 && body == extras && (extras == 0 || extras == int(o.extras))
	}
	if extras != int(o.extras) {
		return false
	}
	switch o.body {
	case bodyAnyKey:
		return true
	case bodyKey:
		return key > 0 && body == extras+key
	}
	return key > 0
}

// ParsePacket decodes the head of a packet: header, extras and key. It returns
// how long the head is. p begins with the packet and has PacketHeaderBytes at
// least; if the head is longer than p, r has no more than the header says, and
// the call is to be made again with all of it.
//
// Opcode and PacketOpaque are set beside an Error too. If it closes the
// connection, its reply is due when the whole head has come, however long that
// is; after another one Swallow bytes behind the head are to be thrown away.
func (r *Request) ParsePacket(p []byte) (head int, e Error) {
	r.Reset()
	header := p[:PacketHeaderBytes]
	key := int(binary.BigEndian.Uint16(header[2:]))
	extras := int(header[4])
	body := int(binary.BigEndian.Uint32(header[8:]))
	head = PacketHeaderBytes + extras + key

	r.Packet = true
	r.Opcode = Opcode(header[1])
	r.PacketOpaque = binary.BigEndian.Uint32(header[12:])
	var o *opcode
	if r.Opcode < opcodesEnd {
		o = &opcodes[r.Opcode]
		r.Op, r.Verb = o.op, o.verb
	}
	switch {
	case header[0] != PacketMagic:
		return head, ErrPacketMagic
	case extras+key > body:
		return head, ErrPacketShort
	case body > PacketBodyMax:
		return head, ErrPacketLong
	case key > KeyMax:
		return head, ErrPacketForm
	case r.Op == OpNone:
		r.Swallow = body - extras - key
		return head, ErrUnknown
	case !o.allows(extras, key, body):
		return head, ErrPacketForm
	}
	r.Mode, r.Has, r.Quiet, r.Decr = o.mode, o.has, o.quiet, o.decr
	if o.body == bodyValue {
		r.ValueLen = body - extras - key
	}
	if cas := binary.BigEndian.Uint64(header[16:]); cas != 0 {
		r.Has, r.CompareCAS = r.Has.With('C'), cas
	}
	if len(p) >= head {
		r.setKey(p[head-key : head])
		r.parseExtras(p[PacketHeaderBytes : PacketHeaderBytes+extras])
	}
	return head, ErrNone
}

// parseExtras decodes the numbers before the key, whose lengths are right.
func (r *Request) parseExtras(b []byte) {
	number := binary.BigEndian
	switch {
	case len(b) == 0:
	case r.Op == OpSet:
		r.ClientFlags = number.Uint32(b)
		r.TTL = int64(number.Uint32(b[4:]))
	case r.Op == OpArith:
		r.Delta = number.Uint64(b)
		r.Initial = number.Uint64(b[8:])
		if exptime := number.Uint32(b[16:]); exptime != counterNoExptime {
			r.Has |= hasVivify
			r.VivifyTTL = int64(exptime)
		}
	default: // touch, gat, flush
		r.Has |= hasTouch
		r.TTL = int64(number.Uint32(b))
	}
}
