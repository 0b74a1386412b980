package meta_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

// glances are requests, and what a glance at each sees.
var glances = []struct {
	in, keys string
	n        int // 0: nothing
}{
	{"get k\r\n", " k", 7},
	{"gets a bb ccc\nget d\r\n", " a bb ccc", 14},
	{"mg k v t Oabc\r\n", "k", 15},
	{"md k\r\n", "k", 6},
	{"ma k q\n", "k", 7},
	{"delete k noreply\r\n", "k", 18},
	{"incr k 5\r\n", "k", 10},
	{"touch k 0\r\n", "k", 11},
	{"set k 1 2 3\r\nabc\r\nget k\r\n", "k", 18},
	{"set k 1 2 3 noreply\r\nabc\r\n", "k", 26},
	{"add k 0 0 1000000\r\nabc", "k", 19 + 1000000 + 2},
	{"ms k 3 T0\r\nabc\r\n", "k", 16},
	{"ms k S3\r\n", "", 0},
	{"set k 0 0 -1\r\n", "", 0},
	{"cas k 0 0 1 5\r\nx\r\n", "", 0},
	{"gat 0 k\r\n", "", 0},
	{"mn\r\n", "", 0},
	{"get k", "", 0},
	{"\n\n\n\n", "", 0},
	{"", "", 0},
}

func TestGlanceLine(t *testing.T) {
	for _, g := range glances {
		keys, n := meta.GlanceLine([]byte(g.in))
		if string(keys) != g.keys || n != g.n {
			t.Errorf("%q: got %q and %d, want %q and %d", g.in, keys, n, g.keys, g.n)
		}
	}
}

// What a glance sees is what the parser finds.
func TestGlanceAgrees(t *testing.T) {
	for _, c := range commonLines {
		in := []byte(c.line + "\n")
		var r meta.Request
		if e := r.ParseLine(in[:len(in)-1]); e != meta.ErrNone {
			t.Fatalf("%s: error %d", c.line, e)
		}
		keys, n := meta.GlanceLine(in)
		if c.name == "mn" {
			continue
		}
		key, _ := meta.NextKey(keys)
		want := r.Key
		if r.Rest != nil {
			want, _ = meta.NextKey(bytes.TrimSuffix(r.Rest, []byte("\r")))
		}
		if !bytes.Equal(key, want) {
			t.Errorf("%s: key %q, the parser finds %q", c.line, key, want)
		}
		if block := n - len(in); block != 0 && block != r.ValueLen+2 {
			t.Errorf("%s: %d bytes behind the line, the parser finds %d", c.line, block, r.ValueLen)
		}
	}
}

func TestGlancePacket(t *testing.T) {
	var r meta.Request
	head := func(key string, extras, body int) []byte {
		b := make([]byte, meta.PacketHeaderBytes+extras)
		b[0], b[3], b[4], b[11] = meta.PacketMagic, byte(len(key)), byte(extras), byte(body)
		return append(b, key...)
	}
	for _, c := range []struct {
		in  []byte
		key string
		n   int
	}{
		{head("key", 0, 3), "key", 27},
		{head("key", 8, 3+8+100), "key", 24 + 111},
		{head("", 0, 0), "", 24},
		{head("key", 0, 2), "", 0},                    // the key does not fit in the body
		{head("key", 0, 3)[:26], "", 0},               // nor is it there
		{head("key", 0, 3)[:20], "", 0},               // no header
		{[]byte("get key-of-a-line\r\n....."), "", 0}, // no packet
	} {
		key, n := meta.GlancePacket(c.in)
		if string(key) != c.key || n != c.n {
			t.Errorf("%x: got %q and %d, want %q and %d", c.in, key, n, c.key, c.n)
		}
		if size, e := r.ParsePacket(append(c.in, make([]byte, 300)...)); n > 0 && e == meta.ErrNone && size > n {
			t.Errorf("%x: %d bytes, the parser finds %d in its head", c.in, n, size)
		}
	}
}

// FuzzGlance: whatever comes, a glance stays within it and terminates.
func FuzzGlance(f *testing.F) {
	for _, g := range glances {
		f.Add([]byte(g.in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, glance := range []func([]byte) ([]byte, int){meta.GlanceLine, meta.GlancePacket} {
			keys, n := glance(in)
			if n < 0 || len(keys) > len(in) || n == 0 && len(keys) > 0 {
				t.Fatal(fmt.Sprintf("%q: %q and %d", in, keys, n))
			}
		}
	})
}
