package meta

// Code is the word with which a reply begins: what happened.
type Code uint8

const (
	CodeNone Code = iota

	// Meta.

	CodeHD // done, or found
	CodeVA // found, and the value follows
	CodeEN // mg, me: no such item
	CodeNF // no such item
	CodeNS // not stored
	CodeEX // the CAS differs
	CodeMN // no-op
	CodeME // what me tells of an item

	// Classic.

	CodeStored
	CodeNotStored
	CodeExists
	CodeNotFound
	CodeDeleted
	CodeTouched
	CodeOK
	CodeEnd     // after the last VALUE or STAT
	CodeReset   // stats reset
	CodeValue   // VALUE <key> <flags> <length> [<cas>], and the value follows
	CodeStat    // STAT <name> <value>
	CodeVersion // VERSION <version>
	CodeConfig  // CONFIG <name> <flags> <length>, and the value and END follow
	CodeNumber  // incr, decr: the number and nothing else

	// Errors, and what a client knows no better.

	CodeError       // ERROR, and lines that begin with ERROR and a space
	CodeClientError // the request was wrong
	CodeServerError // the server could not
	CodeText        // any other line

	codeCount
)

// codeWords are the words on the wire.
var codeWords = [codeCount]string{
	CodeHD:          "HD",
	CodeVA:          "VA",
	CodeEN:          "EN",
	CodeNF:          "NF",
	CodeNS:          "NS",
	CodeEX:          "EX",
	CodeMN:          "MN",
	CodeME:          "ME",
	CodeStored:      "STORED",
	CodeNotStored:   "NOT_STORED",
	CodeExists:      "EXISTS",
	CodeNotFound:    "NOT_FOUND",
	CodeDeleted:     "DELETED",
	CodeTouched:     "TOUCHED",
	CodeOK:          "OK",
	CodeEnd:         "END",
	CodeReset:       "RESET",
	CodeValue:       "VALUE",
	CodeStat:        "STAT",
	CodeVersion:     "VERSION",
	CodeConfig:      "CONFIG",
	CodeError:       "ERROR",
	CodeClientError: "CLIENT_ERROR",
	CodeServerError: "SERVER_ERROR",
}

// String is the word on the wire, empty for a number and for other text.
func (c Code) String() string { return codeWords[c] }

// AppendTo appends the word and \r\n: a whole reply, for the codes that need
// nothing else.
func (c Code) AppendTo(dst []byte) []byte {
	return append(append(dst, codeWords[c]...), "\r\n"...)
}

// IsError reports whether c is one of the three error words. Some of memcached's
// administration errors begin with other words: they are CodeText.
func (c Code) IsError() bool { return c >= CodeError && c <= CodeServerError }
