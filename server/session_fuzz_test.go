package server

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

// FuzzSession feeds any bytes at all, cut at any places: as a whole, byte by
// byte, and cut at random. The session must never panic, hang, take bytes that
// it was not given or keep anything when it ends, the answers must be the same
// each time, and the store must be sound afterwards.
//
// Some things do depend on the cuts, as in memcached, and are not compared:
// lines over lineMax, answers that tell of memory and time, and whether
// something waits before a dump.
func FuzzSession(f *testing.F) {
	f.Add([]byte(sessionScript), uint64(1))
	for line := range strings.SplitAfterSeq(sessionScript, "\n") {
		f.Add([]byte(line+"mn\r\n"), uint64(2))
	}
	f.Add([]byte("set a 0 0 40000\r\n"+strings.Repeat("x", 40000)+"\r\nget a a a a a a a a a\r\n"), uint64(3))
	f.Add([]byte("get "+strings.Repeat("abc ", 1000)+longKey+"\r\nmn\r\n"), uint64(4))
	f.Add([]byte("stats\r\nstats items\r\nstats slabs\r\nstats settings\r\nstats conns\r\nstats detail on\r\nget a:b\r\nstats detail dump\r\n"), uint64(5))
	f.Add([]byte("set a 0 0 1\r\nx\r\nlru_crawler metadump all\r\nlru_crawler mgdump 1,2\r\nstats cachedump 1 0\r\nlru mode flat\r\nlru temp_ttl 5\r\n"), uint64(6))
	fresh := freshScript(f)
	f.Add([]byte(fresh), uint64(6))
	for line := range strings.SplitAfterSeq(fresh, "\n") {
		f.Add([]byte(line+"mn\r\n"), uint64(7))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		if len(data) > 1<<17 || len(data) > 0 && data[0] == meta.PacketMagic {
			return // packets are FuzzPackets's
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		random := func(n int) int { return 1 + rng.IntN(min(n, 1+rng.IntN(300))) }
		whole := fuzzFeed(t, nil, data, func(n int) int { return n })
		single := fuzzFeed(t, nil, data, func(int) int { return 1 })
		cut := fuzzFeed(t, nil, data, random)
		if bytes.Contains(data, []byte("stats")) || bytes.Contains(data, []byte("lru_crawler")) || hasLongLine(data) {
			return
		}
		if !bytes.Equal(whole, single) {
			t.Errorf("byte by byte: got %s, as a whole %s", short(string(single)), short(string(whole)))
		}
		if !bytes.Equal(whole, cut) {
			t.Errorf("cut: got %s, as a whole %s", short(string(cut)), short(string(whole)))
		}
	})
}

// FuzzPackets is FuzzSession for the binary protocol, with and without SASL.
func FuzzPackets(f *testing.F) {
	f.Add([]byte(packetScript), false, uint64(1))
	f.Add([]byte(loginScript), true, uint64(2))
	f.Add([]byte(packetScript+packet("get key={251*k}")), false, uint64(3))
	f.Add([]byte(packet("set key=k flags=0 exp=0 value={30000*x}")+packet("getk key=k")), false, uint64(4))
	f.Add([]byte(packet("stat")+packet("stat key=settings")), false, uint64(5))
	fuzzUsers := testSASLUsers(f, "user:secret")
	f.Fuzz(func(t *testing.T, data []byte, sasl bool, seed uint64) {
		if len(data) > 1<<17 || len(data) == 0 || data[0] != meta.PacketMagic {
			return
		}
		var u *saslUsers
		if sasl {
			u = fuzzUsers
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		random := func(n int) int { return 1 + rng.IntN(min(n, 1+rng.IntN(60))) }
		whole := fuzzFeed(t, u, data, func(n int) int { return n })
		single := fuzzFeed(t, u, data, func(int) int { return 1 })
		cut := fuzzFeed(t, u, data, random)
		if bytes.IndexByte(data, byte(meta.OpcodeStat)) >= 0 { // memory and time
			return
		}
		if !bytes.Equal(whole, single) {
			t.Errorf("byte by byte: got %s, as a whole %s", short(string(single)), short(string(whole)))
		}
		if !bytes.Equal(whole, cut) {
			t.Errorf("cut: got %s, as a whole %s", short(string(cut)), short(string(whole)))
		}
	})
}

// fuzzConfig gives the same tokens each time.
var fuzzConfig = Config{EnableShutdown: true, ReqsPerEvent: 7, Fresh: FreshConfig{Seed: 1}}

// freshScript is a bit of everything that has to do with versions, deadlines and
// grants, with the tokens that fuzzConfig gives.
func freshScript(t testing.TB) string {
	p := newTestPeer(t, fuzzConfig)
	script, now := "", int64(testStart)
	do := func(format string, args ...any) string {
		in := fmt.Sprintf(format, args...)
		script += in
		return p.send(in)
	}
	token := func(reply string) string {
		_, reply, ok := strings.Cut(reply, " W g")
		text, _, _ := strings.Cut(reply, " ")
		if !ok {
			t.Fatalf("no grant in %q", reply)
		}
		return text
	}
	a := token(do("mg a v y a G500 k O1\r\n"))
	do("mg a v G500\r\nmg a v q G500b\r\nmg a v y\r\n")
	do("ms a 3 G%s Y41 A%d,%d,%d\r\none\r\n", a, now+30_000, now+10_000, now)
	do("mg a v y a G500\r\nme a\r\nget a\r\nms a 3 G%s Y41 A%d\r\none\r\n", a, now+30_000)
	do("md a I Y42 Lp.1\r\n")
	a = token(do("mg a v y a G500\r\n"))
	do("ms a 0 MV G%s Y40 A%d\r\n\r\n", a, now+1)
	a = token(do("mg a v y G500s Y43\r\n"))
	do("md a G%s\r\n", a)
	b := token(do("mg Yg== b v y G500\r\n"))
	do("ms Yg== 0 b MN G%s Y7 A%d\r\n\r\nmg b G500\r\nme b\r\nmd b Y8\r\n", b, now+5000)
	c := token(do("mg c G500\r\n"))
	do("ms c 20000 G%s Y1 A%d,%d\r\n%s\r\nmg c s G500\r\n", c, now+5000, now, strings.Repeat("c", 20000))
	do("append a 0 0 1\r\nx\r\nincr a 1\r\nms d 2 Y5\r\nhi\r\nms d 2 Y4\r\nhi\r\nmg d v G500\r\nmg d N30 Y9\r\nmd d x\r\nmg d v G500\r\n")
	do("mg e N30\r\nmg e v G500\r\nflush_all\r\nmg a G500\r\nmg a C1 G500\r\nms a 2 G1 Y1 A0\r\nhi\r\n")
	return script
}

// fuzzFeed gives data to a session of a new server, in pieces of the size that
// piece says, and returns what it answers. With users it wants a login.
func fuzzFeed(t *testing.T, u *saslUsers, data []byte, piece func(n int) int) []byte {
	p := newTestPeer(t, fuzzConfig)
	p.srv.saslUsers = u
	for rest := data; len(rest) > 0; {
		n := piece(len(rest))
		p.feed(rest[:n])
		rest = rest[n:]
		if p.s.line != nil && len(*p.s.line) > lineMax {
			t.Fatalf("%d bytes of a line are kept", len(*p.s.line))
		}
	}
	p.s.end()
	if p.s.line != nil || p.s.block != nil {
		t.Fatal("the session keeps something when it has ended")
	}
	return p.got
}

func hasLongLine(data []byte) bool {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		if len(line) > lineMax {
			return true
		}
	}
	return false
}
