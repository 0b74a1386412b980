package meta_test

import (
	"bytes"
	"testing"

	"github.com/quarrycache/quarry/meta"
	"pgregory.net/rapid"
)

func TestFreshLines(t *testing.T) {
	const token = "AAAAAA.1.AAAAAAAAAA"
	testLines(t, []lineCase{
		{name: "G", line: "mg a G500", want: `get/mg key="a" flags=G has=G fresh=500,'\x00',"",0,0,0,0`},
		{name: "G in the background", line: "mg a G1b", want: `get/mg key="a" flags=G has=G fresh=1,'b',"",0,0,0,0`},
		{name: "G with a minimum", line: "mg a v G4294967295s Y18446744073709551615",
			want: `get/mg key="a" flags=vGY has=GYv fresh=4294967295,'s',"",18446744073709551615,0,0,0`},
		{name: "y and a", line: "mg a y a", want: `get/mg key="a" flags=ya has=ay`},
		{name: "a fill", line: "ms a 2 G" + token + " Y42 A7,6,5 F9 T3",
			want: `set/ms key="a" flags=GYAFT has=AFGTY len=2 client=9 ttl=3 fresh=0,'\x00',"` + token + `",42,7,6,5`},
		{name: "a fill without soft", line: "ms a 2 G" + token + " Y42 A281474976710655",
			want: `set/ms key="a" flags=GYA has=AGY len=2 fresh=0,'\x00',"` + token + `",42,281474976710655,0,0`},
		{name: "MV", line: "ms a 0 MV Gx Y1 A9", want: `set/ms key="a" flags=MGYA has=AGMY mode=5 fresh=0,'\x00',"x",1,9,0,0`},
		{name: "MN", line: "ms a 0 Gx Y0 A9 MN", want: `set/ms key="a" flags=GYAM has=AGMY mode=6 fresh=0,'\x00',"x",0,9,0,0`},
		{name: "a versioned write", line: "ms a 2 Y1", want: `set/ms key="a" flags=Y has=Y len=2 fresh=0,'\x00',"",1,0,0,0`},
		{name: "a notice", line: "md a I Y1 Lp.1", want: `delete/md key="a" flags=IYL has=ILY fresh=0,'\x00',"",1,0,0,0`},
		{name: "given back", line: "md a G" + token + " q", want: `delete/md key="a" flags=Gq has=Gq fresh=0,'\x00',"` + token + `",0,0,0,0 quiet`},

		{name: "G and C", line: "mg a G1 C1", err: meta.ErrInvalidFlag},
		{name: "A in mg", line: "mg a A1", err: meta.ErrInvalidFlag},
		{name: "a fill without Y is swallowed", line: "ms a 2 Gx A1", err: meta.ErrInvalidFlag,
			want: `set/ms key="a" flags=GA has=AG len=2 swallow=4 fresh=0,'\x00',"x",0,1,0,0`},
		{name: "MV with a value", line: "ms a 1 MV Gx Y1 A9", err: meta.ErrBadToken},
		{name: "an unknown flag before them", line: "mg a z G0", err: meta.ErrInvalidFlag},
		{name: "a bad argument before what does not go together", line: "mg a G0 C1", err: meta.ErrBadToken},
		{name: "four deadlines", line: "ms a 2 Y1 A1,2,3,4", err: meta.ErrBadToken},
		{name: "a token of 32", line: "md a G12345678901234567890123456789012", err: meta.ErrBadToken},
	})
}

