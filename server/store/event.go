package store

import (
	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// EventKind is what an Event tells of.
type EventKind uint8

const (
	EventLookup EventKind = iota // a key was looked up
	EventStore                   // a value was stored, or was to be and was not
	EventDelete                  // an item was deleted
	EventEvict                   // an item had to go for others
	EventMove                    // a page left its class, or was to and did not
	EventSweep                   // the sweeper has walked over all pages of a shard; one for each class and segment

	EventGrant    // a grant was given
	EventFill     // a value with a version was stored, or an absence, or a value was found to be the source's still
	EventRefuse   // a fill, a store or a token given back was refused
	EventNotice   // a notice of a version came
	EventGiveBack // a grant was given back
)

// Lookup is how the look-up of a key ended.
type Lookup uint8

const (
	LookupMiss    Lookup = iota // there is no such item
	LookupHit                   // here it is
	LookupFlushed               // there was one, but a flush came
	LookupExpired               // there was one, but its time had come
)

// Event is something that happened to an item or a page. Which fields mean
// something depends on Kind; of an item that is not there, the Class and Size
// are 0.
type Event struct {
	Kind EventKind
	Now  Time

	Key    []byte
	Class  int    // number of the slab class, from 1
	Size   int    // bytes of the value
	Expiry uint32 // EventStore, EventEvict: Unix second, 0 never

	Lookup Lookup // EventLookup

	Status  Status // EventStore
	Mode    Mode   // EventStore
	Compare bool   // EventStore: a CAS was asked for

	Fetched     bool   // EventEvict: it was read since it was stored
	IdleSeconds uint32 // EventEvict: since its last access

	Version    uint64     // EventFill, EventNotice, EventRefuse; EventGrant: the floor
	Grant      GrantClass // EventGrant
	Early      bool       // EventGrant: before soft
	TookMillis Time       // EventFill: since the grant; EventGrant: the life of the grant
	Fill       FillKind   // EventFill
	Granted    bool       // EventFill: it had a token
	Reason     Reason     // EventRefuse
	Takedown   bool       // EventNotice
	Newer      bool       // EventNotice: the floor was raised

	To    int  // EventMove: the class it goes to from Class; 0 is none in particular
	Moved bool // EventMove

	Segment Segment // EventSweep
	Seconds uint32  // EventSweep: how long it took
	Swept   Swept   // EventSweep
}

// Observer is told of events. The options of a request name the observer of
// what the request does; what happens to others on its way, or in the
// background, is for the observer of the store. An observer is called with the
// shard locked, so that the events of a key come in their order: it must not
// block, nor call the store again. The Event ends with the call.
type Observer interface {
	Observe(e *Event)
}

// Observe gives the store an observer for evictions, moves of pages and the
// sweeper, from now on; nil takes it away.
func (s *Store) Observe(o Observer) {
	for _, sh := range s.shards {
		sh.lock()
		sh.observer, sh.tally = o, sweepTally{}
		sh.unlock()
	}
}

// eventOf makes the shard's event one of it.
func (sh *shard) eventOf(kind EventKind, it item, now Time) *Event {
	sh.event = Event{
		Kind:   kind,
		Now:    now,
		Key:    it.key(),
		Class:  sh.a.ClassOf(it.r) + 1,
		Size:   it.valueLen(),
		Expiry: it.expiry(),
	}
	return &sh.event
}

// tellLookup tells o how the look-up of k ended. it is there on LookupHit.
func (sh *shard) tellLookup(o Observer, k Key, how Lookup, it item, now Time) {
	if how == LookupHit {
		e := sh.eventOf(EventLookup, it, now)
		e.Lookup = how
		o.Observe(e)
		return
	}
	sh.event = Event{Kind: EventLookup, Now: now, Key: k.Bytes, Lookup: how}
	o.Observe(&sh.event)
}

// tellStore tells what became of it, which was to be stored as o says.
func (sh *shard) tellStore(o *SetOptions, st Status, it item, now Time) {
	e := sh.eventOf(EventStore, it, now)
	e.Status, e.Mode, e.Compare = st, o.Mode, o.Compare
	o.Observer.Observe(e)
}

// tellRefused tells that a value under k did not even get a chunk.
func (sh *shard) tellRefused(o *SetOptions, st Status, k Key, now Time) {
	sh.event = Event{
		Kind: EventStore, Now: now, Key: k.Bytes,
		Status: st, Mode: o.Mode, Compare: o.Compare,
	}
	o.Observer.Observe(&sh.event)
}

// tellEvict tells the observer of the store that it has to go.
func (sh *shard) tellEvict(it item, now Time) {
	e := sh.eventOf(EventEvict, it, now)
	e.Fetched = it.tag&lru.Fetched != 0
	e.IdleSeconds = it.idleSeconds(now.Seconds())
	sh.observer.Observe(e)
}

// tellMove tells the observer of the store, if there is one, of the page under
// way, which leaves slab class c, or after all does not.
func (sh *shard) tellMove(c int, moved bool, now Time) {
	if sh.observer == nil {
		return
	}
	sh.event = Event{Kind: EventMove, Now: now, Class: c + 1, To: sh.move.to + 1, Moved: moved}
	sh.observer.Observe(&sh.event)
}

// lookupOf is how the look-up of item r ends, which is 0 when there is none.
func (sh *shard) lookupOf(r slab.Ref, now Time) Lookup {
	switch {
	case r == 0:
		return LookupMiss
	case !sh.isGone(r, now):
		return LookupHit
	case sh.isFlushed(sh.item(r)):
		return LookupFlushed
	}
	return LookupExpired
}

// tellFresh tells o, unless nil, of e, which happened to k.
func (sh *shard) tellFresh(o Observer, k Key, now Time, e Event) {
	if o == nil {
		return
	}
	sh.event = e
	sh.event.Key, sh.event.Now = k.Bytes, now
	o.Observe(&sh.event)
}
