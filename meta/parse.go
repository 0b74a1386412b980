package meta

const (
	// lineBytesMin is the shortest line, with its end. Source: memcached's
	// process_request.
	lineBytesMin = 4

	// lineBytesSeen is how much of a line is looked at, its end included; keys
	// of get lines are exempt. Source: mcmc's TOKENIZER_MAXLEN.
	lineBytesSeen = 65534
)

// ParseLine decodes one command line. line is what stands before the \n, with
// its \r if it has one: "mn\r" is a command, "mn" is too short to be one.
//
// Op and Verb are set as soon as the word is known, so also beside an Error.
// With an Error of a set, Swallow bytes of input behind the line are to be
// thrown away; with HideErrors its reply is not to be sent. Of a get, gets, gat
// or gats line only the word and the exptime are decoded, and the keys are left
// in Rest, unchecked.
func (r *Request) ParseLine(line []byte) Error {
	r.Reset()
	if len(line)+len("\n") < lineBytesMin {
		return ErrBadLine
	}
	if end := len(line) - 1; line[end] == '\r' {
		line = line[:end]
	}
	word := firstWord(line)
	rest := line[len(word):]

	switch string(word) { // the compiler makes this a search by length, then by value
	case "get":
		return r.parseGet(VerbGet, hasGet, rest)
	case "gets":
		return r.parseGet(VerbGets, hasGets, rest)
	case "gat":
		return r.parseGat(VerbGat, hasGet, rest)
	case "gats":
		return r.parseGat(VerbGats, hasGets, rest)
	}
	if len(line) >= lineBytesSeen {
		line = line[:lineBytesSeen-1]
		rest = line[len(word):]
	}

	switch string(word) {
	case "mg":
		return r.parseMeta(OpGet, VerbMetaGet, rest)
	case "ms":
		return r.parseMetaSet(rest)
	case "md":
		return r.parseMeta(OpDelete, VerbMetaDelete, rest)
	case "ma":
		return r.parseMeta(OpArith, VerbMetaArith, rest)
	case "me":
		return r.parseMetaDebug(rest)
	case "mn":
		r.Op, r.Verb = OpNoop, VerbMetaNoop
		return ErrNone
	case "set":
		return r.parseSet(VerbSet, ModeSet, rest)
	case "add":
		return r.parseSet(VerbAdd, ModeAdd, rest)
	case "replace":
		return r.parseSet(VerbReplace, ModeReplace, rest)
	case "append":
		return r.parseSet(VerbAppend, ModeAppend, rest)
	case "prepend":
		return r.parseSet(VerbPrepend, ModePrepend, rest)
	case "cas":
		return r.parseSet(VerbCas, ModeSet, rest)
	case "delete":
		return r.parseDelete(rest)
	case "incr":
		return r.parseArith(VerbIncr, rest)
	case "decr":
		r.Decr = true
		return r.parseArith(VerbDecr, rest)
	case "touch":
		return r.parseTouch(rest)
	case "version":
		return r.parseWords(OpVersion, line)
	case "quit":
		return r.parseWords(OpQuit, line)
	case "stats":
		return r.parseWords(OpStats, line)
	case "watch":
		return r.parseWords(OpWatch, line)
	}
	return r.parseAdmin(line)
}

// firstWord is what stands before the first space of line: nothing, if the
// line begins with one.
func firstWord(line []byte) []byte {
	for i, c := range line { // commands are short
		if c == ' ' {
			return line[:i]
		}
	}
	return line
}

// words takes one word after another from a line, up to ArgsMax.
type words struct {
	rest  []byte // not yet looked at
	taken int
}

// next is the next word, nil at the end.
func (w *words) next() []byte {
	rest := w.rest
	i := 0
	for i < len(rest) && rest[i] == ' ' {
		i++
	}
	if i == len(rest) || w.taken == ArgsMax {
		w.rest = nil
		return nil
	}
	j := i + 1
	for j < len(rest) && rest[j] != ' ' {
		j++
	}
	w.rest = rest[j:]
	w.taken++
	return rest[i:j:j]
}

// key is next for a word that is likely to be long.
func (w *words) key() (key []byte) {
	key, w.rest = NextKey(w.rest)
	w.taken++
	return key
}

// last is the last word of the line if there is one left, else w0.
func (w *words) last(w0 []byte) []byte {
	for {
		next := w.next()
		if next == nil {
			return w0
		}
		w0 = next
	}
}
