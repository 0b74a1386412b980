package server

import (
	"bytes"
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/meta"
)

// Hot keys are found by samples. Of the keys that a worker serves here, one in
// hotSampled, by lot, is counted in a small table (space saving: a key that has
// no place takes that of the rarest one, and its count as what it may not have
// had itself). Each loop has a table of its own; what is in no loop shares one,
// and leaves a sample out when that is taken. Once in hotWindow the tables are
// merged into rates.
//
//	loop ─► table ─┐
//	loop ─► table ─┼─► rates ─► stats hotkeys, hints to clients that know the map
//	aside ─► table ┘      ▲
//	config report ────────┘ what near caches of clients hide
type hotKeys struct {
	capacity float64 // reads/s that a node is to give to one key

	tables []*hotTable // of loops, and the last one of all else

	mu     sync.Mutex // all below
	rates  map[string]*hotRate
	hidden map[string]float64 // reads that near caches hid, fading
	merged time.Time

	list  atomic.Pointer[[]hotKey]  // hottest first
	hints atomic.Pointer[[]hotHint] // nil: there are none

	reports, reportsDropped atomic.Uint64
}

const (
	hotSampled   = 100 // one key in so many
	hotTableKeys = 64
	hotWindow    = time.Second
	hotKeysMax   = 64

	// A key is hot from hotReadsMin reads/s on, or from hotCapacityPart of what
	// a node is to give to one key, if that is less.
	hotReadsMin     = 5000
	hotCapacityPart = 0.02

	// hotCapacityDefault is what a node is to give to one key unless the flags
	// say otherwise. hotHeadroom of it is left.
	hotCapacityDefault = 100_000
	hotHeadroom        = 1.25

	// Of reports, keys and the time over which they fade.
	hotHiddenMax  = 256
	hotHiddenFade = 30 * time.Second
	hotReportMax  = 1 << 30 // reads in one
)

// hotTable counts the samples of one loop since the last merge.
type hotTable struct {
	mu   sync.Mutex // all below; its loop and the merge, once a window
	n    int
	hash [hotTableKeys]uint64
	list [hotTableKeys]hotCount
}

type hotCount struct {
	reads, writes uint32
	over          uint32 // of them, what may have been another key's
	keyLen        uint8
	key           [meta.KeyMax]byte
}

// hotRate is how hot a key is, a second.
type hotRate struct{ reads, writes float64 }

// hotKey is a key with its rates.
type hotKey struct {
	key string
	hotRate
	hidden float64
	copies uint32 // hint
}

// hotHint says of a key's hash into how many copies it should be split; 1: it is
// hot, and should be kept near.
type hotHint struct {
	hash   uint64
	copies uint32
}

func (h *hotKeys) init(loops, capacity int) {
	if capacity == 0 {
		capacity = hotCapacityDefault
	}
	h.capacity = float64(capacity)
	h.rates, h.hidden = make(map[string]*hotRate), make(map[string]float64)
	for range loops + 1 {
		h.tables = append(h.tables, new(hotTable))
	}
	h.merged = time.Now()
}

// common is the table of what is in no loop.
func (h *hotKeys) common() *hotTable { return h.tables[len(h.tables)-1] }

// run merges until stop is closed.
func (h *hotKeys) run(stop <-chan struct{}, nodes func() *bucket.Map) {
	tick := time.NewTicker(hotWindow)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			h.merge(time.Now(), nodes())
		}
	}
}

// sampleKey counts a key that is served here, if its turn has come.
func (w *worker) sampleKey(key []byte, write bool) {
	if w.hotWait > 0 {
		w.hotWait--
		return
	}
	w.takeSample(key, write)
}

func (w *worker) takeSample(key []byte, write bool) {
	w.hotWait = rand.Uint32N(2*hotSampled - 1)
	if w.hot != nil && w.hot.mu.TryLock() {
		w.hot.count(key, write)
		w.hot.mu.Unlock()
	}
}

// count counts key. t.mu is held.
func (t *hotTable) count(key []byte, write bool) {
	h := xxhash.Sum64(key)
	i := slices.Index(t.hash[:t.n], h)
	switch {
	case i >= 0:
	case t.n < hotTableKeys:
		i = t.n
		t.n++
		t.list[i] = hotCount{}
		t.list[i].name(key)
	default:
		i = 0
		for j := 1; j < t.n; j++ {
			if t.list[j].sum() < t.list[i].sum() {
				i = j
			}
		}
		c := &t.list[i]
		c.over = c.sum()
		c.reads, c.writes = c.over, 0
		c.name(key)
	}
	t.hash[i] = h
	if write {
		t.list[i].writes++
	} else {
		t.list[i].reads++
	}
}

func (c *hotCount) sum() uint32      { return c.reads + c.writes }
func (c *hotCount) name(key []byte)  { c.keyLen = uint8(copy(c.key[:], key)) }
func (c *hotCount) sure() (r uint32) { return c.reads - min(c.over, c.reads) }

// merge makes rates of what was counted up to now. m is the map, nil for none.
func (h *hotKeys) merge(now time.Time, m *bucket.Map) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mergeLocked(now, m)
}

