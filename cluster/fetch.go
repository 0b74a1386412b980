package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// Fetch, step by step:
//
//	near cache ─► flight ─► lookup with a grant ─► loader ─► fill
//	    │           │           │ fresh, absent, or another loads
//	    ▼           ▼           ▼
//	  result   the result of whoever flies

// Loader reads the source, such as a database, when the cache has no value and
// this caller is the one to load it. Its context ends with the grant: what it
// has not read by then is of no use. It runs in a goroutine of its own.
//
// It returns the value; or ErrNotFound if the source has no such row, with
// Loaded.Version as of which that is so, if it is known; or any other error if
// the source could not be read, which is never stored.
type Loader func(ctx context.Context, q LoadRequest) (Loaded, error)

// LoadRequest says what to load.
type LoadRequest struct {
	Key string

	// Known is the version of the value that is in the cache already, 0 if
	// there is none: if the source still has it, Loaded.Unchanged will do.
	Known uint64
}

// Loaded is what a source has.
type Loaded struct {
	Value []byte
	Flags uint32

	// Version is that of the row at the source: a number that rises with each
	// change. 0 is for sources without one: the moment when the read began is
	// taken then, and Invalidate is to be called with version 0, too.
	Version uint64

	// Unchanged says that the source still has LoadRequest.Known.
	Unchanged bool

	Life, SoftLife time.Duration // instead of those of the options
}

// ErrNotFound is what a Loader returns if the source has no such row.
var ErrNotFound = errors.New("cluster: not found at the source")

// Why Fetch has no value.
var (
	// ErrDenied: a load is due, but the budget of the source is spent.
	ErrDenied = errors.New("cluster: no grant to load")
	// ErrWait: others are loading, and are not done in time.
	ErrWait = errors.New("cluster: waited for others in vain")
	// ErrMinVersion: there is nothing as new as was asked for.
	ErrMinVersion = errors.New("cluster: nothing of that version")
)

// LoadError is that of a Loader.
type LoadError struct{ Err error }

// Error is the loader's.
func (e *LoadError) Error() string { return "cluster: load: " + e.Err.Error() }

// Unwrap is the loader's error.
func (e *LoadError) Unwrap() error { return e.Err }

// FetchOption changes what one Fetch does.
type FetchOption struct{ min uint64 }

// MinVersion makes a Fetch skip versions below v wherever it meets them: for
// callers that know that there is a newer one.
func MinVersion(v uint64) FetchOption { return FetchOption{min: v} }

// Fetch reads a key, and has it loaded if need be, once for all processes.
// Without a value the Result is Negative, if the source is known to have none,
// or Unavailable, with the cause.
func (c *Client) Fetch(ctx context.Context, key string, load Loader, options ...FetchOption) Result {
	var min uint64
	for _, o := range options {
		min = max(min, o.min)
	}
	if e, ok := c.near.get(key, max(min, c.seen(key))); ok {
		return e.Result
	}
	begin := time.Now()
	var r Result
	switch roll := &c.opt.Rollout; {
	case !roll.rolling():
		r = c.fetch(ctx, key, load, min)
	case !roll.through(key):
		r = c.fetchRound(ctx, key, load)
	case roll.Shadow:
		r = c.fetchShadow(ctx, key, load)
	default:
		r = c.fetch(ctx, key, load, min)
	}
	c.show(key, &r)
	c.prefixes.of(key).read(&r, time.Since(begin))
	return r
}

// flightTries is how many flights one Fetch joins: the first may end with what
// is too old for it, or with its leader.
const flightTries = 4

