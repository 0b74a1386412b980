package server

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// TestTTL walks through exptimes with a clock that only the test moves.
func TestTTL(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("set a 0 10 1\r\nx\r\nset b 0 -1 1\r\nx\r\nset c 0 0 1\r\nx\r\n", "STORED\r\nSTORED\r\nSTORED\r\n")
	p.want("mg a t\r\nmg b t\r\nmg c t\r\n", "HD t10\r\nEN\r\nHD t-1\r\n")
	p.sleep(9)
	p.want("mg a t\r\n", "HD t1\r\n")
	p.sleep(1)
	p.want("mg a t\r\nget a c\r\n", "EN\r\nVALUE c 0 1\r\nx\r\nEND\r\n")

	// Over 30 days it is a moment.
	at := testStart.Seconds() + 100
	p.want(fmt.Sprintf("set a 0 %d 1\r\nx\r\nmg a t\r\n", at), "STORED\r\nHD t90\r\n")
	p.want("touch a 5\r\nmg a t\r\ntouch a -1\r\ntouch a 5\r\n", "TOUCHED\r\nHD t5\r\nTOUCHED\r\nNOT_FOUND\r\n")
	p.want("gat 20 c\r\nmg c t\r\ngats 30 nope\r\n", "VALUE c 0 1\r\nx\r\nEND\r\nHD t20\r\nEND\r\n")
	p.sleep(20)
	p.want("get c\r\n", "END\r\n")

	// What mg shows depends on where T stands.
	p.want("ms a 1 T30\r\nx\r\nmg a t T60\r\nmg a T90 t\r\n", "HD\r\nHD t30\r\nHD t90\r\n")
	p.want("ms n 1 T30\r\n1\r\nma n t T60\r\nma n T90 t\r\nma n t\r\n", "HD\r\nHD t30\r\nHD t90\r\nHD t90\r\n")
	p.want("mg v1 t N30 T60\r\nmg v1 t\r\nmg v2 N30 t T60\r\nmg v2 t\r\nmg v3 T60 N30 t\r\nmg v3 t\r\n",
		"HD t-1 W\r\nHD t60 Z\r\nHD t30 W\r\nHD t60 Z\r\nHD t30 W\r\nHD t30 Z\r\n")
	p.want("ma v4 t N30 T60\r\nma v4 t\r\nma v5 T60 N30 t\r\nma v5 t\r\n", "HD t-1\r\nHD t60\r\nHD t30\r\nHD t30\r\n")
	p.want("append n 0 5 1\r\n0\r\nmg n t v\r\n", "STORED\r\nVA 2 t90\r\n40\r\n")
	p.want("incr n 100\r\nmg n t\r\n", "140\r\nHD t90\r\n") // a longer number in a new item
	if got := p.stat("", "get_expired"); got == "0" {
		t.Error("no get_expired")
	}
}

// TestFlush flushes now and later.
func TestFlush(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("set a 0 0 1\r\nx\r\nflush_all\r\nget a\r\nset a 0 0 1\r\nx\r\nget a\r\n",
		"STORED\r\nOK\r\nEND\r\nSTORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n")
	p.want("flush_all 10\r\nget a\r\n", "OK\r\nVALUE a 0 1\r\nx\r\nEND\r\n")
	p.sleep(9)
	p.want("get a\r\nset b 0 0 1\r\nx\r\n", "VALUE a 0 1\r\nx\r\nEND\r\nSTORED\r\n")
	p.sleep(1)
	p.want("get a b\r\nset b 0 0 1\r\nx\r\nget b\r\n", "END\r\nSTORED\r\nVALUE b 0 1\r\nx\r\nEND\r\n")
	p.want("flush_all noreply\r\nflush_all 0 noreply\r\nget b\r\nflush_all x\r\nflush_all -5\r\n",
		"END\r\nCLIENT_ERROR invalid exptime argument\r\nOK\r\n")
	if got := p.stat("", "cmd_flush"); got != "6" {
		t.Errorf("cmd_flush %s", got)
	}

	q := newTestPeer(t, Config{FlushDisabled: true})
	q.want("set a 0 0 1\r\nx\r\nflush_all\r\nflush_all x\r\nflush_all noreply\r\nget a\r\n",
		"STORED\r\nCLIENT_ERROR flush_all not allowed\r\nCLIENT_ERROR flush_all not allowed\r\nVALUE a 0 1\r\nx\r\nEND\r\n")
	if got := q.stat("", "cmd_flush"); got != "3" {
		t.Errorf("-F: cmd_flush %s", got)
	}
}

