package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quarrycache/quarry/cluster"
)

// A run through clients has a goroutine for each request that is under way, as
// an application has.
//
//	RunCluster ─► asker (a goroutine) ─► cluster.Client ─► nodes
//	                 │                        │
//	                 └─► keys, popularity     └─► source, for Fetch

// namesMax is up to how many keys have their texts kept. Others are made when
// they are asked for, which costs the run some 30 ns each.
const namesMax = 1 << 20

// clusterLoad is a run in progress.
type clusterLoad struct {
	config  ClusterConfig
	control control
	keys    *keys
	values  *values
	names   []string // by number; nil when there are too many
	source  *source  // nil: Get
	swaps   bool     // keys 0 and 1 are taken for one another

	clients []*cluster.Client
	askers  []*asker
	left    atomic.Int64  // measured requests, where their number is given
	done    atomic.Uint64 // operations since the start

	mu      sync.Mutex // latency
	latency *hdrhistogram.Histogram
}

// RunCluster puts the load c on a cluster, through clients, and reports what
// came of it. When ctx ends during the measured time, the report covers the
// time until then.
func RunCluster(ctx context.Context, c ClusterConfig) (*ClusterReport, error) {
	return runCluster(ctx, c, false)
}

func runCluster(ctx context.Context, c ClusterConfig, swaps bool) (*ClusterReport, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	l := newClusterLoad(c.WithDefaults())
	l.swaps = swaps
	defer l.close()
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	if c.Preload {
		if err := l.preload(ctx); err != nil {
			return nil, err
		}
	}
	return l.measure(ctx)
}

func newClusterLoad(c ClusterConfig) *clusterLoad {
	l := &clusterLoad{
		config:  c,
		control: control{start: time.Now()},
		keys:    c.keys(),
		values:  newValues(c.Sizes),
		latency: hdrhistogram.New(1, latencyMaxNS, latencyDigits),
	}
	if c.Keys <= namesMax {
		l.names = make([]string, c.Keys)
		for k := range l.names {
			l.names[k] = string(l.keys.append(nil, uint64(k)))
		}
	}
	if c.Fetch {
		l.source = newSource(c.Source, l.keys, l.values, c.Keys)
	}
	l.left.Store(int64(min(c.Requests, 1<<62)))
	return l
}

