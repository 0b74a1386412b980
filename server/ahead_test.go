package server

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// batches are pipelines in which looking ahead may lose its place, or find
// keys that are none. An answer must be the same as to each request alone.
var aheadBatches = []string{
	"get a\r\nget b\r\nget a b nope b\r\nget a\r\n",
	"mg YQ== b v k\r\nmg a v\r\nmg YQ== b v\r\nmg b v\r\n",                                // base64: another key than the text
	"get a\r\nnonsense a\r\nget b\r\ngat 0 a\r\nget a\r\nset a 0 0 zz\r\nget b\r\n",       // errors between
	"set a 0 0 1\r\nx\r\nget a\r\nset b 0 0 5\r\nget a\r\nget b\r\ndelete a\r\nget a\r\n", // a value that looks like a line
	"incr n 1\r\nincr n 1\r\nget n\r\ntouch n 0\r\nmd n\r\nget n\r\nma n\r\n",
	"get " + strings.Repeat("k", 251) + "\r\nget a\r\nget b\r\n",
	"get" + strings.Repeat(" a b", 60) + "\r\nget b" + strings.Repeat(" a", 40) + "\r\nmg a v\r\n",
	"ms a 1\r\nz\r\nms b 2\r\nzzz\r\nget a\r\nget b\r\nadd a 0 0 1\r\n",
	packet("get key=a") + packet("set key=a flags=1 exp=0 value=xy") + packet("getk key=a") + packet("noop") + packet("getq key=b") + packet("get key=a"),
}

// TestAhead: requests are answered alike whether they were looked at before or
// not, and come in one piece or in two.
func TestAhead(t *testing.T) {
	const setup = "set a 5 0 3\r\naaa\r\nset b 0 0 4\r\nbbbb\r\nset n 0 0 1\r\n7\r\n"
	for _, batch := range aheadBatches {
		want := ""
		for cut := -1; cut < len(batch); cut++ {
			p := newTestPeer(t, Config{})
			p.send(setup)
			q := p.another()
			var got string
			if cut < 0 {
				q.srv.aheadItemsMin = 1 << 60
				want = q.send(batch)
				continue
			}
			got = q.send(batch[:cut]) + q.send(batch[cut:])
			if got != want {
				t.Errorf("%.60q cut at %d: got %q, want %q", batch, cut, got, want)
				break
			}
		}
	}
}

// TestAheadFindsKeys: every key of a pipeline but the first is hashed ahead,
// and found.
func TestAheadFindsKeys(t *testing.T) {
	p := newTestPeer(t, Config{})
	p.w.ahead.begin(0)
	in := []byte("get a\r\nmg b v\r\nset c 0 0 3\r\nget\r\nget d e\r\nmn\r\nget f\r\n")
	p.s.lookAhead(&p.w, in, 0)
	var got string
	for _, k := range p.w.ahead.keys[:p.w.ahead.n] {
		got += string(k.Bytes)
	}
	if got != "abcde" || p.w.ahead.until != len("mn\r\nget f\r\n") {
		t.Errorf("found %q, %d bytes left", got, p.w.ahead.until)
	}
	p.srv.batchMax = 3
	p.s.lookAhead(&p.w, in, 2)
	if p.w.ahead.n != 2 {
		t.Errorf("found %d keys where 2 requests are left in the batch", p.w.ahead.n)
	}
}

// BenchmarkAhead is pipelines of requests for keys drawn at random, in stores
// of many sizes, with requests looked at ahead and not.
func BenchmarkAhead(b *testing.B) {
	value := strings.Repeat("v", 100)
	for _, n := range []int{10_000, 40_000, 200_000, 6_000_000} {
		p := newTestPeer(b, Config{MemoryMB: 2048})
		set := func(k int) string { return fmt.Sprintf("set key-%012d 0 0 100\r\n%s\r\n", k, value) }
		for k := range n {
			p.run([]byte(set(k)))
		}
		for _, bc := range []struct {
			name  string
			depth int
			one   func(k int) string
		}{
			{"Get/pipeline1", 1, func(k int) string { return fmt.Sprintf("get key-%012d\r\n", k) }},
			{"Get/pipeline16", 16, func(k int) string { return fmt.Sprintf("get key-%012d\r\n", k) }},
			{"MetaGet/pipeline16", 16, func(k int) string { return fmt.Sprintf("mg key-%012d v\r\n", k) }},
			{"Set/pipeline16", 16, set},
			{"Get/50keys", 50, nil},
		} {
			random := rand.New(rand.NewPCG(1, 2))
			batches := make([][]byte, 2000)
			for i := range batches {
				batch := "get"
				if bc.one != nil {
					batch = ""
				}
				for range bc.depth {
					if k := random.IntN(n); bc.one != nil {
						batch += bc.one(k)
					} else {
						batch += fmt.Sprintf(" key-%012d", k)
					}
				}
				if bc.one == nil {
					batch += "\r\n"
				}
				batches[i] = []byte(batch)
			}
			for _, ahead := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/items=%d/ahead=%t", bc.name, n, ahead), func(b *testing.B) {
					p.srv.aheadItemsMin = 0
					if !ahead {
						p.srv.aheadItemsMin = 1 << 60
					}
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						p.run(batches[i])
						if i++; i == len(batches) {
							i = 0
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*bc.depth), "ns/req")
				})
			}
		}
	}
}
