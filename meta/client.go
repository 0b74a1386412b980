package meta

import (
	"bytes"
	"errors"
	"strconv"
)

// AppendLine appends r as its Verb spells it, with the \r\n: what ParseLine
// reads as r again. A set's block is to follow (AppendBlock). Of r it needs the
// Verb, the Key with Binary, the fields that the verb's words or flags stand
// for, and for meta the flags (AddFlag); of the get family also Rest, if there
// are more keys than Key; of a command without a key the Args.
//
// It checks nothing: keys must be no longer than KeyMax and, unless Binary, have
// no space or line end in them (ValidTextKey).
func (r *Request) AppendLine(dst []byte) []byte {
	dst = append(dst, verbWords[r.Verb]...)
	switch r.Verb {
	case VerbMetaSet:
		dst = r.appendKey(dst)
		dst = appendInt(dst, int64(r.ValueLen))
		dst = r.appendFlags(dst)
	case VerbMetaGet, VerbMetaDelete, VerbMetaArith:
		dst = r.appendKey(dst)
		dst = r.appendFlags(dst)
	case VerbMetaDebug:
		dst = r.appendKey(dst)
		if r.Binary {
			dst = append(dst, " b b"...) // one b alone is not seen
		}
	case VerbGet, VerbGets:
		dst = r.appendKeys(dst)
	case VerbGat, VerbGats:
		dst = appendInt(dst, int64(r.TTL))
		dst = r.appendKeys(dst)
	case VerbTouch:
		dst = r.appendKey(dst)
		dst = appendInt(dst, int64(r.TTL))
		dst = r.appendNoreply(dst)
	case VerbDelete:
		dst = r.appendKey(dst)
		dst = r.appendNoreply(dst)
	case VerbIncr, VerbDecr:
		dst = r.appendKey(dst)
		dst = appendUint(dst, r.Delta)
		dst = r.appendNoreply(dst)
	case VerbSet, VerbAdd, VerbReplace, VerbAppend, VerbPrepend, VerbCas:
		dst = r.appendKey(dst)
		dst = appendUint(dst, uint64(r.ClientFlags))
		dst = appendInt(dst, int64(r.TTL))
		dst = appendInt(dst, int64(r.ValueLen))
		if r.Verb == VerbCas {
			dst = appendUint(dst, r.CompareCAS)
		}
		dst = r.appendNoreply(dst)
	case VerbOther:
		for i, word := range r.Args[:r.NArgs] {
			if i > 0 {
				dst = append(dst, ' ')
			}
			dst = append(dst, word...)
		}
	}
	return append(dst, "\r\n"...)
}

// AppendGetLine appends a line of get, gets, gat or gats for many keys; exptime
// is that of gat and gats.
func AppendGetLine(dst []byte, verb Verb, exptime int32, keys ...[]byte) []byte {
	dst = append(dst, verbWords[verb]...)
	if verb == VerbGat || verb == VerbGats {
		dst = appendInt(dst, int64(exptime))
	}
	for _, key := range keys {
		dst = append(append(dst, ' '), key...)
	}
	return append(dst, "\r\n"...)
}

// AppendBlock appends the data block of a set: value and \r\n.
func AppendBlock(dst, value []byte) []byte {
	return append(append(dst, value...), "\r\n"...)
}

// appendInt appends a space and n; appendUint alike.
func appendInt(dst []byte, n int64) []byte {
	return strconv.AppendInt(append(dst, ' '), n, 10)
}

func appendUint(dst []byte, n uint64) []byte {
	return strconv.AppendUint(append(dst, ' '), n, 10)
}

// appendKey appends a space and the key.
func (r *Request) appendKey(dst []byte) []byte {
	dst = append(dst, ' ')
	if r.Binary {
		return AppendKey64(dst, r.Key)
	}
	return append(dst, r.Key...)
}

// appendKeys appends the keys of the get family.
func (r *Request) appendKeys(dst []byte) []byte {
	if len(r.Key) > 0 {
		dst = append(append(dst, ' '), r.Key...)
	}
	if len(r.Rest) > 0 {
		dst = append(append(dst, ' '), r.Rest...)
	}
	return dst
}

func (r *Request) appendNoreply(dst []byte) []byte {
	if r.Quiet {
		return append(dst, " "+noreply...)
	}
	return dst
}

// modeLetters are the arguments of ms M.
var modeLetters = [...]byte{ModeSet: 'S', ModeAdd: 'E', ModeReplace: 'R', ModeAppend: 'A', ModePrepend: 'P',
	ModeRevalidate: 'V', ModeAbsent: 'N'}

