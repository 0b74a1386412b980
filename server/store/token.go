package store

import (
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// Token is the right to fill a key once: opaque to clients. It belongs to one
// start of the store, one key, and one of the grants of that key.
type Token struct {
	incarnation uint32 // random at each start
	sequence    uint64 // never given twice
	nonce       uint64 // 56 bits that nobody can guess
}

// TokenTextMax is the longest token as text, in bytes: 6 of the incarnation,
// 13 of the sequence in base 36, 10 of the nonce, and two dots.
const TokenTextMax = 31

const (
	nonceBits  = 56
	nonceBytes = nonceBits / 8
)

// tokenText is what the numbers of a token are written in.
var tokenText = base64.RawURLEncoding

// AppendTo appends the token's text: letters, digits, '-', '_' and '.', at
// most TokenTextMax of them.
func (t Token) AppendTo(dst []byte) []byte {
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], t.incarnation)
	dst = tokenText.AppendEncode(dst, b[:4])
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, t.sequence, 36)
	dst = append(dst, '.')
	binary.LittleEndian.PutUint64(b[:], t.nonce)
	return tokenText.AppendEncode(dst, b[:nonceBytes])
}

// ParseToken reads what AppendTo wrote, and reports whether text is that.
func ParseToken(text []byte) (Token, bool) {
	const incarnationText, nonceText = 6, 10
	sequence := len(text) - incarnationText - nonceText - 2
	if sequence < 1 || len(text) > TokenTextMax || text[incarnationText] != '.' || text[len(text)-nonceText-1] != '.' {
		return Token{}, false
	}
	var t Token
	var b [8]byte
	if _, err := tokenText.Decode(b[:4], text[:incarnationText]); err != nil {
		return Token{}, false
	}
	t.incarnation = binary.LittleEndian.Uint32(b[:])
	for _, c := range text[incarnationText+1:][:sequence] {
		digit := uint64(c - '0')
		switch {
		case c >= 'a' && c <= 'z':
			digit = uint64(c-'a') + 10
		case c > '9' || c < '0':
			return Token{}, false
		}
		if t.sequence > (1<<64-1-digit)/36 {
			return Token{}, false
		}
		t.sequence = t.sequence*36 + digit
	}
	b = [8]byte{}
	if _, err := tokenText.Decode(b[:nonceBytes], text[len(text)-nonceText:]); err != nil {
		return Token{}, false
	}
	t.nonce = binary.LittleEndian.Uint64(b[:])
	return t, t.sequence != 0
}

// grant is what a record says of the last grant of its key.
type grant struct {
	sequence uint64 // of its token; 0: there was none, or it was used or ended
	nonce    uint64
	granted  Time
	ends     Time
	next     Time   // there is no other grant before, after loaders failed
	pause    Time   // what the next failure costs, 0 nothing
	tenant   uint32 // row that it counts for, one more; 0 none
	class    GrantClass
	counted  bool // among those that are out, for its tenant and in the statistics
}

// givenBackPause is the pause after the second failure of a key's loaders in a
// row; the first costs nothing, and each after it twice as much.
const givenBackPause = 100

// pausedMillis is when it makes sense to ask again while there are no grants.
const pausedMillis = 100

// out reports whether the token of g, for k, can still fill.
func (sh *shard) out(k Key, g *grant, now Time) bool {
	return g.sequence > sh.tokenMark && g.ends > now && (sh.owned == nil || g.sequence > sh.owned.tokens[k.Bucket()])
}

