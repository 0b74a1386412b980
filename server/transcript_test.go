package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// A transcript is a file in testdata that tells what is sent and what must
// come back, one topic a file, one case under each [name]. Every case has a
// connection of its own, to a server that has been flushed:
//
//	# A comment.
//	[set stores]
//	> set k 5 0 5
//	> hello
//	< STORED
//
//	> TEXT        send TEXT and \r\n            >> TEXT    send TEXT alone
//	< TEXT        expect TEXT and \r\n          << TEXT    expect TEXT alone
//	<~ TEXT       skip STAT lines up to TEXT
//	>: <: <~:     the same for packets of the binary protocol: see
//	              transcript_packet_test.go
//	@closed       the server closes the connection, and sends nothing more
//	@eof          we close our side for writing
//	@drop         we close the connection
//	@connect      go on with a new connection
//	@wait         all replies so far must have come before anything is sent
//	@advance 5s   the clock moves on
//	@watch WORDS  another connection says watch WORDS and is told OK
//	= TEXT        it is told TEXT, behind "ts=... gid=... ", and \n
//	@unwatch      it closes
//
// and before the first line of a case:
//
//	@server FLAGS   it needs a server of its own, started with these flags
//	@since 1.6.45   an older memcached answers otherwise
//	@not WAY WHY    not in that way of sending; or, for the WAY debug, not to
//	                a debug build of memcached
//	@alone WHY      memcached's answer is not determined: Quarry's stands alone
//
// Inside TEXT, \r \n \t \0 \\ \s (a space) and \xHH stand for bytes, and
// braces for what is not the same each time or too long to write out:
//
//	{300*ab}      ab, 300 times
//	{name}        received: a number, remembered; sent or received later: the
//	              number remembered
//	{name+1}      that number and 1 ({name-1}: less 1)
//	{$name}       the same for a text: received: what is up to what follows,
//	              remembered
//	{now}         Unix time in seconds, with + and - as above
//	{ms}          the same in milliseconds, of Quarry's clock; both are as they
//	              were when the case began
//	{ttl 30}      30, or up to slackSeconds less where the clock runs
//	{age 0}       0, or up to slackSeconds more where the clock runs
//	{#}           any number, a sign included
//	{*}           anything up to what follows
//
// Each case is sent in three ways: line by line, a byte at a time, and all at
// once; to Quarry in the first and the last also over TLS. Each must hold against Quarry and against a real memcached: that is
// what justifies it. Where Quarry means to differ, differences.txt says why.

// way is how a case is sent.
type way string

const (
	wayLines     way = "lines"
	wayBytes     way = "bytes"
	wayPipelined way = "pipelined"
)

var ways = []way{wayLines, wayBytes, wayPipelined}

// slackSeconds is how far a running clock may get during a case.
const slackSeconds = 5

// transcriptTimeout bounds one wait for a reply; differTimeout does where a
// reply is not expected to come.
const (
	transcriptTimeout = 10 * time.Second
	differTimeout     = time.Second
)

type actionKind uint8

const (
	actSend actionKind = iota
	actExpect
	actSeek
	actClosed
	actEOF
	actDrop
	actConnect
	actWait
	actAdvance
	actWatch
	actTold
	actUnwatch
)

// action is one line of a case.
type action struct {
	kind   actionKind
	line   int  // in its file
	packet bool // text is a packet
	text   template
	word   string        // actWatch
	by     time.Duration // actAdvance
}

// transcript is one case of a file.
type transcript struct {
	file  string
	name  string
	flags []string // of the server it needs
	since string   // memcached's version
	not   map[way]string
	alone string // why memcached cannot justify it
	steps []action
}

// moves reports whether the case moves the clock.
func (tr *transcript) moves() bool {
	for _, act := range tr.steps {
		if act.kind == actAdvance {
			return true
		}
	}
	return false
}

// packets reports whether the case is answered in packets.
func (tr *transcript) packets() bool {
	return slices.ContainsFunc(tr.steps, func(act action) bool { return act.packet && act.kind != actSend })
}

