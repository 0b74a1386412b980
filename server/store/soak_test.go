package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSoak runs a store at full memory for as long as QUARRY_SOAK says, best
// under the race detector: scripts/soak. It works like this:
//
//  1. Workers read, store in one piece and in parts, append, prepend, delete,
//     touch, count, pin and stop half way, all at random, over keys of which
//     some are theirs alone and some are everybody's, and which are many times
//     what fits. Sizes are 20 B to 100 KB, TTLs a minute at most, or none.
//  2. Meanwhile an operator changes the limit, reassigns pages, switches
//     automove, flushes and takes snapshots, and the background's work is
//     done.
//  3. Every value says whose it is, and how it is made (see segment): what is
//     read is read through. What a worker finds under a key of its own is
//     what it stored last, or nothing.
//  4. Every few seconds all stop, and the store is checked.
func TestSoak(t *testing.T) {
	word := os.Getenv("QUARRY_SOAK")
	if word == "" {
		t.Skip("skipped: QUARRY_SOAK is not set; scripts/soak sets it")
	}
	length, err := time.ParseDuration(word)
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("%v, seed %d", length, seed)

	s := newTestStore(t, Config{LimitBytes: soakLimit, Shards: 4})
	k := &soak{t: t, s: s, start: time.Now()}
	var all sync.WaitGroup
	for i := range soakWorkers {
		all.Go(func() { k.work(newSoakWorker(k, i, seed)) })
	}
	all.Go(func() { k.operate(rand.New(rand.NewPCG(seed, 1<<32))) })

	report := time.Now()
	for end := k.start.Add(length); time.Now().Before(end) && !t.Failed(); {
		time.Sleep(soakCheckEvery)
		k.check()
		if time.Since(report) >= soakReportEvery {
			report = time.Now()
			k.report()
		}
	}
	k.stop.Store(true)
	all.Wait()
	k.report()
	var st Stats
	s.Snapshot(k.now(), &st)
	if st.PinnedBytes != 0 || st.UploadBytes != 0 || st.Memory.PinnedBytes != 0 {
		t.Errorf("at the end %d bytes are pinned, %d uploaded, %d of gone items", st.PinnedBytes, st.UploadBytes, st.Memory.PinnedBytes)
	}
	if st.Total.Evicted == 0 || st.PagesMoved == 0 || k.hits.Load() == 0 {
		t.Errorf("%d evictions, %d pages moved, %d hits: this was no soak", st.Total.Evicted, st.PagesMoved, k.hits.Load())
	}
}

const (
	soakLimit       = 16 << 20
	soakWorkers     = 4
	soakCheckEvery  = 3 * time.Second
	soakReportEvery = time.Minute
	soakSpeed       = 20 // seconds of the store in one of ours
	soakKeys        = 8000
	soakShared      = 2000 // of the keys, everybody's
	soakPins        = 16   // each worker holds at most
)

type soak struct {
	t     *testing.T
	s     *Store
	start time.Time
	stop  atomic.Bool

	running sync.RWMutex // read-locked while something is under way, locked to check

	ops, hits, misses, refused, checks atomic.Uint64
}

// now is the store's clock: it runs fast, so that much expires.
func (k *soak) now() Time { return noon + Time(time.Since(k.start).Milliseconds()*soakSpeed) }

// check lets all stop and looks at the store.
func (k *soak) check() {
	k.running.Lock()
	defer k.running.Unlock()
	k.checks.Add(1)
	if err := k.s.Check(); err != nil {
		k.t.Error(err)
		k.stop.Store(true)
	}
	var st Stats
	k.s.Snapshot(k.now(), &st)
	if got := st.Memory.Pages(); got != st.HeldBytes {
		k.t.Errorf("the parts of the pages are %d bytes, %d are held", got, st.HeldBytes)
	}
	if st.PinnedBytes > max(k.s.pinnedMax(), soakLimit/4) || st.UploadBytes > max(k.s.uploadMax(), soakLimit/4*3) {
		k.t.Errorf("%d bytes pinned, %d in uploads: too many", st.PinnedBytes, st.UploadBytes)
	}
}

