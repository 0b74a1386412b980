package store

// SizeStepBytes is how far apart the sizes are that Sizes tells apart. Source:
// memcached's item_stats_sizes.
const SizeStepBytes = 32

// sizes counts the items of a shard by what they take, header, key and value:
// sizes[i] of them take more than (i-1) steps and at most i.
type sizes []uint32

func sizeStep(footprint int) int { return (footprint + SizeStepBytes - 1) / SizeStepBytes }

func (n *sizes) add(footprint int) {
	i := sizeStep(footprint)
	if i >= len(*n) {
		*n = append(*n, make([]uint32, i+1-len(*n))...)
	}
	(*n)[i]++
}

func (n *sizes) remove(footprint int) { (*n)[sizeStep(footprint)]-- }

// Sizes is how many items take up to i steps of SizeStepBytes, and more than
// i-1. It is nil if Config.TrackSizes is off.
func (s *Store) Sizes() []uint64 {
	if !s.cfg.TrackSizes {
		return nil
	}
	all := []uint64{}
	for _, sh := range s.shards {
		sh.lock()
		if more := len(sh.sizes) - len(all); more > 0 {
			all = append(all, make([]uint64, more)...)
		}
		for i, n := range sh.sizes {
			all[i] += uint64(n)
		}
		sh.unlock()
	}
	return all
}
