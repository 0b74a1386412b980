package server

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// steady are batches whose repetition changes nothing: each is fed over and
// over.
var steady = []struct{ name, setup, in string }{
	{"Get/hit/100B", "set k 0 0 100\r\n" + value100 + "\r\n", "get k\r\n"},
	{"Get/hit/4K", "set k 0 0 4096\r\n" + strings.Repeat("v", 4096) + "\r\n", "get k\r\n"},
	{"Get/miss", "", "get nope\r\n"},
	{"Get/100keys", manySets(100), "get" + manyKeys(100) + "\r\n"},
	{"Gets/hit/100B", "set k 5 0 100\r\n" + value100 + "\r\n", "gets k\r\n"},
	{"Gat/hit/100B", "set k 5 0 100\r\n" + value100 + "\r\n", "gat 0 k\r\n"},
	{"Set/100B", "", "set k 0 0 100\r\n" + value100 + "\r\n"},
	{"Set/4K", "", "set k 0 0 4096\r\n" + strings.Repeat("v", 4096) + "\r\n"},
	{"Delete/miss", "", "delete nope\r\n"},
	{"Touch/hit", "set k 0 0 1\r\nx\r\n", "touch k 0\r\n"},
	{"Incr", "set k 0 0 20\r\n10000000000000000000\r\n", "incr k 1\r\n"},
	{"MetaGet/hit/100B", "set k 0 0 100\r\n" + value100 + "\r\n", "mg k v f t c s k Oabc\r\n"},
	{"MetaGet/miss", "", "mg nope v\r\n"},
	{"MetaSet/100B", "", "ms k 100 T0 c Oabc\r\n" + value100 + "\r\n"},
	{"MetaDelete/miss", "", "md nope\r\n"},
	{"MetaArith", "set k 0 0 20\r\n10000000000000000000\r\n", "ma k v\r\n"},
	{"MetaNoop", "", "mn\r\n"},
	{"Packet/get/hit/100B", packet("set key=k flags=5 exp=0 value={100*v}"), packet("get key=k")},
	{"Packet/getk/hit/4K", packet("set key=k flags=5 exp=0 value={4096*v}"), packet("getk key=k")},
	{"Packet/get/miss", "", packet("get key=nope")},
	{"Packet/getkq/miss", "", packet("getkq key=nope")},
	{"Packet/gat", packet("set key=k flags=5 exp=0 value={100*v}"), packet("gat key=k exp=0")},
	{"Packet/set/100B", "", packet("set key=k flags=0 exp=0 value={100*v}")},
	{"Packet/setq/4K", "", packet("setq key=k flags=0 exp=0 value={4096*v}")},
	{"Packet/delete/miss", "", packet("delete key=nope")},
	{"Packet/incr", packet("set key=k flags=0 exp=0 value=10000000000000000000"), packet("incr key=k delta=1 init=0 exp=0")},
	{"Packet/noop", "", packet("noop")},
}

// steadyFresh are those with versions, deadlines and grants.
var steadyFresh = []struct{ name, setup, in string }{
	{"MetaGet/fresh", versioned, "mg k v y a G500\r\n"},
	{"MetaGet/minimum", versioned, "mg k v Y5\r\n"},
	{"MetaGet/plain", versioned, "mg k v\r\n"},
	{"Get/versioned", versioned, "get k\r\n"},
	{"MetaGet/stale", versioned + "md k I Y6\r\nmg k G1000\r\n", "mg k v y G500\r\n"},
	{"MetaGet/waits", "mg nope G1000\r\n", "mg nope v G500\r\n"},
	{"MetaDelete/notice", versioned, "md k I Y5\r\n"},
	{"MetaSet/older", versioned, "ms k 100 Y5\r\n" + value100 + "\r\n"},
	{"MetaSet/forged", versioned, "ms k 100 GAAAAAA.1.AAAAAAAAAA Y5 A1800000000000\r\n" + value100 + "\r\n"},
}

var versioned = "ms k 100 Y5 A1800000000000,1700000900000\r\n" + value100 + "\r\n"

var value100 = strings.Repeat("v", 100)

func manySets(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "set key%d 0 0 100\r\n%s\r\n", i, value100)
	}
	return b.String()
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " key%d", i)
	}
	return b.String()
}

// run feeds in and forgets the replies, as cheaply as it can be done: a batch
// as a loop has it, but for the clock and the socket.
func (p *testPeer) run(in []byte) {
	p.w.sample.begin()
	n, v := p.s.feed(&p.w, in)
	if n != len(in) || v != verdictMore {
		p.t.Fatalf("took %d of %d, verdict %d", n, len(in), v)
	}
	p.w.out.buf = p.w.out.buf[:0]
	p.w.sample.end(&p.srv.latencies)
	p.w.publish(p.srv)
}

// TestNoAllocations: on the steady path nothing is allocated, whether a
// request arrives as a whole or in parts.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops what it is given under the race detector")
	}
	for _, tc := range slices.Concat(steady, steadyFresh) {
		p := newTestPeer(t, Config{})
		p.sleep(60) // floors are known then
		p.send(tc.setup)
		in := []byte(tc.in)
		in3 := []byte(strings.Repeat(tc.in, 3))
		cut := len(in) / 2
		for _, way := range []struct {
			name string
			run  func()
		}{
			{"whole", func() { p.run(in) }},
			{"again", func() { p.run(in); p.run(in) }},
			{"pipelined", func() { p.run(in3) }},
			{"in parts", func() { p.run(in[:cut]); p.run(in[cut:]) }},
		} {
			way.run()
			if n := testing.AllocsPerRun(100, way.run); n != 0 {
				t.Errorf("%s %s: %v allocations", tc.name, way.name, n)
			}
		}
	}
}

// TestSessionBytes: an idle session is small, and holds no buffer.
func TestSessionBytes(t *testing.T) {
	if n := reflect.TypeFor[session]().Size(); n > 128 {
		t.Errorf("a session takes %d bytes", n)
	}
	p := newTestPeer(t, Config{})
	p.send("set a 0 0 10\r\n")
	p.send("0123456789\r\nget")
	p.send(" a\r\n")
	if p.s.line != nil || p.s.block != nil {
		t.Error("an idle session keeps a buffer")
	}
}

func BenchmarkSession(b *testing.B) {
	for _, bc := range steady {
		for _, depth := range []int{1, 16} {
			b.Run(fmt.Sprintf("%s/pipeline%d", bc.name, depth), func(b *testing.B) {
				p := newTestPeer(b, Config{MemoryMB: 64})
				p.srv.aheadItemsMin = aheadItemsMin // there are few items
				p.send(bc.setup)
				in := []byte(strings.Repeat(bc.in, depth))
				if depth > 1 && len(in) > 30000 {
					b.Skip("the output would be full")
				}
				b.ReportAllocs()
				for b.Loop() {
					p.run(in)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*depth), "ns/req")
			})
		}
	}
}

// BenchmarkSessionParts stores values that arrive in reads of 16 KiB.
func BenchmarkSessionParts(b *testing.B) {
	for _, size := range []int{64 << 10, 1000 << 10} {
		b.Run(fmt.Sprintf("Set/%dK", size>>10), func(b *testing.B) {
			p := newTestPeer(b, Config{MemoryMB: 64})
			in := []byte(fmt.Sprintf("set k 0 0 %d\r\n%s\r\n", size, strings.Repeat("v", size)))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				for rest := in; len(rest) > 0; {
					n := min(16<<10, len(rest))
					p.run(rest[:n])
					rest = rest[n:]
				}
			}
		})
	}
}
