package meta

import (
	"bytes"
	"strconv"
)

// What Quarry adds to memcached's meta commands: source versions (Y), deadlines
// (A) and grants (G). A server that does not know them answers CLIENT_ERROR
// invalid flag, so that nothing is promised silently.
var (
	freshFlags   = letters("GYA")
	freshReturns = letters("ya")

	// What may stand beside G or Y.
	besideGetGrant = letters("bcfhklqstuvOTPLGYya")
	besideSet      = letters("bckFOqsTPLMGYA")
	besideDelete   = letters("bkOqPLGYI")
)

// TokenMax is the longest token of a grant in bytes.
const TokenMax = 31

// DeadlineMax is the latest deadline, in ms of Unix time: 48 bits.
const DeadlineMax = 1<<48 - 1

// Grant classes, behind the milliseconds of G.
const (
	GrantForeground = 0 // somebody waits for the value
	GrantBackground = 'b'
	GrantStrong     = 's'
)

// Deadlines are moments in ms of Unix time, 0 for none.
type Deadlines struct {
	Hard uint64 // never served from then on
	Soft uint64 // served, but due to be refreshed, from then on
	Read uint64 // when the read of the source began
}

// Freshness is what G, Y and A of a request say. Its texts are views of the
// line.
type Freshness struct {
	GrantMillis uint32 // mg: behind G, the longest life of the grant
	GrantClass  byte   // mg: behind the milliseconds
	tokenLen    uint8
	token       [TokenMax]byte // ms, md: behind G

	Version   uint64 // Y
	Deadlines        // A
}

// Token is the token behind G of ms and md. It is valid as long as f is.
func (f *Freshness) Token() []byte { return f.token[:f.tokenLen] }

// SetToken makes t, at most TokenMax bytes, the token.
func (f *Freshness) SetToken(t []byte) { f.tokenLen = uint8(copy(f.token[:], t)) }

// parseFresh decodes the argument of flag c, which is G, Y or A.
func (r *Request) parseFresh(c byte, arg []byte) (ok bool) {
	f := &r.Fresh
	switch {
	case c == 'Y':
		f.Version, ok = ParseUint64(arg)
		return ok && len(arg) > 0
	case c == 'A':
		return f.Deadlines.parse(arg)
	case r.Verb != VerbMetaGet:
		f.SetToken(arg)
		return len(arg) > 0 && len(arg) <= TokenMax
	}
	if n := len(arg); n > 0 && (arg[n-1] == GrantBackground || arg[n-1] == GrantStrong) {
		f.GrantClass = arg[n-1]
		arg = arg[:n-1]
	}
	f.GrantMillis, ok = ParseUint32(arg)
	return ok && f.GrantMillis > 0
}

// parse decodes "hard[,soft[,read]]".
func (d *Deadlines) parse(arg []byte) bool {
	*d = Deadlines{}
	for _, p := range [...]*uint64{&d.Hard, &d.Soft, &d.Read} {
		word, rest, more := bytes.Cut(arg, []byte{','})
		n, ok := ParseUint64(word)
		if !ok || len(word) == 0 || n > DeadlineMax || p == &d.Hard && n == 0 {
			return false
		}
		if *p, arg = n, rest; !more {
			return true
		}
	}
	return false // more than three
}

// appendTo appends d as A has it: "0" for none.
func (d *Deadlines) appendTo(dst []byte) []byte {
	dst = strconv.AppendUint(dst, d.Hard, 10)
	if d.Soft != 0 || d.Read != 0 {
		dst = strconv.AppendUint(append(dst, ','), d.Soft, 10)
	}
	if d.Read != 0 {
		dst = strconv.AppendUint(append(dst, ','), d.Read, 10)
	}
	return dst
}

// checkFresh decides whether the flags of r go together; mode is what M says.
func (r *Request) checkFresh(mode byte) Error {
	has := r.Has
	switch r.Verb {
	case VerbMetaGet:
		if has.Has('A') || has.Has('G') && has&^besideGetGrant != 0 {
			return ErrInvalidFlag
		}
	case VerbMetaSet:
		switch {
		case has&freshFlags == 0:
			return ErrNone // y and a mean nothing here
		case has&^(besideSet|freshReturns) != 0, !has.Has('Y'), has.Has('G') && !has.Has('A'):
			return ErrInvalidFlag
		case has.Has('M') && mode == 'N' && r.Route.Copy:
		case has.Has('M') && !(has.Has('G') && (mode == 'V' || mode == 'N')):
			return ErrInvalidFlag
		case r.Fresh.Version == 0 && mode != 'N', has.Has('M') && r.ValueLen != 0:
			return ErrBadToken
		}
	case VerbMetaDelete:
		switch {
		case has&freshFlags == 0:
			return ErrNone
		case has&^(besideDelete|freshReturns) != 0, has.Has('G') && (has.Has('Y') || has.Has('I')):
			return ErrInvalidFlag
		case has.Has('Y') && r.Fresh.Version == 0:
			return ErrBadToken
		}
	default:
		if has&freshFlags != 0 {
			return ErrInvalidFlag
		}
	}
	return ErrNone
}