// appendFlags appends the flags of a meta request with their arguments. The b
// flag comes from Binary where no flag says it.
func (r *Request) appendFlags(dst []byte) []byte {
	for _, c := range r.Flags[:r.NFlags] {
		dst = append(dst, ' ', c)
		switch c {
		case 'O':
			dst = append(dst, r.Opaque...)
		case 'T':
			dst = strconv.AppendInt(dst, int64(r.TTL), 10)
		case 'N':
			dst = strconv.AppendInt(dst, int64(r.VivifyTTL), 10)
		case 'R':
			dst = strconv.AppendInt(dst, int64(r.RecacheTTL), 10)
		case 'C':
			dst = strconv.AppendUint(dst, r.CompareCAS, 10)
		case 'E':
			dst = strconv.AppendUint(dst, r.NewCAS, 10)
		case 'F':
			dst = strconv.AppendUint(dst, uint64(r.ClientFlags), 10)
		case 'J':
			dst = strconv.AppendUint(dst, r.Initial, 10)
		case 'D':
			dst = strconv.AppendUint(dst, r.Delta, 10)
		case 'G', 'Y', 'A':
			dst = r.appendFresh(dst, c)
		case 'P':
			dst = r.Route.appendTo(dst)
		case 'L':
			dst = r.Route.appendNumber(dst)
		case 'M':
			switch {
			case r.Verb != VerbMetaArith:
				dst = append(dst, modeLetters[r.Mode])
			case r.Decr:
				dst = append(dst, 'D')
			default:
				dst = append(dst, 'I')
			}
		}
	}
	if r.Binary && !r.Has.Has('b') {
		dst = append(dst, " b"...)
	}
	return dst
}

// ErrMalformedReply says that the bytes are no reply: the two sides no longer
// agree where replies begin, and the connection is of no further use.
var ErrMalformedReply = errors.New("meta: malformed reply")

// ReplyLineMax is the longest reply line in bytes, so that a peer that sends
// none cannot make a client gather bytes for ever. The longest of memcached's,
// of a dump, has a URI-encoded key of three times KeyMax.
const ReplyLineMax = 8 << 10

// Reply is one reply as a client reads it: a line, and the value behind it. Of
// a get for many keys each VALUE is a Reply, and so is the END. All slices are
// views of the bytes that were parsed.
type Reply struct {
	Code Code

	// Has is the set of flags in a meta reply, marks and b among them. Item
	// holds their arguments; a VALUE fills it too.
	Has  Letters
	Item Item

	// Fresh is what a meta reply says of versions, deadlines and grants.
	Fresh Answer

	// Key is that of VALUE, CONFIG, ME and the k flag: in base64 if Item.Binary
	// (AppendKeyOf64). Opaque belongs to O.
	Key, Opaque []byte

	// Value is what follows VALUE, VA and CONFIG, without its \r\n; for ma it is the
	// number, in digits.
	Value []byte

	// Text is what follows the word of VERSION, STAT, ME and the three kinds
	// of errors; of CodeText it is the whole line.
	Text []byte
}

// Parse reads the reply at the start of buf. n is its length in bytes. If n is
// 0 without an error, buf holds no whole reply: it can be whole when need bytes
// are there, and not before. After an error the connection cannot be used.
func (rep *Reply) Parse(buf []byte) (n, need int, err error) {
	end := bytes.IndexByte(buf, '\n')
	if end < 0 {
		if len(buf) >= ReplyLineMax {
			return 0, 0, ErrMalformedReply
		}
		return 0, len(buf) + 1, nil
	}
	line := buf[:end]
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	n = end + 1
	*rep = Reply{}
	size, ok := rep.parseLine(line)
	switch {
	case !ok:
		return 0, 0, ErrMalformedReply
	case rep.Code != CodeValue && rep.Code != CodeVA && rep.Code != CodeConfig:
		return n, 0, nil
	}
	end = n + size
	tail := "\r\n"
	if rep.Code == CodeConfig {
		tail = "\r\nEND\r\n"
	}
	need = end + len(tail)
	if len(buf) < need {
		return 0, need, nil
	}
	if string(buf[end:need]) != tail {
		return 0, 0, ErrMalformedReply
	}
	rep.Value = buf[n : n+size : n+size]
	return need, 0, nil
}

