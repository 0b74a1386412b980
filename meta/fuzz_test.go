package meta_test

import (
	"bytes"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

// FuzzParseLine decodes any line. It never panics; what it decodes is encoded
// again by the client's side and read as the same request; an error leaves
// nothing to swallow but for a set.
func FuzzParseLine(f *testing.F) {
	for _, line := range []string{
		"get a b\r", "gats 30 a", "set a 1 2 3 noreply\r", "cas a 0 0 1 7", "incr a 1", "touch a -1", "delete a 0 noreply",
		"mg Zm9v b k v t T30 O1 N30\r", "ms a 2 MA N30 C1 E2 c s q", "md a I T30 x F1", "ma a N0 J5 D2 M- v", "me Zm9v b b", "mn\r",
		" flush_all 1 noreply", "verbosity 1", "stats items", "GET / HTTP/1.1", "ms a 2 !", "set a \t5\tx 7\x00z 0",
		"mg a v G500s Y42 y a", "mg a G1b q k O1 T30", "ms a 2 GAAAAAA.1.AAAAAAAAAA Y42 A1700000030000,1700000010000,1700000000000 F1 T9",
		"ms a 0 MV Gx Y1 A5,0,7", "ms a 0 MN Gx Y0 A5", "md a I Y18446744073709551615 Lp.1", "md a Gx q", "ms a 2 Y1", "mg a A1", "ma a G1",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		var r, again meta.Request
		if e := r.ParseLine(line); e != meta.ErrNone {
			if r.Swallow != 0 && (r.Op != meta.OpSet || r.Swallow != r.ValueLen+2) {
				t.Errorf("%q: swallow %d, length %d", line, r.Swallow, r.ValueLen)
			}
			return
		}
		if len(r.Key) > meta.KeyMax || len(r.Opaque) > meta.OpaqueMax || r.Swallow != 0 || r.ValueLen < 0 {
			t.Fatalf("%q: %s", line, r.Describe())
		}
		written := r.AppendLine(nil)
		if e := again.ParseLine(written[:len(written)-1]); e != meta.ErrNone {
			t.Fatalf("%q: written as %q, read as %q", line, written, e)
		}
		r.KeyText, again.KeyText = nil, nil // base64 has many spellings
		if got, want := again.Describe(), r.Describe(); got != want {
			t.Errorf("%q, written as %q:\ngot  %s\nwant %s", line, written, got, want)
		}
	})
}

// FuzzParseReply reads any bytes as replies. It never panics; wherever the
// bytes are cut, a reply is read as the same, or more is asked for, as much as
// it has.
func FuzzParseReply(f *testing.F) {
	for _, in := range []string{
		"VALUE a 0 2\r\nhi\r\nVALUE b 1 0 9\r\n\r\nEND\r\n", "VA 2 t-1 c8 ka O1 W\r\nhi\r\nHD\r\nEN\r\nMN\r\n", "12\r\nSTORED\r\n",
		"HD kZm9v b Z X\r\nNS c0\r\nERROR\r\n", "VA 1 y42 a5,0,7 X W gAAAAAA.1.AAAAAAAAAA w1000\r\nx\r\nEN e y0\r\nEN Z w10\r\nEN d5\r\nNF r3\r\n", "STAT pid 1\r\nEND\r\n", "VA 99999999\r\n", "VALUE a 0 -1\r\n",
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for len(in) > 0 {
			var whole meta.Reply
			n, need, err := whole.Parse(in)
			switch {
			case err != nil:
				return
			case n == 0:
				if need <= len(in) {
					t.Fatalf("%q: need %d of %d bytes", in, need, len(in))
				}
				return
			}
			testSplits(t, in[:n])
			var rep meta.Reply
			if m, _, err := rep.Parse(in[:n:n]); m != n || err != nil || sprint(rep) != sprint(whole) {
				t.Fatalf("%q: alone %v, %d bytes, %v; in the stream %v, %d bytes", in[:n], rep, m, err, whole, n)
			}
			in = in[n:]
		}
	})
}