// readTranscripts reads all cases of the file at path.
func readTranscripts(path string) ([]*transcript, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []*transcript
	var tr *transcript
	seen := map[string]bool{}
	for i, line := range strings.Split(string(data), "\n") {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s", filepath.Base(path), i+1, fmt.Sprintf(format, args...))
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			tr = &transcript{
				file: filepath.Base(path),
				name: strings.TrimSuffix(line[1:], "]"),
				not:  map[way]string{},
			}
			if seen[tr.name] {
				return nil, fail("a second case %q", tr.name)
			}
			seen[tr.name] = true
			all = append(all, tr)
			continue
		}
		if tr == nil {
			return nil, fail("no case has begun")
		}
		if line[0] == '@' {
			if err := tr.directive(line[1:], i+1); err != nil {
				return nil, fail("%v", err)
			}
			continue
		}
		act := action{line: i + 1}
		mark, text, _ := strings.Cut(line, " ")
		mark, act.packet = strings.CutSuffix(mark, ":")
		switch mark {
		case ">":
		case "<":
			act.kind = actExpect
		case "<~":
			act.kind = actSeek
		case "<<":
			act.kind = actExpect
		case ">>":
		case "=":
			act.kind = actTold
			text = "ts={#}.{#} gid={#} " + text + `\n`
		default:
			return nil, fail("a line starts with > >> < << <~ = @ # or [, got %q", line)
		}
		if act.packet {
			act.text, err = parsePacket(text, act.kind != actSend)
			if err != nil {
				return nil, fail("%v", err)
			}
			tr.steps = append(tr.steps, act)
			continue
		}
		if mark != ">>" && mark != "<<" && mark != "=" {
			text += `\r\n`
		}
		if act.text, err = parseTemplate(text); err != nil {
			return nil, fail("%v", err)
		}
		tr.steps = append(tr.steps, act)
	}
	return all, nil
}

// directive takes a line that started with @.
func (tr *transcript) directive(s string, line int) error {
	word, rest, _ := strings.Cut(s, " ")
	act := action{line: line}
	switch word {
	case "server":
		tr.flags = strings.Fields(rest)
		return nil
	case "since":
		tr.since = rest
		return nil
	case "not":
		w, why, _ := strings.Cut(rest, " ")
		if why == "" {
			return errors.New("@not needs a reason")
		}
		tr.not[way(w)] = why
		return nil
	case "alone":
		tr.alone = rest
		return nil
	case "closed":
		act.kind = actClosed
	case "eof":
		act.kind = actEOF
	case "drop":
		act.kind = actDrop
	case "connect":
		act.kind = actConnect
	case "wait":
		act.kind = actWait
	case "watch":
		act.kind, act.word = actWatch, s
	case "unwatch":
		act.kind = actUnwatch
	case "advance":
		act.kind = actAdvance
		var err error
		if act.by, err = time.ParseDuration(rest); err != nil {
			return err
		}
	default:
		return fmt.Errorf("no directive @%s", word)
	}
	tr.steps = append(tr.steps, act)
	return nil
}

// template is text with holes: bytes, or something to fill in or to match.
type template []part

type part struct {
	lit   []byte // when hole is ""
	hole  string // "#", "*", "ttl", "age", or a name, with a $ of a text
	add   int64  // {name+1}; the number of ttl and age
	bytes int    // the number is big endian in so many bytes, not in digits
}

// bindings are what names stand for.
type bindings struct {
	numbers map[string]uint64
	texts   map[string][]byte
}

func newBindings() *bindings {
	return &bindings{map[string]uint64{}, map[string][]byte{}}
}

