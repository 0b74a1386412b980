package meta

// noreply is the last word of a classic line whose replies are to be hidden.
const noreply = "noreply"

// The meta flags that mean what the classic words do.
const (
	hasGet   Letters = 1<<('v'-'A') | 1<<('f'-'A')
	hasGets          = hasGet | 1<<('c'-'A')
	hasTouch Letters = 1 << ('T' - 'A')
	hasSet   Letters = 1<<('F'-'A') | 1<<('T'-'A')
	hasCas           = hasSet | 1<<('C'-'A')
	hasArith Letters = 1 << ('D' - 'A')
)

// hide notes whether last, the last word of the line, hides its replies.
func (r *Request) hide(last []byte) {
	if string(last) == noreply {
		r.Quiet, r.HideErrors = true, true
	}
}

// setKey takes key as the key of r, which is not ok if it is too long.
func (r *Request) setKey(key []byte) (ok bool) {
	r.Key, r.KeyText = key, key
	return len(key) <= KeyMax
}

// parseGet decodes "get <key>*": rest is what follows the word. Here noreply is
// a key like others.
func (r *Request) parseGet(verb Verb, has Letters, rest []byte) Error {
	r.Op, r.Verb, r.Has = OpGet, verb, has
	for len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return ErrBadLine
	}
	r.Rest = rest
	return ErrNone
}

// parseGat decodes "gat <exptime> <key>*".
func (r *Request) parseGat(verb Verb, has Letters, rest []byte) Error {
	exptime, rest := NextKey(rest)
	if e := r.parseGet(verb, has|hasTouch, rest); e != ErrNone {
		return e
	}
	ttl, ok := parseTTL(exptime)
	if !ok {
		return ErrBadExptime
	}
	r.TTL = ttl
	return ErrNone
}

// parseSet decodes "set <key> <flags> <exptime> <length> [noreply]"; cas has a
// unique number before noreply.
func (r *Request) parseSet(verb Verb, mode Mode, rest []byte) Error {
	r.Op, r.Verb, r.Mode, r.Has = OpSet, verb, mode, hasSet
	if verb != VerbCas && r.parsePlainSet(rest) {
		return ErrNone
	}
	w := words{rest, 1}
	key := w.key()
	atFlags := w.rest
	w.next()
	atExptime := w.rest
	w.next()
	length := w.next()
	if length == nil || !r.setLength(length) {
		return ErrBadLine // the block is taken for commands
	}
	last := length
	okCAS := true
	if verb == VerbCas {
		r.Has = hasCas
		unique := w.next()
		r.CompareCAS, okCAS = ParseUint64(unique)
		okCAS = okCAS && unique != nil
		if unique != nil {
			last = unique
		}
	}
	r.hide(w.last(last))

	var okFlags bool
	r.ClientFlags, okFlags = strtoul32(atFlags)
	ttl, okTTL := strtol32(atExptime)
	r.TTL = int64(ttl)
	if !r.setKey(key) || !okFlags || !okTTL || !okCAS {
		r.Swallow = r.ValueLen + len("\r\n")
		return ErrBadLine
	}
	return ErrNone
}

// parsePlainSet decodes what nearly all set lines look like: one space between
// words, short decimal numbers, nothing behind them but noreply. It says
// nothing about other lines, and leaves them to be parsed by the book.
func (r *Request) parsePlainSet(rest []byte) (plain bool) {
	key, rest := NextKey(rest)
	clientFlags, rest, ok1 := plainNumber(rest)
	exptime, rest, ok2 := plainNumber(rest)
	length, rest, ok3 := plainNumber(rest)
	if !ok1 || !ok2 || !ok3 || len(key) > KeyMax {
		return false
	}
	switch {
	case len(rest) == 0:
	case string(rest) == " "+noreply:
		r.Quiet, r.HideErrors = true, true
	default:
		return false
	}
	r.Key, r.KeyText = key, key
	r.ClientFlags, r.TTL, r.ValueLen = clientFlags, int64(exptime), int(length)
	return true
}

// plainNumber takes a space and 1 to 9 digits from b, which must end there or go
// on with a space.
func plainNumber(b []byte) (n uint32, tail []byte, ok bool) {
	if len(b) == 0 || b[0] != ' ' {
		return 0, nil, false
	}
	i := 1
	for ; i < len(b) && i <= 1+9; i++ {
		c := b[i] - '0'
		if c > 9 {
			break
		}
		n = n*10 + uint32(c)
	}
	if i == 1 || i > 1+9 || i < len(b) && b[i] != ' ' {
		return 0, nil, false
	}
	return n, b[i:], true
}