func (k *soak) report() {
	var st Stats
	k.s.Snapshot(k.now(), &st)
	k.t.Logf("%v: %d operations, %d hits, %d misses, %d refused, %d items, %d evicted, %d swept, %d pages moved (%d given up), %d of %d MB, %d checks",
		time.Since(k.start).Round(time.Second), k.ops.Load(), k.hits.Load(), k.misses.Load(), k.refused.Load(), st.Total.Items,
		st.Total.Evicted, st.Total.SweepReclaimed, st.PagesMoved, st.MovesAborted, st.HeldBytes>>20, st.LimitBytes>>20, k.checks.Load())
}

// operate is the operator and the background.
func (k *soak) operate(rng *rand.Rand) {
	for turn := 0; !k.stop.Load(); turn++ {
		time.Sleep(5 * time.Millisecond)
		k.running.RLock()
		k.s.tick(k.now())
		n := k.s.table.Len()
		if turn%7 == 0 {
			k.s.Reassign(rng.IntN(n+2)-1, rng.IntN(n+1))
		}
		if turn%400 == 0 {
			limit := min(soakLimit/4+rng.Int64N(2*soakLimit), k.s.LimitMax())
			if err := k.s.SetLimit(limit); err != nil {
				k.t.Error(err)
			}
		}
		if turn%300 == 0 {
			k.s.SetAutomove(rng.IntN(4) > 0)
		}
		if turn%50 == 0 {
			var st Stats
			k.s.Snapshot(k.now(), &st)
		}
		if turn%20000 == 19999 {
			k.s.FlushAll(k.now().Seconds()+uint32(rng.IntN(3)), k.now())
		}
		k.running.RUnlock()
	}
}

// segment is a part of a value: 4 bytes of key, 4 of length, 4 of version, and
// bytes that follow from those. Appends and prepends add segments.
const segmentHeader = 12

func appendSegment(dst []byte, key, version uint32, length int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, key)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(length))
	dst = binary.LittleEndian.AppendUint32(dst, version)
	return append(dst, bytes.Repeat([]byte{filler(key, version)}, length)...)
}

func filler(key, version uint32) byte { return byte((key*31 + version*17) % 251) }

// readSegments checks a value of key, and returns the largest version in it.
func readSegments(key uint32, value []byte) (version uint32, err error) {
	for rest := value; len(rest) > 0; {
		if len(rest) < segmentHeader {
			return 0, fmt.Errorf("key %d: %d bytes are left of a value of %d", key, len(rest), len(value))
		}
		k := binary.LittleEndian.Uint32(rest)
		n := int(binary.LittleEndian.Uint32(rest[4:]))
		v := binary.LittleEndian.Uint32(rest[8:])
		rest = rest[segmentHeader:]
		if k != key || n > len(rest) {
			return 0, fmt.Errorf("key %d: a segment of key %d with %d of %d bytes", key, k, n, len(rest))
		}
		fill := filler(k, v)
		for i, b := range rest[:n] {
			if b != fill {
				return 0, fmt.Errorf("key %d: version %d of %d bytes has %#x at %d, want %#x", key, v, n, b, i, fill)
			}
		}
		rest = rest[n:]
		version = max(version, v)
	}
	return version, nil
}

// soakPin is a pinned value, and what it was.
type soakPin struct {
	pin  Pin
	key  uint32
	size int
}

// soakWorker is one of the workers.
type soakWorker struct {
	k       *soak
	id      int
	rng     *rand.Rand
	version uint32
	last    map[uint32]uint32 // version stored last under keys of its own; 0 none
	pins    []soakPin
	upload  Upload // half done
	pending struct{ key, version uint32 }
	rest    []byte // of it
	buf     []byte
	text    []byte
}

