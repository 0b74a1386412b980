package cluster

import (
	"context"
	"time"

	"github.com/quarrycache/quarry/meta"
)

// What servers of Quarry's add to memcached: versions of the source, deadlines
// and grants. Fetch and Invalidate are made of these; a program that uses them
// itself has their rules to keep. memcached answers ErrUnsupported.

// GrantClass says for whom a grant is asked.
type GrantClass byte

// The classes of grants.
const (
	Foreground GrantClass = meta.GrantForeground // somebody waits for the value
	Background GrantClass = meta.GrantBackground // to refresh ahead, or to warm
	Strong     GrantClass = meta.GrantStrong     // somebody waits for a version
)

// LookupOptions say how Lookup asks.
type LookupOptions struct {
	Grant time.Duration // ask for a grant if one is due, for so long at most; 0 is no
	Class GrantClass
	Min   uint64 // versions below it are as good as none
}

// LookedUp is what Lookup found.
type LookedUp struct {
	Result

	// Token is the grant, the right to fill the key once, "" if there is none.
	// It ends at Until. Floor is the lowest version that may be stored.
	Token string
	Until time.Time
	Floor uint64

	// Wait is how long to wait before asking again, since somebody else has
	// the grant; Denied how long there are no grants to be had.
	Wait, Denied time.Duration

	key   string // of the place that was asked
	stock bool   // the server is memcached: the token is a CAS
}

// Versioned is a value and what is known of its source.
type Versioned struct {
	Value   []byte
	Flags   uint32
	Version uint64 // 1 or more
	Deadlines
}

// Lookup reads a key, and asks for the right to fill it if that is due.
func (c *Client) Lookup(ctx context.Context, key string, o LookupOptions) LookedUp {
	if err := c.needVersions(ctx, key); err != nil {
		return LookedUp{Result: unavailable(err)}
	}
	return c.lookup(ctx, key, o)
}

// needVersions is ErrUnsupported if the server of a key is memcached.
func (c *Client) needVersions(ctx context.Context, key string) error {
	ok, err := c.knowsVersions(ctx, key)
	if err == nil && !ok {
		err = ErrUnsupported
	}
	return err
}

// knowsVersions reports whether the server of a key knows versions.
func (c *Client) knowsVersions(ctx context.Context, key string) (bool, error) {
	v, err := c.current(ctx)
	if err != nil {
		return false, err
	}
	if v.m != nil {
		return true, nil
	}
	q := newRequest(meta.OpGet, meta.VerbMetaGet, key, "")
	return v.of(key, q.hash).owner.knowsVersions(ctx)
}

func (c *Client) lookup(ctx context.Context, key string, o LookupOptions) (l LookedUp) {
	q := newRequest(meta.OpGet, meta.VerbMetaGet, key, "vfcya")
	q.reads = true
	if o.Grant > 0 {
		q.AddFlag('G')
		q.Fresh.GrantMillis = uint32(max(o.Grant.Milliseconds(), 1))
		q.Fresh.GrantClass = byte(o.Class)
	}
	if o.Min > 0 {
		q.AddFlag('Y')
		q.Fresh.Version = o.Min
	}
	l.key = key
	sent := time.Now()
	a, err := c.ask(ctx, &q)
	if err != nil {
		l.Result = unavailable(err)
		return l
	}
	defer a.Free()
	l.Result = c.result(&a)
	f := &a.Reply.Fresh
	wait := time.Duration(f.WaitMillis) * time.Millisecond
	switch {
	case f.Granted:
		// The life of the token began after the question was sent: what is
		// counted from there ends no later.
		l.Token, l.Until = string(f.Token()), sent.Add(wait)
	case f.Denied:
		l.Denied = max(time.Duration(f.DenyMillis)*time.Millisecond, time.Millisecond)
	case a.Reply.Item.WinSent || f.Waits:
		l.Wait = max(wait, time.Millisecond)
	}
	if l.Outcome == Miss && f.HasVersion {
		l.Floor = f.Version
	}
	return l
}

// Fill stores a value under a grant. The read of the source has begun after the
// grant was given. A *RefusedError says why it is not stored.
func (c *Client) Fill(ctx context.Context, key, token string, v Versioned) error {
	q := newRequest(meta.OpSet, meta.VerbMetaSet, key, "FGYA")
	q.ClientFlags, q.value = v.Flags, v.Value
	return c.settle(ctx, &q, token, v.Version, v.Deadlines)
}

// Revalidate says, under a grant, that the source still has the version that is
// stored: its deadlines are renewed and it is fresh again.
func (c *Client) Revalidate(ctx context.Context, key, token string, version uint64, d Deadlines) error {
	q := newRequest(meta.OpSet, meta.VerbMetaSet, key, "MGYA")
	q.Mode = meta.ModeRevalidate
	return c.settle(ctx, &q, token, version, d)
}

// FillAbsent says, under a grant, that the source has no such row, as of a
// version; 0 is never had.
func (c *Client) FillAbsent(ctx context.Context, key, token string, version uint64, d Deadlines) error {
	q := newRequest(meta.OpSet, meta.VerbMetaSet, key, "MGYA")
	q.Mode = meta.ModeAbsent
	return c.settle(ctx, &q, token, version, d)
}

// settle sends what a grant was for. Sent twice it changes nothing.
func (c *Client) settle(ctx context.Context, q *request, token string, version uint64, d Deadlines) error {
	if err := c.needVersions(ctx, q.key); err != nil {
		return err
	}
	q.again = true
	q.Fresh.SetToken([]byte(token))
	q.Fresh.Version, q.Fresh.Deadlines = version, d
	return c.write(ctx, q)
}

// GiveBack gives a grant back: the source could not be read.
func (c *Client) GiveBack(ctx context.Context, key, token string) error {
	if err := c.needVersions(ctx, key); err != nil {
		return err
	}
	q := newRequest(meta.OpDelete, meta.VerbMetaDelete, key, "G")
	q.Fresh.SetToken([]byte(token))
	q.again = true
	return c.write(ctx, &q)
}

// Store stores a value that is newer than what is stored, without a grant; of a
// key that is split, in all its places.
func (c *Client) Store(ctx context.Context, key string, v Versioned) error {
	if err := c.needVersions(ctx, key); err != nil {
		return err
	}
	c.floors.raise(key, v.Version)
	c.near.dropBelow(key, v.Version)
	if s := c.view.Load().split(key); s != nil && s.n > 1 {
		return c.storeAll(ctx, key, s, v)
	}
	return c.storeAt(ctx, key, v)
}

// storeAt stores a value in one place.
func (c *Client) storeAt(ctx context.Context, key string, v Versioned) error {
	q := newRequest(meta.OpSet, meta.VerbMetaSet, key, "FY")
	if v.Deadlines != (Deadlines{}) {
		q.AddFlag('A')
	}
	q.ClientFlags, q.value = v.Flags, v.Value
	q.Fresh.Version, q.Fresh.Deadlines = v.Version, v.Deadlines
	q.again = true // a second time it is not newer
	return c.write(ctx, &q)
}

// Take raises the lowest version that may be stored under a key, and drops what
// is stored below it.
func (c *Client) Take(ctx context.Context, key string, version uint64) error {
	if err := c.needVersions(ctx, key); err != nil {
		return err
	}
	q := newRequest(meta.OpDelete, meta.VerbMetaDelete, key, "Y")
	q.Fresh.Version = version
	q.again = true
	return c.write(ctx, &q)
}