// connect makes the clients. Those of a run have the same ids each time: they
// decide which place of a split key each of them reads.
func (l *clusterLoad) connect(ctx context.Context) error {
	p := newPopularity(l.config.Config)
	for i := range l.config.Clients {
		o := l.config.options()
		o.ClientID = "bench-" + strconv.Itoa(i)
		c, err := cluster.New(o)
		if err != nil {
			return err
		}
		l.clients = append(l.clients, c)
		for g := range l.config.Goroutines {
			seed := uint64(i)<<32 | uint64(g)
			l.askers = append(l.askers, &asker{l: l, c: c, popularity: p, random: rand.NewPCG(l.config.Seed, seed)})
		}
	}
	// A cluster that is not there is an error, and not a run of misses.
	for _, c := range l.clients {
		if _, err := c.Where(ctx, l.name(0)); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	return nil
}

func (l *clusterLoad) close() {
	for _, c := range l.clients {
		_ = c.Close()
	}
}

// name is the text of key k.
func (l *clusterLoad) name(k uint64) string {
	if l.names != nil {
		return l.names[k]
	}
	return string(l.keys.append(nil, k))
}

// start runs work in each asker, and is closed when all have ended.
func (l *clusterLoad) start(work func(a *asker)) <-chan struct{} {
	var running sync.WaitGroup
	for _, a := range l.askers {
		running.Go(func() { work(a) })
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	return done
}

// preload stores every key.
func (l *clusterLoad) preload(ctx context.Context) error {
	var next atomic.Uint64
	var failed atomic.Pointer[error]
	done := l.start(func(a *asker) {
		for ctx.Err() == nil && failed.Load() == nil {
			k := next.Add(1) - 1
			if k >= l.config.Keys {
				return
			}
			if err := a.store(ctx, k); err != nil {
				failed.Store(&err)
			}
		}
	})
	<-done
	if err := failed.Load(); err != nil {
		return fmt.Errorf("bench: preload: %w", *err)
	}
	return ctx.Err()
}

// clusterInstant is what is read at both ends of the measured time.
type clusterInstant struct {
	atNS          int64
	stats         clusterStats
	loads, failed int64
	ownCPU        time.Duration
}

func (l *clusterLoad) instant() clusterInstant {
	i := clusterInstant{atNS: l.control.nowNS(), stats: l.stats(), ownCPU: ownCPU()}
	if s := l.source; s != nil {
		i.loads, i.failed = s.loads.Load(), s.failed.Load()
	}
	return i
}

// measure warms up, measures and stops.
func (l *clusterLoad) measure(ctx context.Context) (*ClusterReport, error) {
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	l.control.enter(phaseWarmup)
	var from clusterInstant
	begin := func() {
		from = l.instant()
		if l.source != nil {
			l.source.underMax.Store(0)
		}
		l.control.enter(phaseMeasure)
	}
	if l.config.Warmup == 0 {
		begin()
	}
	done := l.start(func(a *asker) { a.run(asking) })
	if l.config.Warmup > 0 {
		l.wait(ctx, done, l.config.Warmup, "warm-up: ")
		begin()
	}
	measured := l.config.Duration
	if l.config.Requests > 0 {
		measured = 1<<63 - 1 // until the askers end
	}
	l.wait(ctx, done, measured, "")
	to := l.instant()
	l.control.enter(phaseStopped)
	<-done
	if from.atNS == to.atNS {
		return nil, ctx.Err()
	}
	return l.report(from, to), nil
}

// wait lets the askers run for d, with a line of progress a second.
func (l *clusterLoad) wait(ctx context.Context, done <-chan struct{}, d time.Duration, name string) {
	over := time.NewTimer(d)
	defer over.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	last, lastNS := l.done.Load(), l.control.nowNS()
	beganNS := lastNS
	for {
		select {
		case <-done:
			return
		case <-over.C:
			return
		case <-ctx.Done():
			return
		case <-second.C:
			now, nowNS := l.done.Load(), l.control.nowNS()
			if l.config.Progress != nil {
				fmt.Fprintf(l.config.Progress, "%s%.0f s: %.0f ops/s\n", name, float64(nowNS-beganNS)/1e9,
					float64(now-last)/(float64(nowNS-lastNS)/1e9))
			}
			last, lastNS = now, nowNS
		}
	}
}

// asker is a goroutine of a client's that asks.
type asker struct {
	l          *clusterLoad
	c          *cluster.Client
	popularity popularity
	random     *rand.PCG

	keys  []uint64
	names []string
	value []byte

	counts clusterCounts // of the measured time
	took   []int64       // latencies that are not in the histogram yet
	nextNS int64         // with a rate: when the next request is due
}

// clusterCounts are what askers count.
type clusterCounts struct {
	requests, sets, fills, errors, corrupt uint64

	outcomes [5]uint64 // of reads, by cluster.Outcome
	origins  [5]uint64 // of those that found something, by cluster.Origin

	firstError string
}

func (c *clusterCounts) add(o *clusterCounts) {
	c.requests += o.requests
	c.sets += o.sets
	c.fills += o.fills
	c.errors += o.errors
	c.corrupt += o.corrupt
	for i := range c.outcomes {
		c.outcomes[i] += o.outcomes[i]
	}
	for i := range c.origins {
		c.origins[i] += o.origins[i]
	}
	setDefault(&c.firstError, o.firstError)
}

const (
	// tookMax is how many latencies an asker keeps before it takes the lock.
	tookMax = 256
	// napMax is how long an asker sleeps at most before it looks whether the run
	// is over.
	napMax = 20 * time.Millisecond
)

// run asks until the run is over.
func (a *asker) run(ctx context.Context) {
	l := a.l
	intervalNS := int64(0)
	if l.config.Rate > 0 {
		intervalNS = int64(float64(len(l.askers)) * 1e9 / l.config.Rate)
		a.nextNS = l.control.nowNS() + int64(unit(a.random)*float64(intervalNS))
	}
	for {
		phase := l.control.phase()
		if phase == phaseStopped {
			break
		}
		beganNS := l.control.nowNS()
		if intervalNS > 0 {
			if wait := time.Duration(a.nextNS - beganNS); wait > 0 {
				time.Sleep(min(wait, napMax))
				continue
			}
			beganNS = a.nextNS
			a.nextNS += intervalNS
		}
		measured := phase == phaseMeasure
		if measured && l.config.Requests > 0 && l.left.Add(-1) < 0 {
			break
		}
		var c clusterCounts
		a.request(ctx, &c)
		l.done.Add(c.operations())
		if measured {
			c.requests = 1
			a.counts.add(&c)
			if a.took = append(a.took, l.control.nowNS()-beganNS); len(a.took) == tookMax {
				a.flush()
			}
		}
	}
	a.flush()
}

// late is the number of requests that were due at an instant, and not sent.
func (a *asker) late(atNS int64) uint64 {
	if a.l.config.Rate == 0 || a.nextNS >= atNS {
		return 0
	}
	return uint64(float64(atNS-a.nextNS) * a.l.config.Rate / float64(len(a.l.askers)) / 1e9)
}

func (c *clusterCounts) operations() uint64 {
	n := c.sets
	for _, o := range c.outcomes {
		n += o
	}
	return n
}

// flush gives the latencies to the histogram.
func (a *asker) flush() {
	a.l.mu.Lock()
	for _, ns := range a.took {
		_ = a.l.latency.RecordValue(min(ns, latencyMaxNS))
	}
	a.l.mu.Unlock()
	a.took = a.took[:0]
}

// draw is the number of a key.
func (a *asker) draw() uint64 {
	k := a.popularity.draw(a.random)
	if a.l.swaps && k < 2 {
		k = 1 - k
	}
	return k
}

// request does one request.
func (a *asker) request(ctx context.Context, c *clusterCounts) {
	l := a.l
	ratio := l.config.Ratio
	switch {
	case ratio.Sets > 0 && below(a.random, uint64(ratio.Sets+ratio.Gets)) < uint64(ratio.Sets):
		c.wrote(a.store(ctx, a.draw()))
	case l.source != nil:
		k := a.draw()
		r := a.c.Fetch(ctx, l.name(k), l.source.load)
		a.read(c, k, &r)
	case l.config.Multiget > 1:
		a.multiget(ctx, c)
	default:
		k := a.draw()
		r := a.c.Get(ctx, l.name(k))
		a.read(c, k, &r)
		a.fill(ctx, c, k, &r)
	}
}

func (a *asker) multiget(ctx context.Context, c *clusterCounts) {
	a.keys, a.names = a.keys[:0], a.names[:0]
	for range a.l.config.Multiget {
		k := a.draw()
		a.keys, a.names = append(a.keys, k), append(a.names, a.l.name(k))
	}
	results := a.c.GetMulti(ctx, a.names)
	for i, k := range a.keys {
		r := results[a.names[i]]
		a.read(c, k, &r)
		a.fill(ctx, c, k, &r)
	}
}

// read counts what a read found.
func (a *asker) read(c *clusterCounts, k uint64, r *cluster.Result) {
	c.outcomes[r.Outcome]++
	if r.Found() || r.Outcome == cluster.Negative {
		c.origins[r.From]++
	}
	if r.Outcome == cluster.Unavailable && c.firstError == "" {
		c.firstError = r.Err().Error()
	}
	if a.l.config.Verify && !a.right(k, r) {
		c.corrupt++
	}
}

func (a *asker) right(k uint64, r *cluster.Result) bool {
	if a.l.source != nil {
		return a.l.source.right(k, r)
	}
	return !r.Found() || a.l.values.is(k, r.Value)
}

// fill stores a key that missed, look-aside.
func (a *asker) fill(ctx context.Context, c *clusterCounts, k uint64, r *cluster.Result) {
	if a.l.config.Lookaside && r.Outcome == cluster.Miss {
		c.fills++
		c.wrote(a.store(ctx, k))
	}
}

func (c *clusterCounts) wrote(err error) {
	c.sets++
	if err != nil {
		c.errors++
		setDefault(&c.firstError, err.Error())
	}
}

// store stores key k, or changes it at the source.
func (a *asker) store(ctx context.Context, k uint64) error {
	l := a.l
	if l.source == nil {
		a.value = l.values.append(a.value[:0], k)
		return a.c.Set(ctx, &cluster.Item{Key: l.name(k), Value: a.value})
	}
	if l.control.phase() == phasePreload {
		a.c.Fetch(ctx, l.name(k), l.source.load) // what fails is loaded later
		return nil
	}
	n := a.c.Invalidate(ctx, l.name(k), l.source.change(k))
	return n.Err()
}