// fetch is Fetch without the near cache.
func (c *Client) fetch(ctx context.Context, key string, load Loader, min uint64) Result {
	deadline := time.Now().Add(c.opt.Fetch.Wait)
	seen := c.seen(key) // by now: what was seen since may be newer than what others have found for us
	var r Result
	for range flightTries {
		fl, lead := c.flights.join(key)
		if fl == nil {
			return unavailable(ErrBusy)
		}
		if lead {
			c.fly(ctx, fl, load, min, deadline)
		}
		if err := c.flights.wait(ctx, fl, deadline); err != nil {
			if errors.Is(err, ErrTimeout) {
				err = ErrWait
			}
			return unavailable(err)
		}
		if fl.left && !lead {
			continue
		}
		// It was found for somebody else, who may have asked earlier, or for
		// less: each looks for itself whether it will do.
		r = c.inTime(fl.result)
		least := max(min, c.floors.of(key))
		if r.Found() {
			least = max(least, seen)
		}
		switch {
		case !r.Found() && r.Outcome != Negative, r.Version >= least:
			return r
		case lead && r.Outcome != Hit && r.Version >= min:
			return r // there is nothing better to be had
		}
	}
	if r.Version < min {
		return unavailable(ErrMinVersion)
	}
	if r.Outcome == Hit {
		r.Outcome = Stale // older than what this process knows of
	}
	return r
}

// fly gives a flight its result, or begins a load that will.
func (c *Client) fly(ctx context.Context, fl *flight, load Loader, min uint64, deadline time.Time) {
	m := c.floors.mark()
	place, s := c.place(ctx, fl.key)
	if r, ok := c.readCopy(ctx, fl.key, place, max(min, c.seen(fl.key), c.floors.of(fl.key))); ok {
		c.flights.end(fl, r, false)
		return
	}
	var seen uint64
	for {
		least := max(min, c.floors.of(fl.key), seen)
		l := c.look(ctx, place, least)
		if l.Found() && c.behind(s, place, l.Version) && seen == 0 {
			if l.Token != "" {
				_ = c.giveBack(ctx, &l)
			}
			seen = s.seen.Load()
			continue
		}
		switch {
		case l.Outcome == Unavailable && ctx.Err() != nil:
			c.flights.end(fl, unavailable(ctx.Err()), true)
			return
		case l.Outcome == Hit, l.Outcome == Negative:
			c.keep(fl.key, l.Result, m)
			c.flights.end(fl, l.Result, false)
			if l.Token != "" {
				c.refreshAhead(ctx, fl.key, s, load, l, m)
			}
			return
		case l.Token != "":
			if !c.start(func() { c.loadFor(ctx, fl, s, load, l, least, m) }) {
				c.flights.end(fl, unavailable(ErrClosed), false)
			}
			return
		case l.Outcome == Stale:
			c.flights.end(fl, l.Result, false)
			return
		case l.Outcome == Miss && l.Wait > 0:
			wait := l.Wait + rand.N(l.Wait/4+1)
			if time.Now().Add(wait).After(deadline) {
				c.flights.end(fl, unavailable(ErrWait), false)
				return
			}
			if err := c.pause(ctx, wait); err != nil {
				c.flights.end(fl, unavailable(err), true)
				return
			}
		default:
			cause := l.Cause
			if l.Outcome == Miss {
				cause = ErrDenied
			}
			c.loadDirectly(ctx, fl, load, m, cause)
			return
		}
	}
}

// look is a lookup with a grant, at whatever kind of server the key is.
func (c *Client) look(ctx context.Context, key string, least uint64) LookedUp {
	versions, err := c.knowsVersions(ctx, key)
	if err != nil {
		return LookedUp{Result: unavailable(err)}
	}
	if !versions {
		return c.stockLookup(ctx, key, least)
	}
	o := LookupOptions{Grant: c.opt.Fetch.Grant, Min: least}
	if least > 0 {
		o.Class = Strong
	}
	l := c.lookup(ctx, key, o)
	if l.Found() && l.Version < least {
		l.Result = Result{}
	}
	return l
}

// keep puts what the cache had into the near cache.
func (c *Client) keep(key string, r Result, m mark) {
	if c.near.cache == nil || c.opt.Rollout.Shadow {
		return
	}
	c.show(key, &r)
	c.near.put(key, r, c.nearLife(c.policy(key)), m, c.prefixes.of(key))
}

