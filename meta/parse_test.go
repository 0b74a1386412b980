package meta_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

// lineCase is a line and what it must decode to.
type lineCase struct {
	name string
	line string // without its \n; a \r is put behind it unless bare is set
	bare bool
	err  meta.Error
	want string // as Describe; not compared after an error if empty
}

func testLines(t *testing.T, cases []lineCase) {
	t.Helper()
	var r meta.Request
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			line := c.line + "\r"
			if c.bare {
				line = c.line
			}
			if e := r.ParseLine([]byte(line)); e != c.err {
				t.Fatalf("ParseLine(%q): got %q want %q", line, e, c.err)
			}
			if got := r.Describe(); got != c.want && (c.err == meta.ErrNone || c.want != "") {
				t.Errorf("ParseLine(%q):\ngot  %s\nwant %s", line, got, c.want)
			}
		})
	}
}

const (
	key250 = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk" +
		"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk" +
		"kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
	key251 = key250 + "k"
)

func TestFraming(t *testing.T) {
	testLines(t, []lineCase{
		{name: "empty line", line: "", err: meta.ErrBadLine},
		{name: "empty bare line", line: "", bare: true, err: meta.ErrBadLine},
		{name: "mn with bare end is too short", line: "mn", bare: true, err: meta.ErrBadLine},
		{name: "mn", line: "mn", want: "noop/mn"},
		{name: "mn and words", line: "mn a b", want: "noop/mn"},
		{name: "one letter", line: "x", err: meta.ErrBadLine},
		{name: "three letters, bare", line: "foo", bare: true, err: meta.ErrUnknown},
		{name: "bare end", line: "get a", bare: true, want: `get/get rest="a" has=fv`},
		{name: "only one return is dropped", line: "get a\r", want: `get/get rest="a\r" has=fv`},
		{name: "runs of spaces", line: "delete   a   ", want: `delete/delete key="a"`},
		{name: "tab belongs to the key", line: "delete a\tb", want: `delete/delete key="a\tb"`},
		{name: "NUL and high bytes belong to the key", line: "delete \x00\x80\xff", want: `delete/delete key="\x00\x80\xff"`},
		{name: "upper case is unknown", line: "GET a", err: meta.ErrUnknown},
		{name: "a longer word is unknown", line: "getx a", err: meta.ErrUnknown},
		{name: "only spaces", line: "    ", err: meta.ErrUnknown},
		{name: "leading space before get", line: " get a", err: meta.ErrUnknown},
		{name: "leading space before mg", line: " mg a", err: meta.ErrUnknown},
		{name: "leading space before version", line: " version", err: meta.ErrUnknown},
		{name: "leading space before stats", line: " stats", err: meta.ErrUnknown},
		{name: "leading space before flush_all", line: "  flush_all", want: `flush_all/ arg0="flush_all"`},
		{name: "leading space before verbosity", line: " verbosity 1", want: `verbosity/ arg0="verbosity" arg1="1" delta=1`},
		{name: "unknown with noreply hides its error", line: "foo noreply", err: meta.ErrUnknown,
			want: `none/ arg0="foo" arg1="noreply" quiet hide`},
		{name: "unknown with HTTP closes", line: "GET /x HTTP/1.1", err: meta.ErrHTTP},
		{name: "unknown with HTTP not last", line: "GET HTTP/1.1 x", err: meta.ErrUnknown},
		{name: "HTTP alone", line: "HTTP/1.1", err: meta.ErrUnknown},
		{name: "lower case http", line: "GET /x http/1.1", err: meta.ErrUnknown},
		{name: "HTTP behind get is a key", line: "get /x HTTP/1.1", want: `get/get rest="/x HTTP/1.1" has=fv`},
		{name: "noreply as word 23", line: "delete a" + strings.Repeat(" x", 20) + " noreply", want: `delete/delete key="a" quiet hide`},
		{name: "noreply past word 23", line: "delete a" + strings.Repeat(" x", 21) + " noreply", want: `delete/delete key="a"`},
		{name: "words past byte 65533", line: "delete a" + strings.Repeat(" ", 65533-len("delete a")) + "noreply", want: `delete/delete key="a"`},
		{name: "a key past byte 65533", line: "get" + strings.Repeat(" ", 65534) + "a", want: `get/get rest="a" has=fv`},
	})
}

