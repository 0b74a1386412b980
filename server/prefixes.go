package server

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// prefixesMax bounds the table of prefixes. Further ones are not counted.
// Source: memcached's MAX_PREFIX_COUNT.
const prefixesMax = 1 << 16

// prefixTable counts the use of key prefixes for `stats detail`. A prefix is
// what stands before the first delimiter of a key; a key without one is not
// counted. The zero value is off, with the delimiter 0. Whoever counts looks
// first whether it is on.
type prefixTable struct {
	on        atomic.Bool // stats detail on
	delimiter byte        // -D

	mu sync.Mutex // m and its counts
	m  map[string]*prefixCounts
}

type prefixCounts struct {
	gets, hits, sets, deletes uint64
}

// of returns the counts of key's prefix, or nil. The caller holds t.mu.
func (t *prefixTable) of(key []byte) *prefixCounts {
	if i := bytes.IndexByte(key, 0); i >= 0 {
		key = key[:i] // as memcached, for which a key ends at a NUL here
	}
	i := bytes.IndexByte(key, t.delimiter)
	if i < 0 {
		return nil
	}
	if c := t.m[string(key[:i])]; c != nil {
		return c
	}
	if len(t.m) >= prefixesMax {
		return nil
	}
	if t.m == nil {
		t.m = make(map[string]*prefixCounts)
	}
	c := new(prefixCounts)
	t.m[string(key[:i])] = c
	return c
}

// get counts a read of key, a hit or not.
func (t *prefixTable) get(key []byte, hit bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.of(key); c != nil {
		c.gets++
		if hit {
			c.hits++
		}
	}
}

// set counts a set, or another store, of key.
func (t *prefixTable) set(key []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.of(key); c != nil {
		c.sets++
	}
}

// delete counts a delete of key.
func (t *prefixTable) delete(key []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.of(key); c != nil {
		c.deletes++
	}
}

// reset forgets all prefixes.
func (t *prefixTable) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.m)
}

// appendTo appends the answer to `stats detail dump`, in the order of the
// prefixes.
func (t *prefixTable) appendTo(dst []byte) []byte {
	type row struct {
		prefix string
		counts prefixCounts
	}
	t.mu.Lock()
	rows := make([]row, 0, len(t.m))
	for prefix, c := range t.m {
		rows = append(rows, row{prefix, *c})
	}
	t.mu.Unlock()
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.prefix, b.prefix) })
	for _, r := range rows {
		dst = append(dst, "PREFIX "...)
		dst = append(dst, r.prefix...)
		dst = strconv.AppendUint(append(dst, " get "...), r.counts.gets, 10)
		dst = strconv.AppendUint(append(dst, " hit "...), r.counts.hits, 10)
		dst = strconv.AppendUint(append(dst, " set "...), r.counts.sets, 10)
		dst = strconv.AppendUint(append(dst, " del "...), r.counts.deletes, 10)
		dst = append(dst, "\r\n"...)
	}
	return append(dst, "END\r\n"...)
}
