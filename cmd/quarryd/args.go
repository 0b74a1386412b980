package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// An option is what getopt_long needs to know of a flag.
type option struct {
	short byte   // 0 if it has no letter
	long  string // "" if it has a letter only
	name  string // kong's name for it, never ""
	arg   argument
	own   bool // Quarry's, not memcached's
	final bool // -h, -i, -V: what follows them is not read
}

// argument says whether an option takes one.
type argument uint8

const (
	argNone     argument = iota
	argRequired          // -p 1, -p1, --port 1, --port=1
	argOptional          // --verbose, --verbose=x; never after the letter
)

// options lists the flags of a kong model for canonical. A flag tagged
// letteronly has a name in kong and none on the command line.
func options(model *kong.Application) []option {
	var opts []option
	for _, f := range model.Flags {
		o := option{short: byte(f.Short), long: f.Name, name: f.Name, arg: argRequired}
		switch {
		case f.IsCounter():
			o.arg = argOptional
		case f.IsBool():
			o.arg = argNone
		}
		if f.Tag.Has("letteronly") {
			o.long = ""
		}
		o.own = f.Tag.Has("own")
		o.final = f.Tag.Has("final")
		opts = append(opts, o)
	}
	return opts
}

// canonical reads args as glibc's getopt_long does and returns them in the one
// form that leaves kong nothing to guess: --name, or --name=value. Options may
// stand anywhere, left-over words are dropped, long names may be shortened as
// long as they stay unambiguous.
//
// It ends at the first option that prints something and exits, and at the
// first word that getopt would not take; that one comes back as the error, in
// getopt's words, beside the arguments before it, which are judged first.
func canonical(program string, opts []option, args []string) ([]string, error) {
	p := parser{program: program, opts: opts, rest: args}
	for len(p.rest) > 0 && !p.done {
		word := p.rest[0]
		p.rest = p.rest[1:]

		var err error
		switch {
		case word == "--":
			return p.out, nil
		case strings.HasPrefix(word, "--"):
			err = p.long(word[2:])
		case len(word) > 1 && word[0] == '-':
			err = p.letters(word[1:])
		}
		if err != nil {
			return p.out, err
		}
	}
	return p.out, nil
}

// parser is the state of canonical.
type parser struct {
	program string
	opts    []option
	rest    []string // words not yet read
	out     []string
	done    bool // a final option was read
}

// long reads --word.
func (p *parser) long(word string) error {
	name, value, hasValue := strings.Cut(word, "=")
	o, err := p.find(name, word)
	if err != nil {
		return err
	}
	switch {
	case o.arg == argNone && hasValue:
		return p.complain("option '--%s' doesn't allow an argument", o.long)
	case o.arg == argRequired && !hasValue:
		if len(p.rest) == 0 {
			return p.complain("option '--%s' requires an argument", o.long)
		}
		value, p.rest = p.rest[0], p.rest[1:]
	}
	p.add(o, value)
	return nil
}