// loadFor loads under the grant of l, for those who wait for fl.
func (c *Client) loadFor(ctx context.Context, fl *flight, s *split, load Loader, l LookedUp, least uint64, m mark) {
	r, refused := c.load(ctx, fl.key, fl, s, load, l, m)
	if refused {
		// Something newer is known of. Once more, and no longer than that: it
		// may be there already, or is to be loaded.
		next := c.look(ctx, l.key, max(least, c.floors.of(fl.key)))
		switch {
		case next.Outcome == Hit, next.Outcome == Negative:
			r = next.Result
			c.keep(fl.key, r, m)
			if next.Token != "" {
				c.refreshAhead(ctx, fl.key, s, load, next, m)
			}
		case next.Token != "":
			if again, _ := c.load(ctx, fl.key, fl, s, load, next, m); again.Found() || again.Outcome == Negative || !r.Found() {
				r = again
			}
		}
	}
	c.flights.end(fl, r, false)
}

// load reads the source under the grant of l and fills the cache. refused says
// that the fill was not accepted; r is then the value all the same, as stale.
// Without a flight nobody waits for it. Of a key that is split, l is of one
// place.
func (c *Client) load(ctx context.Context, key string, fl *flight, s *split, load Loader, l LookedUp, m mark) (r Result, refused bool) {
	policy := c.policy(key)
	ctx = context.WithoutCancel(ctx)
	q := LoadRequest{Key: key}
	if l.Found() {
		q.Known = l.Version
	}
	c.counters.loads.Add(1)
	// What is read from now on is at least as new as the grant.
	read := c.nowMillis()
	got, err, late := c.call(ctx, fl, load, q, l.Until, l.Result)
	switch {
	case late:
		c.counters.loadsLate.Add(1)
		return l.orUnavailable(&LoadError{context.DeadlineExceeded}), false
	case err != nil && !errors.Is(err, ErrNotFound):
		c.counters.loadErrors.Add(1)
		r = l.orUnavailable(&LoadError{err})
		if fl != nil {
			c.flights.end(fl, r, false)
		}
		_ = c.giveBack(ctx, &l)
		return r, false
	case err != nil:
		return c.absent(ctx, key, &l, &got, c.negative(policy, read), m)
	case got.Unchanged && q.Known == 0:
		_ = c.giveBack(ctx, &l)
		return unavailable(&LoadError{errors.New("unchanged, where nothing was known")}), false
	}
	d := c.deadlines(policy, &got, read)
	if got.Unchanged {
		got.Value, got.Flags, got.Version = l.Value, l.Flags, l.Version
		err = c.revalidate(ctx, &l, got.Version, d)
	} else {
		fill(&got.Version, read)
		err = c.fill(ctx, &l, Versioned{got.Value, got.Flags, got.Version, d})
	}
	r = Result{Outcome: Hit, From: FromSource, Value: got.Value, Flags: got.Flags, Version: got.Version, Deadlines: d, Cause: err}
	var no *RefusedError
	switch {
	case err == nil:
		c.keep(key, r, m)
		c.offer(ctx, key, l.key, s, Versioned{r.Value, r.Flags, r.Version, d})
	case errors.As(err, &no), errors.Is(err, ErrCASConflict), errors.Is(err, ErrMiss):
		c.counters.fillsRefused.Add(1)
		r.Outcome, refused = Stale, true
	default:
		c.counters.fillErrors.Add(1) // it may be stored or not: it is the source's word all the same
	}
	return c.inTime(r), refused
}

// absent stores that the source has no such row.
func (c *Client) absent(ctx context.Context, key string, l *LookedUp, got *Loaded, d Deadlines, m mark) (r Result, refused bool) {
	// Read after the grant, it is true of the floor of that moment.
	version := max(got.Version, l.Floor)
	err := c.fillAbsent(ctx, l, version, d)
	r = Result{Outcome: Negative, From: FromSource, Version: version, Deadlines: d, Cause: err}
	var no *RefusedError
	switch {
	case err == nil:
		c.keep(key, r, m)
	case errors.As(err, &no):
		c.counters.fillsRefused.Add(1)
		return unavailable(err), true
	}
	return r, false
}

