package cluster

import (
	"context"
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// Fetch and Invalidate with memcached itself. It has no versions, deadlines or
// grants, so the value carries what is known of it, and N, W, C and I do what
// they can: a stub that N makes is the grant, its CAS is the token, and a fill
// compares it. What that does not promise is in docs/client.md.

// stockHeader stands in front of a value that Fetch stores in memcached:
//
//	0  magic "Qry1"
//	4  kind: 0 a value, 1 absent at the source
//	5  version 8 · hard 8 · soft 8 · read 8, big-endian
//	37 the value
const (
	stockMagic       = "Qry1"
	stockHeaderBytes = len(stockMagic) + 1 + 4*8
)

// stockStubTTL is how long a stub lives whose winner never comes back. It is
// more than the longest load.
func (c *Client) stockStubTTL() int64 { return c.seconds(c.opt.Fetch.Grant + time.Second) }

// stockLookup is a lookup with a grant.
func (c *Client) stockLookup(ctx context.Context, key string, least uint64) (l LookedUp) {
	q := newRequest(meta.OpGet, meta.VerbMetaGet, key, "vfcN")
	q.VivifyTTL = c.stockStubTTL()
	l.key, l.stock = key, true
	if soft, life := c.opt.Fetch.SoftLife, c.opt.Fetch.Life; soft > 0 && soft < life {
		q.AddFlag('R') // the TTL is what is left before hard
		q.RecacheTTL = int32(c.seconds(life - soft))
	}
	sent := time.Now()
	a, err := c.ask(ctx, &q)
	if err != nil {
		l.Result = unavailable(err)
		return l
	}
	defer a.Free()
	rep := &a.Reply
	if rep.Code != meta.CodeVA {
		return l
	}
	found := stockParse(&l.Result, rep.Value)
	l.Flags, l.CAS = rep.Item.ClientFlags, rep.Item.CAS
	switch {
	case !found:
		l.Outcome = Miss
	case l.Outcome != Negative && rep.Item.Stale:
		l.Outcome = Stale
	}
	if found {
		l.From = FromOwner
	}
	now := c.nowMillis()
	if found && (l.Version < least || l.Hard != 0 && now >= l.Hard) {
		found, l.Result = false, Result{CAS: l.CAS}
	}
	// R goes by whole seconds, and by the life that is usual: a win long before
	// the soft deadline, or for what is not there, is let go.
	early := found && (l.Outcome == Negative || l.Outcome == Hit && now+stockEarlyMillis < l.Soft)
	switch {
	case rep.Item.Won && !early, !found && len(rep.Value) > 0:
		l.Token, l.Until = strconv.FormatUint(rep.Item.CAS, 10), sent.Add(c.opt.Fetch.Grant)
	case !found:
		l.Wait = stockWait
	}
	return l
}

// stockWait is how long to wait for another caller's load, before asking again.
const stockWait = 20 * time.Millisecond

// stockEarlyMillis is how long before its soft deadline a value may be refreshed.
const stockEarlyMillis = 3000

// stockParse reads a value with its header. A value without one is not of Fetch:
// it is stale.
func stockParse(r *Result, p []byte) (found bool) {
	switch {
	case len(p) == 0:
		return false
	case len(p) < stockHeaderBytes || string(p[:len(stockMagic)]) != stockMagic:
		r.Outcome, r.Value = Stale, slices.Clone(p)
		return true
	}
	r.Outcome = Hit
	if p[4] == 1 {
		r.Outcome = Negative
	}
	r.Version = binary.BigEndian.Uint64(p[5:])
	r.Hard, r.Soft, r.Read = binary.BigEndian.Uint64(p[13:]), binary.BigEndian.Uint64(p[21:]), binary.BigEndian.Uint64(p[29:])
	r.Value = slices.Clone(p[stockHeaderBytes:])
	return true
}

// stockFill stores a value, or that there is none, under the CAS of a stub.
func (c *Client) stockFill(ctx context.Context, l *LookedUp, v Versioned, absent bool) error {
	now := c.nowMillis()
	if now >= v.Hard {
		return &RefusedError{ReasonHard}
	}
	p := make([]byte, 0, stockHeaderBytes+len(v.Value))
	p = append(p, stockMagic...)
	if absent {
		p = append(p, 1)
	} else {
		p = append(p, 0)
	}
	for _, n := range [...]uint64{v.Version, v.Hard, v.Soft, v.Read} {
		p = binary.BigEndian.AppendUint64(p, n)
	}
	q := newRequest(meta.OpSet, meta.VerbMetaSet, l.key, "FTC")
	q.ClientFlags, q.value = v.Flags, append(p, v.Value...)
	q.TTL = c.seconds(time.Duration(v.Hard-now) * time.Millisecond)
	q.CompareCAS, _ = strconv.ParseUint(l.Token, 10, 64)
	return c.write(ctx, &q)
}

// stockGiveBack removes the stub, if it is still there.
func (c *Client) stockGiveBack(ctx context.Context, l *LookedUp) error {
	if l.Found() {
		return nil // a value stays; the next one wins when the stub's time is over
	}
	q := newRequest(meta.OpDelete, meta.VerbMetaDelete, l.key, "C")
	q.CompareCAS, _ = strconv.ParseUint(l.Token, 10, 64)
	return c.write(ctx, &q)
}

// fill, fillAbsent, revalidate and giveBack end the grant of l, at whatever
// kind of server it is from.

func (c *Client) fill(ctx context.Context, l *LookedUp, v Versioned) error {
	if l.stock {
		return c.stockFill(ctx, l, v, false)
	}
	return c.Fill(ctx, l.key, l.Token, v)
}

func (c *Client) fillAbsent(ctx context.Context, l *LookedUp, version uint64, d Deadlines) error {
	if l.stock {
		return c.stockFill(ctx, l, Versioned{Version: version, Deadlines: d}, true)
	}
	return c.FillAbsent(ctx, l.key, l.Token, version, d)
}

func (c *Client) revalidate(ctx context.Context, l *LookedUp, version uint64, d Deadlines) error {
	if l.stock {
		return c.stockFill(ctx, l, Versioned{l.Value, l.Flags, version, d}, false)
	}
	return c.Revalidate(ctx, l.key, l.Token, version, d)
}

func (c *Client) giveBack(ctx context.Context, l *LookedUp) error {
	if l.stock {
		return c.stockGiveBack(ctx, l)
	}
	return c.GiveBack(ctx, l.key, l.Token)
}

// stockInvalidate marks what is stored as stale, and makes its CAS another one,
// so that a load that is under way does not fill.
func (c *Client) stockInvalidate(ctx context.Context, key string) error {
	q := newRequest(meta.OpDelete, meta.VerbMetaDelete, key, "IT")
	q.TTL = c.seconds(c.opt.Fetch.Life)
	if err := c.write(ctx, &q); err != ErrMiss {
		return err
	}
	return nil
}