// setLength takes the length of the data block.
func (r *Request) setLength(word []byte) (ok bool) {
	n, ok := ParseInt32(word)
	r.ValueLen = int(n)
	return ok && n >= 0 && n <= ValueMax
}

// parseDelete decodes "delete <key> [anything] [noreply]".
func (r *Request) parseDelete(rest []byte) Error {
	r.Op, r.Verb = OpDelete, VerbDelete
	w := words{rest, 1}
	key := w.key()
	if key == nil {
		return ErrBadLine
	}
	r.hide(w.last(key)) // "delete noreply" deletes the key noreply, and is quiet
	if !r.setKey(key) {
		return ErrBadLine
	}
	return ErrNone
}

// parseArith decodes "incr <key> <delta> [noreply]".
func (r *Request) parseArith(verb Verb, rest []byte) Error {
	r.Op, r.Verb, r.Has = OpArith, verb, hasArith
	w := words{rest, 1}
	key, delta := w.key(), w.next()
	if delta == nil {
		return ErrBadLine
	}
	r.hide(w.last(delta))
	if !r.setKey(key) {
		return ErrBadLine
	}
	var ok bool
	if r.Delta, ok = ParseUint64(delta); !ok {
		return ErrBadDelta
	}
	return ErrNone
}

// parseTouch decodes "touch <key> <exptime> [noreply]".
func (r *Request) parseTouch(rest []byte) Error {
	r.Op, r.Verb, r.Has = OpGet, VerbTouch, hasTouch
	w := words{rest, 1}
	key, exptime := w.key(), w.next()
	if exptime == nil {
		return ErrBadLine
	}
	r.hide(w.last(exptime))
	if !r.setKey(key) {
		return ErrBadLine
	}
	var ok bool
	if r.TTL, ok = parseTTL(exptime); !ok {
		return ErrBadExptime
	}
	return ErrNone
}

// parseWords takes the words of a line without a key.
func (r *Request) parseWords(op Op, line []byte) Error {
	r.Op, r.Verb = op, VerbOther
	w := words{line, 0}
	for word := w.next(); word != nil; word = w.next() {
		r.Args[r.NArgs] = word
		r.NArgs++
	}
	return ErrNone
}

// parseAdmin decodes the commands that memcached looks up last: spaces may
// stand before them, and noreply hides what they answer, as it hides that a
// word is no command at all.
func (r *Request) parseAdmin(line []byte) Error {
	r.parseWords(OpNone, line)
	if r.NArgs == 0 {
		r.Verb = VerbNone
		return ErrUnknown
	}
	last := r.Args[r.NArgs-1]
	r.hide(last)
	switch string(r.Args[0]) {
	case "flush_all":
		return r.parseFlushAll()
	case "verbosity":
		r.Op = OpVerbosity
		return r.parseNumberArg(ErrBadLine)
	case "cache_memlimit":
		r.Op = OpCacheMemlimit
		return r.parseNumberArg(ErrUnknown)
	case "shutdown":
		r.Op = OpShutdown
	case "slabs":
		r.Op = OpSlabs
	case "lru":
		r.Op = OpLRU
	case "lru_crawler":
		r.Op = OpCrawler
	case "refresh_certs":
		r.Op = OpRefreshCerts
	case "config":
		r.Op = OpConfig
	case "debugtime":
		r.Op = OpDebugTime
	case "debugitem":
		r.Op = OpDebugItem
	default:
		r.Verb = VerbNone
		if r.NArgs > 1 && len(last) >= len("HTTP/") && string(last[:len("HTTP/")]) == "HTTP/" {
			return ErrHTTP
		}
		return ErrUnknown
	}
	return ErrNone
}

// parseFlushAll decodes "flush_all [delay] [noreply]". Has shows T if a delay
// was given.
func (r *Request) parseFlushAll() Error {
	r.Op = OpFlushAll
	if r.NArgs == 1 || r.NArgs == 2 && r.Quiet {
		return ErrNone
	}
	r.Has = hasTouch
	var ok bool
	if r.TTL, ok = parseTTL(r.Args[1]); !ok {
		return ErrBadExptime
	}
	return ErrNone
}

// parseNumberArg takes the word behind the command as Delta, or is bad.
func (r *Request) parseNumberArg(bad Error) Error {
	if r.NArgs < 2 {
		return bad
	}
	n, ok := ParseUint32(r.Args[1])
	if !ok {
		return bad
	}
	r.Delta = uint64(n)
	return ErrNone
}