// appendFresh appends the argument of flag c, which is G, Y or A.
func (r *Request) appendFresh(dst []byte, c byte) []byte {
	f := &r.Fresh
	switch {
	case c == 'Y':
		return strconv.AppendUint(dst, f.Version, 10)
	case c == 'A':
		return f.Deadlines.appendTo(dst)
	case r.Verb != VerbMetaGet:
		return append(dst, f.Token()...)
	}
	dst = strconv.AppendUint(dst, uint64(f.GrantMillis), 10)
	if f.GrantClass != GrantForeground {
		dst = append(dst, f.GrantClass)
	}
	return dst
}

// Answer is what a reply to a request with G or Y says behind its marks. A
// client reads the flags y and a of a reply into it too.
type Answer struct {
	Granted  bool // g: the caller is to fill, with Token
	tokenLen uint8
	token    [TokenMax]byte

	Waits      bool  // w: the wait that is suggested, or with Granted the life of the token
	WaitMillis int64 // of w
	Denied     bool  // d: a grant is due, but there is none to be had
	DenyMillis int64 // of d: for how long
	Absent     bool  // e: known to be absent at the source
	HasVersion bool  // y: Version is that of the absence, or the floor
	Version    uint64
	Reason     uint8  // r: why it was refused, 0 it was not
	Copies     uint32 // n: into how many copies it makes sense to split the key, 0 none
	Epoch      uint64 // p: of the server's map, when it is newer than the client's; else 0

	Deadlines // a; only read
}

// Token is the token behind g. It is valid as long as a is.
func (a *Answer) Token() []byte { return a.token[:a.tokenLen] }

// SetToken makes t, at most TokenMax bytes, the token.
func (a *Answer) SetToken(t []byte) { a.tokenLen = uint8(copy(a.token[:], t)) }

// Tells reports whether a miss with this answer is sent even to a quiet
// request.
func (a *Answer) Tells() bool { return a.Granted || a.Waits || a.Denied || a.Absent }

// appendTo appends g, w, d, e, y and r.
func (a *Answer) appendTo(dst []byte) []byte {
	if a.Granted {
		dst = append(append(dst, " g"...), a.Token()...)
	}
	if a.Waits {
		dst = strconv.AppendInt(append(dst, " w"...), a.WaitMillis, 10)
	}
	if a.Denied {
		dst = strconv.AppendInt(append(dst, " d"...), a.DenyMillis, 10)
	}
	if a.Absent {
		dst = append(dst, " e"...)
	}
	if a.HasVersion {
		dst = strconv.AppendUint(append(dst, " y"...), a.Version, 10)
	}
	if a.Reason != 0 {
		dst = strconv.AppendUint(append(dst, " r"...), uint64(a.Reason), 10)
	}
	if a.Copies != 0 {
		dst = strconv.AppendUint(append(dst, " n"...), uint64(a.Copies), 10)
	}
	if a.Epoch != 0 {
		dst = strconv.AppendUint(append(dst, " p"...), a.Epoch, 10)
	}
	return dst
}

// parse reads flag c of a reply, with its argument; letters that it does not
// know are skipped.
func (a *Answer) parse(c byte, arg []byte) (ok bool) {
	var n uint32
	switch c {
	case 'g':
		a.Granted = true
		a.SetToken(arg)
		return len(arg) > 0 && len(arg) <= TokenMax
	case 'w':
		a.Waits = true
		n, ok = ParseUint32(arg)
		a.WaitMillis = int64(n)
		return ok
	case 'd':
		a.Denied = true
		n, ok = ParseUint32(arg)
		a.DenyMillis = int64(n)
		return ok
	case 'e':
		a.Absent = true
	case 'y':
		a.HasVersion = true
		a.Version, ok = ParseUint64(arg)
		return ok
	case 'a':
		if string(arg) == "0" {
			return true
		}
		return a.Deadlines.parse(arg)
	case 'n':
		a.Copies, ok = ParseUint32(arg)
		return ok
	case 'p':
		a.Epoch, ok = ParseUint64(arg)
		return ok
	case 'r':
		n, ok = ParseUint32(arg)
		a.Reason = uint8(n)
		return ok && n <= 255
	}
	return true
}

// noFreshness is that of an item without any.
var noFreshness ItemFreshness

func (it *Item) freshness() *ItemFreshness {
	if it.Fresh == nil {
		return &noFreshness
	}
	return it.Fresh
}

// appendFresh appends what me tells of an item with a version, deadlines or a
// floor, and nothing for others.
func (it *Item) appendFresh(dst []byte) []byte {
	f := it.Fresh
	if f == nil {
		return dst
	}
	dst = strconv.AppendUint(append(dst, " version="...), f.Version, 10)
	dst = strconv.AppendUint(append(dst, " floor="...), f.Floor, 10)
	dst = f.Deadlines.appendTo(append(dst, " deadlines="...))
	for _, m := range [...]struct {
		name string
		is   bool
	}{{" stale=", it.Stale}, {" absent=", f.Absent}} {
		dst = append(dst, m.name...)
		if m.is {
			dst = append(dst, "yes"...)
		} else {
			dst = append(dst, "no"...)
		}
	}
	return dst
}