// TestWin is the life of a lease: vivify, recache, stale.
func TestWin(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("mg a s v N30 t\r\nmg a s v N30 t\r\nmg a s v\r\n", "VA 0 s0 t30 W\r\n\r\nVA 0 s0 t30 Z\r\n\r\nVA 0 s0 Z\r\n\r\n")
	p.want("ms a 2 T100\r\nhi\r\nmg a v\r\n", "HD\r\nVA 2\r\nhi\r\n")

	p.sleep(80)
	p.want("mg a t R10\r\nmg a t R30\r\nmg a t R30\r\n", "HD t20\r\nHD t20 W\r\nHD t20 Z\r\n")
	p.want("ms a 2 T100\r\nho\r\nmg a R30\r\n", "HD\r\nHD\r\n")

	p.want("md a I T30\r\nmg a t v\r\nmg a v\r\nmg a v\r\n", "HD\r\nVA 2 t30 X W\r\nho\r\nVA 2 Z X\r\nho\r\nVA 2 Z X\r\nho\r\n")
	p.want("md a I\r\nmg a\r\n", "HD\r\nHD X W\r\n") // the token is free again
	p.want("append a 0 0 1\r\n!\r\nmg a v\r\n", "STORED\r\nVA 3\r\nho!\r\n")

	p.want("ms b 2 E100\r\nhi\r\nmg b c\r\nms b 2 C50 I E200\r\nho\r\nmg b c v\r\n", "HD\r\nHD c100\r\nHD\r\nVA 2 c200 X W\r\nho\r\n")
	p.want("ms b 1 C300 I\r\nx\r\nms b 1 C300\r\nx\r\nms b 1 C0 I\r\nx\r\n", "EX\r\nEX\r\nEX\r\n")
	p.want("ms b 1 C200 c E500\r\nx\r\nmg b c v\r\n", "HD c500\r\nVA 1 c500\r\nx\r\n")
}

// TestCompare compares in each mode.
func TestCompare(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("ms a 1 E9\r\nx\r\n", "HD\r\n")
	p.want("mg a v C9\r\nmg a v C8 c\r\n", "HD\r\nVA 1 c9\r\nx\r\n")
	p.want("md a C8\r\nmd none C8\r\nma a C8\r\n", "EX\r\nNF\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n"[:len("EX\r\nNF\r\n")]+"EX\r\n")
	p.want("ms a 1 C8 MA c s\r\ny\r\nms a 1 C9 MA c s E10\r\ny\r\nms a 1 C0 MP s\r\nz\r\n", "EX c0 s1\r\nHD c10 s2\r\nHD s3\r\n")
	p.want("ms a 1 C8 MR\r\ny\r\nms none 1 C8\r\ny\r\nms none 1 C8 MR\r\ny\r\nms none 1 MR\r\ny\r\nms none 1 C8 MA\r\ny\r\n", "EX\r\nNF\r\nNF\r\nNS\r\nNS\r\n")
	p.want("ms none 1 C8 MA N0 T50\r\ny\r\nmg none v t\r\nms none 1 C1 ME\r\nx\r\n", "HD\r\nVA 1 t-1\r\ny\r\nNS\r\n")
	p.want("set n 0 0 1\r\n5\r\nma n C0 v\r\nma n E77 c v\r\nma n C76\r\nma n C77 v\r\n", "STORED\r\nVA 1\r\n6\r\nVA 1 c77\r\n7\r\nEX\r\nVA 1\r\n8\r\n")
	p.want("md n E5\r\nmg n\r\nset n 3 0 1\r\n5\r\nmd n x F7 T20 E6\r\nmg n c f t v\r\nmd n x\r\nmg n c f t v\r\n",
		"HD\r\nEN\r\nSTORED\r\nHD\r\nVA 0 c6 f7 t20\r\n\r\nHD\r\nVA 0 c6 f0 t-1\r\n\r\n")
	p.want("cas a 0 0 1 0\r\nx\r\ncas none2 0 0 1 3\r\nx\r\ncas a 0 0 1 x\r\nx\r\n", "EXISTS\r\nNOT_FOUND\r\nCLIENT_ERROR bad command line format\r\n")
}

