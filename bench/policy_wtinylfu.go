package bench

import (
	"math"
	"math/rand/v2"
)

// W-TinyLFU's queues: Einziger et al., "TinyLFU", 2017; Caffeine's form.
const (
	tinyWindow    = iota // newcomers
	tinyProbation        // what passed admission, and what fell from protected
	tinyProtected        // what was hit in main
	tinyQueues
)

const (
	tinyWindowShare    = 0.01 // of all bytes, fixed or to begin with
	tinyProtectedShare = 0.8  // of main, which is all but the window
	tinyCountMax       = 15   // counters have four bits
	tinySampleFactor   = 10   // counters are halved after as many requests an item
	tinyWarm           = 6    // from so many uses on a loser has a chance ...
	tinyWarmOdds       = 128  // ... of one in so many

	// The climber of "Adaptive software cache management", 2018, as Caffeine
	// has it: shares of all bytes, and of hits.
	climbStep    = 0.0625
	climbDecay   = 0.98
	climbRestart = 0.05
)

// tinyPolicy is W-TinyLFU with sizes: window, probation and protected are
// bounded by bytes. It counts each key by itself, as a sketch without
// collisions would. When adaptive it changes the share of the window as long
// as the hit ratio rises, and back when it falls.
type tinyPolicy struct {
	*queues
	capacity     uint64
	windowMax    uint64
	protectedMax uint64
	counts       []uint8
	itemsSeen    uint64 // most that were stored at once: what the sample is measured by
	items        uint64
	counted      uint64 // requests since the counters were halved
	evicted      uint64
	random       *rand.PCG

	adaptive      bool
	hits, asked   uint64  // in this sample of the climber
	ratioBefore   float64 // hit ratio of the sample before
	step          float64 // bytes by which the window grows next
	stepsMeasured int
}

func newTiny(_ *workload, capacity uint64, cost []uint32) policy {
	return makeTiny(capacity, cost, false)
}

func newTinyAdaptive(_ *workload, capacity uint64, cost []uint32) policy {
	return makeTiny(capacity, cost, true)
}

func makeTiny(capacity uint64, cost []uint32, adaptive bool) *tinyPolicy {
	p := &tinyPolicy{
		queues:   newQueues(tinyQueues, cost),
		capacity: capacity,
		counts:   make([]uint8, len(cost)),
		random:   rand.NewPCG(1, 2), // fixed: each run gives the same
		adaptive: adaptive,
		step:     -climbStep * float64(capacity),
	}
	p.setWindow(tinyWindowShare * float64(capacity))
	return p
}

func (p *tinyPolicy) setWindow(bytes float64) {
	p.windowMax = uint64(min(max(bytes, 1), float64(p.capacity)))
	p.protectedMax = uint64(tinyProtectedShare * float64(p.capacity-p.windowMax))
}

func (p *tinyPolicy) request(_ int, k uint32) bool {
	p.count(k)
	hit := p.in[k] != queueNone
	switch p.in[k] {
	case tinyWindow:
		p.move(tinyWindow, k)
	case tinyProbation, tinyProtected:
		p.move(tinyProtected, k)
		p.demote()
	default:
		if uint64(p.cost[k]) <= p.capacity {
			p.items++
			p.push(tinyWindow, k)
			p.shrinkWindow()
		}
	}
	if p.adaptive {
		p.climb(hit)
	}
	return hit
}

// count counts a request for k, and halves all counters in time.
func (p *tinyPolicy) count(k uint32) {
	p.counts[k] = min(p.counts[k]+1, tinyCountMax)
	p.itemsSeen = max(p.itemsSeen, p.items)
	if p.counted++; p.counted < p.sample() {
		return
	}
	p.counted = 0
	for k := range p.counts {
		p.counts[k] /= 2
	}
}

// sample is how many requests show how often keys are used now.
func (p *tinyPolicy) sample() uint64 { return tinySampleFactor * max(p.itemsSeen, 64) }

// demote moves what protected has too much to probation.
func (p *tinyPolicy) demote() {
	for p.bytes[tinyProtected] > p.protectedMax {
		k, _ := p.oldest(tinyProtected)
		p.move(tinyProbation, k)
	}
}

// shrinkWindow moves what the window has too much to probation, where each
// has to win against the oldest for its place.
func (p *tinyPolicy) shrinkWindow() {
	for p.bytes[tinyWindow] > p.windowMax {
		candidate, _ := p.oldest(tinyWindow)
		p.move(tinyProbation, candidate)
		for p.excess() && p.in[candidate] != queueNone {
			victim := p.victim()
			if victim == candidate || !p.admit(candidate, victim) {
				victim = candidate
			}
			p.evict(victim)
		}
	}
	for p.excess() {
		p.evict(p.victim())
	}
}

// excess reports whether the cache is over its capacity.
func (p *tinyPolicy) excess() bool {
	return p.bytes[tinyWindow]+p.bytes[tinyProbation]+p.bytes[tinyProtected] > p.capacity
}

// victim is the key that goes next, if no candidate goes in its place.
func (p *tinyPolicy) victim() uint32 {
	for _, queue := range []int{tinyProbation, tinyProtected} {
		if k, ok := p.oldest(queue); ok {
			return k
		}
	}
	k, _ := p.oldest(tinyWindow)
	return k
}

// admit reports whether a candidate is to stay in place of a victim. A few
// warm losers are, so that nobody can keep all newcomers out.
func (p *tinyPolicy) admit(candidate, victim uint32) bool {
	c := p.counts[candidate]
	return c > p.counts[victim] || c >= tinyWarm && below(p.random, tinyWarmOdds) == 0
}

func (p *tinyPolicy) evict(k uint32) {
	p.remove(k)
	p.items--
	p.evicted++
}

// climb counts a request, and at the end of a sample changes the window: on
// in the same direction if the hit ratio has risen, else back. Steps get
// smaller, until the hit ratio changes by much.
func (p *tinyPolicy) climb(hit bool) {
	p.asked++
	if hit {
		p.hits++
	}
	if p.asked < p.sample() {
		return
	}
	hitRatio := float64(p.hits) / float64(p.asked)
	change := hitRatio - p.ratioBefore
	p.ratioBefore, p.hits, p.asked = hitRatio, 0, 0
	if p.stepsMeasured++; p.stepsMeasured == 1 {
		return // nothing to compare with
	}
	amount := p.step
	if change < 0 {
		amount = -amount
	}
	p.step = climbDecay * amount
	if math.Abs(change) >= climbRestart {
		p.step = math.Copysign(climbStep*float64(p.capacity), amount)
	}
	p.resize(amount)
}

// resize changes the window by so many bytes, and lets keys change places.
func (p *tinyPolicy) resize(bytes float64) {
	p.setWindow(float64(p.windowMax) + bytes)
	p.demote()
	for bytes > 0 {
		k, ok := p.oldest(tinyProbation)
		if !ok || p.bytes[tinyWindow]+uint64(p.cost[k]) > p.windowMax {
			break
		}
		p.move(tinyWindow, k)
	}
	p.shrinkWindow()
}

func (p *tinyPolicy) evictions() uint64 { return p.evicted }
