package meta

// wordsMetaMax is the number of words in a meta line, command and key among
// them. Source: memcached's MFLAG_MAX_OPT_LENGTH.
const wordsMetaMax = 20

// knownFlags are the flags that exist. Every command accepts all of them, even
// where they mean nothing.
var knownFlags = letters("bcfhklqstuvxCDEFIJLMNOPRT") | freshFlags | freshReturns

func letters(s string) (l Letters) {
	for i := range len(s) {
		l = l.With(s[i])
	}
	return l
}

// parseMeta decodes "mg <key> <flag>*", and md and ma alike.
func (r *Request) parseMeta(op Op, verb Verb, rest []byte) Error {
	r.Op, r.Verb = op, verb
	w := words{rest, 1}
	key := w.key()
	if key == nil {
		return ErrBadLine
	}
	return r.parseFlags(&w, key)
}

// parseMetaSet decodes "ms <key> <length> <flag>*".
func (r *Request) parseMetaSet(rest []byte) Error {
	r.Op, r.Verb = OpSet, VerbMetaSet
	w := words{rest, 1}
	key, length := w.key(), w.next()
	if length == nil || !r.setLength(length) {
		return ErrBadLine // the block is taken for commands
	}
	return r.parseFlags(&w, key)
}

// parseMetaDebug decodes "me <key> [b]". The b counts only if another word
// follows it, as in memcached.
func (r *Request) parseMetaDebug(rest []byte) Error {
	r.Op, r.Verb = OpDebug, VerbMetaDebug
	w := words{rest, 1}
	key := w.key()
	flag := w.next()
	more := w.next()
	if key == nil || !flagWord(flag) || !flagWord(more) {
		return ErrBadLine
	}
	for word := w.next(); word != nil; word = w.next() {
		if !flagWord(word) {
			return ErrBadLine
		}
	}
	if !r.setKey(key) {
		return ErrBadLine
	}
	if more != nil && string(flag) == "b" && !r.decodeKey() {
		return ErrBadLine
	}
	return ErrNone
}

// flagWord reports whether word may stand among flags: it begins with a byte
// from A to z or with a digit. No word at all is fine too.
func flagWord(word []byte) bool {
	return word == nil || word[0]-'A' <= 'z'-'A' || word[0]-'0' <= 9
}

// decodeKey makes KeyText, which is base64, the Key.
func (r *Request) decodeKey() (ok bool) {
	r.Binary = true
	r.Key, ok = AppendKeyOf64(r.keyBuf[:0], r.KeyText)
	return ok
}

// parseFlags decodes the flags of mg, ms, md and ma, which are what w still
// has. Which of several errors is answered is memcached's choice: a byte that
// can begin no flag before everything (then nothing is swallowed), then a long
// key, then too many words; then the first flag that is unknown or doubled, else
// the last with a bad argument; then the mode, then the opaque.
func (r *Request) parseFlags(w *words, key []byte) Error {
	var (
		bad   Error // of an argument
		fatal Error // of a letter: what follows is not decoded
		mode  byte
	)
	if r.Verb == VerbMetaArith {
		r.Delta = 1 // without D
	}
	keyOK := r.setKey(key)
	for word := w.next(); word != nil; word = w.next() {
		c := word[0]
		if c-'A' > 'z'-'A' {
			if c-'0' > 9 {
				return ErrBadLine
			}
			if fatal == ErrNone {
				fatal = ErrInvalidFlag
			}
			continue
		}
		if fatal != ErrNone || w.taken > wordsMetaMax {
			continue
		}
		switch {
		case r.Has.Has(c):
			fatal = ErrDuplicateFlag
			continue
		case !knownFlags.Has(c):
			fatal = ErrInvalidFlag
			continue
		}
		r.AddFlag(c)

		ok := true
		arg := word[1:]
		switch c {
		case 'v', 'k', 'c', 'f', 's', 't', 'h', 'l', 'u', 'x', 'I', 'y', 'a':
		case 'L':
			r.Route.parseNumber(arg)
		case 'P':
			r.Route.parse(arg) // one that means nothing to us means nothing, as in memcached
		case 'q':
			r.Quiet = true
		case 'O':
			r.Opaque = arg
		case 'b':
			if keyOK && !r.decodeKey() {
				bad = ErrBadKey64
			}
		case 'M':
			mode = ' '
			if len(arg) > 0 {
				mode = arg[0]
			}
		case 'T':
			r.TTL, ok = parseTTL(arg)
		case 'N':
			r.VivifyTTL, ok = parseTTL(arg)
		case 'R':
			r.RecacheTTL, ok = ParseInt32(arg)
		case 'C':
			r.CompareCAS, ok = ParseUint64(arg)
		case 'E':
			r.NewCAS, ok = ParseUint64(arg)
		case 'F':
			r.ClientFlags, ok = ParseUint32(arg)
		case 'J':
			r.Initial, ok = ParseUint64(arg)
		case 'D':
			r.Delta, ok = ParseUint64(arg)
		case 'G', 'Y', 'A':
			if !r.parseFresh(c, arg) {
				bad = ErrBadToken
			}
		}
		if numberFlags.Has(c) && (!ok || len(arg) == 0) {
			bad = badArgument(c, bad)
		}
	}

	e := fatal
	switch {
	case !keyOK:
		e = ErrBadLine
	case w.taken > wordsMetaMax:
		e = ErrTooManyFlags
	case e == ErrNone:
		e = bad
	}
	if e == ErrNone && r.Has&(freshFlags|freshReturns) != 0 {
		e = r.checkFresh(mode)
	}
	switch {
	case e != ErrNone && r.Verb == VerbMetaArith:
		e = ErrArithFlag
	case e == ErrNone:
		if e = r.setMode(mode); e == ErrNone && len(r.Opaque) > OpaqueMax {
			e = ErrOpaqueTooLong
		}
	}
	if e != ErrNone && r.Op == OpSet {
		r.Swallow = r.ValueLen + len("\r\n")
	}
	return e
}

// numberFlags are the flags that need a number.
var numberFlags = letters("CDEFJNRT")

// badArgument is the error for flag c whose argument is no number, after the
// error before. memcached gives F no text of its own: the last one stays.
func badArgument(c byte, before Error) Error {
	switch c {
	case 'J':
		return ErrBadInitial
	case 'D':
		return ErrBadMetaDelta
	case 'F':
		if before == ErrNone {
			return ErrBadLine
		}
		return before
	}
	return ErrBadToken
}

// setMode takes the letter behind M; other commands than ms and ma ignore it. A
// NUL is no mode at all.
func (r *Request) setMode(letter byte) Error {
	if letter == 0 {
		return ErrNone
	}
	switch r.Verb {
	case VerbMetaSet:
		switch letter {
		case 'S':
		case 'E':
			r.Mode = ModeAdd
		case 'A':
			r.Mode = ModeAppend
		case 'P':
			r.Mode = ModePrepend
		case 'R':
			r.Mode = ModeReplace
		case 'V', 'N':
			if !r.Has.Has('G') && !(letter == 'N' && r.Route.Copy) {
				return ErrSetMode // as memcached, which has no such mode
			}
			if r.Mode = ModeRevalidate; letter == 'N' {
				r.Mode = ModeAbsent
			}
		default:
			return ErrSetMode
		}
	case VerbMetaArith:
		switch letter {
		case 'I', '+':
		case 'D', '-':
			r.Decr = true
		default:
			return ErrArithMode
		}
	}
	return ErrNone
}
