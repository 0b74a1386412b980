package store

import (
	"fmt"
	"testing"
)

// DESIGN decision 14: the collector has nothing to do on the steady path.
func TestZeroAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := newTestStore(t, Config{LimitBytes: 4 << 20})
	value := make([]byte, 100)
	keys := make([]Key, 100_000)
	for i := range keys {
		keys[i] = KeyOf(fmt.Appendf(nil, "key:%012d", i))
		s.Set(keys[i], value, &SetOptions{}, noon)
	}
	dst := make([]byte, 0, 4096)
	v := &appender{dst: dst}
	i := 0
	next := func() Key { i++; return keys[i%len(keys)] }
	ask := &Ask{}
	now := noon
	granted := func() Token {
		*ask = Ask{Class: GrantForeground}
		now++
		s.Get(keys[0], &GetOptions{Ask: ask}, now, nil)
		return ask.Token
	}
	fill := &Fill{}
	for name, f := range map[string]func(){
		"grant, fill, notice, given back": func() {
			*fill = Fill{HasToken: true, Token: granted(), Version: uint64(now), Deadlines: Deadlines{Hard: now + 1000, Soft: now + 1}}
			if res := s.Set(keys[0], value, &SetOptions{Fill: fill}, now); res.Status != OK {
				t.Fatalf("%+v", res)
			}
			s.Notice(keys[0], uint64(now)+1, false, now)
			if why := s.GiveBack(keys[0], granted(), true, now); why != ReasonNone {
				t.Fatal(why)
			}
			now += 5000
		},
		"absence, minimum, revalidation, wait": func() {
			deadlines := Deadlines{Hard: now + 1000, Soft: now + 1}
			*fill = Fill{Kind: FillAbsent, HasToken: true, Token: granted(), Version: uint64(now), Deadlines: deadlines}
			s.Set(keys[0], nil, &SetOptions{Fill: fill}, now)
			*ask = Ask{Class: GrantStrong, Min: uint64(now) + 1}
			s.Get(keys[0], &GetOptions{Ask: ask}, now, nil)
			*fill = Fill{HasToken: true, Token: ask.Token, Version: uint64(now) + 1, Deadlines: deadlines}
			s.Set(keys[0], value, &SetOptions{Fill: fill}, now)
			*fill = Fill{Kind: FillRevalidate, HasToken: true, Token: granted(), Version: fill.Version, Deadlines: deadlines}
			granted()
			if res := s.Set(keys[0], nil, &SetOptions{Fill: fill}, now); res.Status != OK {
				t.Fatalf("%+v", res)
			}
			now += 5000
		},
		"get hit":  func() { v.dst = dst; s.Get(keys[len(keys)-1], &GetOptions{}, noon, v) },
		"get miss": func() { s.Get(next(), &GetOptions{}, noon, v) },
		"set":      func() { s.Set(next(), value, &SetOptions{}, noon) },
		"delete":   func() { s.Delete(next(), &DeleteOptions{}, noon) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

type appender struct{ dst []byte }

func (a *appender) VisitItem(it *Item) { a.dst = it.AppendValue(a.dst) }

func benchStore(b *testing.B, n int) (*Store, []Key) {
	s, err := Open(Config{LimitBytes: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	value := make([]byte, 100)
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = KeyOf(fmt.Appendf(nil, "key:%012d", i*7919%n))
		s.Set(keys[i], value, &SetOptions{}, noon)
	}
	return s, keys
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("hit/100B/%d", n), func(b *testing.B) {
			s, keys := benchStore(b, n)
			dst := make([]byte, 0, 4096)
			v := &appender{}
			i := 0
			for b.Loop() {
				v.dst = dst
				s.Get(keys[i], &GetOptions{}, noon, v)
				if i += 1; i == n {
					i = 0
				}
			}
		})
	}
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprintf("overwrite/100B/%d", n), func(b *testing.B) {
			s, keys := benchStore(b, n)
			value := make([]byte, 100)
			i := 0
			for b.Loop() {
				s.Set(keys[i], value, &SetOptions{}, noon)
				if i += 1; i == n {
					i = 0
				}
			}
		})
	}
}

// What a walk costs for each item that has not expired, if every page has to
// be looked at: times 5 M items in 8 s is the sweeper's part of a core.
func BenchmarkSweep(b *testing.B) {
	const n = 1_000_000
	s, _ := benchStore(b, n)
	for b.Loop() {
		for _, sh := range s.shards {
			for p := range sh.earliest {
				sh.earliest[p] = 0
			}
			for p := len(sh.earliest); p < int(sh.a.Pages()); p++ {
				sh.earliest = append(sh.earliest, 0)
			}
		}
		s.Sweep(noon)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
}
