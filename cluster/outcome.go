package cluster

import (
	"errors"
	"fmt"

	"github.com/quarrycache/quarry/cluster/link"
	"github.com/quarrycache/quarry/meta"
)

// Outcome says what a read found.
type Outcome uint8

const (
	// Miss: nothing is known of the key.
	Miss Outcome = iota
	// Hit: a value within its deadline, and not known to be old.
	Hit
	// Stale: a value within its deadline of which there may be a newer one.
	Stale
	// Negative: the source is known to have no such row.
	Negative
	// Unavailable: the cache could not be asked. Cause says why. To an
	// application it is a miss.
	Unavailable

	outcomes
)

var outcomeNames = [outcomes]string{"miss", "hit", "stale", "negative", "unavailable"}

// String is the outcome's name, in lower case.
func (o Outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Origin says where a value came from.
type Origin uint8

const (
	FromNowhere Origin = iota
	FromNear           // the near cache of this process
	FromOwner          // the node that owns the key, or the one server
	FromCopy           // a node that has a copy
	FromSource         // the loader
)

// String is the origin's name, in lower case.
func (o Origin) String() string {
	switch o {
	case FromNear:
		return "near"
	case FromOwner:
		return "owner"
	case FromCopy:
		return "copy"
	case FromSource:
		return "source"
	}
	return "nowhere"
}

// Deadlines are moments in ms of Unix time, 0 for none: after Hard a value is
// not served, after Soft it is due to be refreshed, and at Read the read of the
// source began.
type Deadlines = meta.Deadlines

// Result is what a read found. The zero value is a miss.
type Result struct {
	Outcome Outcome
	From    Origin

	// Value is not to be changed: the near cache and other callers may have
	// the same bytes.
	Value []byte
	Flags uint32 // that the writer gave
	CAS   uint64 // for CompareAndSwap; 0 if it does not come from the owner

	Version uint64 // of the value at the source, 0 none
	Deadlines

	// Cause is why the owner could not be asked, or had nothing better to
	// give. It is there with Unavailable, and may be with others.
	Cause error
}

// Found reports whether there is a value, fresh or stale.
func (r *Result) Found() bool { return r.Outcome == Hit || r.Outcome == Stale }

// Err is nil if there is a value, ErrMiss if the cache knows of none, and wraps
// Cause if it could not be asked. It is there for callers that want an error:
// none of them is a reason to fail.
func (r *Result) Err() error {
	switch r.Outcome {
	case Hit, Stale:
		return nil
	case Unavailable:
		return fmt.Errorf("cluster: unavailable: %w", r.Cause)
	}
	return ErrMiss
}

// unavailable is the result of a read that could not be done.
func unavailable(cause error) Result { return Result{Outcome: Unavailable, Cause: cause} }

// What a command answers.
var (
	// ErrMiss: there is no such item.
	ErrMiss = errors.New("cluster: no such item")
	// ErrNotStored: Add found an item, or Replace, Append or Prepend none.
	ErrNotStored = errors.New("cluster: not stored")
	// ErrCASConflict: the item has changed since its CAS was read.
	ErrCASConflict = errors.New("cluster: the item has changed")
	// ErrNotANumber: the item to be counted up or down is no number.
	ErrNotANumber = errors.New("cluster: the value is not a number")
	// ErrKey: no server can have such a key: it is empty or too long.
	ErrKey = errors.New("cluster: bad key")
	// ErrSplit: a key that is split is written with its version (Store), to
	// all places, and never plainly.
	ErrSplit = errors.New("cluster: the key is split: it is written with versions")
)

// Why the cache cannot be asked.
var (
	// ErrTimeout: no answer came in time.
	ErrTimeout = link.ErrTimeout
	// ErrBreaker: the node has failed to answer several times in a row, and is
	// left alone for a while.
	ErrBreaker = errors.New("cluster: the node is left alone after it failed")
	// ErrNoMap: none of the seeds has given a map yet.
	ErrNoMap = errors.New("cluster: no node has given a map")
	// ErrMoved: nodes sent the request from one to the other.
	ErrMoved = errors.New("cluster: no node owns the key for now")
	// ErrExpired: the value passed its hard deadline on the way.
	ErrExpired = errors.New("cluster: the value has passed its deadline")
	// ErrBusy: a bound of the client is reached.
	ErrBusy = errors.New("cluster: too much at once")
	// ErrClosed: the client is closed.
	ErrClosed = errors.New("cluster: the client is closed")
	// ErrUnsupported: the server is none that knows versions, deadlines and
	// grants.
	ErrUnsupported = errors.New("cluster: the server knows no versions")
)

// ServerError is an error that a server answered.
type ServerError struct {
	Addr string
	Code meta.Code
	Text string
}

// Error is the server's line and its address.
func (e *ServerError) Error() string {
	return fmt.Sprintf("cluster: %s: %s %s", e.Addr, e.Code, e.Text)
}

// Reason is why a server refused a fill or another write with a version.
type Reason uint8

// The reasons.
const (
	ReasonToken       Reason = 1  // unknown, used or replaced
	ReasonExpired     Reason = 2  // the token's time has passed
	ReasonIncarnation Reason = 3  // the token is of the server before it was started again
	ReasonOwnership   Reason = 4  // the token is of an earlier ownership of the key
	ReasonVersion     Reason = 5  // older than what is stored or known
	ReasonHard        Reason = 6  // the hard deadline has passed
	ReasonClock       Reason = 7  // a clock is wrong: ours or the server's
	ReasonQuota       Reason = 8  // of the tenant
	ReasonUnequal     Reason = 10 // there is nothing of that version to revalidate
	ReasonGrantOnly   Reason = 11 // the key is stored with a grant, or not at all
)

var reasonTexts = map[Reason]string{
	ReasonToken: "the token is unknown, used or replaced", ReasonExpired: "the token has expired",
	ReasonIncarnation: "the token is of the server before its start", ReasonOwnership: "the token is of an earlier owner",
	ReasonVersion: "the version is too old", ReasonHard: "the deadline has passed", ReasonClock: "a clock is wrong",
	ReasonQuota: "the quota is used up", ReasonUnequal: "nothing to revalidate", ReasonGrantOnly: "a grant is needed",
}

// RefusedError says that a server refused a write with a version, and why.
type RefusedError struct{ Reason Reason }

// Error is the reason in words.
func (e *RefusedError) Error() string {
	text, ok := reasonTexts[e.Reason]
	if !ok {
		text = fmt.Sprintf("reason %d", e.Reason)
	}
	return "cluster: refused: " + text
}
