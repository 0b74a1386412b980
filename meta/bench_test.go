package meta_test

import (
	"bytes"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

// commonLines are the forms that nearly all requests have.
var commonLines = []struct{ name, line string }{
	{"get", "get user:0000000012345678\r"},
	{"set", "set user:0000000012345678 0 3600 100\r"},
	{"set/noreply", "set user:0000000012345678 0 3600 100 noreply\r"},
	{"mg", "mg user:0000000012345678 v\r"},
	{"mg/flags", "mg user:0000000012345678 v f t c k q O1234\r"},
	{"ms", "ms user:0000000012345678 100 T3600\r"},
	{"delete", "delete user:0000000012345678\r"},
	{"incr", "incr user:0000000012345678 1\r"},
	{"mn", "mn\r"},
}

func BenchmarkParseLine(b *testing.B) {
	for _, c := range commonLines {
		b.Run(c.name, func(b *testing.B) {
			line := []byte(c.line)
			var r meta.Request
			for b.Loop() {
				if r.ParseLine(line) != meta.ErrNone {
					b.Fatal(c.line)
				}
			}
		})
	}
}

// commonReplies are what answers most requests.
var commonReplies = []struct{ name, reply string }{
	{"VALUE/100B", "VALUE user:0000000012345678 0 100\r\n" + string(bytes.Repeat([]byte("x"), 100)) + "\r\n"},
	{"END", "END\r\n"},
	{"STORED", "STORED\r\n"},
	{"VA/100B", "VA 100\r\n" + string(bytes.Repeat([]byte("x"), 100)) + "\r\n"},
	{"HD", "HD\r\n"},
	{"HD/flags", "HD f0 t3600 c123456 O1234\r\n"},
	{"EN", "EN\r\n"},
}

func BenchmarkParseReply(b *testing.B) {
	for _, c := range commonReplies {
		b.Run(c.name, func(b *testing.B) {
			reply := []byte(c.reply)
			var rep meta.Reply
			for b.Loop() {
				if n, _, _ := rep.Parse(reply); n != len(reply) {
					b.Fatal(c.reply)
				}
			}
		})
	}
}

func BenchmarkNextKey(b *testing.B) {
	line := bytes.Repeat([]byte(" user:0000000012345678"), 10)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		for rest := line; ; {
			var key []byte
			if key, rest = meta.NextKey(rest); key == nil {
				break
			}
		}
	}
}

func BenchmarkAppendReply(b *testing.B) {
	it := meta.Item{CAS: 123456, Size: 100, TTL: 3600}
	for _, c := range []struct{ name, line string }{
		{"mg", "mg user:0000000012345678 v"},
		{"mg/flags", "mg user:0000000012345678 v f t c k q O1234"},
	} {
		b.Run(c.name, func(b *testing.B) {
			var r meta.Request
			r.ParseLine([]byte(c.line))
			var buf []byte
			for b.Loop() {
				buf = r.AppendMetaReply(buf[:0], meta.CodeVA, &it)
			}
		})
	}
	b.Run("VALUE", func(b *testing.B) {
		key := []byte("user:0000000012345678")
		var buf []byte
		for b.Loop() {
			buf = meta.AppendValueHeader(buf[:0], key, 0, 100)
		}
	})
}

func BenchmarkAppendLine(b *testing.B) {
	for _, c := range commonLines {
		b.Run(c.name, func(b *testing.B) {
			var r meta.Request
			r.ParseLine([]byte(c.line))
			var buf []byte
			for b.Loop() {
				buf = r.AppendLine(buf[:0])
			}
		})
	}
}

// TestNoAllocations holds that the steady path of both sides allocates nothing.
func TestNoAllocations(t *testing.T) {
	buf := make([]byte, 0, 4096)
	none := func(name string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want none", name, n)
		}
	}
	var r meta.Request
	for _, c := range append(commonLines,
		struct{ name, line string }{"mg/binary", "mg Zm9v b v k"},
		struct{ name, line string }{"error", "set a x 0 5"},
		struct{ name, line string }{"mg/grant", "mg a v G500b Y42 y a"},
		struct{ name, line string }{"ms/fill", "ms a 2 GAAAAAA.1.AAAAAAAAAA Y42 A1700000030000,1700000010000,1700000000000"},
		struct{ name, line string }{"stats", "stats items"}) {
		line := []byte(c.line)
		none("parse "+c.name, func() { r.ParseLine(line) })
		none("append "+c.name, func() { buf = r.AppendLine(buf[:0]) })
	}
	var rep meta.Reply
	for _, c := range commonReplies {
		reply := []byte(c.reply)
		none("parse reply "+c.name, func() { rep.Parse(reply) })
	}
	it := meta.Item{CAS: 1 << 40, Size: 100, TTL: 3600, Binary: true}
	for _, line := range []string{"mg a v f t c k q O1234 s h l", "ms a 2 c s k", "ma a v t c"} {
		r.ParseLine([]byte(line))
		none("reply to "+line, func() { buf = r.AppendMetaReply(buf[:0], meta.CodeVA, &it) })
		none("refusal of "+line, func() { buf = r.AppendMetaReply(buf[:0], meta.CodeNS, nil) })
	}
	r.ParseLine([]byte("mg a v G500 y a"))
	it.Fresh = &meta.ItemFreshness{Version: 1 << 60, Deadlines: meta.Deadlines{Hard: 1 << 47, Soft: 1, Read: 1}}
	answer := meta.Answer{Granted: true, Waits: true, WaitMillis: 1000, HasVersion: true, Version: 1 << 60}
	answer.SetToken([]byte("AAAAAA.1.AAAAAAAAAA"))
	none("reply with a grant", func() { buf = r.AppendFreshReply(buf[:0], meta.CodeVA, &it, &answer) })
	none("parse it", func() { rep.Parse(buf) })
	it.Fresh = nil
	keys := [][]byte{[]byte("a"), []byte("b")}
	none("get line", func() { buf = meta.AppendGetLine(buf[:0], meta.VerbGet, 0, keys...) })
	none("value header", func() { buf = meta.AppendValueHeaderCAS(buf[:0], keys[0], 1<<31, 1<<20, 1<<63) })
	none("debug line", func() { buf = meta.AppendDebug(buf[:0], keys[0], &it) })
	none("error", func() { buf = meta.ErrBadLine.AppendTo(buf[:0]) })
	none("code", func() { buf = meta.CodeStored.AppendTo(buf[:0]) })
}