// parseTemplate reads the escapes and braces of s.
func parseTemplate(s string) (template, error) {
	var t template
	var lit []byte
	for len(s) > 0 {
		switch s[0] {
		case '\\':
			b, n, err := unescape(s)
			if err != nil {
				return nil, err
			}
			lit = append(lit, b)
			s = s[n:]
		case '{':
			end := strings.IndexByte(s, '}')
			if end < 0 {
				return nil, fmt.Errorf("no } in %q", s)
			}
			inner := s[1:end]
			s = s[end+1:]
			if count, text, ok := strings.Cut(inner, "*"); ok && count != "" {
				n, err := strconv.Atoi(count)
				if err != nil {
					return nil, err
				}
				sub, err := parseTemplate(text)
				if err != nil {
					return nil, err
				}
				if len(sub) != 1 || sub[0].hole != "" {
					return nil, fmt.Errorf("{%s} repeats something that is not plain", inner)
				}
				lit = append(lit, bytes.Repeat(sub[0].lit, n)...)
				continue
			}
			p, err := parseHole(inner)
			if err != nil {
				return nil, err
			}
			if lit != nil {
				t = append(t, part{lit: lit})
				lit = nil
			}
			t = append(t, p)
		default:
			lit = append(lit, s[0])
			s = s[1:]
		}
	}
	if lit != nil {
		t = append(t, part{lit: lit})
	}
	return t, nil
}

func unescape(s string) (b byte, n int, err error) {
	if len(s) < 2 {
		return 0, 0, errors.New("a lone backslash")
	}
	switch s[1] {
	case 'r':
		return '\r', 2, nil
	case 'n':
		return '\n', 2, nil
	case 't':
		return '\t', 2, nil
	case 's':
		return ' ', 2, nil
	case '0':
		return 0, 2, nil
	case '\\':
		return '\\', 2, nil
	case 'x':
		if len(s) < 4 {
			return 0, 0, fmt.Errorf("short escape %q", s)
		}
		v, err := strconv.ParseUint(s[2:4], 16, 8)
		return byte(v), 4, err
	}
	return 0, 0, fmt.Errorf("no escape %q", s[:2])
}

func parseHole(s string) (part, error) {
	if word, num, ok := strings.Cut(s, " "); ok {
		n, err := strconv.ParseInt(num, 10, 64)
		if err == nil && word != "ttl" && word != "age" {
			err = fmt.Errorf("no hole {%s}", s)
		}
		return part{hole: word, add: n}, err
	}
	if i := strings.IndexAny(s, "+-"); i > 0 && s[0] != '$' {
		n, err := strconv.ParseInt(s[i:], 10, 64)
		return part{hole: s[:i], add: n}, err
	}
	if s == "" {
		return part{}, errors.New("an empty hole {}")
	}
	return part{hole: s}, nil
}

// fill gives the bytes of t, or false if a name in it is not known yet.
func (t template) fill(names *bindings) ([]byte, bool) {
	if len(t) == 1 && t[0].hole == "" {
		return t[0].lit, true
	}
	var b []byte
	for _, p := range t {
		if p.hole == "" {
			b = append(b, p.lit...)
			continue
		}
		if names == nil {
			return nil, false
		}
		if text, ok := names.texts[p.hole]; ok {
			b = append(b, text...)
			continue
		}
		v, ok := names.numbers[p.hole]
		if !ok {
			return nil, false
		}
		if v += uint64(p.add); p.bytes > 0 {
			b = append(b, bigEndian(p.bytes, v)[0].lit...)
			continue
		}
		b = strconv.AppendUint(b, v, 10)
	}
	return b, true
}

// match compares got with t, and remembers the numbers and texts that t names.
func (t template) match(got []byte, names *bindings, slack int64) bool {
	rest := got
	for i, p := range t {
		switch {
		case p.hole == "":
			if !bytes.HasPrefix(rest, p.lit) {
				return false
			}
			rest = rest[len(p.lit):]
			continue
		case p.hole == "*", p.hole[0] == '$':
			end := len(rest)
			if i+1 < len(t) {
				if end = bytes.Index(rest, t[i+1].lit); end < 0 {
					return false
				}
			}
			if known, ok := names.texts[p.hole]; ok && !bytes.Equal(known, rest[:end]) {
				return false
			}
			if p.hole != "*" {
				names.texts[p.hole] = bytes.Clone(rest[:end])
			}
			rest = rest[end:]
			continue
		}
		n := 0
		for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || n == 0 && rest[n] == '-') {
			n++
		}
		num := string(rest[:n])
		if p.bytes > 0 {
			if n = p.bytes; len(rest) < n {
				return false
			}
			var b [8]byte
			copy(b[8-n:], rest)
			num = strconv.FormatUint(binary.BigEndian.Uint64(b[:]), 10)
		}
		rest = rest[n:]
		if p.hole == "#" {
			if num == "" {
				return false
			}
			continue
		}
		v, err := strconv.ParseUint(num, 10, 64)
		if err != nil {
			return false
		}
		switch known, ok := names.numbers[p.hole]; {
		case p.hole == "ttl":
			if int64(v) > p.add || int64(v) < p.add-slack {
				return false
			}
		case p.hole == "age":
			if int64(v) < p.add || int64(v) > p.add+slack {
				return false
			}
		case ok:
			if v != known+uint64(p.add) {
				return false
			}
		default:
			names.numbers[p.hole] = v
		}
	}
	return len(rest) == 0
}

