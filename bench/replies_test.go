package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// asked is what the tests below have in flight, in order: each is the keys
// of a get, or the key of a set.
type asked struct {
	kind kind
	keys []uint64
}

// newReplies is a scanner that waits for the replies to as.
func newReplies(protocol Protocol, stride int, as []asked) *replies {
	rs := &replies{
		queue: newQueue(len(as), stride),
		encoder: &encoder{
			protocol: protocol,
			keys:     newKeys(1000, 8),
			values:   newValues(Sizes{spec: "12", quantiles: []uint32{5, 12, 40}}),
		},
		verify:   true,
		keepMiss: true,
		counts:   &counts{},
	}
	for _, a := range as {
		copy(rs.queue.push(a.kind, 0), a.keys)
	}
	return rs
}

// outcome is all that scanning can change.
type outcome struct {
	counts   counts
	missed   string
	answered int
	failed   bool
	err      string
}

// feed scans stream in pieces that end at cuts, as a connection would.
func feed(rs *replies, stream []byte, cuts ...int) outcome {
	var pending []byte
	var err error
	begin := 0
	for _, end := range append(cuts, len(stream)) {
		pending = append(pending, stream[begin:end]...)
		begin = end
		var used int
		if used, err = rs.scan(pending); err != nil {
			break
		}
		pending = pending[used:]
	}
	o := outcome{counts: *rs.counts, missed: fmt.Sprint(rs.missed), answered: rs.queue.head, failed: err != nil, err: rs.firstError}
	return o
}

// single and several are what is asked in the transcripts.
var (
	single  = []asked{{kindGet, []uint64{1}}, {kindSet, []uint64{2}}, {kindGet, []uint64{3}}, {kindFill, []uint64{4}}}
	several = []asked{{kindGet, []uint64{1, 2, 2, 3}}, {kindSet, []uint64{2}}, {kindGet, []uint64{4, 5, 6, 7}}}
)

// transcript is replies to asked, with %1 for the value of key 1 and its
// length in front of it.
type transcript struct {
	name     string
	protocol Protocol
	stride   int
	asked    []asked
	stream   string
	want     outcome
}

var transcripts = []transcript{
	{
		"text", Text, 1, single,
		"VALUE key-0001 0 %1\r\nEND\r\nSTORED\r\nEND\r\nSTORED\r\n",
		outcome{counts: counts{requests: 4, hits: 1, misses: 1, sets: 2, fills: 1}, missed: "[3]", answered: 4},
	},
	{
		"text, other data", Text, 1, single,
		"VALUE key-0001 0 5\r\nhello\r\nEND\r\nSTORED\r\nVALUE key-0003 0 %3\r\nEND\r\nSTORED\r\n",
		outcome{counts: counts{requests: 4, hits: 2, sets: 2, fills: 1, corrupt: 1}, missed: "[]", answered: 4},
	},
	{
		"text, refused", Text, 1, single,
		"SERVER_ERROR out of memory writing get response\r\nSERVER_ERROR out of memory storing object\r\nEND\r\nNOT_STORED\r\n",
		outcome{
			counts: counts{requests: 4, misses: 1, errors: 3}, missed: "[3]", answered: 4,
			err: "SERVER_ERROR out of memory writing get response",
		},
	},
	{
		"text, several keys", Text, 4, several,
		"VALUE key-0002 0 %2\r\nVALUE key-0002 7 %2\r\nEND\r\nSTORED\r\nEND\r\n",
		outcome{counts: counts{requests: 3, hits: 2, misses: 6, sets: 1}, missed: "[1 3 4 5 6 7]", answered: 3},
	},
	{
		"meta", Meta, 1, single,
		"VA %1\r\nHD\r\nEN\r\nHD\r\n",
		outcome{counts: counts{requests: 4, hits: 1, misses: 1, sets: 2, fills: 1}, missed: "[3]", answered: 4},
	},
	{
		"meta, several keys", Meta, 4, several,
		"VA @1 kkey-0001\r\n!1\r\nVA @3 kkey-0003\r\n!3\r\nMN\r\nNS\r\nMN\r\n",
		outcome{counts: counts{requests: 3, hits: 2, misses: 6, errors: 1}, missed: "[2 2 4 5 6 7]", answered: 3, err: "NS"},
	},
	{
		"meta, one of several refused", Meta, 4, several[:1],
		"SERVER_ERROR x\r\nMN\r\n",
		outcome{counts: counts{requests: 1, misses: 4, errors: 1}, missed: "[1 2 2 3]", answered: 1, err: "SERVER_ERROR x"},
	},

	{"unasked key", Text, 1, single, "VALUE key-0002 0 5\r\nhello\r\nEND\r\n", outcome{missed: "[]", failed: true}},
	{"foreign key", Text, 1, single, "VALUE kex-0001 0 5\r\nhello\r\nEND\r\n", outcome{missed: "[]", failed: true}},
	{"key out of order", Text, 4, several, "VALUE key-0003 0 %3\r\nVALUE key-0001 0 %1\r\n", outcome{counts: counts{hits: 1, misses: 3}, missed: "[1 2 2]", failed: true}},
	{"key twice", Text, 1, single, "VALUE key-0001 0 %1\r\nVALUE key-0001 0 %1\r\n", outcome{counts: counts{hits: 1}, missed: "[]", failed: true}},
	{"no length", Text, 1, single, "VALUE key-0001 0 x\r\n", outcome{missed: "[]", failed: true}},
	{"no flags", Text, 1, single, "VALUE key-0001 5\r\n", outcome{missed: "[]", failed: true}},
	{"data too long", Text, 1, single, "VALUE key-0001 0 5\r\nhello!\r\n", outcome{missed: "[]", failed: true}},
	{"reply to a set", Text, 1, single[1:], "END\r\n", outcome{missed: "[]", failed: true}},
	{"reply to a get", Meta, 1, single, "HD\r\n", outcome{missed: "[]", failed: true}},
	{"one reply more", Meta, 1, single[3:], "HD\r\nHD\r\n", outcome{counts: counts{requests: 1, sets: 1, fills: 1}, missed: "[]", answered: 1, failed: true}},
	{"no carriage return", Text, 1, single[1:], "STORED\n", outcome{missed: "[]", failed: true}},
	{"endless line", Text, 1, single, strings.Repeat("x", replyLineBytesMax+2), outcome{missed: "[]", failed: true}},
}