func TestGetLines(t *testing.T) {
	testLines(t, []lineCase{
		{name: "get", line: "get a", want: `get/get rest="a" has=fv`},
		{name: "get many", line: "get  a bb  c ", want: `get/get rest="a bb  c " has=fv`},
		{name: "gets", line: "gets a", want: `get/gets rest="a" has=cfv`},
		{name: "noreply is a key", line: "get noreply", want: `get/get rest="noreply" has=fv`},
		{name: "get without a key", line: "get", err: meta.ErrBadLine},
		{name: "get with spaces", line: "get   ", err: meta.ErrBadLine},
		{name: "gat", line: "gat 30 a b", want: `get/gat rest="a b" has=Tfv ttl=30`},
		{name: "gats", line: "gats -1 a", want: `get/gats rest="a" has=Tcfv ttl=-1`},
		{name: "gat with many spaces", line: "gat   30   a", want: `get/gat rest="a" has=Tfv ttl=30`},
		{name: "gat without a key", line: "gat 30", err: meta.ErrBadLine},
		{name: "gat alone", line: "gat", err: meta.ErrBadLine},
		{name: "gat with a bad exptime and no key", line: "gat x", err: meta.ErrBadLine},
		{name: "gat with a bad exptime", line: "gat x a", err: meta.ErrBadExptime},
		{name: "gat with a sign", line: "gat +1 a", err: meta.ErrBadExptime},
		{name: "gat over 32 bits", line: "gat 2147483648 a", err: meta.ErrBadExptime},
	})
}

func TestSetLines(t *testing.T) {
	testLines(t, []lineCase{
		{name: "set", line: "set a 1 2 3", want: `set/set key="a" has=FT len=3 client=1 ttl=2`},
		{name: "set noreply", line: "set a 1 2 3 noreply", want: `set/set key="a" has=FT len=3 client=1 ttl=2 quiet hide`},
		{name: "set with a word behind", line: "set a 1 2 3 foo", want: `set/set key="a" has=FT len=3 client=1 ttl=2`},
		{name: "noreply last of many", line: "set a 1 2 3 foo noreply", want: `set/set key="a" has=FT len=3 client=1 ttl=2 quiet hide`},
		{name: "noreply not last", line: "set a 1 2 3 noreply foo", want: `set/set key="a" has=FT len=3 client=1 ttl=2`},
		{name: "add", line: "add a 0 0 0", want: `set/add key="a" has=FT mode=1`},
		{name: "replace", line: "replace a 0 0 0", want: `set/replace key="a" has=FT mode=2`},
		{name: "append", line: "append a 0 0 0", want: `set/append key="a" has=FT mode=3`},
		{name: "prepend", line: "prepend a 0 0 0", want: `set/prepend key="a" has=FT mode=4`},
		{name: "cas", line: "cas a 0 0 1 18446744073709551615", want: `set/cas key="a" has=CFT len=1 cas=18446744073709551615`},
		{name: "cas noreply", line: "cas a 0 0 1 7 noreply", want: `set/cas key="a" has=CFT len=1 cas=7 quiet hide`},
		{name: "key of 250", line: "set " + key250 + " 0 0 1", want: `set/set key="` + key250 + `" has=FT len=1`},

		{name: "key of 251 is swallowed", line: "set " + key251 + " 0 0 1", err: meta.ErrBadLine,
			want: `set/set key="` + key251 + `" has=FT len=1 swallow=3`},
		{name: "4 words swallow nothing", line: "set a 0 1", err: meta.ErrBadLine, want: `set/set has=FT`},
		{name: "length no number", line: "set a 0 0 x", err: meta.ErrBadLine, want: `set/set has=FT`},
		{name: "length negative", line: "set a 0 0 -1", err: meta.ErrBadLine, want: `set/set has=FT len=-1`},
		{name: "length signed", line: "set a 0 0 +1", err: meta.ErrBadLine},
		{name: "longest length", line: "set a 0 0 2147483645", want: `set/set key="a" has=FT len=2147483645`},
		{name: "length too long", line: "set a 0 0 2147483646", err: meta.ErrBadLine, want: `set/set has=FT len=2147483646`},
		{name: "lone minus is 0", line: "set a 0 0 -", want: `set/set key="a" has=FT`},
		{name: "noreply does not hide too few words", line: "set a 0 noreply", err: meta.ErrBadLine, want: `set/set has=FT`},
		{name: "noreply does not hide a bad length", line: "set a 0 0 x noreply", err: meta.ErrBadLine, want: `set/set has=FT`},
		{name: "noreply hides bad flags", line: "set a x 0 4 noreply", err: meta.ErrBadLine,
			want: `set/set key="a" has=FT len=4 swallow=6 quiet hide`},
		{name: "bad flags", line: "set a x 0 4", err: meta.ErrBadLine, want: `set/set key="a" has=FT len=4 swallow=6`},
		{name: "bad exptime", line: "set a 0 x 4", err: meta.ErrBadLine, want: `set/set key="a" has=FT len=4 swallow=6`},
		{name: "cas without unique", line: "cas a 0 0 4", err: meta.ErrBadLine, want: `set/cas key="a" has=CFT len=4 swallow=6`},
		{name: "cas with a bad unique", line: "cas a 0 0 4 x", err: meta.ErrBadLine, want: `set/cas key="a" has=CFT len=4 swallow=6`},
		{name: "cas with noreply for unique", line: "cas a 0 0 4 noreply", err: meta.ErrBadLine,
			want: `set/cas key="a" has=CFT len=4 swallow=6 quiet hide`},

		{name: "flags and exptime with plus and zeros", line: "set a +1 01 0", want: `set/set key="a" has=FT client=1 ttl=1`},
		{name: "flags wrap", line: "set a 4294967297 0 0", want: `set/set key="a" has=FT client=1`},
		{name: "flags wrap beyond 63 bits", line: "set a 18446744073709551615 0 0", want: `set/set key="a" has=FT client=4294967295`},
		{name: "flags over 64 bits", line: "set a 18446744073709551616 0 0", err: meta.ErrBadLine},
		{name: "flags negative", line: "set a -1 0 0", err: meta.ErrBadLine},
		{name: "flags negative beyond 63 bits", line: "set a -18446744073709551615 0 0", want: `set/set key="a" has=FT client=1`},
		{name: "exptime negative", line: "set a 0 -1 0", want: `set/set key="a" has=FT ttl=-1`},
		{name: "exptime cut to 32 bits", line: "set a 0 4294967301 0", want: `set/set key="a" has=FT ttl=5`},
		{name: "exptime over 63 bits", line: "set a 0 9223372036854775808 0", err: meta.ErrBadLine},
		{name: "lowest exptime", line: "set a 0 -9223372036854775808 0", want: `set/set key="a" has=FT`},
		{name: "number ends at white space of C", line: "set a \t5\tx 7\x00z 0", want: `set/set key="a" has=FT client=5 ttl=7`},
		{name: "number of the next word", line: "set a \t 6 0", want: `set/set key="a" has=FT client=6 ttl=6`},
		{name: "plus alone", line: "set a + 0 0", err: meta.ErrBadLine},
	})
}