func newSoakWorker(k *soak, id int, seed uint64) *soakWorker {
	return &soakWorker{k: k, id: id, rng: rand.New(rand.NewPCG(seed, uint64(id))), last: map[uint32]uint32{}}
}

func (k *soak) work(w *soakWorker) {
	for !k.stop.Load() {
		k.running.RLock()
		for range 50 {
			k.ops.Add(1)
			if err := w.step(); err != nil {
				k.t.Error(err)
				k.stop.Store(true)
				break
			}
		}
		k.running.RUnlock()
	}
	k.running.RLock()
	defer k.running.RUnlock()
	for len(w.pins) > 0 {
		w.unpin()
	}
	w.upload.Abort()
}

// pick chooses a key, some much more often than others. Own says that nobody
// else uses it.
func (w *soakWorker) pick() (key uint32, k Key, own bool) {
	f := w.rng.Float64()
	n := uint32(f * f * f * soakKeys)
	if own = n%4 != 0; own {
		key = uint32(w.id+1)<<24 | n
	} else {
		key = n % soakShared
	}
	return key, w.keyOf(key), own
}

func (w *soakWorker) keyOf(key uint32) Key {
	w.text = fmt.Appendf(w.text[:0], "soak:%d:%0*d", key, 1+int(key%40), key)
	return KeyOf(w.text)
}

func (w *soakWorker) size() int {
	// 20 B to 100 KB, most of them small.
	return logUniform(w.rng.Uint64(), 20, []float64{300, 3000, 3000, 100_000}[w.rng.IntN(4)])
}

func (w *soakWorker) expiry(now Time) uint32 {
	if w.rng.IntN(3) > 0 {
		return 0
	}
	return Expiry(int64(1+w.rng.IntN(60)), now)
}

// step is one operation.
func (w *soakWorker) step() error {
	s, now := w.k.s, w.k.now()
	switch op := w.rng.IntN(100); {
	case op < 45:
		return w.read(now)
	case op < 70:
		w.store(now)
	case op < 75:
		key, k, own := w.pick()
		if s.Delete(k, &DeleteOptions{Invalidate: w.rng.IntN(3) == 0}, now); own && s.Peek(k, now, nil) == Miss {
			w.last[key] = 0
		}
	case op < 82:
		w.extend(now)
	case op < 86:
		_, k, _ := w.pick()
		s.Get(k, &GetOptions{Touch: true, Expiry: w.expiry(now)}, now, nil)
	case op < 89:
		k := KeyOf(fmt.Appendf(w.text[:0], "number:%d", w.rng.IntN(200)))
		o := ArithOptions{Vivify: true, Initial: 8, Delta: w.rng.Uint64N(1000), Decr: w.rng.IntN(2) == 0}
		if st := s.Arith(k, &o, now, nil); st == NonNumeric {
			return fmt.Errorf("%s is no number", k.Bytes)
		}
	case op < 93:
		w.pin(now)
	case op < 96:
		return w.unpin()
	default:
		w.resume(now)
	}
	return nil
}

func (w *soakWorker) read(now Time) error {
	key, k, own := w.pick()
	var g grabBytes
	g.buf = w.buf[:0]
	if w.k.s.Get(k, &GetOptions{}, now, &g) != OK {
		w.k.misses.Add(1)
		if own {
			w.last[key] = 0
		}
		return nil
	}
	w.buf = g.buf
	w.k.hits.Add(1)
	version, err := readSegments(key, g.buf)
	if err == nil && own && version != w.last[key] {
		err = fmt.Errorf("key %d: version %d is there, %d was stored last", key, version, w.last[key])
	}
	return err
}

// grabBytes is a Visitor that keeps the value.
type grabBytes struct{ buf []byte }

func (g *grabBytes) VisitItem(it *Item) { g.buf = it.AppendValue(g.buf) }

