package bench

// lruPolicy evicts what has not been used for the longest time.
type lruPolicy struct {
	*queues
	capacity uint64
	evicted  uint64
}

func newLRU(_ *workload, capacity uint64, cost []uint32) policy {
	return &lruPolicy{queues: newQueues(1, cost), capacity: capacity}
}

func (p *lruPolicy) request(_ int, k uint32) bool {
	if p.in[k] != queueNone {
		p.move(0, k)
		return true
	}
	need := uint64(p.cost[k])
	if need > p.capacity {
		return false
	}
	for p.bytes[0]+need > p.capacity {
		victim, _ := p.oldest(0)
		p.remove(victim)
		p.evicted++
	}
	p.push(0, k)
	return false
}

func (p *lruPolicy) evictions() uint64 { return p.evicted }