// mergeLocked is merge with h.mu held.
func (h *hotKeys) mergeLocked(now time.Time, m *bucket.Map) {
	seconds := now.Sub(h.merged).Seconds()
	if seconds <= 0 {
		return
	}
	h.merged = now
	window := make(map[string]*hotRate)
	for _, t := range h.tables {
		t.mu.Lock()
		for i := range t.list[:t.n] {
			c := &t.list[i]
			r := window[string(c.key[:c.keyLen])]
			if r == nil {
				r = new(hotRate)
				window[string(c.key[:c.keyLen])] = r
			}
			r.reads += float64(c.sure()) * hotSampled / seconds
			r.writes += float64(c.writes) * hotSampled / seconds
		}
		t.n = 0
		t.mu.Unlock()
	}
	// What is new counts at once, and what was there half.
	for key, r := range window {
		if old := h.rates[key]; old != nil {
			r.reads, r.writes = (r.reads+old.reads)/2, (r.writes+old.writes)/2
		}
	}
	for key, old := range h.rates {
		if window[key] == nil {
			window[key] = &hotRate{old.reads / 2, old.writes / 2}
		}
	}
	h.rates = window
	h.fade(seconds)
	h.publish(m)
}

// fade lets what was reported go by.
func (h *hotKeys) fade(seconds float64) {
	left := math.Exp(-seconds / hotHiddenFade.Seconds())
	for key, n := range h.hidden {
		if n *= left; n < 1 {
			delete(h.hidden, key)
		} else {
			h.hidden[key] = n
		}
	}
}

// publish makes the list and the hints of the rates. h.mu is held.
func (h *hotKeys) publish(m *bucket.Map) {
	list := make([]hotKey, 0, len(h.rates))
	for key, r := range h.rates {
		list = append(list, hotKey{key: key, hotRate: *r, hidden: h.hiddenRate(key)})
	}
	for key := range h.hidden {
		if h.rates[key] == nil {
			list = append(list, hotKey{key: key, hidden: h.hiddenRate(key)})
		}
	}
	slices.SortFunc(list, func(a, b hotKey) int {
		return cmp.Or(cmp.Compare(b.reads+b.writes+b.hidden, a.reads+a.writes+a.hidden), cmp.Compare(a.key, b.key))
	})
	list = list[:min(len(list), hotKeysMax)]
	kept := make(map[string]*hotRate, len(list))
	var hints []hotHint
	for i := range list {
		k := &list[i]
		if k.reads+k.writes >= hotSampled/2 {
			kept[k.key] = h.rates[k.key]
		}
		if k.copies = h.copiesFor(k, m); k.copies > 0 {
			hints = append(hints, hotHint{xxhash.Sum64String(k.key), k.copies})
		}
	}
	h.rates = kept
	h.list.Store(&list)
	if len(hints) == 0 {
		h.hints.Store(nil)
		return
	}
	h.hints.Store(&hints)
}

func (h *hotKeys) hiddenRate(key string) float64 { return h.hidden[key] / hotHiddenFade.Seconds() }

// copiesFor is the hint for a key, 0 for none: into so many copies that each has
// no more reads than a node is to give to one key. Keys that are written much are
// not split, as all copies have all the writes; nor is what is a copy already,
// or has no room for a number behind it.
func (h *hotKeys) copiesFor(k *hotKey, m *bucket.Map) uint32 {
	hot := min(hotReadsMin, h.capacity*hotCapacityPart)
	limit := bucket.SplitLimit(k.reads, k.writes)
	if m == nil || k.reads < hot || limit < 1 {
		return 0
	}
	if len(k.key) > bucket.SplitKeyMax || isCopyOfSplit(k.key, m) {
		return 1
	}
	n := math.Ceil(k.reads * hotHeadroom / h.capacity)
	return uint32(max(min(n, float64(len(m.Nodes)), float64(limit)), 1))
}

// isCopyOfSplit reports whether key is key#i of a split.
func isCopyOfSplit(key string, m *bucket.Map) bool {
	at := bytes.LastIndexByte([]byte(key), '#')
	if at < 0 {
		return false
	}
	if _, err := strconv.ParseUint(key[at+1:], 10, 16); err != nil {
		return false
	}
	_, ok := m.SplitOf([]byte(key[:at]))
	return ok
}

// hint is what clients that know the map are told of key, 0 for nothing.
func (h *hotKeys) hint(key []byte) uint32 {
	hints := h.hints.Load()
	if hints == nil {
		return 0
	}
	hash := xxhash.Sum64(key)
	for i := range *hints {
		if (*hints)[i].hash == hash {
			return (*hints)[i].copies
		}
	}
	return 0
}

// report adds what a client's near cache hid.
func (h *hotKeys) report(key []byte, reads uint64) {
	h.reports.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.hidden[string(key)]; !ok && len(h.hidden) >= hotHiddenMax {
		h.reportsDropped.Add(1)
		return
	}
	h.hidden[string(key)] += float64(min(reads, hotReportMax))
}

// keys are the hottest keys, hottest first.
func (h *hotKeys) keys() []hotKey {
	if list := h.list.Load(); list != nil {
		return *list
	}
	return nil
}

// appendHotKeys answers stats hotkeys: of each key the reads and writes a second,
// its bucket, the reads a second that near caches hid, and the hint.
func (s *Server) appendHotKeys(dst []byte) []byte {
	for _, k := range s.hot.keys() {
		dst = appendURI(append(dst, "STAT "...), []byte(k.key))
		for _, n := range []float64{k.reads, k.writes, float64(bucket.Of([]byte(k.key))), k.hidden, float64(k.copies)} {
			dst = strconv.AppendUint(append(dst, ' '), uint64(n+0.5), 10)
		}
		dst = append(dst, "\r\n"...)
	}
	return append(dst, statsEnd...)
}

// reportCommand answers config report KEY READS.
func (s *session) reportCommand(w *worker) {
	r := &w.req
	if r.NArgs != 4 || len(r.Args[2]) > meta.KeyMax {
		w.fail(r, meta.ErrBadLine)
		return
	}
	reads, ok := meta.ParseUint64(r.Args[3])
	if !ok || len(r.Args[3]) == 0 {
		w.fail(r, meta.ErrBadLine)
		return
	}
	s.srv.hot.report(r.Args[2], reads)
	w.ok()
}
