package slab

// Ref is the address of a chunk: its offset in the arena divided by 8. The
// zero Ref is no chunk. 32 bits reach 32 GiB.
type Ref uint32

// ArenaMaxBytes is what a Ref can address.
const ArenaMaxBytes = 32 << 30

// Off is the offset of the chunk in bytes.
func (r Ref) Off() uint64 { return uint64(r) << 3 }

// Offsets of what every chunk begins with.
const (
	TagOff  = 0
	NextOff = 4
	PrevOff = 8
	// LinksEnd is where the links end: the first byte of a used chunk that
	// no one but its user touches.
	LinksEnd = 12
)

// Tag is the first word of a chunk:
//
//	bits  0-19  length, the user's
//	bits 20-22  state
//	bits 23-31  marks, the user's
type Tag uint32

// State says what a chunk is.
type State uint8

// The states of a chunk. From StateItem on it is an item that readers can
// find; lru divides these into segments.
const (
	StateFree    State = iota // in the free list of its class
	StatePiece                // of a large item, behind its first chunk
	StatePending              // being filled; nobody but its writer knows it
	StatePinned               // unlinked while being sent; freed at the last unpin
	StateItem                 // StateItem and above: lru's segments
	StateMax     = 7
)

const (
	tagLengthBits = 20
	tagStateShift = tagLengthBits
	tagStateMask  = 7 << tagStateShift

	// TagLengthMax is the largest length that a Tag can hold.
	TagLengthMax = 1<<tagLengthBits - 1
	// TagMarkShift is the lowest bit of the marks.
	TagMarkShift = 23
)

// MakeTag is a tag without marks.
func MakeTag(s State, length int) Tag { return Tag(s)<<tagStateShift | Tag(length) }

// Length is the user's 20-bit number.
func (t Tag) Length() int { return int(t & TagLengthMax) }

// State is what the chunk is.
func (t Tag) State() State { return State(t & tagStateMask >> tagStateShift) }

// WithState is t in state s.
func (t Tag) WithState(s State) Tag { return t&^tagStateMask | Tag(s)<<tagStateShift }

// WithLength is t with length n.
func (t Tag) WithLength(n int) Tag { return t&^TagLengthMax | Tag(n) }