// TestHits asks for what was so before the request.
func TestHits(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("set a 0 0 1\r\nx\r\n", "STORED\r\n")
	p.sleep(5)
	p.want("mg a h l u\r\nmg a h l\r\nmg a h l\r\n", "HD h0 l5\r\nHD h0 l5\r\nHD h1 l0\r\n")
	p.sleep(7)
	p.want("mg a l h\r\n", "HD l7 h1\r\n")
	if got := p.send("me a\r\n"); !regexp.MustCompile(`^ME a exp=-1 la=0 cas=\d+ fetch=yes cls=\d+ size=\d+\r\n$`).MatchString(got) {
		t.Errorf("me: %q", got)
	}
	p.want("me none\r\nme\r\n", "EN\r\nCLIENT_ERROR bad command line format\r\n")
}

// TestNoreply hides what it should, and no more.
func TestNoreply(t *testing.T) {
	p := newTestPeer(t, Config{ItemMaxBytes: 10000})
	big := strings.Repeat("x", 20000)
	p.want("set a 0 0 1 noreply\r\nx\r\nadd a 0 0 1 noreply\r\nx\r\ncas a 0 0 1 7 noreply\r\nx\r\n"+
		"touch a 0 noreply\r\nincr a 1 noreply\r\ndelete none noreply\r\nverbosity 1 noreply\r\n"+
		"set a 0 0 20000 noreply\r\n"+big+"\r\nset a 0 0 2 noreply\r\nabXY"+"bogus noreply\r\nset a x 0 1 noreply\r\nx\r\nmn\r\n", "MN\r\n")
	p.want("get a noreply\r\nversion noreply\r\nset a 0 0 noreply\r\n", "END\r\nVERSION 1.6.45\r\nCLIENT_ERROR bad command line format\r\n")

	p.want("ms a 1 q\r\nx\r\nms a 1 q ME\r\nx\r\nmg a q\r\nmg none q\r\nmd none q\r\nmd a q\r\nma none q\r\nma n N0 q v\r\nma n q\r\nmn\r\n",
		"NS\r\nHD\r\nNF\r\nNF\r\nMN\r\n")
	p.want("ms a 20000 q\r\n"+big+"\r\nms a 2 q\r\nabXYms a 1 q MX\r\nx\r\nma n q D-1\r\n",
		"SERVER_ERROR object too large for cache\r\nCLIENT_ERROR bad data chunk\r\nCLIENT_ERROR invalid mode for ms M token\r\nCLIENT_ERROR invalid or duplicate flag\r\n")
}

// TestTooLarge eats the block and drops what was there where a stale value
// would be worse than none.
func TestTooLarge(t *testing.T) {
	p := newTestPeer(t, Config{ItemMaxBytes: 10000})
	const tooLarge = "SERVER_ERROR object too large for cache\r\n"
	block := strings.Repeat("get k\r\n", 1715)[:12000] + "\r\n"
	for _, tc := range []struct{ cmd, reply, after string }{
		{"set k 0 0 12000\r\n", tooLarge, "END\r\n"},
		{"add k 0 0 12000\r\n", tooLarge, "VALUE k 0 1\r\nx\r\nEND\r\n"},
		{"replace k 0 0 12000\r\n", tooLarge, "VALUE k 0 1\r\nx\r\nEND\r\n"},
		{"append k 0 0 12000\r\n", tooLarge, "VALUE k 0 1\r\nx\r\nEND\r\n"},
		{"cas k 0 0 12000 1\r\n", tooLarge, "VALUE k 0 1\r\nx\r\nEND\r\n"},
		{"ms k 12000 ME\r\n", tooLarge, "END\r\n"},
	} {
		for _, cut := range []int{0, 1, 6000, len(block) - 1, len(block)} {
			p.want("set k 0 0 1\r\nx\r\n", "STORED\r\n")
			p.got = p.got[:0]
			p.feed([]byte(tc.cmd + block[:cut]))
			p.feed([]byte(block[cut:] + "get k\r\n"))
			if want := tc.reply + tc.after; string(p.got) != want {
				t.Errorf("%q cut at %d: got %s, want %q", tc.cmd, cut, short(string(p.got)), want)
			}
		}
	}
	p.want("set k 0 0 6000\r\n"+block[:6000]+"\r\nappend k 0 0 6000\r\n"+block[:6000]+"\r\n", "STORED\r\nNOT_STORED\r\n")
	if got := p.stat("", "store_too_large"); got == "0" {
		t.Error("store_too_large 0")
	}
}

