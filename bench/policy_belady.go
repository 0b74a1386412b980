package bench

import "math"

// beladyPolicy knows what comes: it evicts the key whose next use is farthest
// away, and stores none that would be the next to go. The form aware of sizes
// evicts the one with the most bytes times requests until its next use, which
// is best for objects, not proven so.
//
// Keys stand in groups, each a heap with the farthest next use on top. Plain
// Belady has one group. In the form aware of sizes a group's keys have about
// the same size, so that a group's top is its victim at any time.
type beladyPolicy struct {
	cost     []uint32
	next     []uint32 // by request: the next one for the same key if it is a read, else never
	never    uint32
	due      []uint32 // by key: its next request, if that is a read
	group    []uint8  // by key
	place    []uint32 // by key: where in its group
	stored   []bool   // by key
	groups   [][]uint32
	sized    bool
	used     uint64
	capacity uint64
	evicted  uint64
	victims  []uint32 // scratch: taken out, to be put back if they do not suffice
}

// groupsPerDoubling is how many groups share the sizes from n to 2n.
const groupsPerDoubling = 6

func newBelady(w *workload, capacity uint64, cost []uint32) policy {
	return makeBelady(w, capacity, cost, false)
}

func newBeladySize(w *workload, capacity uint64, cost []uint32) policy {
	return makeBelady(w, capacity, cost, true)
}

func makeBelady(w *workload, capacity uint64, cost []uint32, sized bool) *beladyPolicy {
	requests := w.trace.Requests
	p := &beladyPolicy{
		cost:     cost,
		next:     make([]uint32, len(requests)),
		never:    uint32(len(requests)),
		due:      make([]uint32, len(cost)),
		group:    make([]uint8, len(cost)),
		place:    make([]uint32, len(cost)),
		stored:   make([]bool, len(cost)),
		groups:   make([][]uint32, 1),
		sized:    sized,
		capacity: capacity,
	}
	for k := range p.due {
		p.due[k] = p.never
	}
	for i := len(requests) - 1; i >= 0; i-- {
		k := requests[i]
		p.next[i], p.due[k] = p.due[k], uint32(i)
		if w.isWrite(i) {
			p.due[k] = p.never // it stores the key anyway
		}
	}
	if sized {
		for k, bytes := range cost {
			p.group[k] = uint8(groupsPerDoubling * math.Log2(float64(bytes)))
		}
		p.groups = make([][]uint32, 32*groupsPerDoubling)
	}
	return p
}

func (p *beladyPolicy) request(i int, k uint32) bool {
	p.due[k] = p.next[i]
	if p.stored[k] {
		if p.due[k] == p.never {
			p.take(k)
		} else {
			p.up(p.groups[p.group[k]], p.place[k])
		}
		return true
	}
	if p.due[k] < p.never && p.makeRoom(i, k) {
		p.put(k)
	}
	return false
}

// makeRoom evicts what is worth less than k, unless that is too little to
// store k.
func (p *beladyPolicy) makeRoom(i int, k uint32) bool {
	p.victims = p.victims[:0]
	for p.used+uint64(p.cost[k]) > p.capacity {
		victim, ok := p.worst(i)
		if !ok || p.distance(i, victim) <= p.distance(i, k) {
			for _, victim := range p.victims {
				p.put(victim)
			}
			return false
		}
		p.take(victim)
		p.victims = append(p.victims, victim)
	}
	p.evicted += uint64(len(p.victims))
	return true
}

// distance is what a stored key costs at request i, until its next use.
func (p *beladyPolicy) distance(i int, k uint32) uint64 {
	d := uint64(p.due[k]) - uint64(i)
	if p.sized {
		d *= uint64(p.cost[k])
	}
	return d
}

// worst is the stored key with the largest distance.
func (p *beladyPolicy) worst(i int) (worst uint32, ok bool) {
	var most uint64
	for _, heap := range p.groups {
		if len(heap) == 0 {
			continue
		}
		if d := p.distance(i, heap[0]); d > most {
			worst, most, ok = heap[0], d, true
		}
	}
	return worst, ok
}

func (p *beladyPolicy) put(k uint32) {
	heap := append(p.groups[p.group[k]], k)
	p.groups[p.group[k]] = heap
	p.place[k] = uint32(len(heap) - 1)
	p.up(heap, p.place[k])
	p.stored[k] = true
	p.used += uint64(p.cost[k])
}

func (p *beladyPolicy) take(k uint32) {
	heap := p.groups[p.group[k]]
	at, last := p.place[k], heap[len(heap)-1]
	heap = heap[:len(heap)-1]
	p.groups[p.group[k]] = heap
	if last != k {
		heap[at], p.place[last] = last, at
		p.up(heap, at)
		p.down(heap, p.place[last])
	}
	p.stored[k] = false
	p.used -= uint64(p.cost[k])
}

// up moves the key at a place of a heap towards its top, as far as it goes.
func (p *beladyPolicy) up(heap []uint32, at uint32) {
	k := heap[at]
	for at > 0 {
		parent := (at - 1) / 2
		if p.due[heap[parent]] >= p.due[k] {
			break
		}
		heap[at], p.place[heap[parent]] = heap[parent], at
		at = parent
	}
	heap[at], p.place[k] = k, at
}

// down is the same away from the top.
func (p *beladyPolicy) down(heap []uint32, at uint32) {
	k := heap[at]
	for {
		child := 2*at + 1
		if child >= uint32(len(heap)) {
			break
		}
		if child+1 < uint32(len(heap)) && p.due[heap[child+1]] > p.due[heap[child]] {
			child++
		}
		if p.due[heap[child]] <= p.due[k] {
			break
		}
		heap[at], p.place[heap[child]] = heap[child], at
		at = child
	}
	heap[at], p.place[k] = k, at
}

func (p *beladyPolicy) evictions() uint64 { return p.evicted }
