package cluster

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// NearOptions are about the cache in the process.
type NearOptions struct {
	Life  time.Duration // of an entry at most, and never past its hard deadline. 500 ms
	Bytes int           // of keys, values and what they cost. 16 MiB; -1 is no near cache

	// Gets says that Get keeps in the near cache what it reads, too. Without
	// it only Fetch does, and Get does so for keys that the servers call hot:
	// what is set in other processes is then seen at once.
	Gets bool
}

// FetchOptions are about Fetch.
type FetchOptions struct {
	Life         time.Duration // of a value after the read of its source began, at most. 29.8 s
	SoftLife     time.Duration // after which it is refreshed while it is served. 0.8 of Life; -1 is never
	NegativeLife time.Duration // of what the source does not have. 2 s
	Jitter       float64       // by so much of them at most, by chance, lives are shorter. 0.1; -1 is not at all

	Grant time.Duration // for a load at most; the server may give less. 1 s
	Wait  time.Duration // for a result at most, loads of others and one's own included. 2 s

	WaitersMax   int // callers that wait for the loads of others. 10,000
	FlightsMax   int // keys that are looked up or loaded at once. 4,096
	RefreshesMax int // of them, loads ahead that nobody waits for. 64

	// DirectLoads is how many loads a second may be done without a grant: when
	// the owner of a key cannot be asked, or has no grant to give. The map may
	// have a lower bound. 10; -1 is none. Budget is used instead if there is
	// one.
	DirectLoads float64
	Budget      *Budget

	// Skew is how far clocks may be apart, for sources without versions.
	// 100 ms
	Skew time.Duration
}

// Policy is what differs for keys that begin with Prefix.
type Policy struct {
	Prefix string

	Near   time.Duration // life in the near cache; 0 as elsewhere, -1 is none, for what must not be stale: permissions
	Copies bool          // hot keys may be read from copies, which may be stale

	Life, SoftLife, NegativeLife time.Duration // as in FetchOptions; 0 as elsewhere
}

// Defaults of NearOptions and FetchOptions.
const (
	defaultNearLife     = 500 * time.Millisecond
	defaultNearBytes    = 16 << 20
	defaultLife         = 29800 * time.Millisecond // with 200 ms for clocks and the way: 30 s
	defaultSoftShare    = 0.8
	defaultNegativeLife = 2 * time.Second
	defaultJitter       = 0.1
	defaultGrant        = time.Second
	defaultWait         = 2 * time.Second
	defaultWaitersMax   = 10_000
	defaultFlightsMax   = 4096
	defaultRefreshesMax = 64
	defaultDirectLoads  = 10
	defaultSkew         = 100 * time.Millisecond
)

// policiesMax bounds Options.Policies.
const policiesMax = 256

func (o *NearOptions) setDefaults() {
	fill(&o.Life, defaultNearLife)
	fill(&o.Bytes, defaultNearBytes)
}

func (o *FetchOptions) setDefaults() {
	fill(&o.Life, defaultLife)
	fill(&o.SoftLife, time.Duration(defaultSoftShare*float64(o.Life)))
	fill(&o.NegativeLife, defaultNegativeLife)
	fill(&o.Jitter, defaultJitter)
	fill(&o.Grant, defaultGrant)
	fill(&o.Wait, defaultWait)
	fill(&o.WaitersMax, defaultWaitersMax)
	fill(&o.FlightsMax, defaultFlightsMax)
	fill(&o.RefreshesMax, defaultRefreshesMax)
	fill(&o.DirectLoads, defaultDirectLoads)
	fill(&o.Skew, defaultSkew)
	if o.Budget == nil {
		o.Budget = NewBudget(max(o.DirectLoads, 0))
	}
}

func (o *NearOptions) validate() error {
	switch {
	case o.Life < time.Millisecond:
		return fmt.Errorf("cluster: Options.Near.Life %s: want 1ms or more", o.Life)
	case o.Bytes < -1:
		return fmt.Errorf("cluster: Options.Near.Bytes %d: want -1 or more", o.Bytes)
	}
	return nil
}

