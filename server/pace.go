package server

import (
	"runtime"

	"github.com/quarrycache/quarry/server/store"
)

// pace is kept by a goroutine that computes beside the loops: it gives others a
// turn every 100 µs or so, and what it did between two turns is noted if it was
// a stall.
type pace struct {
	stalls *store.Stalls // nil: none are kept
	step   store.Step
	doing  string
}

// begin begins to do something, under a word for it.
func (p *pace) begin(doing string) {
	p.doing = doing
	p.step = p.stalls.Begin(doing)
}

// yield gives others a turn.
func (p *pace) yield() {
	p.step.End()
	runtime.Gosched()
	p.step = p.stalls.Begin(p.doing)
}

// end ends what was begun.
func (p *pace) end() { p.step.End() }
