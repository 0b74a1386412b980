package meta_test

import (
	"fmt"

	"github.com/quarrycache/quarry/meta"
)

// A server reads a line, and answers it once it has looked the item up.
func ExampleRequest() {
	var r meta.Request
	if e := r.ParseLine([]byte("mg greeting v t k O7\r")); e != meta.ErrNone {
		fmt.Print(e)
		return
	}
	value := []byte("hello")
	it := meta.Item{Size: len(value), TTL: 30}
	reply := r.AppendMetaReply(nil, meta.CodeVA, &it)
	reply = meta.AppendBlock(reply, value)
	fmt.Printf("%s: %q\n", r.Key, reply)
	// Output: greeting: "VA 5 t30 kgreeting O7\r\nhello\r\n"
}

// A client fills in a request, and adds its flags in the order it likes.
func ExampleRequest_AppendLine() {
	r := meta.Request{Verb: meta.VerbMetaSet, Key: []byte("greeting"), ValueLen: 5, TTL: 30}
	r.AddFlag('T')
	r.AddFlag('c')
	out := r.AppendLine(nil)
	out = meta.AppendBlock(out, []byte("hello"))
	fmt.Printf("%q\n", out)
	// Output: "ms greeting 5 T30 c\r\nhello\r\n"
}

// The keys of a get line are walked one by one.
func ExampleNextKey() {
	var r meta.Request
	r.ParseLine([]byte("get a b c\r"))
	for rest := r.Rest; ; {
		var key []byte
		if key, rest = meta.NextKey(rest); key == nil {
			break
		}
		fmt.Printf("%s ", key)
	}
	// Output: a b c
}

// A wrong set line says how much of the input is its block.
func ExampleError() {
	var r meta.Request
	e := r.ParseLine([]byte("set a not-a-number 0 5\r"))
	fmt.Printf("%q, then skip %d bytes\n", e, r.Swallow)
	// Output: "CLIENT_ERROR bad command line format\r\n", then skip 7 bytes
}

// A client reads replies from what has arrived so far.
func ExampleReply() {
	in := []byte("VALUE a 0 2\r\nhi\r\nEND\r\nVA 100 c7\r\n")
	var rep meta.Reply
	for {
		n, need, err := rep.Parse(in)
		if err != nil {
			fmt.Println(err)
			return
		}
		if n == 0 {
			fmt.Printf("%d bytes are there, %d needed\n", len(in), need)
			return
		}
		fmt.Printf("%s %q\n", rep.Code, rep.Value)
		in = in[n:]
	}
	// Output:
	// VALUE "hi"
	// END ""
	// 11 bytes are there, 113 needed
}

func ExampleItem() {
	it := meta.Item{CAS: 9, Size: 3, ClientFlags: 1}
	fmt.Printf("%q\n", meta.AppendValueHeaderCAS(nil, []byte("a"), it.ClientFlags, it.Size, it.CAS))
	// Output: "VALUE a 1 3 9\r\n"
}

func ExampleCode() {
	fmt.Printf("%q %v\n", meta.CodeNotStored.AppendTo(nil), meta.CodeServerError.IsError())
	// Output: "NOT_STORED\r\n" true
}

func ExampleLetters() {
	l := meta.Letter('v').With('c')
	fmt.Println(l.Has('v'), l.Has('q'))
	// Output: true false
}

func ExampleVerb() {
	fmt.Println(meta.VerbMetaGet, meta.VerbMetaGet.Meta(), meta.VerbGats, meta.VerbGats.Meta())
	// Output: mg true gats false
}