// What a client writes, the server reads, and a Request that is used again keeps
// nothing of it.
func TestFreshRoundTrip(t *testing.T) {
	deadline := rapid.Uint64Range(1, meta.DeadlineMax)
	token := rapid.SliceOfN(rapid.ByteRange('!', '~'), 1, meta.TokenMax)
	rapid.Check(t, func(t *rapid.T) {
		want := meta.Request{Key: []byte("a")}
		f := &want.Fresh
		f.Version = rapid.Uint64Min(1).Draw(t, "version")
		kind := rapid.SampledFrom([]string{"lookup", "fill", "revalidate", "absent", "write", "notice", "takedown", "back"}).Draw(t, "kind")
		add := func(letters string) {
			for _, c := range rapid.Permutation([]byte(letters)).Draw(t, "flags") {
				want.AddFlag(c)
			}
		}
		deadlines := func() {
			f.Hard = deadline.Draw(t, "hard")
			if rapid.Bool().Draw(t, "has soft") {
				f.Soft = deadline.Draw(t, "soft")
			}
			if rapid.Bool().Draw(t, "has read") {
				f.Read = deadline.Draw(t, "read")
			}
		}
		switch kind {
		case "lookup":
			want.Verb = meta.VerbMetaGet
			f.GrantMillis = rapid.Uint32Min(1).Draw(t, "grant")
			f.GrantClass = rapid.SampledFrom([]byte{meta.GrantForeground, meta.GrantBackground, meta.GrantStrong}).Draw(t, "class")
			add("vGYya")
		case "fill":
			want.Verb, want.ValueLen = meta.VerbMetaSet, 3
			f.SetToken(token.Draw(t, "token"))
			deadlines()
			add("GYAs")
		case "revalidate", "absent":
			want.Verb, want.Mode = meta.VerbMetaSet, meta.ModeRevalidate
			if kind == "absent" {
				want.Mode = meta.ModeAbsent
			}
			f.SetToken(token.Draw(t, "token"))
			deadlines()
			add("GYAM")
		case "write":
			want.Verb, want.ValueLen = meta.VerbMetaSet, 3
			add("Yk")
		case "notice":
			want.Verb = meta.VerbMetaDelete
			add("YI")
		case "takedown":
			want.Verb = meta.VerbMetaDelete
			add("Yq")
			want.Quiet = true
		case "back":
			want.Verb, f.Version = meta.VerbMetaDelete, 0
			f.SetToken(token.Draw(t, "token"))
			add("G")
		}
		line := want.AppendLine(nil)
		var got meta.Request
		if e := got.ParseLine(line[:len(line)-1]); e != meta.ErrNone {
			t.Fatalf("%q: %q", line, e)
		}
		want.Op, got.KeyText = got.Op, nil
		if got, want := got.Describe(), want.Describe(); got != want {
			t.Errorf("%q:\ngot  %s\nwant %s", line, got, want)
		}
		got.ParseLine([]byte("mg a"))
		if got.Fresh != (meta.Freshness{}) {
			t.Errorf("%+v is left from %q", got.Fresh, line)
		}
	})
}

// What the server answers, a client reads.
func TestFreshReplyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r meta.Request
		if e := r.ParseLine([]byte("mg key v y a G500 k O7")); e != meta.ErrNone {
			t.Fatal(e)
		}
		code := rapid.SampledFrom([]meta.Code{meta.CodeVA, meta.CodeEN}).Draw(t, "code")
		n := rapid.Int64Range(0, 1<<32-1)
		var want meta.Answer
		if want.Granted = rapid.Bool().Draw(t, "granted"); want.Granted {
			want.SetToken(rapid.SliceOfN(rapid.ByteRange('!', '~'), 1, meta.TokenMax).Draw(t, "token"))
		}
		if want.Waits = rapid.Bool().Draw(t, "waits"); want.Waits {
			want.WaitMillis = n.Draw(t, "wait")
		}
		if want.Denied = rapid.Bool().Draw(t, "denied"); want.Denied {
			want.DenyMillis = n.Draw(t, "deny")
		}
		want.Absent = rapid.Bool().Draw(t, "absent")
		want.Reason = uint8(rapid.IntRange(0, 11).Draw(t, "reason"))
		it := meta.Item{Size: 2, Won: want.Granted, WinSent: want.Waits, Stale: rapid.Bool().Draw(t, "stale"), Fresh: &meta.ItemFreshness{
			Version: rapid.Uint64().Draw(t, "version"),
			Deadlines: meta.Deadlines{
				Hard: rapid.Uint64Range(1, meta.DeadlineMax).Draw(t, "hard"),
				Soft: rapid.Uint64Max(meta.DeadlineMax).Draw(t, "soft"),
				Read: rapid.Uint64Max(meta.DeadlineMax).Draw(t, "read"),
			}}}
		sent := want
		if code == meta.CodeVA { // the version is the flag y
			want.HasVersion, want.Version, want.Deadlines = true, it.Fresh.Version, it.Fresh.Deadlines
		} else {
			sent.HasVersion, sent.Version = true, it.Fresh.Version
			want.HasVersion, want.Version = true, it.Fresh.Version
		}
		out := r.AppendFreshReply(nil, code, &it, &sent)
		if code == meta.CodeVA {
			out = meta.AppendBlock(out, []byte("hi"))
		}
		var rep meta.Reply
		if n, _, err := rep.Parse(out); n != len(out) || err != nil || rep.Code != code {
			t.Fatalf("%q: %d bytes, %v", out, n, err)
		}
		if rep.Fresh != want || rep.Item.Stale != it.Stale || rep.Item.Won != it.Won || rep.Item.WinSent != it.WinSent {
			t.Errorf("%q:\ngot  %+v\nwant %+v", out, rep.Fresh, want)
		}
		if !bytes.Equal(rep.Key, r.Key) || string(rep.Opaque) != "7" {
			t.Errorf("%q: key %q, opaque %q", out, rep.Key, rep.Opaque)
		}
	})
}