// TestBadChunk eats exactly the length that was said, whole or in parts.
func TestBadChunk(t *testing.T) {
	p := newTestPeer(t, Config{})
	in := "set a 0 0 3\r\nabcdefversion\r\nget a\r\n"
	want := "CLIENT_ERROR bad data chunk\r\n" // of "abcde", then "fversion" is no command
	want += "ERROR\r\nEND\r\n"
	for i := range len(in) {
		p.got = p.got[:0]
		p.feed([]byte(in[:i]))
		p.feed([]byte(in[i:]))
		if string(p.got) != want {
			t.Errorf("cut at %d: got %q", i, p.got)
		}
	}
}

// TestNoMemory fills a cache that does not evict.
func TestNoMemory(t *testing.T) {
	p := newTestPeer(t, Config{NoEvict: true})
	value := strings.Repeat("v", 1000)
	full := -1
	for i := range 5000 {
		got := p.send(fmt.Sprintf("set k%d 0 0 1000\r\n%s\r\n", i, value))
		if got == "SERVER_ERROR out of memory storing object\r\n" {
			full = i
			break
		}
		if got != "STORED\r\n" {
			t.Fatalf("set %d: %q", i, got)
		}
	}
	if full < 0 {
		t.Fatal("never full")
	}
	p.want(fmt.Sprintf("get k%d\r\nget k0\r\n", full), "END\r\nVALUE k0 0 1000\r\n"+value+"\r\nEND\r\n")
	// A value of the same class takes the place of the old one; another finds no
	// room, and the old one goes.
	other := strings.Repeat("u", 1000)
	p.want("set k1 0 0 1000\r\n"+other+"\r\nget k1\r\n", "STORED\r\nVALUE k1 0 1000\r\n"+other+"\r\nEND\r\n")
	longer := strings.Repeat("v", 1500)
	p.want("set k0 0 0 1500\r\n"+longer+"\r\nget k0\r\n", "SERVER_ERROR out of memory storing object\r\nEND\r\n")

	// A large value finds its first chunk and then no more.
	q := newTestPeer(t, Config{NoEvict: true, MemoryMB: 2})
	large := strings.Repeat("w", 700_000)
	got := q.send("set a 0 0 700000\r\n" + large + "\r\nset b 0 0 700000\r\n" + large + "\r\nset c 0 0 700000\r\n" + large + "\r\nmn\r\n")
	if want := "STORED\r\nSTORED\r\nSERVER_ERROR Out of memory during read\r\nMN\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestOverwriteWhileSending pins a value, changes it in every way, and still
// sends what was there.
func TestOverwriteWhileSending(t *testing.T) {
	p := newTestPeer(t, Config{})
	value := strings.Repeat("v", 100_000)
	for _, change := range []string{
		"set a 0 0 1\r\nx\r\n", "delete a\r\n", "append a 0 0 1\r\nx\r\n", "md a x\r\n", "flush_all\r\n",
	} {
		p.want("set a 0 0 100000\r\n"+value+"\r\n", "STORED\r\n")
		p.w.now = *p.now
		p.s.feed(&p.w, []byte("get a\r\n"))
		p.another().send(change)
		p.got = p.got[:0]
		p.drain()
		if want := "VALUE a 0 100000\r\n" + value + "\r\nEND\r\n"; string(p.got) != want {
			t.Errorf("%q: got %s", change, short(string(p.got)))
		}
	}
}

// TestPinBound asks for more large values than may be pinned: those that can
// be copied are, larger ones end the line with an error, and nothing is mixed
// up.
func TestPinBound(t *testing.T) {
	p := newTestPeer(t, Config{MemoryMB: 64, ItemMaxBytes: 8 << 20})
	value := strings.Repeat("v", 4<<20)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		p.want("set "+key+" 0 0 4194304\r\n"+value+"\r\n", "STORED\r\n")
	}
	p.want("set s 0 0 20000\r\n"+value[:20000]+"\r\n", "STORED\r\n")
	var holders []*testPeer
	defer func() {
		for _, q := range holders {
			q.drain()
		}
	}()
	refused := false
	for i := 0; i < 6 && !refused; i++ {
		q := p.another()
		q.w.now = *p.now
		q.s.feed(&q.w, []byte("get "+string(rune('a'+i))+"\r\n"))
		holders = append(holders, q)
		refused = len(q.w.out.cuts) == 0
	}
	if !refused {
		t.Fatal("pinned bytes have no bound")
	}
	last := holders[len(holders)-1]
	last.drain()
	if want := "SERVER_ERROR out of memory writing get response\r\n"; string(last.got) != want {
		t.Errorf("got %s, want %q", short(string(last.got)), want)
	}
	refusedKey := string(rune('a' + len(holders) - 1))
	p.want("mg "+refusedKey+" v\r\nget s "+refusedKey+" s\r\nmn\r\n",
		"SERVER_ERROR out of memory writing get response\r\nVALUE s 0 20000\r\n"+value[:20000]+"\r\nSERVER_ERROR out of memory writing get response\r\nMN\r\n")
}

