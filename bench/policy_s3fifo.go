package bench

// S3-FIFO's queues: Yang et al., "FIFO queues are all you need for cache
// eviction", SOSP 2023.
const (
	s3Small = iota // newcomers, a tenth of the bytes
	s3Main         // what was asked for again
	s3Ghost        // keys only: what left small without being asked for again
	s3Queues
)

const (
	s3SmallPercent = 10
	s3CountMax     = 3 // hits are counted in two bits
)

// s3fifoPolicy is S3-FIFO with sizes: small and main are bounded by bytes, and
// the ghost by keys, as many as are stored.
type s3fifoPolicy struct {
	*queues
	counts     []uint8 // hits of each key, at most s3CountMax
	capacity   uint64
	smallBytes uint64
	evicted    uint64
}

func newS3FIFO(_ *workload, capacity uint64, cost []uint32) policy {
	return &s3fifoPolicy{
		queues:     newQueues(s3Queues, cost),
		counts:     make([]uint8, len(cost)),
		capacity:   capacity,
		smallBytes: capacity * s3SmallPercent / 100,
	}
}

func (p *s3fifoPolicy) request(_ int, k uint32) bool {
	in := p.in[k]
	if in == s3Small || in == s3Main {
		p.counts[k] = min(p.counts[k]+1, s3CountMax)
		return true
	}
	need := uint64(p.cost[k])
	if need > p.capacity {
		return false
	}
	queue := s3Small
	if in == s3Ghost {
		p.remove(k)
		queue = s3Main
	}
	for p.bytes[s3Small]+p.bytes[s3Main]+need > p.capacity {
		p.evict()
	}
	p.counts[k] = 0
	p.push(queue, k)
	return false
}

// evict makes one step towards room: a key leaves, moves to main or goes
// round in main.
func (p *s3fifoPolicy) evict() {
	k, ok := p.oldest(s3Small)
	if ok && (p.bytes[s3Small] > p.smallBytes || p.bytes[s3Main] == 0) {
		if p.counts[k] > 0 {
			p.counts[k] = 0
			p.move(s3Main, k)
			return
		}
		p.evicted++
		p.move(s3Ghost, k)
		for p.n[s3Ghost] > p.n[s3Small]+p.n[s3Main] {
			oldest, _ := p.oldest(s3Ghost)
			p.remove(oldest)
		}
		return
	}
	k, _ = p.oldest(s3Main)
	if p.counts[k] > 0 {
		p.counts[k]--
		p.move(s3Main, k)
		return
	}
	p.evicted++
	p.remove(k)
}

func (p *s3fifoPolicy) evictions() uint64 { return p.evicted }