// lines splits t after each \n, as a reader of replies needs it.
func (t template) lines() []template {
	var all []template
	var cur template
	for _, p := range t {
		for p.hole == "" {
			i := bytes.IndexByte(p.lit, '\n')
			if i < 0 {
				break
			}
			all = append(all, append(cur, part{lit: p.lit[:i+1]}))
			cur = nil
			p.lit = p.lit[i+1:]
		}
		if p.hole != "" || len(p.lit) > 0 {
			cur = append(cur, p)
		}
	}
	if cur != nil {
		all = append(all, cur)
	}
	return all
}

// target is a server that cases are sent to.
type target struct {
	name    string
	version string // memcached's, "" for Quarry
	dial    func() (net.Conn, error)

	// advance moves the clock. nil: it cannot be moved, and cases that need
	// it are skipped.
	advance func(time.Duration) error
	// now is the server's clock in Unix seconds.
	now func() (int64, error)
	// millis is the same in milliseconds, where that can be known.
	millis func() int64
	// flushed, unless nil, is called when a case has flushed the server.
	flushed func()
	// debug: it is a debug build of memcached.
	debug bool
	// slack is how much the clock may have moved by itself: 0 if it stands.
	slack int64
	// timeout bounds one wait for a reply.
	timeout time.Duration
}

// errSkip says why a case does not apply to a target.
type errSkip string

func (e errSkip) Error() string { return string(e) }

// runner is one run of one case.
type runner struct {
	tg    *target
	tr    *transcript
	w     way
	conn  net.Conn
	r     *bufio.Reader
	names *bindings

	watcher net.Conn // nil: there is none
	lines   *bufio.Reader

	// Pipelined only: what is to be written, and the expectations that wait.
	out     []byte
	waiting []action
}

// run sends tr to tg and compares the replies. The error names the line.
func (tr *transcript) run(tg *target, w way) error {
	if why, ok := tr.not[w]; ok {
		return errSkip(why)
	}
	if why, ok := tr.not["debug"]; ok && tg.debug {
		return errSkip(why)
	}
	if tr.moves() && tg.advance == nil {
		return errSkip("the clock of " + tg.name + " cannot be moved")
	}
	if tg.version != "" && tr.alone != "" {
		return errSkip(tr.alone)
	}
	if tg.version != "" && tr.since != "" && versionLess(tg.version, tr.since) {
		return errSkip("memcached " + tg.version + " is older than " + tr.since)
	}
	now, err := tg.now()
	if err != nil {
		return err
	}
	r := &runner{tg: tg, tr: tr, w: w, names: newBindings()}
	r.names.numbers["now"] = uint64(now)
	if tg.millis != nil {
		r.names.numbers["ms"] = uint64(tg.millis())
	}
	defer r.drop()
	defer r.unwatch()
	if len(tr.flags) == 0 {
		if err := tg.flush(); err != nil {
			return err
		}
		if tg.flushed != nil {
			tg.flushed()
		}
	}
	if err := r.connect(); err != nil {
		return err
	}
	steps := tr.steps
	if last := steps[len(steps)-1].kind; last <= actSeek || last == actAdvance || last == actTold {
		// Nothing more may come than was expected: the reply to mn is next.
		line := steps[len(steps)-1].line
		more := noop(line)
		if !tr.packets() {
			more = []action{
				{kind: actSend, line: line, text: template{{lit: []byte("mn\r\n")}}},
				{kind: actExpect, line: line, text: template{{lit: []byte("MN\r\n")}}},
			}
		}
		steps = append(steps[:len(steps):len(steps)], more...)
	}
	for _, act := range steps {
		if err := r.step(act); err != nil {
			return fmt.Errorf("%s:%d: %w", tr.file, act.line, err)
		}
	}
	return r.settle()
}

