package meta

import "strconv"

// AppendValueHeader appends the line before a value of get and gat: VALUE, key,
// client flags, length. The value and \r\n are to follow, and CodeEnd after the
// last key.
func AppendValueHeader(dst, key []byte, clientFlags uint32, size int) []byte {
	return append(appendValueFields(dst, key, clientFlags, size), "\r\n"...)
}

// AppendValueHeaderCAS is AppendValueHeader for gets and gats.
func AppendValueHeaderCAS(dst, key []byte, clientFlags uint32, size int, cas uint64) []byte {
	dst = append(appendValueFields(dst, key, clientFlags, size), ' ')
	return append(strconv.AppendUint(dst, cas, 10), "\r\n"...)
}

func appendValueFields(dst, key []byte, clientFlags uint32, size int) []byte {
	dst = append(dst, "VALUE "...)
	dst = append(dst, key...)
	dst = append(dst, ' ')
	dst = strconv.AppendUint(dst, uint64(clientFlags), 10)
	dst = append(dst, ' ')
	return strconv.AppendUint(dst, uint64(size), 10)
}

// The flags that are answered.
var (
	answersKey   = letters("kO")         // whatever the outcome
	answersGet   = letters("kOcfhlstya") // mg, hit
	answersSet   = letters("kOcs")       // ms, whatever the outcome
	answersArith = letters("kOct")       // ma, done
)

// AppendMetaReply appends the reply line of mg, ms, md or ma: the code, what the
// flags ask for in the order of the request, and for a hit of mg the marks Z, X
// and W. After CodeVA, whose length is it.Size, the value and \r\n are to follow.
//
// The key that a hit of mg echoes is in base64 if the item was stored so
// (it.Binary), all others if the request was. it may be nil except for CodeVA,
// and for CodeHD of mg, ms and ma.
func (r *Request) AppendMetaReply(dst []byte, code Code, it *Item) []byte {
	dst = r.appendReply(dst, code, it)
	if r.Route.Copies != 0 {
		dst = strconv.AppendUint(append(dst, " n"...), uint64(r.Route.Copies), 10)
	}
	if r.Route.Newer != 0 {
		dst = strconv.AppendUint(append(dst, " p"...), r.Route.Newer, 10)
	}
	return append(dst, "\r\n"...)
}

// appendReply is AppendMetaReply without what ends the line.
func (r *Request) appendReply(dst []byte, code Code, it *Item) []byte {
	dst = append(dst, codeWords[code]...)
	if code == CodeVA {
		dst = append(dst, ' ')
		dst = strconv.AppendUint(dst, uint64(it.Size), 10)
	}
	done := code == CodeHD || code == CodeVA
	answers, binary := answersKey, r.Binary
	var refused Item
	switch {
	case r.Verb == VerbMetaSet:
		answers = answersSet
		if !done {
			refused.Size = r.ValueLen // c0, and s as sent
			it = &refused
		}
	case r.Verb == VerbMetaGet && done:
		answers, binary = answersGet, it.Binary
	case r.Verb == VerbMetaArith && done:
		answers = answersArith
	}
	for _, c := range r.Flags[:r.NFlags] {
		if answers.Has(c) {
			dst = r.appendFlag(append(dst, ' ', c), c, binary, it)
		}
	}
	if r.Verb == VerbMetaGet && done {
		dst = r.appendMarks(dst, it)
	}
	return dst
}

// AppendFreshReply is AppendMetaReply for a request with G or Y: behind it
// stands what the answer says. A miss has marks too then.
func (r *Request) AppendFreshReply(dst []byte, code Code, it *Item, a *Answer) []byte {
	dst = r.appendReply(dst, code, it)
	if code == CodeEN {
		dst = r.appendMarks(dst, it)
	}
	a.Copies, a.Epoch = r.Route.Copies, r.Route.Newer
	return append(a.appendTo(dst), "\r\n"...)
}

// appendFlag appends what flag c answers. A key that is binary gets the b flag
// behind it.
func (r *Request) appendFlag(dst []byte, c byte, binary bool, it *Item) []byte {
	switch c {
	case 'O':
		return append(dst, r.Opaque...)
	case 'k':
		if binary {
			return append(AppendKey64(dst, r.Key), " b"...)
		}
		return append(dst, r.Key...)
	case 'c':
		return strconv.AppendUint(dst, it.CAS, 10)
	case 'f':
		return strconv.AppendUint(dst, uint64(it.ClientFlags), 10)
	case 's':
		return strconv.AppendUint(dst, uint64(it.Size), 10)
	case 't':
		return strconv.AppendInt(dst, it.TTL, 10)
	case 'l':
		return strconv.AppendInt(dst, it.LastAccess, 10)
	case 'h':
		if it.HitBefore {
			return append(dst, '1')
		}
		return append(dst, '0')
	case 'y':
		return strconv.AppendUint(dst, it.freshness().Version, 10)
	case 'a':
		return it.freshness().Deadlines.appendTo(dst)
	}
	return dst
}

// appendMarks appends the win and stale marks.
func (r *Request) appendMarks(dst []byte, it *Item) []byte {
	if it.WinSent {
		dst = append(dst, " Z"...)
	}
	if it.Stale || r.Route.AsCopy {
		dst = append(dst, " X"...)
	}
	if it.Won {
		dst = append(dst, " W"...)
	}
	return dst
}

// AppendDebug appends what me answers on a hit.
func AppendDebug(dst, key []byte, it *Item) []byte {
	dst = append(dst, "ME "...)
	if it.Binary {
		dst = AppendKey64(dst, key)
	} else {
		dst = append(dst, key...)
	}
	dst = append(dst, " exp="...)
	dst = strconv.AppendInt(dst, it.Expiry, 10)
	dst = append(dst, " la="...)
	dst = strconv.AppendInt(dst, it.LastAccess, 10)
	dst = append(dst, " cas="...)
	dst = strconv.AppendUint(dst, it.CAS, 10)
	if it.HitBefore {
		dst = append(dst, " fetch=yes cls="...)
	} else {
		dst = append(dst, " fetch=no cls="...)
	}
	dst = strconv.AppendInt(dst, int64(it.Class), 10)
	dst = append(dst, " size="...)
	dst = strconv.AppendInt(dst, int64(it.Footprint), 10)
	return append(it.appendFresh(dst), "\r\n"...)
}