// TestShutdown obeys -A.
func TestShutdown(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.want("shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n")
	for _, word := range []string{"", " graceful", " g"} {
		q := newTestPeer(t, Config{EnableShutdown: true})
		q.want("shutdown now\r\nshutdown graceful now\r\nmn\r\n", "CLIENT_ERROR invalid shutdown mode\r\nCLIENT_ERROR invalid shutdown mode\r\nMN\r\n")
		q.want("mn\r\nshutdown"+word+"\r\nmn\r\n", "MN\r\n")
		select {
		case <-q.srv.ShutdownAsked():
		default:
			t.Errorf("shutdown%s: not asked", word)
		}
		if !q.closed || q.s.conn.reason != closeShutdown {
			t.Errorf("shutdown%s: closed %v for reason %v", word, q.closed, q.s.conn.reason)
		}
	}
}

// TestStatusesAgree: the modes of both packages are the same numbers.
func TestStatusesAgree(t *testing.T) {
	for m, s := range map[meta.Mode]store.Mode{
		meta.ModeSet: store.ModeSet, meta.ModeAdd: store.ModeAdd, meta.ModeReplace: store.ModeReplace,
		meta.ModeAppend: store.ModeAppend, meta.ModePrepend: store.ModePrepend,
	} {
		if store.Mode(m) != s {
			t.Errorf("meta mode %d is store mode %d", m, s)
		}
	}
}

// TestStats looks at the form of the answers, and at figures that follow from
// what was sent.
func TestStats(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.send("set a 0 0 1\r\nx\r\nset b 0 0 1\r\n1\r\nget a b c\r\nincr b 1\r\nincr c 1\r\ndecr b 1\r\ntouch a 0\r\ntouch c 0\r\n" +
		"gat 0 a c\r\ndelete c\r\ndelete b\r\ncas a 0 0 1 999\r\nx\r\nme a\r\nme c\r\nmg a v\r\nmg c\r\n")
	p.sleep(40)
	for key, want := range map[string]string{
		"cmd_get": "5", "get_hits": "3", "get_misses": "2", "cmd_set": "3", "cmd_touch": "4", "touch_hits": "2", "touch_misses": "2",
		"incr_hits": "1", "incr_misses": "1", "decr_hits": "1", "decr_misses": "0", "delete_hits": "1", "delete_misses": "1",
		"cas_badval": "1", "cas_misses": "0", "cas_hits": "0", "cmd_meta": "2", "curr_items": "1", "version": Version, "uptime": "42",
		"pointer_size": "64", "threads": "1", "limit_maxbytes": "2097152", "accepting_conns": "1",
		"time": fmt.Sprint(testStart.Seconds() + 40), "slab_reassign_last_busy_status": "none",
	} {
		if got := p.stat("", key); got != want {
			t.Errorf("%s %s, want %s", key, got, want)
		}
	}
	// bytes_read counts what a transport counts; here there is none.
	line := regexp.MustCompile(`^STAT \S+ \S+\r\n$`)
	for _, word := range []string{"", " settings", " items", " slabs", " conns", " sizes", " se", " co"} {
		got := p.send("stats" + word + "\r\n")
		body, ok := strings.CutSuffix(got, "END\r\n")
		if !ok || strings.Contains(body, "END") {
			t.Errorf("stats%s ends in %q", word, got[max(len(got)-20, 0):])
		}
		for l := range strings.Lines(body) {
			if !line.MatchString(l) {
				t.Errorf("stats%s: %q", word, l)
			}
		}
	}
	if got := strings.Count(p.send("stats\r\n"), "STAT "); got != 93 {
		t.Errorf("%d keys, memcached has 93", got)
	}
	p.want("stats r\r\n", "RESET\r\n")
	for _, key := range []string{"cmd_get", "cmd_set", "cmd_touch", "cmd_meta", "total_items", "delete_hits"} {
		if got := p.stat("", key); got != "0" {
			t.Errorf("after reset: %s %s", key, got)
		}
	}
	if got := p.stat("", "curr_items"); got != "1" {
		t.Errorf("after reset: curr_items %s", got)
	}
	p.want("stats foo\r\nstats item\r\nstats resets\r\nstats sizes_enable\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\n")
}