func TestOtherClassicLines(t *testing.T) {
	testLines(t, []lineCase{
		{name: "touch", line: "touch a 30", want: `get/touch key="a" has=T ttl=30`},
		{name: "touch noreply", line: "touch a -1 noreply", want: `get/touch key="a" has=T ttl=-1 quiet hide`},
		{name: "touch bad exptime", line: "touch a x", err: meta.ErrBadExptime},
		{name: "touch bad exptime noreply", line: "touch a x noreply", err: meta.ErrBadExptime, want: `get/touch key="a" has=T quiet hide`},
		{name: "touch without exptime", line: "touch noreply", err: meta.ErrBadLine, want: `get/touch has=T`},
		{name: "touch of 251", line: "touch " + key251 + " 1", err: meta.ErrBadLine},
		{name: "delete", line: "delete a", want: `delete/delete key="a"`},
		{name: "delete with a time", line: "delete a 0", want: `delete/delete key="a"`},
		{name: "delete with a time noreply", line: "delete a 0 noreply", want: `delete/delete key="a" quiet hide`},
		{name: "delete of the key noreply", line: "delete noreply", want: `delete/delete key="noreply" quiet hide`},
		{name: "delete alone", line: "delete", err: meta.ErrBadLine},
		{name: "delete of 251", line: "delete " + key251, err: meta.ErrBadLine},
		{name: "delete of 251 noreply", line: "delete " + key251 + " noreply", err: meta.ErrBadLine,
			want: `delete/delete key="` + key251 + `" quiet hide`},
		{name: "incr", line: "incr a 5", want: `arith/incr key="a" has=D delta=5`},
		{name: "decr noreply", line: "decr a 18446744073709551615 noreply", want: `arith/decr key="a" has=D delta=18446744073709551615 quiet hide decr`},
		{name: "incr by 22 digits", line: "incr a 0018446744073709551615", want: `arith/incr key="a" has=D delta=18446744073709551615`},
		{name: "incr by 23 digits", line: "incr a 00000000000000000000001", err: meta.ErrBadDelta},
		{name: "incr over 64 bits", line: "incr a 18446744073709551616", err: meta.ErrBadDelta},
		{name: "incr negative", line: "incr a -1", err: meta.ErrBadDelta},
		{name: "incr without delta", line: "incr a", err: meta.ErrBadLine},
		{name: "version", line: "version", want: `version/ arg0="version"`},
		{name: "version does not know noreply", line: "version noreply", want: `version/ arg0="version" arg1="noreply"`},
		{name: "quit", line: "quit now", want: `quit/ arg0="quit" arg1="now"`},
	})
}

