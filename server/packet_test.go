package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

// packet is the bytes of a packet that is written as in a transcript.
func packet(s string) string { return packetBytes(s, false) }

// packetReply is packet for a reply.
func packetReply(s string) string { return packetBytes(s, true) }

func packetBytes(s string, reply bool) string {
	t, err := parsePacket(s, reply)
	if err != nil {
		panic(err)
	}
	b, ok := t.fill(nil)
	if !ok {
		panic(s + ": it names a number")
	}
	return string(b)
}

// packetScript is a bit of everything in packets.
var packetScript = strings.Join([]string{
	packet("set key=k flags=5 exp=0 value=hello opaque=1"),
	packet("get key=k opaque=2"), packet("getkq key=k"), packet("getq key=nope"), packet("getk key=nope"),
	packet("add key=k flags=0 exp=0 value=x"), packet("replaceq key=k flags=0 exp=100 value=5"),
	packet("append key=k value=0"), packet("prependq key=k value=1"),
	packet("incr key=k delta=1 init=0 exp=0"), packet("decr key=n delta=1 init=7 exp=0xffffffff"),
	packet("touch key=k exp=100"), packet("gatkq key=k exp=5"),
	packet("set key=k flags=0 exp=0 value=y cas=77"), packet("deleteq key=k"), packet("delete key=k"),
	packet("version"), packet("0x1b extras=00000001"), packet("0x30 key=k value=vvv"),
	packet("mechs"), packet("auth key=PLAIN value=\\0user\\0secret"),
	packet("flush exp=100"), packet("noop opaque=9"), packet("quit"),
}, "")

// TestPacketParts: the largest value of a packet arrives a few bytes at a time,
// and an idle session keeps nothing.
func TestPacketParts(t *testing.T) {
	p := newTestPeer(t, Config{MemoryMB: 8})
	const size = 200_000
	in := packet(fmt.Sprintf("set key=k flags=3 exp=0 value={%d*v}", size))
	for len(in) > 0 {
		n := min(len(in), 777)
		if got := p.send(in[:n]); len(in) > n && got != "" {
			t.Fatalf("answered %q before all was there", got)
		}
		in = in[n:]
	}
	if p.s.line != nil || p.s.block != nil {
		t.Error("an idle session keeps a buffer")
	}
	got := p.send(packet("get key=k"))
	if want := meta.PacketHeaderBytes + 4 + size; len(got) != want || !strings.HasSuffix(got, strings.Repeat("v", size)) {
		t.Errorf("got %d bytes, want %d", len(got), want)
	}
}

// TestPacketBrokenOff: a connection that ends inside a value leaves nothing
// behind.
func TestPacketBrokenOff(t *testing.T) {
	p := newTestPeer(t, Config{MemoryMB: 8})
	p.send(packet("set key=k flags=0 exp=0 value=old"))
	q := p.another()
	q.send(packet("set key=k flags=0 exp=0 value={100000*v}")[:50_000])
	q.s.end()
	p.want(packet("get key=k")[:24], "")
	if got := p.send("k"); !strings.HasSuffix(got, "old") {
		t.Errorf("got %q, want the old value", got)
	}
}

// TestPacketNoRoom: a value for which room runs out while it arrives is thrown
// away, and the connection goes on.
func TestPacketNoRoom(t *testing.T) {
	p := newTestPeer(t, Config{MemoryMB: 2, NoEvict: true, ItemMaxBytes: 1 << 20})
	large := packet("set key=big flags=0 exp=0 value={900000*v}")
	got := ""
	for i := 0; i < 10 && !strings.Contains(got, "Out of memory"); i++ {
		key := strings.Replace(large, "big", fmt.Sprintf("b%02d", i), 1)
		got = p.send(key[:1000])
		got += p.send(key[1000:])
	}
	if want := packetReply("set nomemory value=Out\\sof\\smemory\\sduring\\sread"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.want(packet("noop"), packetReply("noop ok"))
}