// find returns the option with that long name, or the only one that begins
// with it. Word is what getopt's complaints show. Quarry's own options are in
// the way of no abbreviation that memcached takes.
func (p *parser) find(name, word string) (option, error) {
	var found, own []option
	for _, o := range p.opts {
		switch {
		case o.long == "":
		case o.long == name:
			return o, nil
		case !strings.HasPrefix(o.long, name):
		case o.own:
			own = append(own, o)
		default:
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		found = own
	}
	switch len(found) {
	case 0:
		return option{}, p.complain("unrecognized option '--%s'", word)
	case 1:
		return found[0], nil
	}
	var names strings.Builder
	for _, o := range found {
		fmt.Fprintf(&names, " '--%s'", o.long)
	}
	return option{}, p.complain("option '--%s' is ambiguous; possibilities:%s", word, names.String())
}

// letters reads -abc: any number of letters, the last of which may take the
// rest of the word, or the next one, as its argument.
func (p *parser) letters(word string) error {
	for i := 0; i < len(word) && !p.done; i++ {
		o, ok := p.letter(word[i])
		if !ok {
			return p.complain("invalid option -- '%s'", word[i:i+1])
		}
		if o.arg != argRequired {
			p.add(o, "")
			continue
		}
		value := word[i+1:]
		if value == "" {
			if len(p.rest) == 0 {
				return p.complain("option requires an argument -- '%s'", word[i:i+1])
			}
			value, p.rest = p.rest[0], p.rest[1:]
		}
		p.add(o, value)
		return nil
	}
	return nil
}

func (p *parser) letter(c byte) (option, bool) {
	for _, o := range p.opts {
		if o.short == c && c != 0 {
			return o, true
		}
	}
	return option{}, false
}

// add appends an option in canonical form. An optional argument is dropped: it
// means nothing to the only option that has one, --verbose.
func (p *parser) add(o option, value string) {
	word := "--" + o.name
	if o.arg == argRequired {
		word += "=" + strings.TrimLeft(value, spaces) // as memcached skips them
	}
	p.out = append(p.out, word)
	p.done = o.final
}

// complain is getopt's line, then memcached's: getopt answers '?' whatever is
// wrong, so that is the argument that memcached calls illegal.
func (p *parser) complain(format string, values ...any) error {
	return refuse(exitError, "%s: %s\nIllegal argument \"?\"", p.program, fmt.Sprintf(format, values...))
}

// spaces are the bytes that C's isspace takes for space.
const spaces = " \t\n\v\f\r"

// atoi reads a number as C's atoi does: leading space, a sign, digits; what
// follows does not matter, and no digits are 0. Where C leaves the result of
// an overflow open it stays at the limit of 32 bits.
func atoi(s string) int {
	s = strings.TrimLeft(s, spaces)
	n, negative := 0, false
	if s != "" && (s[0] == '-' || s[0] == '+') {
		negative, s = s[0] == '-', s[1:]
	}
	for ; s != "" && '0' <= s[0] && s[0] <= '9'; s = s[1:] {
		n = min(n*10+int(s[0]-'0'), math.MaxInt32)
	}
	if negative {
		return -n
	}
	return n
}

// atof reads a number as C's atof does: the longest beginning of s that is
// one, else 0. What is not finite is junk here, so 0 too.
func atof(s string) float64 {
	const longest = 64                                      // no number worth reading has more
	s, _, _ = strings.Cut(strings.TrimLeft(s, spaces), "_") // which is Go's, not C's
	for end := min(len(s), longest); end > 0; end-- {
		f, err := strconv.ParseFloat(s[:end], 64)
		if err != nil {
			continue
		}
		if math.IsInf(f, 0) || math.IsNaN(f) {
			return 0
		}
		return f
	}
	return 0
}

// strictUint reads a number as memcached's safe_strtoul does: decimal, to the
// end of s or to a space in it, at most 32 bits.
func strictUint(s string) (int, bool) {
	s = strings.TrimLeft(s, spaces)
	if i := strings.IndexAny(s, spaces); i >= 0 {
		s = s[:i]
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 32)
	return int(n), err == nil
}

// strictInt reads a number as memcached's safe_strtol does: as strictUint, with
// a sign.
func strictInt(s string) (int, bool) {
	s = strings.TrimLeft(s, spaces)
	if after, ok := strings.CutPrefix(s, "-"); ok {
		n, ok := strictUint(after)
		return -n, ok && n <= math.MaxInt32
	}
	n, ok := strictUint(s)
	return n, ok && n <= math.MaxInt32
}

// octal reads digits up to 7 as C's strtol in base 8 does: what follows them
// does not matter, and none are 0.
func octal(s string) uint32 {
	var n uint32
	for ; s != "" && '0' <= s[0] && s[0] <= '7'; s = s[1:] {
		n = n<<3&0o7777 | uint32(s[0]-'0')
	}
	return n
}