// flush empties the target.
func (tg *target) flush() error {
	conn, err := tg.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(transcriptTimeout))
	if _, err := io.WriteString(conn, "flush_all\r\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if line != "OK\r\n" {
		return fmt.Errorf("flush_all: got %q, %v", line, err)
	}
	return nil
}

func (r *runner) connect() error {
	conn, err := r.tg.dial()
	if err != nil {
		return err
	}
	r.conn, r.r = conn, bufio.NewReaderSize(conn, 64<<10)
	return nil
}

func (r *runner) drop() {
	if r.conn != nil {
		r.conn.Close()
		r.conn = nil
	}
}

// watch opens a second connection, and says words there.
func (r *runner) watch(words string) (err error) {
	r.unwatch()
	if r.watcher, err = r.tg.dial(); err != nil {
		return err
	}
	r.lines = bufio.NewReader(r.watcher)
	r.watcher.SetDeadline(time.Now().Add(r.tg.timeout))
	if _, err := io.WriteString(r.watcher, words+"\r\n"); err != nil {
		return err
	}
	if line, err := r.lines.ReadString('\n'); line != "OK\r\n" {
		return fmt.Errorf("%s: got %q, %v", words, line, err)
	}
	return nil
}

func (r *runner) unwatch() {
	if r.watcher != nil {
		r.watcher.Close()
		r.watcher = nil
	}
}

func (r *runner) step(act action) error {
	switch act.kind {
	case actSend:
		return r.send(act)
	case actExpect, actSeek, actTold:
		if r.w == wayPipelined {
			r.waiting = append(r.waiting, act)
			return nil
		}
		return r.expect(act)
	case actEOF:
		r.write(r.take())
		return r.conn.(interface{ CloseWrite() error }).CloseWrite()
	}
	if err := r.settle(); err != nil {
		return err
	}
	switch act.kind {
	case actClosed:
		return r.closed()
	case actDrop:
		r.drop()
	case actConnect:
		r.drop()
		return r.connect()
	case actAdvance:
		return r.tg.advance(act.by)
	case actWatch:
		return r.watch(act.word)
	case actUnwatch:
		r.unwatch()
	}
	return nil
}

// send writes the text of act, or keeps it for later when all is sent at once.
func (r *runner) send(act action) error {
	data, ok := act.text.fill(r.names)
	if !ok { // a number that is yet to come
		if err := r.settle(); err != nil {
			return err
		}
		if data, ok = act.text.fill(r.names); !ok {
			return errors.New("it names a number that has not come")
		}
	}
	switch r.w {
	case wayPipelined:
		r.out = append(r.out, data...)
	case wayBytes:
		for len(data) > 0 {
			n := 1
			if len(data) > 1024 { // inside a long one pieces will do
				n = 997
			}
			r.write(data[:n])
			data = data[n:]
		}
	default:
		r.write(data)
	}
	return nil
}

// write sends data. A server that has closed shows in the replies, not here.
func (r *runner) write(data []byte) {
	if len(data) > 0 {
		r.conn.SetWriteDeadline(time.Now().Add(transcriptTimeout))
		r.conn.Write(data)
	}
}

func (r *runner) take() []byte {
	out := r.out
	r.out = nil
	return out
}

// settle writes what is kept and compares the replies that wait.
func (r *runner) settle() error {
	if r.w != wayPipelined || r.conn == nil && r.watcher == nil {
		return nil
	}
	written := make(chan struct{})
	go func() {
		r.write(r.take())
		close(written)
	}()
	defer func() { <-written }()
	for _, act := range r.waiting {
		if err := r.expect(act); err != nil {
			if r.conn != nil {
				r.conn.Close() // ends the writer too
			}
			return fmt.Errorf("line %d: %w", act.line, err)
		}
	}
	r.waiting = nil
	return nil
}

