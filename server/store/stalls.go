package store

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// StallMin is how long something must take to be a stall: half of what
	// nothing should.
	StallMin = 500 * time.Microsecond

	// stallsKept of each cause are kept, the longest.
	stallsKept = 8

	// stepsKept of the last steps that took stepKeptMin or more are known, and
	// waitsKept of the last waits for a lock: who stalls asks whose fault it was.
	stepsKept   = 16
	stepKeptMin = 100 * time.Microsecond
	waitsKept   = 8
)

// StallCause is why something took long.
type StallCause uint8

const (
	StallOwn     StallCause = iota // it was so much to do, for it or for the kernel on its behalf
	StallLock                      // a shard was locked
	StallBeside                    // the processor had other work of this program
	StallMachine                   // the processor was away: other programs, the hypervisor, sleep
	stallCauses
)

var stallCauseNames = [stallCauses]string{"own", "lock", "beside", "machine"}

// String is a word for c.
func (c StallCause) String() string { return stallCauseNames[c] }

// Stall is a time for which a server did not get on.
type Stall struct {
	Cause  StallCause
	At     time.Time // its end
	Length time.Duration
	CPU    time.Duration // of its thread; 0 if it began in another one
	Others time.Duration // CPU of all other threads of the program meanwhile
	Doing  string        // a command, or a step of what is done beside
	By     string        // the step that had the lock, or the processor, if that is known

	Requests, BytesIn, BytesOut uint64 // of a batch
}

// Moment is a reading of all clocks, in nanoseconds.
type Moment struct {
	Wall     int64 // from any beginning, monotonic
	Thread   int64 // CPU time of this thread
	Process  int64 // CPU time of all threads
	ThreadID int
}

// StallClocks tell time to a Stalls. Wall is Moment's alone: it costs far less.
type StallClocks struct {
	Wall func() int64
	Read func(*Moment)
}

// Stalls keeps the longest stalls of a server, and why they were. What was done
// is noted when it is done: if it was short, that is all; if not, the CPU time
// of its thread and of all others meanwhile tells the program's stalls from the
// machine's. A nil Stalls notes nothing.
type Stalls struct {
	clocks StallClocks
	procs  int64 // threads that run Go at once

	mu     sync.Mutex // all below
	kept   [stallCauses][]Stall
	counts [stallCauses]uint64
	steps  ringOf[pastStep]
	waits  ringOf[pastWait]
}

// pastStep is a step that took long enough to be some stall's fault.
type pastStep struct {
	doing    string
	from, to int64
}

// pastWait is a wait for a lock.
type pastWait struct {
	thread   int
	from, to int64
}

// ringOf is the last few of something.
type ringOf[T any] struct {
	all  []T
	next int
}

func newRing[T any](n int) ringOf[T] { return ringOf[T]{all: make([]T, n)} }

func (r *ringOf[T]) add(v T) {
	r.all[r.next] = v
	r.next = (r.next + 1) % len(r.all)
}

// NewStalls keeps stalls of a program of which procs threads run Go at once.
func NewStalls(c StallClocks, procs int) *Stalls {
	s := &Stalls{clocks: c, procs: int64(procs), steps: newRing[pastStep](stepsKept), waits: newRing[pastWait](waitsKept)}
	for c := range s.kept {
		s.kept[c] = make([]Stall, 0, stallsKept)
	}
	return s
}

// Now is what the wall shows.
func (s *Stalls) Now() int64 { return s.clocks.Wall() }

// Read reads all clocks.
func (s *Stalls) Read(m *Moment) { s.clocks.Read(m) }

// Note keeps what st says was done from began until now, if that was a stall.
// from was read at that time or a little before, so its CPU time may have some
// of what was done before.
func (s *Stalls) Note(from *Moment, began int64, st Stall) { s.note(from, began, st, false) }

// NoteIdle is Note for a time in which this goroutine may have had nothing to
// do: it is a stall only if the program computed, which was then for others.
func (s *Stalls) NoteIdle(from *Moment, began int64, st Stall) { s.note(from, began, st, true) }