func (o *FetchOptions) validate() error {
	switch {
	case o.Life < time.Millisecond || o.NegativeLife < time.Millisecond || o.Grant < time.Millisecond || o.Wait < time.Millisecond || o.Skew < 0:
		return fmt.Errorf("cluster: Options.Fetch: Life %s, NegativeLife %s, Grant %s, Wait %s: want 1ms or more each, and Skew %s: 0 or more",
			o.Life, o.NegativeLife, o.Grant, o.Wait, o.Skew)
	case o.SoftLife > o.Life:
		return fmt.Errorf("cluster: Options.Fetch.SoftLife %s: want at most Life, %s", o.SoftLife, o.Life)
	case o.Jitter > 0.9:
		return fmt.Errorf("cluster: Options.Fetch.Jitter %v: want at most 0.9", o.Jitter)
	case min(o.WaitersMax, o.FlightsMax, o.RefreshesMax) < 1:
		return fmt.Errorf("cluster: Options.Fetch: WaitersMax %d, FlightsMax %d, RefreshesMax %d: want 1 or more each",
			o.WaitersMax, o.FlightsMax, o.RefreshesMax)
	}
	return nil
}

func validatePolicies(list []Policy) error {
	if len(list) > policiesMax {
		return fmt.Errorf("cluster: %d Options.Policies: want at most %d", len(list), policiesMax)
	}
	for i := range list {
		p := &list[i]
		if p.Prefix == "" || p.Life < 0 || p.NegativeLife < 0 || p.Life > 0 && p.SoftLife > p.Life {
			return fmt.Errorf("cluster: Options.Policies[%d]: %+v: want a prefix, lives of 0 or more, and SoftLife at most Life", i, *p)
		}
	}
	return nil
}

// policy is the policy for a key: the first one whose prefix it has, nil if
// there is none.
func (c *Client) policy(key string) *Policy {
	for i := range c.opt.Policies {
		if strings.HasPrefix(key, c.opt.Policies[i].Prefix) {
			return &c.opt.Policies[i]
		}
	}
	return nil
}

// nearLife is how long what a key has may be in the near cache.
func (c *Client) nearLife(p *Policy) time.Duration {
	if p != nil && p.Near != 0 {
		return p.Near
	}
	return c.opt.Near.Life
}

// shorter is d, less up to the jitter's share of it by chance.
func (c *Client) shorter(d time.Duration) time.Duration {
	if c.opt.Fetch.Jitter <= 0 {
		return d
	}
	return d - time.Duration(rand.Float64()*c.opt.Fetch.Jitter*float64(d))
}

// deadlines are those of a value whose source was read from a moment on.
func (c *Client) deadlines(p *Policy, l *Loaded, read uint64) Deadlines {
	o := &c.opt.Fetch
	life, soft := o.Life, o.SoftLife
	if p != nil && p.Life > 0 {
		life, soft = p.Life, time.Duration(float64(p.Life)*float64(o.SoftLife)/float64(o.Life))
	}
	if p != nil && p.SoftLife != 0 {
		soft = p.SoftLife
	}
	if l.Life > 0 {
		life, soft = l.Life, time.Duration(float64(l.Life)*float64(soft)/float64(life))
	}
	if l.SoftLife != 0 {
		soft = l.SoftLife
	}
	// Values that were loaded together are not to end together.
	d := Deadlines{Hard: read + uint64(c.shorter(life).Milliseconds()), Read: read}
	if soft > 0 {
		d.Soft = min(read+uint64(c.shorter(soft).Milliseconds()), d.Hard)
	}
	return d
}

// negative are the deadlines of what the source does not have.
func (c *Client) negative(p *Policy, read uint64) Deadlines {
	life := c.opt.Fetch.NegativeLife
	if p != nil && p.NegativeLife > 0 {
		life = p.NegativeLife
	}
	return Deadlines{Hard: read + uint64(life.Milliseconds()), Read: read}
}