// stored notes what has become of a value of a key of one's own.
func (w *soakWorker) stored(key, version uint32, own bool, st Status) {
	if st != OK {
		w.k.refused.Add(1)
	}
	if own && st == OK {
		w.last[key] = version
	}
}

// store sets a key, in one piece or in parts.
func (w *soakWorker) store(now Time) {
	key, k, own := w.pick()
	if key == w.pending.key {
		return
	}
	w.version++
	w.buf = appendSegment(w.buf[:0], key, w.version, w.size())
	o := SetOptions{Expiry: w.expiry(now), Flags: uint32(w.rng.IntN(2)), DropOnError: true}
	if w.rng.IntN(3) > 0 {
		w.stored(key, w.version, own, w.k.s.Set(k, w.buf, &o, now).Status)
		return
	}
	var u Upload
	st := w.k.s.Begin(k, len(w.buf), &o, now, &u)
	if st == OK {
		for rest := w.buf; len(rest) > 0 && st == OK; {
			n := min(len(rest), 1+w.rng.IntN(20_000))
			st = u.Write(rest[:n], now)
			rest = rest[n:]
		}
		if st != OK {
			u.Abort()
		} else {
			st = u.Commit(now).Status
		}
	}
	w.stored(key, w.version, own, st)
}

// extend appends or prepends.
func (w *soakWorker) extend(now Time) {
	key, k, own := w.pick()
	w.version++
	w.buf = appendSegment(w.buf[:0], key, w.version, w.size()/4)
	o := SetOptions{Mode: ModeAppend}
	if w.rng.IntN(2) == 0 {
		o.Mode = ModePrepend
	}
	if w.k.s.Set(k, w.buf, &o, now).Status == OK && own {
		w.last[key] = w.version
	}
}

// pin holds a value as if it were being sent.
func (w *soakWorker) pin(now Time) {
	if len(w.pins) == soakPins {
		return
	}
	key, k, _ := w.pick()
	p := soakPin{key: key}
	v := pinner{p: &p.pin}
	if w.k.s.Get(k, &GetOptions{NoBump: true}, now, &v); v.ok {
		p.size = p.pin.Len()
		w.pins = append(w.pins, p)
	}
}

// unpin sends one of the values that are held: it is as it was.
func (w *soakWorker) unpin() error {
	if len(w.pins) == 0 {
		return nil
	}
	i := w.rng.IntN(len(w.pins))
	p := w.pins[i]
	w.pins = append(w.pins[:i], w.pins[i+1:]...)
	defer p.pin.Release()
	w.buf = w.buf[:0]
	for p.pin.Len() > 0 {
		var views [4][]byte
		for _, b := range p.pin.Peek(views[:0]) {
			w.buf = append(w.buf, b...)
			p.pin.Advance(len(b))
		}
	}
	if len(w.buf) != p.size {
		return fmt.Errorf("key %d: %d bytes of a pinned value, want %d", p.key, len(w.buf), p.size)
	}
	_, err := readSegments(p.key, w.buf)
	return err
}

// resume goes on with a value that is half there, or begins one.
func (w *soakWorker) resume(now Time) {
	if w.upload.Remaining() == 0 {
		key, k, own := w.pick()
		if !own {
			return
		}
		w.version++
		w.rest = appendSegment(w.rest[:0], key, w.version, w.size())
		if w.k.s.Begin(k, len(w.rest), &SetOptions{Expiry: w.expiry(now)}, now, &w.upload) == OK {
			w.pending.key, w.pending.version = key, w.version
		}
		return
	}
	n := min(len(w.rest), 1+w.rng.IntN(40_000))
	st := w.upload.Write(w.rest[:n], now)
	w.rest = w.rest[n:]
	switch {
	case st != OK || w.rng.IntN(10) == 0:
		w.upload.Abort()
	case len(w.rest) == 0:
		st = w.upload.Commit(now).Status
		w.stored(w.pending.key, w.pending.version, true, st)
	default:
		return
	}
	w.pending.key = 0
}