// expect reads a reply and compares it.
func (r *runner) expect(act action) error {
	conn, from := r.conn, r.r
	if act.kind == actTold {
		conn, from = r.watcher, r.lines
	}
	conn.SetReadDeadline(time.Now().Add(r.tg.timeout))
	switch {
	case act.packet:
		return r.expectPacket(act)
	case act.kind == actSeek:
		return r.seek(act.text)
	}
	for _, want := range act.text.lines() {
		var got []byte
		var err error
		if last := want[len(want)-1]; last.hole != "" || bytes.HasSuffix(last.lit, []byte{'\n'}) {
			got, err = from.ReadBytes('\n')
		} else {
			got = make([]byte, len(last.lit))
			var n int
			n, err = io.ReadFull(from, got)
			got = got[:n]
		}
		if err != nil {
			return fmt.Errorf("got %s and then %w, want %s", shorten(got), err, want)
		}
		if !want.match(got, r.names, r.tg.slack) {
			return fmt.Errorf("got %s, want %s", shorten(got), want)
		}
	}
	return nil
}

// seek skips the lines of an answer to stats up to the one wanted.
func (r *runner) seek(want template) error {
	for {
		got, err := r.r.ReadBytes('\n')
		switch {
		case err != nil:
			return fmt.Errorf("got %s and then %w, want %s", shorten(got), err, want)
		case want.match(got, r.names, r.tg.slack):
			return nil
		case !bytes.HasPrefix(got, []byte("STAT ")):
			return fmt.Errorf("got %s, want %s before it", shorten(got), want)
		}
	}
}

// closed waits for the end of the connection.
func (r *runner) closed() error {
	r.conn.SetReadDeadline(time.Now().Add(r.tg.timeout))
	got, err := r.r.ReadBytes('\n')
	switch {
	case len(got) > 0:
		return fmt.Errorf("got %s, want the end of the connection", shorten(got))
	case err == io.EOF || errors.Is(err, syscall.ECONNRESET):
		return nil
	}
	return fmt.Errorf("got %w, want the end of the connection", err)
}

func (t template) String() string {
	var b strings.Builder
	for _, p := range t {
		if p.hole == "" {
			b.WriteString(shorten(p.lit))
		} else {
			fmt.Fprintf(&b, "{%s%+d}", p.hole, p.add)
		}
	}
	return b.String()
}

// shorten quotes b, and leaves out the middle of a long one.
func shorten(b []byte) string {
	if len(b) > 120 {
		return fmt.Sprintf("%q ... %q (%d bytes)", b[:60], b[len(b)-40:], len(b))
	}
	return strconv.Quote(string(b))
}

// versionLess compares versions of three numbers.
func versionLess(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			return x < y
		}
	}
	return len(as) < len(bs)
}

// transcriptFiles reads all transcripts.
func transcriptFiles(t *testing.T) map[string][]*transcript {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]*transcript{}
	for _, path := range paths {
		if filepath.Base(path) == differencesFile {
			continue
		}
		trs, err := readTranscripts(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = trs
	}
	if len(files) == 0 {
		t.Fatal("no transcripts in testdata")
	}
	return files
}

// TestTranscripts holds Quarry to every transcript, in every way of sending.
func TestTranscripts(t *testing.T) {
	files := transcriptFiles(t)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		trs := files[file]
		for _, w := range ways {
			t.Run(file+"/"+string(w), func(t *testing.T) { hold(t, trs, w, startQuarryTarget) })
		}
		for _, w := range []way{wayLines, wayPipelined} {
			t.Run(file+"/tls/"+string(w), func(t *testing.T) { hold(t, trs, w, startSecureTarget) })
		}
	}
}

// TestTranscriptsReadAlong holds Quarry to the same with reads that take no
// lock.
func TestTranscriptsReadAlong(t *testing.T) {
	if !store.ReadsAlong {
		t.Skip("reads take the lock here")
	}
	files := transcriptFiles(t)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		trs := slices.DeleteFunc(slices.Clone(files[file]), func(tr *transcript) bool {
			return file == "binary-stats.txt" && tr.name == "settings" // which show the option
		})
		t.Run(file, func(t *testing.T) { hold(t, trs, wayPipelined, startAlongTarget) })
	}
}

