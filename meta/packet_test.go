package meta_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

// packet is a packet of the binary protocol.
func packet(opcode meta.Opcode, extras, key, value string, cas uint64) []byte {
	p := make([]byte, meta.PacketHeaderBytes)
	p[0], p[1], p[4] = meta.PacketMagic, byte(opcode), byte(len(extras))
	binary.BigEndian.PutUint16(p[2:], uint16(len(key)))
	binary.BigEndian.PutUint32(p[8:], uint32(len(extras)+len(key)+len(value)))
	binary.BigEndian.PutUint32(p[12:], 0xfeedbeef)
	binary.BigEndian.PutUint64(p[16:], cas)
	return append(p, extras+key+value...)
}

const (
	zeros8 = "\x00\x00\x00\x00\x00\x00\x00\x00"
	far    = "\xff\xff\xff\xff"
)

func TestParsePacket(t *testing.T) {
	long := strings.Repeat("k", meta.KeyMax)
	for _, tt := range []struct {
		name string
		in   []byte
		want string // Describe
		err  meta.Error
	}{
		{"get", packet(meta.OpcodeGet, "", "k", "", 0), `get/get key="k" has=cfv`, meta.ErrNone},
		{"the longest key", packet(meta.OpcodeGet, "", long, "", 0), `get/get key="` + long + `" has=cfv`, meta.ErrNone},
		{"getkq", packet(meta.OpcodeGetKQ, "", "k", "", 0), `get/get key="k" has=cfkv quiet`, meta.ErrNone},
		{"set", packet(meta.OpcodeSet, "\x00\x00\x00\x05\x00\x00\x01\x00", "k", "hello", 0),
			`set/set key="k" has=FT len=5 client=5 ttl=256`, meta.ErrNone},
		{"an exptime without a sign", packet(meta.OpcodeSetQ, far+far, "k", "", 0),
			`set/set key="k" has=FT client=4294967295 ttl=4294967295 quiet`, meta.ErrNone},
		{"add with a CAS", packet(meta.OpcodeAdd, zeros8, "k", "v", 7), `set/add key="k" has=CFT mode=1 len=1 cas=7`, meta.ErrNone},
		{"append", packet(meta.OpcodeAppend, "", "k", "v", 0), `set/append key="k" mode=3 len=1`, meta.ErrNone},
		{"delete", packet(meta.OpcodeDeleteQ, "", "k", "", 9), `delete/delete key="k" has=C cas=9 quiet`, meta.ErrNone},
		{"incr", packet(meta.OpcodeIncr, "\x00\x00\x00\x00\x00\x00\x00\x02"+zeros8+far, "k", "", 0),
			`arith/incr key="k" has=Dc delta=2`, meta.ErrNone},
		{"decr that makes a number", packet(meta.OpcodeDecr, zeros8+"\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x04", "k", "", 0),
			`arith/decr key="k" has=DJNc vivify=4 initial=3 decr`, meta.ErrNone},
		{"touch", packet(meta.OpcodeTouch, "\x00\x00\x00\x09", "k", "", 0), `get/touch key="k" has=Tcf ttl=9`, meta.ErrNone},
		{"gatkq", packet(meta.OpcodeGatKQ, "\x00\x00\x00\x09", "k", "", 0), `get/gat key="k" has=Tcfkv ttl=9 quiet`, meta.ErrNone},
		{"noop", packet(meta.OpcodeNoop, "", "", "", 0), `noop/ key=""`, meta.ErrNone},
		{"flush", packet(meta.OpcodeFlush, "", "", "", 0), `flush_all/ key=""`, meta.ErrNone},
		{"flush with a delay", packet(meta.OpcodeFlushQ, "\x00\x00\x00\x09", "", "", 0), `flush_all/ key="" has=T ttl=9 quiet`, meta.ErrNone},
		{"stat", packet(meta.OpcodeStat, "", "items", "", 0), `stats/ key="items"`, meta.ErrNone},
		{"an unknown opcode", packet(0x30, "x", "k", "value", 0), `none/ swallow=5`, meta.ErrUnknown},
		{"a key too long", packet(meta.OpcodeGet, "", long+"k", "", 0), `get/get`, meta.ErrPacketForm},
		{"no key", packet(meta.OpcodeGet, "", "", "", 0), `get/get`, meta.ErrPacketForm},
		{"extras too short", packet(meta.OpcodeSet, "1234567", "k", "v", 0), `set/set`, meta.ErrPacketForm},
		{"no packet", append([]byte{0x81}, packet(meta.OpcodeGet, "", "k", "", 0)[1:]...), `get/get`, meta.ErrPacketMagic},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r meta.Request
			head, e := r.ParsePacket(tt.in)
			if got := r.Describe(); got != tt.want || e != tt.err {
				t.Errorf("got  %s, %d\nwant %s, %d", got, e, tt.want, tt.err)
			}
			if want := len(tt.in) - r.ValueLen - r.Swallow; head != want && !e.Closes() {
				t.Errorf("a head of %d bytes, want %d", head, want)
			}
			if !r.Packet || r.PacketOpaque != 0xfeedbeef {
				t.Errorf("packet %v, opaque %x", r.Packet, r.PacketOpaque)
			}
		})
	}
}

// FuzzParsePacket decodes any head. It never panics or looks beyond the head,
// says the same of the header alone, and what it takes is within its limits.
func FuzzParsePacket(f *testing.F) {
	f.Add(packet(meta.OpcodeSet, zeros8, "key", "value", 5))
	f.Add(packet(meta.OpcodeIncrQ, zeros8+zeros8+far, "key", "", 0))
	f.Add(packet(meta.OpcodeGatK, far, "key", "", 0))
	f.Add(packet(meta.OpcodeAuthStart, "", "PLAIN", "\x00user\x00secret", 0))
	f.Add(packet(0x77, "ex", "key", "value", 0))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < meta.PacketHeaderBytes {
			return
		}
		var r, header meta.Request
		head, e := r.ParsePacket(in)
		head2, e2 := header.ParsePacket(in[:meta.PacketHeaderBytes:meta.PacketHeaderBytes])
		if head != head2 || e != e2 || r.Op != header.Op || r.ValueLen != header.ValueLen || r.Swallow != header.Swallow {
			t.Fatalf("%x: head %d, error %d; of the header alone %d, %d", in, head, e, head2, e2)
		}
		if e.Closes() {
			return
		}
		if head > meta.PacketHeadMax || r.ValueLen < 0 || r.Swallow < 0 || r.ValueLen+r.Swallow > meta.PacketBodyMax {
			t.Fatalf("%x: head %d, value %d, swallow %d", in, head, r.ValueLen, r.Swallow)
		}
		if len(in) < head || e != meta.ErrNone {
			return
		}
		if !bytes.HasSuffix(in[:head], r.Key) || len(r.Key) > meta.KeyMax {
			t.Fatalf("%x: key %q", in, r.Key)
		}
		for _, e := range []meta.Error{meta.ErrNone, meta.ErrUnknown, meta.ErrTooLarge, meta.ErrPacketForm} {
			reply := r.AppendPacketError(nil, e)
			if e == meta.ErrNone {
				reply = r.AppendPacketMiss(nil)
			}
			if n := binary.BigEndian.Uint32(reply[8:]); int(n) != len(reply)-meta.PacketHeaderBytes {
				t.Fatalf("%x: a reply of %d bytes says %d", in, len(reply), n)
			}
		}
	})
}