// takeGrant gives a grant for k, if there is one to be had: the token is in a
// then, else why not.
func (sh *shard) takeGrant(k Key, a *Ask, c GrantClass, now Time) bool {
	f := &sh.s.fresh
	if a.NoGrant || f.paused.Load() {
		a.Denied, a.WaitMillis = true, pausedMillis
		sh.fresh.Denials++
		return false
	}
	sh.records.turn(now, sh.uncount)
	rec := sh.records.find(k)
	if rec != nil {
		g := &rec.grant
		switch {
		case sh.out(k, g, now):
			a.Waits, a.WaitMillis = true, waitFor(now-g.granted, g.ends-now, f.budget.typical())
			sh.fresh.Waits++
			return false
		case g.next > now:
			a.Waits, a.WaitMillis = true, int64(g.next-now)
			sh.fresh.Waits++
			return false
		}
		sh.uncount(rec)
		sh.records.changed(rec)
	}
	life := Time(f.cfg.GrantMaxMillis)
	if a.MaxMillis > 0 {
		life = min(life, Time(a.MaxMillis))
	}
	row, ok := sh.tenantGrant(k)
	wait := int64(waitUnknownMillis)
	if ok {
		wait = f.budget.take(c, now, now+life)
	}
	if wait == 0 && rec == nil {
		if rec = sh.records.add(k, now, sh.uncount); rec == nil {
			f.budget.free(now, now+life, 0)
			wait = waitUnknownMillis
		}
	}
	if wait > 0 {
		a.Denied, a.WaitMillis = true, wait
		sh.fresh.Denials++
		return false
	}
	sh.tokenSeq++
	g := &rec.grant
	*g = grant{
		sequence: sh.sequenceOf(sh.tokenSeq),
		nonce:    sh.random.Uint64() >> (64 - nonceBits),
		granted:  now,
		ends:     now + life,
		pause:    g.pause,
		class:    c,
	}
	sh.count(g, row)
	sh.records.changed(rec)
	a.Granted, a.LifeMillis = true, int64(life)
	a.Token = Token{f.incarnation, g.sequence, g.nonce}
	switch c {
	case GrantBackground:
		sh.fresh.GrantsBackground++
	case GrantStrong:
		sh.fresh.GrantsStrong++
	default:
		sh.fresh.GrantsForeground++
	}
	return true
}

// waitFor is when it makes sense to ask again for what a token is out for: when
// it should be there, if fills take typical, 0 not known. One that is late is
// asked for the less often, the later it is: there may be a thousand who wait for
// it. elapsed is since the token was given, left is its life.
func waitFor(elapsed, left, typical Time) int64 {
	wait := max(waitUnknownMillis, elapsed/waitLatePart)
	if typical != 0 {
		wait = max(typical-elapsed, elapsed/waitLatePart, 1)
	}
	return int64(min(wait, left))
}

// waitLatePart: who waits for a fill that is late asks again after such a part
// of the time that it has taken.
const waitLatePart = 4

// sequenceOf is the sequence of the shard's n-th token: no two shards share
// one.
func (sh *shard) sequenceOf(n uint64) uint64 { return n*uint64(len(sh.s.shards)) + uint64(sh.id) }

// endTokens ends all tokens that the shard has given. Their places in the
// budget are free when their time has passed.
func (sh *shard) endTokens() { sh.tokenMark = sh.sequenceOf(sh.tokenSeq) }

// endToken ends the token of k, if one is out.
func (sh *shard) endToken(k Key, now Time) {
	if rec := sh.records.find(k); rec != nil {
		sh.endGrant(rec, now, 0)
	}
}

// endGrant ends the token of rec, which is not known any more then. filled is
// how long its fill took, 0 if it was none.
func (sh *shard) endGrant(rec *record, now, filled Time) {
	g := &rec.grant
	if g.sequence == 0 {
		return
	}
	if g.counted && g.ends > now {
		sh.s.fresh.budget.free(now, g.ends, filled)
	}
	sh.uncount(rec)
	g.sequence = 0
	sh.records.changed(rec)
}

// count counts a token as out, for the tenant with that row.
func (sh *shard) count(g *grant, row uint32) {
	g.counted, g.tenant = true, row
	if row != 0 {
		sh.tenants.rows[row-1].inflight++
	}
}

// uncount takes the token of rec, if it is out, off its tenant, and counts it
// if its time has passed.
func (sh *shard) uncount(rec *record) {
	g := &rec.grant
	if !g.counted {
		return
	}
	g.counted = false
	if g.ends <= sh.now {
		sh.fresh.TokensExpired++
	}
	if g.tenant == 0 {
		return
	}
	// Another tenant may have the row by now, which began with 0.
	if r := &sh.tenants.rows[g.tenant-1]; r.inflight > 0 {
		r.inflight--
	}
}

// tenantGrant is the row that a token for k counts for, one more, and whether
// its tenant may have another one.
func (sh *shard) tenantGrant(k Key) (row uint32, ok bool) {
	t := sh.tenants
	if t == nil {
		return 0, true
	}
	r := t.findOrOther(k.Bytes)
	if r.inflightMax == 0 {
		return 0, true
	}
	return uint32(r.number) + 1, r.inflight < r.inflightMax
}