// FuzzReplies lets the server's side write a reply to any request, and the
// client's side read it.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("mg a v k O1 c f s t h l"), uint64(1), int64(-1), uint32(7), byte(3))
	f.Add([]byte("ms Zm9v 5 b k c s"), uint64(0), int64(30), uint32(0), byte(0))
	f.Add([]byte("ma a v c t k"), uint64(1<<63), int64(0), uint32(1), byte(9))
	f.Add([]byte("mg a v y a k G500 O1"), uint64(1<<63), int64(1000), uint32(1), byte(43))
	f.Add([]byte("ms a 2 Gx Y1 A5 c s"), uint64(7), int64(-1), uint32(0), byte(128))
	f.Fuzz(func(t *testing.T, line []byte, cas uint64, ttl int64, clientFlags uint32, bits byte) {
		var r meta.Request
		if bytes.IndexByte(line, '\n') >= 0 || r.ParseLine(line) != meta.ErrNone {
			return
		}
		if !r.Verb.Meta() || r.Verb == meta.VerbMetaNoop || r.Verb == meta.VerbMetaDebug {
			return
		}
		it := meta.Item{CAS: cas, ClientFlags: clientFlags, TTL: max(ttl%(1<<32), -1), Size: 3, Binary: bits&1 != 0,
			Won: bits&2 != 0, Stale: bits&4 != 0, WinSent: bits&8 != 0, HitBefore: bits&16 != 0}
		code := []meta.Code{meta.CodeHD, meta.CodeVA, meta.CodeEN, meta.CodeNF, meta.CodeNS, meta.CodeEX}[bits>>5%6]
		out := r.AppendMetaReply(nil, code, &it)
		answer := meta.Answer{Reason: uint8(clientFlags % 12)}
		if r.Has.Has('G') || r.Has.Has('Y') {
			it.Fresh = &meta.ItemFreshness{Version: cas, Deadlines: meta.Deadlines{Hard: cas & meta.DeadlineMax, Soft: uint64(clientFlags)}}
			if it.Fresh.Hard == 0 {
				it.Fresh.Soft = 0
			}
			if answer.Granted = it.Won; it.Won {
				answer.SetToken([]byte("AAAAAA.1.AAAAAAAAAA"))
			}
			answer.Waits, answer.WaitMillis = it.Won || it.WinSent, int64(clientFlags)
			answer.HasVersion, answer.Version = code == meta.CodeEN, cas
			out = r.AppendFreshReply(nil, code, &it, &answer)
		}
		if code == meta.CodeVA {
			out = meta.AppendBlock(out, []byte("123"))
		}
		var rep meta.Reply
		n, need, err := rep.Parse(out)
		if n != len(out) || err != nil || rep.Code != code {
			t.Fatalf("%q answered by %q: got %d bytes, need %d, %v", line, out, n, need, err)
		}
		if rep.Has.Has('c') && code == meta.CodeHD && rep.Item.CAS != cas ||
			rep.Has.Has('t') && rep.Item.TTL != it.TTL || rep.Has.Has('f') && rep.Item.ClientFlags != clientFlags ||
			rep.Has.Has('O') && !bytes.Equal(rep.Opaque, r.Opaque) {
			t.Errorf("%q answered by %q: got %+v want %+v", line, out, rep, it)
		}
		if it.Fresh == nil {
			return
		}
		if got := &rep.Fresh; !bytes.Equal(got.Token(), answer.Token()) || got.Granted != answer.Granted || got.Waits != answer.Waits ||
			got.WaitMillis != answer.WaitMillis && got.Waits || got.Reason != answer.Reason ||
			rep.Has.Has('a') && got.Deadlines != it.Fresh.Deadlines || rep.Has.Has('y') && got.Version != cas {
			t.Errorf("%q answered by %q: got %+v want %+v of %+v", line, out, *got, answer, *it.Fresh)
		}
	})
}