// TestPrefixes counts what stats detail counts.
func TestPrefixes(t *testing.T) {
	p := newTestPeer(t, Config{})
	const usage = "CLIENT_ERROR usage: stats detail on|off|dump\r\n"
	p.want("set x:1 0 0 1\r\nx\r\nstats detail dump\r\nstats detail\r\nstats detail foo\r\nstats detail on\r\n",
		"STORED\r\nEND\r\n"+usage+usage+"OK\r\n")
	p.want("set x:1 0 0 1\r\nx\r\nget x:1 x:2 y:1 plain\r\ngat 0 x:1\r\ndelete x:2\r\nmg x:1\r\nincr x:1 1\r\nstats detail dump\r\n",
		"STORED\r\nVALUE x:1 0 1\r\nx\r\nEND\r\nVALUE x:1 0 1\r\nx\r\nEND\r\nNOT_FOUND\r\nHD\r\n"+
			"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"+
			"PREFIX x get 3 hit 2 set 1 del 1\r\nPREFIX y get 1 hit 0 set 0 del 0\r\nEND\r\n")
	p.want("stats detail off\r\nget x:1\r\nstats reset\r\nstats detail dump\r\n", "OK\r\nVALUE x:1 0 1\r\nx\r\nEND\r\nRESET\r\nEND\r\n")

	q := newTestPeer(t, Config{DetailOn: true, PrefixDelim: '/'})
	q.want("get a/b a:b\r\nstats detail dump\r\n", "END\r\nPREFIX a get 1 hit 0 set 0 del 0\r\nEND\r\n")
	if got := q.stat("settings", "detail_enabled"); got != "yes" {
		t.Errorf("detail_enabled %s", got)
	}
	if got := q.stat("settings", "stat_key_prefix"); got != "/" {
		t.Errorf("stat_key_prefix %s", got)
	}
	for i := range prefixesMax + 10 {
		q.srv.prefixes.get(fmt.Appendf(nil, "%d/", i), true)
	}
	if n := len(q.srv.prefixes.m); n != prefixesMax {
		t.Errorf("%d prefixes", n)
	}
}

// TestTotals publishes from several workers.
func TestTotals(t *testing.T) {
	var n totals
	workers := make([]counters, totalSlots+3)
	for range 3 {
		for i := range workers {
			workers[i].requests = uint64(i)
			workers[i].bytesRead = 10
			n.publish(&workers[i])
			if workers[i].requests != 0 {
				t.Fatal("a published counter is not zero")
			}
		}
	}
	got := n.sum()
	if k := uint64(len(workers)); got.requests != 3*k*(k-1)/2 || got.bytesRead != 30*k {
		t.Errorf("sum %+v", got)
	}
	n.reset()
	if got := n.sum(); got != (counters{}) {
		t.Errorf("after reset %+v", got)
	}
}

// TestHasLongKey compares with counting bytes.
func TestHasLongKey(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var line []byte
		want := false
		for range rng.IntN(8) {
			n := rng.IntN(400)
			want = want || n > meta.KeyMax
			line = append(line, strings.Repeat("k", n)...)
			line = append(line, strings.Repeat(" ", 1+rng.IntN(300))...)
		}
		if got := hasLongKey(line); got != want {
			t.Fatalf("%q: got %v", line, got)
		}
	}
}