func (s *Stalls) note(from *Moment, began int64, st Stall, idle bool) {
	var to Moment
	s.clocks.Read(&to)
	st.Length = time.Duration(to.Wall - began)
	if st.Length < StallMin {
		return
	}
	st.Others = time.Duration(to.Process - from.Process)
	if to.ThreadID == from.ThreadID && !idle { // one thread runs many goroutines
		cpu := time.Duration(to.Thread - from.Thread)
		st.CPU = min(cpu, st.Length)
		st.Others = max(st.Others-cpu, 0) // the clocks are read one after the other
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	away := st.Length - st.CPU
	switch {
	case 2*st.CPU >= st.Length:
		st.Cause = StallOwn
	case 2*s.waited(to.ThreadID, began) >= st.Length:
		return // the wait for the lock is kept by itself
	case 2*int64(st.Others) >= int64(away)*(2*s.procs-1): // all processors but half a one
		st.Cause = StallBeside
		st.By = s.stepIn(began, to.Wall)
	case idle:
		return
	default:
		st.Cause = StallMachine
	}
	s.keep(st)
}

// keep keeps st if it is one of the longest. s.mu is held.
func (s *Stalls) keep(st Stall) {
	s.counts[st.Cause]++
	kept := s.kept[st.Cause]
	if len(kept) == stallsKept {
		if kept[stallsKept-1].Length >= st.Length {
			return
		}
		kept = kept[:stallsKept-1]
	}
	st.At = time.Now()
	i, _ := slices.BinarySearchFunc(kept, st, longerFirst)
	s.kept[st.Cause] = slices.Insert(kept, i, st)
}

func longerFirst(a, b Stall) int { return cmp.Compare(b.Length, a.Length) }

// stepIn is the step that had most of the time between from and to, "" if none
// is known. s.mu is held.
func (s *Stalls) stepIn(from, to int64) (doing string) {
	most := int64(0)
	for i := range s.steps.all {
		p := &s.steps.all[i]
		if n := min(p.to, to) - max(p.from, from); n > most {
			doing, most = p.doing, n
		}
	}
	return doing
}

// waited is how long a thread has waited for locks since from. s.mu is held.
func (s *Stalls) waited(thread int, from int64) (d time.Duration) {
	for i := range s.waits.all {
		if w := &s.waits.all[i]; w.thread == thread && w.from >= from {
			d += time.Duration(w.to - w.from)
		}
	}
	return d
}

// noteWait keeps a wait for a lock, since from, if it was long. by is who had
// the lock.
func (s *Stalls) noteWait(from int64, by string) {
	var to Moment
	if s.clocks.Wall()-from < int64(StallMin) {
		return
	}
	s.clocks.Read(&to)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits.add(pastWait{to.ThreadID, from, to.Wall})
	s.keep(Stall{Cause: StallLock, Length: time.Duration(to.Wall - from), Doing: "lock", By: by})
}

// Longest are the stalls kept, longest first, and how many there were of each
// cause.
func (s *Stalls) Longest() (list []Stall, counts []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kept := range s.kept {
		list = append(list, kept...)
	}
	slices.SortStableFunc(list, longerFirst)
	return list, slices.Clone(s.counts[:])
}

// Reset forgets all of them.
func (s *Stalls) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.kept {
		s.kept[c] = s.kept[c][:0]
	}
	s.counts = [stallCauses]uint64{}
}

// Step is a piece of work beside the commands, between two moments at which
// others can have their turn.
type Step struct {
	s     *Stalls
	doing string
	from  Moment
}

// Begin begins a step.
func (s *Stalls) Begin(doing string) (st Step) {
	if s != nil {
		st.s, st.doing = s, doing
		s.clocks.Read(&st.from)
	}
	return st
}

// End ends the step, and keeps it if it was a stall.
func (st *Step) End() {
	if st.s == nil {
		return
	}
	now := st.s.clocks.Wall()
	if now-st.from.Wall < int64(stepKeptMin) {
		return
	}
	st.s.mu.Lock()
	st.s.steps.add(pastStep{st.doing, st.from.Wall, now})
	st.s.mu.Unlock()
	st.s.Note(&st.from, st.from.Wall, Stall{Doing: st.doing})
}

// holder is who had a shard's lock last of those who say so.
type holder struct {
	doing string
	until int64
}

// anyCommand is who had it else.
const anyCommand = "command"

// lockTimed is mu.Lock where stalls are kept.
func (sh *shard) lockTimed() {
	if sh.mu.TryLock() {
		return
	}
	s := sh.s.stalls
	from := s.clocks.Wall()
	sh.mu.Lock()
	by := anyCommand
	if sh.holder.until >= from {
		by = sh.holder.doing
	}
	s.noteWait(from, by)
}

// beginStep begins a step of work under the shard's lock, which is held.
func (sh *shard) beginStep(doing string) Step { return sh.s.stalls.Begin(doing) }

// endStep ends it. The lock is still held.
func (sh *shard) endStep(st *Step) {
	if st.s == nil {
		return
	}
	st.End()
	sh.holder = holder{st.doing, st.s.clocks.Wall()}
}
