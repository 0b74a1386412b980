package meta_test

import (
	"strings"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

func TestMetaLines(t *testing.T) {
	opaque31 := strings.Repeat("o", meta.OpaqueMax)
	testLines(t, []lineCase{
		{name: "mg", line: "mg a", want: `get/mg key="a"`},
		{name: "mg without a key", line: "mg", err: meta.ErrBadLine},
		{name: "mg with flags", line: "mg a v q k c f h l s t u", want: `get/mg key="a" flags=vqkcfhlstu has=cfhklqstuv quiet`},
		{name: "mg with spaces", line: "mg   a   v  ", want: `get/mg key="a" flags=v has=v`},
		{name: "mg of the key noreply", line: "mg noreply", want: `get/mg key="noreply"`},
		{name: "mg with numbers", line: "mg a C1 E2 N3 R4 T5",
			want: `get/mg key="a" flags=CENRT has=CENRT ttl=5 vivify=3 recache=4 cas=1 newcas=2`},
		{name: "mg with negative times", line: "mg a N-1 R- T-2147483648",
			want: `get/mg key="a" flags=NRT has=NRT ttl=-2147483648 vivify=-1`},
		{name: "mg with flags that mean nothing to it", line: "mg a F7 J8 D9 I x MS",
			want: `get/mg key="a" flags=FJDIxM has=DFIJMx client=7 initial=8 delta=9`},
		{name: "mg with a mode that ms refuses", line: "mg a Mz", want: `get/mg key="a" flags=M has=M`},
		{name: "arguments where none belong", line: "mg a vx q0 kk", want: `get/mg key="a" flags=vqk has=kqv quiet`},
		{name: "P and L with any argument", line: "mg a P123 Lx", want: `get/mg key="a" flags=PL has=LP`},
		{name: "opaque", line: "mg a O123", want: `get/mg key="a" flags=O has=O opaque="123"`},
		{name: "opaque without a token", line: "mg a O", want: `get/mg key="a" flags=O has=O opaque=""`},
		{name: "opaque of 31", line: "mg a O" + opaque31, want: `get/mg key="a" flags=O has=O opaque="` + opaque31 + `"`},
		{name: "opaque of 32", line: "mg a O" + opaque31 + "o", err: meta.ErrOpaqueTooLong},
		{name: "key of 251", line: "mg " + key251, err: meta.ErrBadLine},

		{name: "ms", line: "ms a 2", want: `set/ms key="a" len=2`},
		{name: "ms with flags", line: "ms a 2 T30 F9 c I", want: `set/ms key="a" flags=TFcI has=FITc len=2 client=9 ttl=30`},
		{name: "ms without a length", line: "ms a", err: meta.ErrBadLine, want: `set/ms`},
		{name: "ms with a bad length", line: "ms a T30 2", err: meta.ErrBadLine, want: `set/ms`},
		{name: "ms with a length too long", line: "ms a 2147483646", err: meta.ErrBadLine},
		{name: "ms MS", line: "ms a 2 MS", want: `set/ms key="a" flags=M has=M len=2`},
		{name: "ms ME", line: "ms a 2 ME", want: `set/ms key="a" flags=M has=M mode=1 len=2`},
		{name: "ms MR", line: "ms a 2 MR", want: `set/ms key="a" flags=M has=M mode=2 len=2`},
		{name: "ms MA", line: "ms a 2 MA N30", want: `set/ms key="a" flags=MN has=MN mode=3 len=2 vivify=30`},
		{name: "ms MP", line: "ms a 2 MP", want: `set/ms key="a" flags=M has=M mode=4 len=2`},
		{name: "ms counts the first letter of a mode", line: "ms a 2 MAppend", want: `set/ms key="a" flags=M has=M mode=3 len=2`},
		{name: "ms with a NUL mode", line: "ms a 2 M\x00", want: `set/ms key="a" flags=M has=M len=2`},
		{name: "ms with a bad mode", line: "ms a 2 Mx", err: meta.ErrSetMode, want: `set/ms key="a" flags=M has=M len=2 swallow=4`},
		{name: "ms with a small mode", line: "ms a 2 Ms", err: meta.ErrSetMode},
		{name: "ms with no mode behind M", line: "ms a 2 M c", err: meta.ErrSetMode},
		{name: "ms with a bad mode and a long opaque", line: "ms a 2 Mx O" + opaque31 + "o", err: meta.ErrSetMode},
		{name: "ms with a long opaque", line: "ms a 2 O" + opaque31 + "o", err: meta.ErrOpaqueTooLong},
		{name: "ms of 251 is swallowed", line: "ms " + key251 + " 2", err: meta.ErrBadLine, want: `set/ms key="` + key251 + `" len=2 swallow=4`},
		{name: "ms with a bad F is swallowed", line: "ms a 2 F4294967296", err: meta.ErrBadLine,
			want: `set/ms key="a" flags=F has=F len=2 swallow=4`},
		{name: "ms with a bad first byte is not swallowed", line: "ms a 2 !", err: meta.ErrBadLine, want: `set/ms key="a" len=2`},
		{name: "ms with an invalid flag is swallowed", line: "ms a 2 z", err: meta.ErrInvalidFlag, want: `set/ms key="a" len=2 swallow=4`},
		{name: "ms with q hides no error", line: "ms a 2 q z", err: meta.ErrInvalidFlag,
			want: `set/ms key="a" flags=q has=q len=2 swallow=4 quiet`},

		{name: "md", line: "md a q I T30", want: `delete/md key="a" flags=qIT has=ITq ttl=30 quiet`},
		{name: "md with x", line: "md a x F1 E9 C8", want: `delete/md key="a" flags=xFEC has=CEFx client=1 cas=8 newcas=9`},

		{name: "ma", line: "ma a", want: `arith/ma key="a" delta=1`},
		{name: "ma with numbers", line: "ma a N0 J18446744073709551615 D5", want: `arith/ma key="a" flags=NJD has=DJN initial=18446744073709551615 delta=5`},
		{name: "ma D0", line: "ma a D0", want: `arith/ma key="a" flags=D has=D`},
		{name: "ma MI", line: "ma a MI", want: `arith/ma key="a" flags=M has=M delta=1`},
		{name: "ma M+", line: "ma a M+", want: `arith/ma key="a" flags=M has=M delta=1`},
		{name: "ma MD", line: "ma a MD", want: `arith/ma key="a" flags=M has=M delta=1 decr`},
		{name: "ma M-", line: "ma a M-", want: `arith/ma key="a" flags=M has=M delta=1 decr`},
		{name: "ma with a bad mode", line: "ma a MS", err: meta.ErrArithMode},
		{name: "ma with no mode behind M", line: "ma a M", err: meta.ErrArithMode},
		{name: "ma with an invalid flag", line: "ma a z", err: meta.ErrArithFlag},
		{name: "ma with a flag twice", line: "ma a v v", err: meta.ErrArithFlag},
		{name: "ma with a bad number", line: "ma a Dx", err: meta.ErrArithFlag},
		{name: "ma with a bad key", line: "ma a b", err: meta.ErrArithFlag},
		{name: "ma of 251", line: "ma " + key251, err: meta.ErrArithFlag},
		{name: "ma with too many words", line: "ma a" + strings.Repeat(" v", 19), err: meta.ErrArithFlag},
		{name: "ma with a bad first byte", line: "ma a !", err: meta.ErrBadLine},
		{name: "ma with a long opaque", line: "ma a O" + opaque31 + "o", err: meta.ErrOpaqueTooLong},

		{name: "me", line: "me a", want: `debug/me key="a"`},
		{name: "me with other flags", line: "me a q v", want: `debug/me key="a"`},
		{name: "me with b alone takes it for nothing", line: "me Zm9v b", want: `debug/me key="Zm9v"`},
		{name: "me with b and another word", line: "me Zm9v b x", want: `debug/me key="foo" text="Zm9v" binary`},
		{name: "me with a bad key", line: "me a b x", err: meta.ErrBadLine},
		{name: "me with a bad first byte", line: "me a b x !", err: meta.ErrBadLine},
		{name: "me with a bad byte where b would be", line: "me a !", err: meta.ErrBadLine},
		{name: "me without a key", line: "me", err: meta.ErrBadLine},
		{name: "me of 251", line: "me " + key251, err: meta.ErrBadLine},
	})
}

func TestMetaFlagErrors(t *testing.T) {
	many := func(n int) string { // n flags that differ
		return strings.Join(strings.Split("v q k c f h l s t u x I P L C1 E1 N1 R1 T1 F1 J1 D1", " ")[:n], " ")
	}
	testLines(t, []lineCase{
		{name: "unknown letter", line: "mg a z", err: meta.ErrInvalidFlag},
		{name: "unknown capital", line: "mg a W", err: meta.ErrInvalidFlag},
		{name: "digit", line: "mg a 1", err: meta.ErrInvalidFlag},
		{name: "bracket", line: "mg a [", err: meta.ErrInvalidFlag},
		{name: "backquote", line: "mg a `", err: meta.ErrInvalidFlag},
		{name: "exclamation mark", line: "mg a !", err: meta.ErrBadLine},
		{name: "at sign", line: "mg a @", err: meta.ErrBadLine},
		{name: "brace", line: "mg a {", err: meta.ErrBadLine},
		{name: "high byte", line: "mg a \x80", err: meta.ErrBadLine},
		{name: "bad first byte before an unknown letter", line: "mg a z !", err: meta.ErrBadLine},
		{name: "twice", line: "mg a v v", err: meta.ErrDuplicateFlag},
		{name: "twice with arguments", line: "mg a T1 T2", err: meta.ErrDuplicateFlag},
		{name: "unknown before twice", line: "mg a z v v", err: meta.ErrInvalidFlag},
		{name: "twice before unknown", line: "mg a v v z", err: meta.ErrDuplicateFlag},
		{name: "20 words", line: "mg a " + many(18), want: `get/mg key="a" flags=vqkcfhlstuxIPLCENR has=CEILNPRcfhklqstuvx vivify=1 recache=1 cas=1 newcas=1 quiet`},
		{name: "21 words", line: "mg a " + many(19), err: meta.ErrTooManyFlags},
		{name: "21 words, two alike", line: "mg a v " + many(18), err: meta.ErrTooManyFlags},
		{name: "21 words of ms", line: "ms a 1 " + many(18), err: meta.ErrTooManyFlags},
		{name: "a long key before too many words", line: "mg " + key251 + " " + many(19), err: meta.ErrBadLine},
		{name: "a bad first byte in word 23", line: "mg a" + strings.Repeat(" v", 20) + " !", err: meta.ErrBadLine},
		{name: "a bad first byte past word 23", line: "mg a" + strings.Repeat(" v", 21) + " !", err: meta.ErrTooManyFlags},
		{name: "N without a number", line: "mg a N", err: meta.ErrBadToken},
		{name: "T of a word", line: "mg a Tx", err: meta.ErrBadToken},
		{name: "R over 32 bits", line: "mg a R2147483648", err: meta.ErrBadToken},
		{name: "C negative", line: "mg a C-1", err: meta.ErrBadToken},
		{name: "E over 64 bits", line: "mg a E18446744073709551616", err: meta.ErrBadToken},
		{name: "F without a number", line: "mg a F", err: meta.ErrBadLine},
		{name: "F over 32 bits", line: "mg a F4294967296", err: meta.ErrBadLine},
		{name: "J of a word", line: "mg a Jx", err: meta.ErrBadInitial},
		{name: "D of a word", line: "mg a Dx", err: meta.ErrBadMetaDelta},
		{name: "the last bad argument counts", line: "mg a Tx Dx", err: meta.ErrBadMetaDelta},
		{name: "F has no text of its own", line: "mg a Tx Fx", err: meta.ErrBadToken},
		{name: "F before another", line: "mg a Fx Tx", err: meta.ErrBadToken},
		{name: "a letter before a bad argument", line: "mg a Tx z", err: meta.ErrInvalidFlag},
		{name: "not base64", line: "mg a b", err: meta.ErrBadKey64},
		{name: "a bad argument behind a bad key", line: "mg a b Tx", err: meta.ErrBadToken},
	})
}

func TestBinaryKeys(t *testing.T) {
	longest := strings.Repeat("AAAA", 62)
	testLines(t, []lineCase{
		{name: "padded twice", line: "mg Zg== b", want: `get/mg key="f" text="Zg==" flags=b has=b binary`},
		{name: "padded once", line: "mg Zm8= b", want: `get/mg key="fo" text="Zm8=" flags=b has=b binary`},
		{name: "not padded", line: "mg Zm9v b", want: `get/mg key="foo" text="Zm9v" flags=b has=b binary`},
		{name: "padding is required", line: "mg Zg b", err: meta.ErrBadKey64},
		{name: "padding alone", line: "mg ==== b", err: meta.ErrBadKey64},
		{name: "padded three times", line: "mg A=== b", err: meta.ErrBadKey64},
		{name: "other characters are skipped", line: "mg Z.m-9_v b", want: `get/mg key="foo" text="Z.m-9_v" flags=b has=b binary`},
		{name: "nothing but others", line: "mg ... b", err: meta.ErrBadKey64},
		{name: "behind the padding nothing counts", line: "mg Zg==Zm9v b", want: `get/mg key="f" text="Zg==Zm9v" flags=b has=b binary`},
		{name: "padding in front of a digit", line: "mg AA=A b", want: `get/mg key="\x00\x00" text="AA=A" flags=b has=b binary`},
		{name: "b need not come first", line: "ms Zm9v 2 T1 b", want: `set/ms key="foo" text="Zm9v" flags=Tb has=Tb len=2 ttl=1 binary`},
		{name: "the limit is on the text", line: "mg " + longest + "AA b", err: meta.ErrBadKey64},
		{name: "the longest key", line: "mg " + longest + "!! b",
			want: `get/mg key="` + strings.Repeat(`\x00`, meta.BinaryKeyMax) + `" text="` + longest + `!!" flags=b has=b binary`},
		{name: "251 bytes of text", line: "mg " + longest + "!!! b", err: meta.ErrBadLine},
	})
}

func TestBefore(t *testing.T) {
	var r meta.Request
	if e := r.ParseLine([]byte("mg a t T9 N30\r")); e != meta.ErrNone {
		t.Fatal(e)
	}
	for _, c := range []struct {
		a, b byte
		want bool
	}{{'t', 'T', true}, {'T', 't', false}, {'T', 'N', true}, {'N', 'T', false}, {'t', 'v', false}, {'v', 't', false}} {
		if got := r.Before(c.a, c.b); got != c.want {
			t.Errorf("Before(%c, %c): got %v want %v", c.a, c.b, got, c.want)
		}
	}
}