// TestTranscriptsBesideFreshness holds Quarry to what memcached answers where
// other keys have versions, floors and tokens: every shard has to look then.
func TestTranscriptsBesideFreshness(t *testing.T) {
	files := transcriptFiles(t)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		var trs []*transcript
		for _, tr := range files[file] {
			if tr.alone == "" && len(tr.flags) == 0 && !tr.listsItems() {
				trs = append(trs, tr)
			}
		}
		for _, w := range []way{wayLines, wayPipelined} {
			t.Run(file+"/"+string(w), func(t *testing.T) { hold(t, trs, w, startFreshTarget) })
		}
	}
}

// listsItems reports whether the case shows how many items there are, or which.
func (tr *transcript) listsItems() bool {
	return strings.Contains(tr.file, "stats") || slices.ContainsFunc(tr.steps, func(act action) bool {
		text := act.text.String()
		return act.kind == actSend && (strings.Contains(text, "stats") || strings.Contains(text, "dump"))
	})
}

// hold holds the targets that start makes to trs.
func hold(t *testing.T, trs []*transcript, w way, start func(testing.TB, []string) *target) {
	shared := start(t, nil)
	for _, tr := range trs {
		t.Run(tr.name, func(t *testing.T) {
			tg := shared
			if len(tr.flags) > 0 {
				tg = start(t, tr.flags)
			}
			err := tr.run(tg, w)
			if skip := errSkip(""); errors.As(err, &skip) {
				t.Skip(skip)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// differencesFile lists where Quarry means to differ from memcached.
const differencesFile = "differences.txt"

// readDifferences gives the reason for each "file/case" that is listed.
func readDifferences(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", differencesFile))
	if err != nil {
		t.Fatal(err)
	}
	diffs := map[string]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		file, rest, ok := strings.Cut(line, " [")
		name, why, ok2 := strings.Cut(rest, "] ")
		if !ok || !ok2 || why == "" {
			t.Fatalf("%s:%d: want FILE [CASE] REASON, got %q", differencesFile, i+1, line)
		}
		diffs[file+"/"+name] = why
	}
	return diffs
}

// TestTranscriptsJustified holds a real memcached to the same transcripts. A
// case that is listed in differences.txt must fail there.
func TestTranscriptsJustified(t *testing.T) {
	diffs := readDifferences(t)
	files := transcriptFiles(t)
	for id := range diffs {
		file, name, _ := strings.Cut(id, "/")
		known := false
		for _, tr := range files[file] {
			known = known || tr.name == name
		}
		if !known {
			t.Errorf("%s lists %s, which is no case", differencesFile, id)
		}
	}
	shared := startMemcachedTarget(t, nil)
	t.Logf("against %s", shared.name)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		trs := files[file]
		t.Run(file, func(t *testing.T) {
			for _, tr := range trs {
				t.Run(tr.name, func(t *testing.T) {
					tr.justify(t, shared, diffs[file+"/"+tr.name])
				})
			}
		})
	}
}

// justify runs tr against memcached in all ways. With a reason to differ it
// must not hold in all of them.
func (tr *transcript) justify(t *testing.T, shared *target, differs string) {
	ran, failed := 0, 0
	for _, w := range ways {
		tg := shared
		if len(tr.flags) > 0 && tr.alone == "" {
			tg = startMemcachedTarget(t, tr.flags)
		}
		if differs != "" {
			hasty := *tg
			tg = &hasty
			tg.timeout = differTimeout
		}
		err := tr.run(tg, w)
		if skip := errSkip(""); errors.As(err, &skip) {
			t.Logf("%s: skipped: %v", w, skip)
			continue
		}
		ran++
		if err != nil {
			failed++
			if differs == "" {
				t.Errorf("%s: %s: %v", tg.name, w, err)
			}
		}
	}
	switch {
	case ran == 0:
		t.Skip("no way of sending applies")
	case differs != "" && failed == 0:
		t.Errorf("%s answers as Quarry does: take it out of %s (%s)", shared.name, differencesFile, differs)
	}
}
