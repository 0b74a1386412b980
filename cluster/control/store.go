package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// Store keeps the map of one cluster. Its methods may be called at once.
type Store interface {
	// Get is the map that is there: ErrNoMap if none was published.
	Get(ctx context.Context) (*bucket.Map, error)

	// CompareAndSwap puts m in the place of old, nil for none yet: ErrConflict
	// if another map is there.
	CompareAndSwap(ctx context.Context, old, m *bucket.Map) error

	// Watch reports the map that is there, and then each change, until ctx ends
	// or the store is closed; then the channel is closed.
	Watch(ctx context.Context) <-chan Event

	// History is the last maps, HistoryMax at most, from the newest on.
	History(ctx context.Context) ([]Entry, error)

	// Announce tells of a node, from now until the store is closed or it is
	// called again. It does not wait; what cannot be told now is told later.
	Announce(p Presence)

	// Liveness is who is there: ErrNoLiveness if the store cannot know.
	Liveness(ctx context.Context) (Liveness, error)

	// Close ends what the store has begun.
	Close() error
}

// Event is what Watch reports: a map that was found in the store, or why none
// can be had. After an error the map is reported again, changed or not: by then
// the store has confirmed it.
type Event struct {
	Map *bucket.Map
	Err error // ErrNoMap, or what is wrong with the store or with what is in it
}

// Entry is a map that was published.
type Entry struct {
	Map       *bucket.Map
	Published time.Time
}

// Presence is what a node says of itself: the map by which it serves.
type Presence struct {
	ID     string        `json:"id"`
	Addr   string        `json:"addr"`
	Epoch  bucket.Epoch  `json:"epoch"`
	Digest bucket.Digest `json:"digest"`
}

// Liveness is who holds a lease.
type Liveness struct {
	Nodes       []Presence
	Controllers []string // names of quarry control's processes, the active one first
}

// HistoryMax is how many maps a history has.
const HistoryMax = 16

// Errors of a store.
var (
	// ErrNoMap says that no map was published yet.
	ErrNoMap = errors.New("control: there is no map in the store yet")

	// ErrConflict says that the store has another map than its publisher knew.
	ErrConflict = errors.New("control: the map in the store is another one by now")

	// ErrNoLiveness says that this kind of store does not know which nodes are
	// alive.
	ErrNoLiveness = errors.New("control: a file does not know which nodes are alive")

	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("control: the store is closed")
)

// Options are for stores that are reached over the network.
type Options struct {
	// Certificates for etcd, as files in PEM; none is a connection in the clear.
	CA, Cert, Key string

	// LeaseSeconds is how long a node counts as alive after it was heard of
	// last; 0 is 5 s.
	LeaseSeconds int

	// CheckInterval is how often a watch makes sure that it missed nothing and
	// that the store is there; 0 is 2 s.
	CheckInterval time.Duration

	// Log gets what goes wrong beside calls; nil is nowhere.
	Log *slog.Logger
}

const (
	leaseSecondsDefault  = 5
	checkIntervalDefault = 2 * time.Second
)

func (o *Options) setDefaults() {
	if o.LeaseSeconds == 0 {
		o.LeaseSeconds = leaseSecondsDefault
	}
	if o.CheckInterval == 0 {
		o.CheckInterval = checkIntervalDefault
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Open opens a store by its name:
//
//	file:PATH
//	etcd:HOST:PORT[,HOST:PORT...][/PREFIX]
//
// Several clusters may share an etcd, each with a prefix of its own. Open does
// not wait for an etcd to be reached.
func Open(name string, o Options) (Store, error) {
	o.setDefaults()
	kind, where, _ := strings.Cut(name, ":")
	switch {
	case kind == "file" && where != "":
		return openFile(where), nil
	case kind == "etcd" && where != "":
		return openEtcd(where, o)
	}
	return nil, fmt.Errorf("control: %q: want file:PATH or etcd:HOST:PORT,...", name)
}

// successor reports why m cannot take the place of old, which is there in place
// of seen.
func successor(there, seen, m *bucket.Map) error {
	switch {
	case (there == nil) != (seen == nil):
		return ErrConflict
	case there != nil && (there.Epoch != seen.Epoch || there.Digest() != seen.Digest()):
		return ErrConflict
	}
	if err := m.Validate(); err != nil {
		return err
	}
	if there == nil {
		return nil
	}
	return m.Follows(there)
}

// offer gives a watcher its next event, in the place of one that was not taken
// yet. c has room for one, and nobody else sends on it.
func offer(c chan Event, e Event) {
	select {
	case <-c:
	default:
	}
	c <- e
}