// bytes is the stream of tr: %k is length, line end and value of key k, @k
// the length, !k the value.
func (tr transcript) bytes() []byte {
	v := newReplies(tr.protocol, tr.stride, nil).encoder.values
	stream := tr.stream
	for k := range uint64(10) {
		value := string(v.append(nil, k))
		stream = strings.ReplaceAll(stream, fmt.Sprintf("%%%d", k), fmt.Sprintf("%d\r\n%s", len(value), value))
		stream = strings.ReplaceAll(stream, fmt.Sprintf("@%d", k), fmt.Sprint(len(value)))
		stream = strings.ReplaceAll(stream, fmt.Sprintf("!%d", k), value)
	}
	return []byte(stream)
}

// TestScan scans each transcript whole, byte by byte, and cut at each place.
func TestScan(t *testing.T) {
	for _, tr := range transcripts {
		t.Run(tr.name, func(t *testing.T) {
			stream := tr.bytes()
			check := func(how string, cuts ...int) {
				t.Helper()
				got := feed(newReplies(tr.protocol, tr.stride, tr.asked), stream, cuts...)
				if got != tr.want {
					t.Errorf("%s:\n got %+v\nwant %+v", how, got, tr.want)
				}
			}
			check("whole")
			var each []int
			for cut := range stream {
				check(fmt.Sprintf("cut at %d", cut), cut)
				each = append(each, cut)
			}
			check("byte by byte", each...)
		})
	}
}

// FuzzScan scans any bytes as replies: never a panic, never more used than
// given, and the same outcome wherever they are cut.
func FuzzScan(f *testing.F) {
	for i, tr := range transcripts {
		f.Add(tr.bytes(), i, uint16(3), uint16(9))
	}
	f.Fuzz(func(t *testing.T, stream []byte, which int, cut1, cut2 uint16) {
		tr := transcripts[uint(which)%uint(len(transcripts))]
		whole := feed(newReplies(tr.protocol, tr.stride, tr.asked), stream)
		a, b := min(int(cut1), len(stream)), min(int(cut2), len(stream))
		cut := feed(newReplies(tr.protocol, tr.stride, tr.asked), stream, min(a, b), max(a, b))
		if whole != cut {
			t.Errorf("%q cut at %d and %d:\n got %+v\nwant %+v", stream, a, b, cut, whole)
		}
	})
}

// TestQueueBound holds the promise that a full queue is never written over.
func TestQueueBound(t *testing.T) {
	q := newQueue(3, 2)
	for i := range len(q.ring) {
		q.push(kindGet, int64(i))
	}
	defer func() {
		if recover() == nil {
			t.Error("push to a full queue: got no panic")
		}
	}()
	q.push(kindGet, 0)
}

// TestSteadyPathAllocates nothing: encoding requests and scanning replies.
func TestSteadyPathAllocatesNothing(t *testing.T) {
	for _, tr := range transcripts[:6] {
		rs, stream := newReplies(tr.protocol, tr.stride, tr.asked), tr.bytes()
		out := make([]byte, 0, 4096)
		round := func() {
			rs.queue.head, rs.queue.tail, rs.missed = 0, 0, rs.missed[:0]
			out = out[:0]
			for _, a := range tr.asked {
				ks := rs.queue.push(a.kind, 0)
				copy(ks, a.keys)
				if a.kind == kindGet {
					out = rs.encoder.get(out, ks)
				} else {
					out = rs.encoder.set(out, ks[0])
				}
			}
			if _, err := rs.scan(stream); err != nil {
				t.Fatal(err)
			}
		}
		round() // buffers grow, the first error is kept
		if got := testing.AllocsPerRun(100, round); got != 0 {
			t.Errorf("%s: got %v allocations, want 0", tr.name, got)
		}
	}
}

// BenchmarkRequest is what one get hit of 100 bytes costs the generator
// beside the kernel's part.
func BenchmarkRequest(b *testing.B) {
	for _, protocol := range []Protocol{Text, Meta} {
		for _, verify := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/verify=%v", protocol, verify), func(b *testing.B) {
				rs := newReplies(protocol, 1, single)
				rs.encoder.values, rs.verify = newValues(fixedSizes(100)), verify
				value := rs.encoder.values.append(nil, 1)
				reply := fmt.Appendf(nil, "VALUE key-0001 0 100\r\n%s\r\nEND\r\n", value)
				if protocol == Meta {
					reply = fmt.Appendf(nil, "VA 100\r\n%s\r\n", value)
				}
				stream := bytes.Repeat(reply, 4)
				out := make([]byte, 0, 4096)
				for b.Loop() {
					rs.queue.head, rs.queue.tail, out = 0, 0, out[:0]
					for range 4 {
						ks := rs.queue.push(kindGet, 0)
						ks[0] = 1
						out = rs.encoder.get(out, ks)
					}
					if _, err := rs.scan(stream); err != nil || rs.counts.corrupt > 0 {
						b.Fatal(errors.Join(err, fmt.Errorf("corrupt: %d", rs.counts.corrupt)))
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(4*b.N), "ns/request")
			})
		}
	}
}
