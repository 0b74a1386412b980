package meta_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/meta"
	"pgregory.net/rapid"
)

func TestAppendLine(t *testing.T) {
	mg := meta.Request{Verb: meta.VerbMetaGet, Key: []byte("a"), TTL: 30, Opaque: []byte("7")}
	mg.AddFlag('v')
	mg.AddFlag('T')
	mg.AddFlag('O')
	ms := meta.Request{Verb: meta.VerbMetaSet, Mode: meta.ModeAdd, Key: []byte("\x00"), Binary: true, ValueLen: 2, ClientFlags: 9}
	ms.AddFlag('M')
	ms.AddFlag('F')
	ma := meta.Request{Verb: meta.VerbMetaArith, Key: []byte("a"), Decr: true, Delta: 2, Initial: 5, VivifyTTL: 0}
	for _, c := range "MDNJ" {
		ma.AddFlag(byte(c))
	}
	args := meta.Request{Verb: meta.VerbOther, NArgs: 2}
	args.Args[0], args.Args[1] = []byte("stats"), []byte("items")
	for _, c := range []struct {
		r    *meta.Request
		want string
	}{
		{&meta.Request{Verb: meta.VerbGet, Key: []byte("a")}, "get a\r\n"},
		{&meta.Request{Verb: meta.VerbGets, Key: []byte("a"), Rest: []byte("b c")}, "gets a b c\r\n"},
		{&meta.Request{Verb: meta.VerbGat, Key: []byte("a"), TTL: -1}, "gat -1 a\r\n"},
		{&meta.Request{Verb: meta.VerbTouch, Key: []byte("a"), TTL: 5, Quiet: true}, "touch a 5 noreply\r\n"},
		{&meta.Request{Verb: meta.VerbSet, Key: []byte("a"), ClientFlags: 1, TTL: 2, ValueLen: 3}, "set a 1 2 3\r\n"},
		{&meta.Request{Verb: meta.VerbCas, Key: []byte("a"), ValueLen: 3, CompareCAS: 4, Quiet: true}, "cas a 0 0 3 4 noreply\r\n"},
		{&meta.Request{Verb: meta.VerbDelete, Key: []byte("a")}, "delete a\r\n"},
		{&meta.Request{Verb: meta.VerbIncr, Key: []byte("a"), Delta: 1}, "incr a 1\r\n"},
		{&mg, "mg a v T30 O7\r\n"},
		{&ms, "ms AA== 2 ME F9 b\r\n"},
		{&meta.Request{Verb: meta.VerbMetaDelete, Key: []byte("a")}, "md a\r\n"},
		{&ma, "ma a MD D2 N0 J5\r\n"},
		{&meta.Request{Verb: meta.VerbMetaDebug, Key: []byte("a")}, "me a\r\n"},
		{&meta.Request{Verb: meta.VerbMetaDebug, Key: []byte("foo"), Binary: true}, "me Zm9v b b\r\n"},
		{&meta.Request{Verb: meta.VerbMetaNoop}, "mn\r\n"},
		{&args, "stats items\r\n"},
	} {
		if got := string(c.r.AppendLine(nil)); got != c.want {
			t.Errorf("got %q want %q", got, c.want)
		}
	}
	keys := [][]byte{[]byte("a"), []byte("b")}
	if got, want := string(meta.AppendGetLine(nil, meta.VerbGets, 0, keys...)), "gets a b\r\n"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
	if got, want := string(meta.AppendGetLine(nil, meta.VerbGat, 60, keys...)), "gat 60 a b\r\n"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
}