func TestAdminLines(t *testing.T) {
	testLines(t, []lineCase{
		{name: "flush_all", line: "flush_all", want: `flush_all/ arg0="flush_all"`},
		{name: "flush_all noreply", line: "flush_all noreply", want: `flush_all/ arg0="flush_all" arg1="noreply" quiet hide`},
		{name: "flush_all with a delay", line: "flush_all 10", want: `flush_all/ arg0="flush_all" arg1="10" has=T ttl=10`},
		{name: "flush_all with a delay noreply", line: "flush_all -1 noreply",
			want: `flush_all/ arg0="flush_all" arg1="-1" arg2="noreply" has=T ttl=-1 quiet hide`},
		{name: "flush_all with a bad delay", line: "flush_all x", err: meta.ErrBadExptime, want: `flush_all/ arg0="flush_all" arg1="x" has=T`},
		{name: "verbosity", line: "verbosity 2", want: `verbosity/ arg0="verbosity" arg1="2" delta=2`},
		{name: "verbosity alone", line: "verbosity", err: meta.ErrBadLine},
		{name: "verbosity of a word, noreply", line: "verbosity noreply", err: meta.ErrBadLine,
			want: `verbosity/ arg0="verbosity" arg1="noreply" quiet hide`},
		{name: "cache_memlimit", line: "cache_memlimit 64", want: `cache_memlimit/ arg0="cache_memlimit" arg1="64" delta=64`},
		{name: "cache_memlimit of a word", line: "cache_memlimit x", err: meta.ErrUnknown},
		{name: "stats", line: "stats", want: `stats/ arg0="stats"`},
		{name: "stats with words", line: "stats detail on", want: `stats/ arg0="stats" arg1="detail" arg2="on"`},
		{name: "shutdown", line: "shutdown graceful", want: `shutdown/ arg0="shutdown" arg1="graceful"`},
		{name: "slabs", line: "slabs reassign 1 2", want: `slabs/ arg0="slabs" arg1="reassign" arg2="1" arg3="2"`},
		{name: "lru", line: "lru mode flat", want: `lru/ arg0="lru" arg1="mode" arg2="flat"`},
		{name: "lru_crawler", line: "lru_crawler metadump all", want: `crawler/ arg0="lru_crawler" arg1="metadump" arg2="all"`},
		{name: "watch", line: "watch fetchers", want: `watch/ arg0="watch" arg1="fetchers"`},
		{name: "refresh_certs", line: "refresh_certs", want: `refresh_certs/ arg0="refresh_certs"`},
	})
}

func TestArgsAreBounded(t *testing.T) {
	var r meta.Request
	if e := r.ParseLine([]byte("stats" + strings.Repeat(" x", 40))); e != meta.ErrNone || r.NArgs != meta.ArgsMax {
		t.Errorf("got %q, %d words, want none, %d words", e, r.NArgs, meta.ArgsMax)
	}
}

func TestNextKey(t *testing.T) {
	rest := []byte("  a bb   c  ")
	var got []string
	for {
		var key []byte
		if key, rest = meta.NextKey(rest); key == nil {
			break
		}
		got = append(got, string(key))
	}
	if want := "a,bb,c"; strings.Join(got, ",") != want {
		t.Errorf("got %q want %q", got, want)
	}
	if key, tail := meta.NextKey([]byte(" br")); string(key) != "br" || len(tail) != 0 {
		t.Errorf("a key that may go on: got %q, %q behind it", key, tail)
	}
}

// TestSizes holds down what a worker and a half-sent value keep.
func TestSizes(t *testing.T) {
	if got := reflect.TypeFor[meta.Request]().Size(); got >= 1331 { // 1.3 KiB
		t.Errorf("a Request has %d bytes, want below 1.3 KiB", got)
	}
	if got := reflect.TypeFor[meta.Item]().Size(); got > 96 {
		t.Errorf("an Item has %d bytes, want at most 96", got)
	}
}
