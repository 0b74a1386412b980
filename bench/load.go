package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A run goes through these phases, in this order.
type phase int32

const (
	phasePreload phase = iota
	phaseWarmup
	phaseMeasure
	phaseStopped // no new requests; those in flight are waited for
)

// control is what the workers of a run share: the phase and the clock.
type control struct {
	current atomic.Int32
	start   time.Time
}

func (ctl *control) phase() phase { return phase(ctl.current.Load()) }

// enter begins phase p. Nobody leaves phaseStopped but for an earlier stop.
func (ctl *control) enter(p phase) {
	for {
		old := ctl.current.Load()
		if old >= int32(p) || ctl.current.CompareAndSwap(old, int32(p)) {
			return
		}
	}
}

// nowNS is the time since the run began.
func (ctl *control) nowNS() int64 { return int64(time.Since(ctl.start)) }

// load is a run in progress.
type load struct {
	config  Config
	control *control
	workers []*worker
}

// Run puts the load c on its server and reports what came of it. When ctx
// ends during the measured time, the report covers the time until then.
func Run(ctx context.Context, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	l := &load{config: c, control: &control{start: time.Now()}}
	defer l.close()
	if err := l.connect(); err != nil {
		return nil, err
	}
	before, err := l.serverUse()
	if err != nil {
		return nil, err
	}
	if c.Preload {
		if err := l.preload(ctx); err != nil {
			return nil, err
		}
	}
	report, err := l.measure(ctx)
	if err != nil {
		return nil, err
	}
	if report.Server != nil {
		report.Server.RSSBeforeBytes = before.rssBytes
	}
	return report, nil
}

func (l *load) connect() error {
	e := &encoder{
		protocol: l.config.Protocol,
		keys:     newKeys(l.config.Keys, l.config.KeyBytes),
		values:   newValues(l.config.Sizes),
	}
	for i := range l.config.Threads {
		w, err := newWorker(l.config, i, l.control, e)
		if err != nil {
			return err
		}
		l.workers = append(l.workers, w)
	}
	return nil
}

func (l *load) close() {
	for _, w := range l.workers {
		w.close()
	}
}

// start runs work in each worker. What it returns gets all errors, joined,
// when the last worker has ended. A worker that fails stops the others.
func (l *load) start(work func(w *worker) error) <-chan error {
	errs := make([]error, len(l.workers))
	var running sync.WaitGroup
	for i, w := range l.workers {
		running.Go(func() {
			if errs[i] = work(w); errs[i] != nil {
				l.control.enter(phaseStopped)
			}
		})
	}
	done := make(chan error, 1)
	go func() {
		running.Wait()
		done <- errors.Join(errs...)
	}()
	return done
}

func (l *load) preload(ctx context.Context) error {
	began := time.Now()
	done := l.start((*worker).preload)
	for {
		select {
		case <-ctx.Done():
			l.control.enter(phaseStopped)
			<-done
			return ctx.Err()
		case err := <-done:
			if err == nil {
				l.progressf("preload: %d keys in %.1f s", l.counts().sets, time.Since(began).Seconds())
			}
			return err
		case <-time.After(time.Second):
			l.progressf("preload: %d of %d keys", l.counts().sets, l.config.Keys)
		}
	}
}

// instant is what is read at both ends of the measured time.
type instant struct {
	atNS   int64
	counts counts
	server procUse
	ownCPU time.Duration
}

func (l *load) instant() (instant, error) {
	server, err := l.serverUse()
	return instant{atNS: l.control.nowNS(), counts: l.counts(), server: server, ownCPU: ownCPU()}, err
}

func (l *load) serverUse() (procUse, error) {
	if l.config.ServerPID == 0 {
		return procUse{}, nil
	}
	return readProcUse("/proc", l.config.ServerPID)
}

// measure warms up, measures and stops.
func (l *load) measure(ctx context.Context) (*Report, error) {
	// Without a warm-up the measured time begins before the first request.
	var from instant
	var fromErr error
	enterMeasure := func() {
		from, fromErr = l.instant()
		l.control.enter(phaseMeasure)
	}
	l.control.enter(phaseWarmup)
	if l.config.Warmup == 0 {
		enterMeasure()
	}
	done := l.start((*worker).load)
	if l.config.Warmup > 0 {
		if ended, err := l.wait(ctx, done, l.config.Warmup, "warm-up"); ended {
			return nil, errors.Join(err, ctx.Err())
		}
		enterMeasure()
	}
	measured := l.config.Duration
	if l.config.Requests > 0 {
		measured = time.Duration(1<<63 - 1) // until the workers end
	}
	ended, err := l.wait(ctx, done, measured, "")
	to, toErr := l.instant()
	l.control.enter(phaseStopped)
	if !ended {
		err = <-done
	}
	if err = errors.Join(err, fromErr, toErr); err != nil {
		return nil, err
	}
	return l.report(from, to), nil
}

// wait lets the workers run for d, with a line of progress a second. When
// they end by themselves before that, ended is true and err is theirs; when
// ctx ends, the wait is over too.
func (l *load) wait(ctx context.Context, done <-chan error, d time.Duration, name string) (ended bool, err error) {
	over := time.NewTimer(d)
	defer over.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	last, lastNS := l.counts(), l.control.nowNS()
	beganNS := lastNS
	for {
		select {
		case err := <-done:
			return true, err
		case <-over.C:
			return false, nil
		case <-ctx.Done():
			if name == "" {
				return false, nil
			}
			l.control.enter(phaseStopped)
			return true, <-done
		case <-second.C:
			now, nowNS := l.counts(), l.control.nowNS()
			l.progress(name, nowNS-beganNS, nowNS-lastNS, now.minus(last))
			last, lastNS = now, nowNS
		}
	}
}

// counts is the sum over the workers.
func (l *load) counts() (sum counts) {
	for _, w := range l.workers {
		sum = sum.plus(w.snapshot())
	}
	return sum
}

// progress writes what happened in the last ns.
func (l *load) progress(name string, sinceBeginNS, ns int64, c counts) {
	seconds := float64(ns) / 1e9
	if name != "" {
		name += ": "
	}
	l.progressf("%s%.0f s: %.0f ops/s, %.0f requests/s, mean %.0f us, hits %.1f %%, %.1f MB/s in, %d errors",
		name, float64(sinceBeginNS)/1e9, float64(c.operations())/seconds, float64(c.requests)/seconds,
		ratio(float64(c.latencySumNS)/1000, float64(c.requests)), 100*ratio(float64(c.hits), float64(c.hits+c.misses)),
		float64(c.receivedBytes)/seconds/1e6, c.errors)
}

func (l *load) progressf(format string, args ...any) {
	if l.config.Progress != nil {
		fmt.Fprintf(l.config.Progress, format+"\n", args...)
	}
}

// ratio is a/b, and 0 when there is no b.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