// TestRoundTrip draws requests as a client may make them, and wants the server
// to read what was meant.
func TestRoundTrip(t *testing.T) {
	key := rapid.SliceOfN(rapid.ByteRange('!', '~'), 1, meta.KeyMax)
	opaque := rapid.SliceOfN(rapid.ByteRange('!', '~'), 0, meta.OpaqueMax)
	letters := rapid.Permutation([]byte("kqcfhlstuvxCDEFIJLMNOPRT"))
	rapid.Check(t, func(t *rapid.T) {
		verb := meta.Verb(rapid.IntRange(int(meta.VerbGet), int(meta.VerbMetaDebug)).Draw(t, "verb"))
		want := meta.Request{Verb: verb, Key: key.Draw(t, "key")}
		want.Quiet = !verb.Meta() && verb > meta.VerbGats && rapid.Bool().Draw(t, "quiet")
		want.ClientFlags = rapid.Uint32().Draw(t, "client flags")
		want.TTL = int64(rapid.Int32().Draw(t, "ttl"))
		want.VivifyTTL = int64(rapid.Int32().Draw(t, "vivify"))
		want.RecacheTTL = rapid.Int32().Draw(t, "recache")
		want.CompareCAS = rapid.Uint64().Draw(t, "cas")
		want.NewCAS = rapid.Uint64().Draw(t, "new cas")
		want.Initial = rapid.Uint64().Draw(t, "initial")
		want.Delta = rapid.Uint64().Draw(t, "delta")
		want.ValueLen = rapid.IntRange(0, meta.ValueMax).Draw(t, "length")
		if verb.Meta() && verb != meta.VerbMetaDebug {
			for _, c := range letters.Draw(t, "flags")[:rapid.IntRange(0, meta.FlagsMax-2).Draw(t, "count")] {
				want.AddFlag(c)
			}
			want.Opaque = opaque.Draw(t, "opaque")
			if verb == meta.VerbMetaSet && want.Has.Has('M') {
				want.Mode = meta.Mode(rapid.IntRange(0, int(meta.ModePrepend)).Draw(t, "mode"))
			}
			want.Decr = verb == meta.VerbMetaArith && want.Has.Has('M') && rapid.Bool().Draw(t, "decr")
			if rapid.Bool().Draw(t, "binary") {
				want.Key, want.Binary = want.Key[:min(len(want.Key), meta.BinaryKeyMax)], true
				want.AddFlag('b')
			}
		}

		line := want.AppendLine(nil)
		var got meta.Request
		if e := got.ParseLine(line[:len(line)-1]); e != meta.ErrNone {
			t.Fatalf("%q: %q", line, e)
		}
		if again := got.AppendLine(nil); !bytes.Equal(again, line) {
			t.Errorf("read and written again: %q, was %q", again, line)
		}
		if string(got.Key) != string(want.Key) && verb > meta.VerbGats {
			t.Errorf("key: got %q want %q", got.Key, want.Key)
		}
		if got.Mode != want.Mode && verb == meta.VerbMetaSet || got.Decr != want.Decr && verb == meta.VerbMetaArith {
			t.Errorf("mode %d, decr %v, want %d, %v", got.Mode, got.Decr, want.Mode, want.Decr)
		}
	})
}

func TestParseReply(t *testing.T) {
	for _, c := range []struct {
		in   string
		want meta.Reply
	}{
		{"HD\r\n", meta.Reply{Code: meta.CodeHD}},
		{"HD\n", meta.Reply{Code: meta.CodeHD}},
		{"HD ka O7 c8\r\n", meta.Reply{Code: meta.CodeHD, Has: flagSet("kOc"), Key: []byte("a"), Opaque: []byte("7"), Item: meta.Item{CAS: 8}}},
		{"VA 2 f1 s2 t-1 h1 l5 W\r\nhi\r\n", meta.Reply{Code: meta.CodeVA, Has: flagSet("fsthlW"), Value: []byte("hi"),
			Item: meta.Item{ClientFlags: 1, Size: 2, TTL: -1, HitBefore: true, LastAccess: 5, Won: true}}},
		{"VA 0\r\n\r\n", meta.Reply{Code: meta.CodeVA, Value: []byte{}}},
		{"VA 4\r\n\r\n\r\n\r\n", meta.Reply{Code: meta.CodeVA, Value: []byte("\r\n\r\n"), Item: meta.Item{Size: 4}}},
		{"HD kZm9v b t30 Z X\r\n", meta.Reply{Code: meta.CodeHD, Has: flagSet("kbtZX"), Key: []byte("Zm9v"),
			Item: meta.Item{Binary: true, TTL: 30, WinSent: true, Stale: true}}},
		{"EN\r\n", meta.Reply{Code: meta.CodeEN}},
		{"NF O1\r\n", meta.Reply{Code: meta.CodeNF, Has: flagSet("O"), Opaque: []byte("1")}},
		{"NS c0 s5\r\n", meta.Reply{Code: meta.CodeNS, Has: flagSet("cs"), Item: meta.Item{Size: 5}}},
		{"EX\r\n", meta.Reply{Code: meta.CodeEX}},
		{"MN\r\n", meta.Reply{Code: meta.CodeMN}},
		{"ME a exp=-1 la=0\r\n", meta.Reply{Code: meta.CodeME, Key: []byte("a"), Text: []byte("exp=-1 la=0")}},
		{"VALUE a 7 2\r\nhi\r\n", meta.Reply{Code: meta.CodeValue, Key: []byte("a"), Value: []byte("hi"), Item: meta.Item{ClientFlags: 7, Size: 2}}},
		{"VALUE a 0 2 9\r\nhi\r\n", meta.Reply{Code: meta.CodeValue, Has: flagSet("c"), Key: []byte("a"), Value: []byte("hi"), Item: meta.Item{CAS: 9, Size: 2}}},
		{"END\r\n", meta.Reply{Code: meta.CodeEnd}},
		{"STORED\r\n", meta.Reply{Code: meta.CodeStored}},
		{"NOT_STORED\r\n", meta.Reply{Code: meta.CodeNotStored}},
		{"EXISTS\r\n", meta.Reply{Code: meta.CodeExists}},
		{"NOT_FOUND\r\n", meta.Reply{Code: meta.CodeNotFound}},
		{"DELETED\r\n", meta.Reply{Code: meta.CodeDeleted}},
		{"TOUCHED\r\n", meta.Reply{Code: meta.CodeTouched}},
		{"OK\r\n", meta.Reply{Code: meta.CodeOK}},
		{"RESET\r\n", meta.Reply{Code: meta.CodeReset}},
		{"18446744073709551615\r\n", meta.Reply{Code: meta.CodeNumber, Item: meta.Item{Number: 1<<64 - 1}}},
		{"VERSION 1.6.45\r\n", meta.Reply{Code: meta.CodeVersion, Text: []byte("1.6.45")}},
		{"STAT pid 1\r\n", meta.Reply{Code: meta.CodeStat, Text: []byte("pid 1")}},
		{"ERROR\r\n", meta.Reply{Code: meta.CodeError}},
		{"ERROR Too many open connections\r\n", meta.Reply{Code: meta.CodeError, Text: []byte("Too many open connections")}},
		{"CLIENT_ERROR bad data chunk\r\n", meta.Reply{Code: meta.CodeClientError, Text: []byte("bad data chunk")}},
		{"SERVER_ERROR: shutdown not enabled\r\n", meta.Reply{Code: meta.CodeServerError, Text: []byte("shutdown not enabled")}},
		{"BUSY currently processing crawler request\r\n", meta.Reply{Code: meta.CodeText, Text: []byte("BUSY currently processing crawler request")}},
		{"OK then\r\n", meta.Reply{Code: meta.CodeText, Text: []byte("OK then")}},
		{"12 monkeys\r\n", meta.Reply{Code: meta.CodeText, Text: []byte("12 monkeys")}},
	} {
		t.Run(c.in, func(t *testing.T) {
			var rep meta.Reply
			n, _, err := rep.Parse([]byte(c.in + "next"))
			if n != len(c.in) || err != nil {
				t.Fatalf("got %d bytes, %v, want %d", n, err, len(c.in))
			}
			if got, want := sprint(rep), sprint(c.want); got != want {
				t.Errorf("got %s want %s", got, want)
			}
			testSplits(t, []byte(c.in))
		})
	}
}

