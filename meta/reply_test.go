package meta_test

import (
	"testing"

	"github.com/quarrycache/quarry/meta"
)

// TestMetaReplies pairs requests with the replies that memcached 1.6.45 gave to
// them.
func TestMetaReplies(t *testing.T) {
	plain := meta.Item{CAS: 8, ClientFlags: 7, Size: 4, TTL: -1, LastAccess: 12, Number: 6}
	with := func(change func(*meta.Item)) *meta.Item {
		it := plain
		change(&it)
		return &it
	}
	binary := with(func(it *meta.Item) { it.Binary = true })
	cases := []struct {
		name string
		line string
		code meta.Code
		item *meta.Item
		want string
	}{
		{"mg hit without flags", "mg a", meta.CodeHD, &plain, "HD\r\n"},
		{"mg hit with a value", "mg a v", meta.CodeVA, &plain, "VA 4\r\n"},
		{"mg hit in the order of the request", "mg a v f t c l h s k O1", meta.CodeVA, &plain, "VA 4 f7 t-1 c8 l12 h0 s4 ka O1\r\n"},
		{"mg hit in another order", "mg a O1 k s h l c t f v", meta.CodeVA, &plain, "VA 4 O1 ka s4 h0 l12 c8 t-1 f7\r\n"},
		{"mg hit before", "mg a h t", meta.CodeHD, with(func(it *meta.Item) { it.HitBefore, it.TTL = true, 30 }), "HD h1 t30\r\n"},
		{"mg of modifiers alone", "mg a q u N1 R1 T1 E1 C8 P L x I MS F1 J1 D1", meta.CodeHD, &plain, "HD\r\n"},
		{"mg with an empty opaque", "mg a O", meta.CodeHD, &plain, "HD O\r\n"},
		{"mg miss", "mg a v k c s O9", meta.CodeEN, nil, "EN ka O9\r\n"},
		{"mg won", "mg a v", meta.CodeVA, with(func(it *meta.Item) { it.Won = true }), "VA 4 W\r\n"},
		{"mg stale and won", "mg a v k", meta.CodeVA, with(func(it *meta.Item) { it.Stale, it.Won = true, true }), "VA 4 ka X W\r\n"},
		{"mg stale, won by another", "mg a k", meta.CodeHD, with(func(it *meta.Item) { it.Stale, it.WinSent = true, true }), "HD ka Z X\r\n"},
		{"mg won by another", "mg a", meta.CodeHD, with(func(it *meta.Item) { it.WinSent = true }), "HD Z\r\n"},
		{"mg of a binary key", "mg Zm9v b k", meta.CodeHD, binary, "HD kZm9v b\r\n"},
		{"mg of a binary key that was stored plain", "mg Zm9v b k", meta.CodeHD, &plain, "HD kfoo\r\n"},
		{"mg of a plain key that was stored binary", "mg foo k v", meta.CodeVA, binary, "VA 4 kZm9v b\r\n"},
		{"mg miss of a binary key, encoded anew", "mg Ym.Fy b k O9", meta.CodeEN, nil, "EN kYmFy b O9\r\n"},
		{"mg with b is not echoed without k", "mg Zm9v b", meta.CodeHD, binary, "HD\r\n"},

		{"ms stored", "ms a 2 k O123 c s", meta.CodeHD, &plain, "HD ka O123 c8 s4\r\n"},
		{"ms not stored", "ms a 2 ME k O123 c s", meta.CodeNS, nil, "NS ka O123 c0 s2\r\n"},
		{"ms not stored, whatever the item", "ms a 2 ME c s", meta.CodeNS, &plain, "NS c0 s2\r\n"},
		{"ms exists", "ms a 3 C9 I s c", meta.CodeEX, nil, "EX s3 c0\r\n"},
		{"ms not found", "ms a 1 C5 c s O1 k", meta.CodeNF, nil, "NF c0 s1 O1 ka\r\n"},
		{"ms of a binary key", "ms Zm9v 1 b k c", meta.CodeHD, &plain, "HD kZm9v b c8\r\n"},
		{"ms answers no f, t, h, l", "ms a 1 f t h l", meta.CodeHD, &plain, "HD\r\n"},

		{"md done", "md a k O", meta.CodeHD, nil, "HD ka O\r\n"},
		{"md not found", "md a k O1 c s", meta.CodeNF, nil, "NF ka O1\r\n"},
		{"md exists", "md a C1 k", meta.CodeEX, nil, "EX ka\r\n"},

		{"ma done", "ma a k O1 c t s f", meta.CodeHD, &plain, "HD ka O1 c8 t-1\r\n"},
		{"ma with a value", "ma a v c", meta.CodeVA, with(func(it *meta.Item) { it.Size = 1 }), "VA 1 c8\r\n"},
		{"ma not found", "ma a k O1 c t", meta.CodeNF, nil, "NF ka O1\r\n"},
		{"ma exists", "ma a C1 k O1", meta.CodeEX, nil, "EX ka O1\r\n"},
		{"ma of a binary key", "ma Zm9v b k", meta.CodeHD, &plain, "HD kZm9v b\r\n"},
		{"ma shows no marks", "ma a", meta.CodeHD, with(func(it *meta.Item) { it.Stale, it.Won = true, true }), "HD\r\n"},
	}
	var r meta.Request
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if e := r.ParseLine([]byte(c.line + "\r")); e != meta.ErrNone {
				t.Fatalf("%q: %q", c.line, e)
			}
			if got := string(r.AppendMetaReply(nil, c.code, c.item)); got != c.want {
				t.Errorf("%q: got %q want %q", c.line, got, c.want)
			}
		})
	}
}

func TestValueHeaders(t *testing.T) {
	if got, want := string(meta.AppendValueHeader(nil, []byte("a"), 4294967295, 10)), "VALUE a 4294967295 10\r\n"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
	if got, want := string(meta.AppendValueHeaderCAS(nil, []byte("a"), 0, 0, 1<<64-1)), "VALUE a 0 0 18446744073709551615\r\n"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
}

func TestDebugLine(t *testing.T) {
	it := meta.Item{CAS: 8, Expiry: -1, LastAccess: 3, HitBefore: true, Class: 1, Footprint: 63}
	if got, want := string(meta.AppendDebug(nil, []byte("foo"), &it)), "ME foo exp=-1 la=3 cas=8 fetch=yes cls=1 size=63\r\n"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
	it.Binary, it.HitBefore = true, false
	if got, want := string(meta.AppendDebug(nil, []byte("foo"), &it)), "ME Zm9v exp=-1 la=3 cas=8 fetch=no cls=1 size=63\r\n"; got != want {
		t.Errorf("got %q want %q", got, want)
	}
}
