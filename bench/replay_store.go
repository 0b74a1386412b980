package bench

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/server/store"
)

// keyTextBytes is the length of a trace's key as text: 16 hex digits.
const keyTextBytes = 16

// appendKeyText appends a key as text.
func appendKeyText(dst []byte, key uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[key>>shift&0xf])
	}
	return dst
}

// replayStart is where the store's clock starts.
const replayStart = store.Time(1_700_000_000_000)

// replayStore replays w against a store of its own, in batches, as a server
// that gets pipelined requests would call it.
func replayStore(ctx context.Context, c *ReplayConfig, w *workload, row Row) (Result, error) {
	config := c.Store
	config.LimitBytes = int64(row.MemoryMiB) << 20
	s, err := store.Open(config)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	value := make([]byte, objectBytesMax)
	text := make([]byte, 0, keyTextBytes)
	missed := make([]uint32, 0, c.Batch)
	get, set := &store.GetOptions{}, &store.SetOptions{}
	now := replayStart

	var res Result
	put := func(k uint32) {
		text = appendKeyText(text[:0], w.trace.Keys[k])
		if s.Set(store.KeyOf(text), value[:w.sizes[k]], set, now).Status != store.OK {
			res.Refused++
		}
	}
	release := lockedCPU()
	for from, to := range w.batches(c.Batch) {
		if ctx.Err() != nil {
			break
		}
		if c.StoreRate > 0 {
			now = replayStart + store.Time(float64(from)/c.StoreRate*1000)
		}
		missed = missed[:0]
		for i := from; i < to; i++ {
			k := w.trace.Requests[i]
			if w.isWrite(i) {
				put(k)
				continue
			}
			text = appendKeyText(text[:0], w.trace.Keys[k])
			hit := s.Get(store.KeyOf(text), get, now, nil) == store.OK
			res.count(w.sizes[k], hit)
			if !hit {
				missed = append(missed, k)
			}
		}
		for _, k := range missed {
			put(k)
		}
	}
	res.CPU = release()
	var stats store.Stats
	s.Snapshot(now, &stats)
	res.Evictions = stats.Total.Evicted
	return res, ctx.Err()
}

// lockedCPU holds the goroutine on its thread until release, which returns
// the CPU time that the thread has used meanwhile.
func lockedCPU() (release func() time.Duration) {
	runtime.LockOSThread()
	before := threadCPU()
	return func() time.Duration {
		used := threadCPU() - before
		runtime.UnlockOSThread()
		return used
	}
}

// threadCPU is the CPU time that this thread has used.
func threadCPU() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
