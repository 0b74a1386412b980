package store

import (
	"slices"
	"testing"
	"time"
)

// stallTime is clocks that stand still but for what a test says.
type stallTime struct{ Moment }

func (t *stallTime) clocks() StallClocks {
	return StallClocks{Wall: func() int64 { return t.Wall }, Read: func(m *Moment) { *m = t.Moment }}
}

// pass lets d pass, in which this thread computes for own and others for others.
func (t *stallTime) pass(d, own, others time.Duration) {
	t.Wall += int64(d)
	t.Thread += int64(own)
	t.Process += int64(own + others)
}

func TestStallCauses(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name        string
		procs       int
		own, others time.Duration // of 4 ms
		idle, moved bool
		want        string
	}{
		{"computes", 1, 3 * ms, 0, false, false, "own"},
		{"another computes", 1, ms, 3 * ms, false, false, "beside"},
		{"another computes, this one waits", 1, 0, 3 * ms, true, false, "beside"},
		{"another computes, on another processor", 2, ms, 3 * ms, false, false, "machine"},
		{"others compute on both processors", 2, ms, 5 * ms, false, false, "beside"},
		{"nobody computes", 1, ms, 0, false, false, "machine"},
		{"nothing to do", 1, 0, 0, true, false, ""},
		{"goes on in another thread", 1, 0, 4 * ms, false, true, "beside"},
		{"goes on in another thread, nobody computes", 1, 0, ms, false, true, "machine"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var now stallTime
			s := NewStalls(now.clocks(), tt.procs)
			var from Moment
			s.Read(&from)
			now.pass(4*ms, tt.own, tt.others)
			if tt.moved {
				now.ThreadID++
			}
			note := s.Note
			if tt.idle {
				note = s.NoteIdle
			}
			note(&from, from.Wall, Stall{Doing: "get"})
			list, _ := s.Longest()
			got := ""
			if len(list) > 0 {
				got = list[0].Cause.String()
				if list[0].Length != 4*ms || list[0].Doing != "get" {
					t.Errorf("got %v of %q, want 4 ms of get", list[0].Length, list[0].Doing)
				}
			}
			if got != tt.want {
				t.Errorf("got cause %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStallsShort(t *testing.T) {
	var now stallTime
	s := NewStalls(now.clocks(), 1)
	var from Moment
	s.Read(&from)
	now.pass(StallMin-1, StallMin-1, 0)
	s.Note(&from, from.Wall, Stall{Doing: "get"})
	if list, _ := s.Longest(); len(list) != 0 {
		t.Errorf("got %d stalls for less than StallMin, want none", len(list))
	}
}

func TestStallsAreBounded(t *testing.T) {
	var now stallTime
	s := NewStalls(now.clocks(), 1)
	const n = 5 * stallsKept
	for i := range n { // not in the order of their lengths
		var from Moment
		s.Read(&from)
		d := time.Duration(i*7%n+1) * time.Millisecond
		now.pass(d, d, 0)
		s.Note(&from, from.Wall, Stall{Doing: "set"})
	}
	list, counts := s.Longest()
	if counts[StallOwn] != n {
		t.Errorf("got %d stalls counted, want %d", counts[StallOwn], n)
	}
	var got, want []time.Duration
	for i := range list {
		got = append(got, list[i].Length)
		want = append(want, time.Duration(n-i)*time.Millisecond)
	}
	if len(got) != stallsKept || !slices.Equal(got, want) {
		t.Errorf("got %v, want the %d longest: %v", got, stallsKept, want)
	}
	s.Reset()
	if list, counts := s.Longest(); len(list) != 0 || counts[StallOwn] != 0 {
		t.Errorf("got %d stalls, %d counted after a reset, want none", len(list), counts[StallOwn])
	}
}

// TestStallBesideNamesStep: who lost its processor is told which step had it.
func TestStallBesideNamesStep(t *testing.T) {
	var now stallTime
	s := NewStalls(now.clocks(), 1)
	var from Moment
	s.Read(&from)
	for _, step := range []struct {
		doing string
		takes time.Duration
	}{{"sweep", 200 * time.Microsecond}, {"scrape", 900 * time.Microsecond}, {"crawl", stepKeptMin - 1}} {
		st := s.Begin(step.doing)
		now.pass(step.takes, 0, step.takes)
		st.End()
	}
	s.NoteIdle(&from, from.Wall, Stall{Doing: "wait"})
	list, _ := s.Longest()
	i := slices.IndexFunc(list, func(st Stall) bool { return st.Doing == "wait" })
	if i < 0 || list[i].By != "scrape" {
		t.Errorf("got %+v, want a wait by scrape", list)
	}
}

// TestStallOfLock: a wait for a shard's lock names the step that had it, and is
// not kept again as the batch's.
func TestStallOfLock(t *testing.T) {
	for _, tt := range []struct {
		name string
		step bool
		want string
	}{{"a step", true, "sweep"}, {"a command", false, anyCommand}} {
		t.Run(tt.name, func(t *testing.T) {
			waits := make(chan struct{})
			now := stallTime{Moment{Wall: 1}}
			c := now.clocks()
			read := 0
			c.Wall = func() int64 {
				wall := now.Wall
				if read++; read == 1 {
					close(waits) // for the lock, from now on
				}
				return wall
			}
			s := newTestStore(t, tiny)
			sh := s.shards[0]
			sh.mu.Lock()
			s.stalls = NewStalls(c, 1)
			var from Moment
			s.stalls.Read(&from)
			got := make(chan struct{})
			go func() {
				sh.lockTimed()
				close(got)
			}()
			<-waits
			if tt.step {
				st := sh.beginStep("sweep")
				now.pass(2*time.Millisecond, 0, 2*time.Millisecond)
				sh.endStep(&st)
			} else {
				now.pass(2*time.Millisecond, 0, 0)
			}
			sh.mu.Unlock()
			<-got
			sh.mu.Unlock()
			s.stalls.Note(&from, from.Wall, Stall{Doing: "get"})
			list, _ := s.stalls.Longest()
			locks := 0
			for _, st := range list {
				switch {
				case st.Doing == "get":
					t.Errorf("the batch is kept too: %+v", st)
				case st.Cause == StallLock:
					locks++
					if st.By != tt.want || st.Length != 2*time.Millisecond {
						t.Errorf("got %v by %q, want 2 ms by %q", st.Length, st.By, tt.want)
					}
				}
			}
			if locks != 1 {
				t.Errorf("got %d waits for the lock, want 1", locks)
			}
		})
	}
}

// TestSystemStallClocks: the clocks of the system go on as they should.
func TestSystemStallClocks(t *testing.T) {
	c := SystemStallClocks()
	var a, b Moment
	c.Read(&a)
	for n := uint64(0); b.Process-a.Process < int64(2*time.Millisecond); n++ {
		if n%1000 == 0 {
			c.Read(&b)
		}
	}
	if b.Wall <= a.Wall || b.ThreadID == 0 || b.Thread <= 0 {
		t.Errorf("got %+v, then %+v", a, b)
	}
	if allocs := testing.AllocsPerRun(100, func() { c.Read(&a) }); allocs != 0 {
		t.Errorf("a reading allocates %v times", allocs)
	}
}

// TestStallsOff: without them a step costs nothing.
func TestStallsOff(t *testing.T) {
	var s *Stalls
	st := s.Begin("sweep")
	st.End()
}