// parseLine decodes a line; size is that of the value behind it.
func (rep *Reply) parseLine(line []byte) (size int, ok bool) {
	word := firstWord(line)
	rest := line[len(word):]
	switch rep.Code = codeOfWord(word); rep.Code {
	case CodeValue, CodeConfig:
		return rep.parseValueLine(rest)
	case CodeVA:
		length, flags := NextKey(rest)
		n, ok := ParseUint32(length)
		if !ok || length == nil || n > ValueMax {
			return 0, false
		}
		rep.Item.Size = int(n)
		return int(n), rep.parseFlags(flags)
	case CodeHD, CodeEN, CodeNF, CodeNS, CodeEX:
		return 0, rep.parseFlags(rest)
	case CodeME:
		rep.Key, rest = NextKey(rest)
		rep.Text = bytes.TrimLeft(rest, " ")
		return 0, rep.Key != nil
	case CodeVersion, CodeStat, CodeError, CodeClientError, CodeServerError:
		rep.Text = bytes.TrimLeft(rest, " ")
		return 0, true
	case CodeNone:
		if number, ok := ParseUint64(line); ok && len(line) > 0 {
			rep.Code, rep.Item.Number = CodeNumber, number
			return 0, true
		}
		rep.Code, rep.Text = CodeText, line
		return 0, len(line) > 0
	}
	if len(rest) > 0 { // a word that stands alone, but here does not
		rep.Code, rep.Text = CodeText, line
	}
	return 0, true
}

// codeOfWord is the code that word spells, CodeNone if it is none.
func codeOfWord(word []byte) Code {
	switch string(word) {
	case "VALUE":
		return CodeValue
	case "END":
		return CodeEnd
	case "STORED":
		return CodeStored
	case "HD":
		return CodeHD
	case "VA":
		return CodeVA
	case "EN":
		return CodeEN
	case "NF":
		return CodeNF
	case "NS":
		return CodeNS
	case "EX":
		return CodeEX
	case "MN":
		return CodeMN
	case "ME":
		return CodeME
	case "NOT_STORED":
		return CodeNotStored
	case "EXISTS":
		return CodeExists
	case "NOT_FOUND":
		return CodeNotFound
	case "DELETED":
		return CodeDeleted
	case "TOUCHED":
		return CodeTouched
	case "OK":
		return CodeOK
	case "RESET":
		return CodeReset
	case "STAT":
		return CodeStat
	case "VERSION":
		return CodeVersion
	case "CONFIG":
		return CodeConfig
	case "ERROR":
		return CodeError
	case "CLIENT_ERROR":
		return CodeClientError
	case "SERVER_ERROR", "SERVER_ERROR:": // the colon is that of shutdown
		return CodeServerError
	}
	return CodeNone
}

// parseValueLine decodes what follows VALUE.
func (rep *Reply) parseValueLine(rest []byte) (size int, ok bool) {
	key, rest := NextKey(rest)
	flags, rest := NextKey(rest)
	length, rest := NextKey(rest)
	cas, rest := NextKey(rest)
	if length == nil || len(rest) > 0 {
		return 0, false
	}
	clientFlags, okFlags := ParseUint32(flags)
	n, okLength := ParseUint32(length)
	unique, okCAS := ParseUint64(cas)
	rep.Key = key
	rep.Item.ClientFlags, rep.Item.CAS, rep.Item.Size = clientFlags, unique, int(n)
	if cas != nil {
		rep.Has = Letter('c')
	}
	return int(n), okFlags && okLength && okCAS && n <= ValueMax
}

// parseFlags decodes the flags of a meta reply. Unknown letters are noted in
// Has and otherwise skipped.
func (rep *Reply) parseFlags(rest []byte) (ok bool) {
	it := &rep.Item
	for {
		var word []byte
		if word, rest = NextKey(rest); word == nil {
			return true
		}
		c, arg := word[0], word[1:]
		if c-'A' > 'z'-'A' {
			return false
		}
		rep.Has |= Letter(c)
		ok, n := true, uint32(0)
		switch c {
		case 'k':
			rep.Key = arg
		case 'O':
			rep.Opaque = arg
		case 'b':
			it.Binary = true
		case 'c':
			it.CAS, ok = ParseUint64(arg)
		case 'f':
			it.ClientFlags, ok = ParseUint32(arg)
		case 's':
			n, ok = ParseUint32(arg)
			it.Size = int(n)
		case 't':
			if string(arg) == "-1" {
				it.TTL = -1
				break
			}
			n, ok = ParseUint32(arg)
			it.TTL = int64(n)
		case 'l':
			n, ok = ParseUint32(arg)
			it.LastAccess = int64(n)
		case 'h':
			it.HitBefore = string(arg) == "1"
		case 'W':
			it.Won = true
		case 'X':
			it.Stale = true
		case 'Z':
			it.WinSent = true
		default:
			ok = rep.Fresh.parse(c, arg)
		}
		if !ok {
			return false
		}
	}
}
