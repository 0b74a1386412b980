package cluster

import "golang.org/x/time/rate"

// Budget bounds how often sources are read without a grant: loads a second.
// Clients of one process can share one, so that two namespaces, such as the old
// and the new schema of the same data, load the source no more than one
// (Options.Budget).
type Budget struct {
	limiter *rate.Limiter
	own     float64 // loads a second as given
}

// NewBudget is a budget of so many loads a second, 0 for none. A burst is not
// saved up.
func NewBudget(loadsPerSecond float64) *Budget {
	b := &Budget{own: loadsPerSecond}
	burst := 1
	if loadsPerSecond <= 0 {
		burst = 0 // a limiter begins with its burst, whatever its rate
	}
	b.limiter = rate.NewLimiter(rate.Limit(loadsPerSecond), burst)
	return b
}

// take takes a load out of the budget, if one is left.
func (b *Budget) take() bool { return b.limiter.Allow() }

// cap bounds the budget by what the map has for all clients; 0 is no bound.
func (b *Budget) cap(loadsPerSecond int) {
	limit := b.own
	if loadsPerSecond > 0 {
		limit = min(limit, float64(loadsPerSecond))
	}
	if rate.Limit(limit) != b.limiter.Limit() {
		b.limiter.SetLimit(rate.Limit(limit))
	}
}