// orUnavailable is the stale value that the cache has, if it has one, else
// nothing, because of cause.
func (l *LookedUp) orUnavailable(cause error) Result {
	if l.Found() {
		r := l.Result
		r.Outcome, r.Cause = Stale, cause
		return r
	}
	return unavailable(cause)
}

// call calls the loader. Its context ends at until, or with the client; then
// those who wait are told, even if the loader goes on.
func (c *Client) call(ctx context.Context, fl *flight, load Loader, q LoadRequest, until time.Time, stale Result) (got Loaded, err error, late bool) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	defer context.AfterFunc(c.base, cancel)()
	if fl != nil {
		l := LookedUp{Result: stale}
		tell := context.AfterFunc(ctx, func() { c.flights.end(fl, c.inTime(l.orUnavailable(&LoadError{context.DeadlineExceeded})), false) })
		defer tell()
	}
	got, err = callLoader(ctx, load, q)
	return got, err, ctx.Err() != nil
}

// callLoader calls the loader. A panic in it is an error: whoever waits is not
// to wait in vain, and other keys have nothing to do with it.
func callLoader(ctx context.Context, load Loader, q LoadRequest) (got Loaded, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the loader panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return load(ctx, q)
}

// refreshAhead uses the grant that came with a value: it is loaded again while
// it is served.
func (c *Client) refreshAhead(ctx context.Context, key string, s *split, load Loader, l LookedUp, m mark) {
	ctx = context.WithoutCancel(ctx)
	if c.refreshes.Add(1) > int64(c.opt.Fetch.RefreshesMax) {
		c.refreshes.Add(-1)
		c.start(func() { _ = c.giveBack(ctx, &l) })
		return
	}
	if !c.start(func() {
		defer c.refreshes.Add(-1)
		c.counters.refreshes.Add(1)
		c.load(ctx, key, nil, s, load, l, m)
	}) {
		c.refreshes.Add(-1)
	}
}

// loadDirectly loads without a grant, if there is budget for it, and stores
// nothing: a node that is down must not turn all its readers loose on the
// source.
func (c *Client) loadDirectly(ctx context.Context, fl *flight, load Loader, m mark, cause error) {
	if !c.opt.Fetch.Budget.take() {
		c.counters.directDenied.Add(1)
		c.flights.end(fl, unavailable(cause), false)
		return
	}
	c.counters.directLoads.Add(1)
	if !c.start(func() {
		ctx := context.WithoutCancel(ctx)
		r := c.fromSource(ctx, fl.key, fl, load, cause)
		c.keep(fl.key, r, m)
		c.flights.end(fl, r, false)
	}) {
		c.flights.end(fl, unavailable(ErrClosed), false)
	}
}

// fromSource is what the source has, past the cache, because of cause.
func (c *Client) fromSource(ctx context.Context, key string, fl *flight, load Loader, cause error) Result {
	policy := c.policy(key)
	read := c.nowMillis()
	got, err, late := c.call(ctx, fl, load, LoadRequest{Key: key}, time.Now().Add(c.opt.Fetch.Grant), unavailable(cause))
	switch {
	case late:
		return unavailable(errors.Join(&LoadError{context.DeadlineExceeded}, cause))
	case errors.Is(err, ErrNotFound):
		return Result{Outcome: Negative, From: FromSource, Version: got.Version, Deadlines: c.negative(policy, read), Cause: cause}
	case err != nil:
		return unavailable(errors.Join(&LoadError{err}, cause))
	}
	fill(&got.Version, read)
	return c.inTime(Result{Outcome: Hit, From: FromSource, Value: got.Value, Flags: got.Flags, Version: got.Version,
		Deadlines: c.deadlines(policy, &got, read), Cause: cause})
}