func TestParseReplyMalformed(t *testing.T) {
	for _, in := range []string{
		"\r\n", "\n",
		"VA\r\n", "VA x\r\n", "VA -1\r\n", "VA 2147483646\r\n", "VA 2\r\nhiXY", "VA 2\r\nhi\n\n",
		"VALUE\r\n", "VALUE a\r\n", "VALUE a 0\r\n", "VALUE a 0 x\r\n", "VALUE a x 0\r\n", "VALUE a 0 0 x\r\n", "VALUE a 0 0 1 2\r\n",
		"VALUE a 0 1\r\nhi\r\n",
		"HD cx\r\n", "HD !\r\n", "HD 1\r\n", "HD t-2\r\n", "ME\r\n",
		strings.Repeat("x", meta.ReplyLineMax),
	} {
		var rep meta.Reply
		if n, need, err := rep.Parse([]byte(in)); err != meta.ErrMalformedReply {
			t.Errorf("%.40q: got %d bytes, need %d, %v", in, n, need, err)
		}
	}
}

func flagSet(letters string) (l meta.Letters) {
	for _, c := range letters {
		l = l.With(byte(c))
	}
	return l
}

// testSplits cuts a reply that is whole everywhere, and wants to be told each
// time that more is needed, and never more than there is.
func testSplits(t testing.TB, reply []byte) {
	t.Helper()
	var rep meta.Reply
	for i := range reply {
		n, need, err := rep.Parse(reply[:i:i])
		if n != 0 || err != nil || need <= i || need > len(reply) {
			t.Fatalf("%q: got %d, need %d, %v of %d bytes", reply[:i], n, need, err, len(reply))
		}
	}
}

func TestKey64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, meta.BinaryKeyMax).Draw(t, "key")
		text := meta.AppendKey64(nil, key)
		if want := base64.StdEncoding.EncodeToString(key); string(text) != want {
			t.Fatalf("AppendKey64(%q): got %q want %q", key, text, want)
		}
		if got, ok := meta.AppendKeyOf64(nil, text); !ok || !bytes.Equal(got, key) {
			t.Fatalf("AppendKeyOf64(%q): got %q, %v want %q", text, got, ok, key)
		}
	})
}

func TestValidTextKey(t *testing.T) {
	for key, want := range map[string]bool{
		"": false, "a": true, "a b": false, "a\n": false, "a\r": false, "a\tb": false, "\x7f": false, "\x00": false,
		"ä": true, key250: true, key251: false,
	} {
		if got := meta.ValidTextKey([]byte(key)); got != want {
			t.Errorf("%q: got %v want %v", key, got, want)
		}
	}
}
