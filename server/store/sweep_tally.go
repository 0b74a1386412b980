package store

import "github.com/quarrycache/quarry/lru"

// Segment is a part of the order of a class.
type Segment uint8

// The segments, as package lru numbers them. memcached calls them hot, cold
// and warm.
const (
	SegmentWindow    = Segment(lru.Window)
	SegmentProbation = Segment(lru.Probation)
	SegmentProtected = Segment(lru.Protected)

	segments = 3
)

// soonSeconds is the time within which an item counts as one that expires
// soon. Source: the hour of memcached's crawlerstats_t.
const soonSeconds = 3600

// sweepTally is what the sweeper has met since it began with the first page of
// a shard, where there is an observer to be told.
type sweepTally struct {
	began  Time
	counts []Swept // by slab class and segment; nil: it has not met anything
}

// Swept is what the sweeper met of a class and segment.
type Swept struct {
	Seen      uint64 // items that stay
	Mortal    uint64 // of them, those with an expiry
	Soon      uint64 // of them, those that expire within the hour
	Reclaimed uint64 // items that have gone
}

// note counts it, which is gone or stays.
func (t *sweepTally) note(sh *shard, it item, gone bool, now Time) {
	if t.counts == nil {
		t.began = now
		t.counts = make([]Swept, sh.s.table.Len()*segments)
	}
	n := &t.counts[sh.a.ClassOf(it.r)*segments+int(lru.SegmentOf(it.tag))]
	if gone {
		n.Reclaimed++
		return
	}
	n.Seen++
	if e := it.expiry(); e != 0 {
		n.Mortal++
		if e <= now.Seconds()+soonSeconds {
			n.Soon++
		}
	}
}

// tellSwept tells the observer of the store what the sweeper has met in a walk
// that has come to its end.
func (sh *shard) tellSwept(now Time) {
	t := &sh.tally
	for i := range t.counts {
		n := &t.counts[i]
		if *n == (Swept{}) {
			continue
		}
		sh.event = Event{
			Kind:    EventSweep,
			Now:     now,
			Class:   i/segments + 1,
			Segment: Segment(i % segments),
			Seconds: uint32((now - t.began) / 1000),
			Swept:   *n,
		}
		sh.observer.Observe(&sh.event)
	}
	*t = sweepTally{}
}
