package store

import (
	"fmt"

	"github.com/quarrycache/quarry/lru"
)

// Policy is how a store chooses what goes when it is full.
type Policy = lru.Policy

// The policies. TinyLFU asks how often a newcomer and what would have to go
// for it were read; Segmented lets every newcomer in, as memcached does.
const (
	TinyLFU   = lru.TinyLFU
	Segmented = lru.Segmented
)

// policyNames are how policies are written.
var policyNames = [...]string{TinyLFU: "tinylfu", Segmented: "segmented"}

// PolicyName is how p is written.
func PolicyName(p Policy) string { return policyNames[p] }

// ParsePolicy reads what PolicyName writes; no name at all is the default.
func ParsePolicy(name string) (Policy, error) {
	if name == "" {
		return TinyLFU, nil
	}
	for p, known := range policyNames {
		if name == known {
			return Policy(p), nil
		}
	}
	return TinyLFU, fmt.Errorf("store: policy %q: want %s or %s", name, policyNames[TinyLFU], policyNames[Segmented])
}
