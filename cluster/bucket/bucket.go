package bucket

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Count is the number of buckets.
const Count = 1 << Bits

// Bits is how many of a hash's top bits are the bucket.
const Bits = 12

// Of is the bucket of a key: the bytes under which it is stored, after base64
// if it was sent so. Braces and other signs mean nothing.
func Of(key []byte) int { return OfHash(xxhash.Sum64(key)) }

// OfHash is the bucket of a key with that XXH64, seed 0.
func OfHash(h uint64) int { return int(h >> (64 - Bits)) }

// Epoch numbers maps: a 16-bit term over a 48-bit revision. It always rises; a
// rollback is a higher epoch, too. 0 is before the first map.
type Epoch uint64

const (
	revisionBits = 48
	revisionMax  = 1<<revisionBits - 1
	termMax      = 1<<16 - 1
)

// MakeEpoch is the epoch of a term and a revision.
func MakeEpoch(term uint16, revision uint64) Epoch {
	return Epoch(term)<<revisionBits | Epoch(revision&revisionMax)
}

// Term is the number of takeovers so far.
func (e Epoch) Term() uint16 { return uint16(e >> revisionBits) }

// Revision counts the maps of a term.
func (e Epoch) Revision() uint64 { return uint64(e) & revisionMax }

// Next is the epoch of the map after one of epoch e. After the last revision
// of a term comes the next term.
func (e Epoch) Next() Epoch { return e + 1 }

// Takeover is an epoch for one who cannot ask what was published last: the next
// term, and a random revision, so that two takeovers at once do not make two
// maps of one epoch. random is any 64 random bits.
func (e Epoch) Takeover(random uint64) Epoch {
	// The upper half stays free, for as many maps as anyone will publish.
	return MakeEpoch(e.Term()+1, random&(revisionMax>>1))
}

// String is "term.revision".
func (e Epoch) String() string { return fmt.Sprintf("%d.%d", e.Term(), e.Revision()) }

// ParseEpoch reads what String wrote.
func ParseEpoch(s string) (Epoch, error) {
	term, revision, ok := strings.Cut(s, ".")
	t, err1 := strconv.ParseUint(term, 10, 16)
	r, err2 := strconv.ParseUint(revision, 10, revisionBits)
	if !ok || err1 != nil || err2 != nil {
		return 0, fmt.Errorf("bucket: epoch %q: want TERM.REVISION", s)
	}
	return MakeEpoch(uint16(t), r), nil
}

// MarshalText is String, for JSON.
func (e Epoch) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText is ParseEpoch.
func (e *Epoch) UnmarshalText(text []byte) (err error) {
	*e, err = ParseEpoch(string(text))
	return err
}
