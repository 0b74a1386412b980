package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// eventLog is an Observer that keeps what it was told.
type eventLog []string

func (o *eventLog) Observe(e *Event) {
	var line string
	switch e.Kind {
	case EventLookup:
		line = fmt.Sprintf("lookup %s %d", e.Key, e.Lookup)
	case EventStore:
		line = fmt.Sprintf("store %s status %d mode %d expiry %d", e.Key, e.Status, e.Mode, e.Expiry)
	case EventDelete:
		line = fmt.Sprintf("delete %s", e.Key)
	case EventEvict:
		line = fmt.Sprintf("evict %s read %v idle %d", e.Key, e.Fetched, e.IdleSeconds)
	case EventMove:
		line = fmt.Sprintf("move from %d to %d: %v", e.Class, e.To, e.Moved)
	}
	*o = append(*o, fmt.Sprintf("%s size %d", line, e.Size))
}

// An observer is told of what a request does, in order, and of nothing else.
func TestObserver(t *testing.T) {
	s := newTestStore(t, Config{})
	var o eventLog
	s.mustSet(t, "quiet", "1", SetOptions{}, noon)
	s.mustSet(t, "k", "abc", SetOptions{Observer: &o, Expiry: later(9).Seconds()}, noon)
	s.Set(key("k"), []byte("x"), &SetOptions{Observer: &o, Mode: ModeAdd}, noon)
	s.get("k", GetOptions{Observer: &o}, noon)
	s.Set(key("big"), make([]byte, 2<<20), &SetOptions{Observer: &o, DropOnError: true}, noon)
	s.Arith(key("n"), &ArithOptions{Observer: &o, Vivify: true}, noon, nil)
	s.PeekObserved(key("k"), later(9), nil, &o)
	s.get("k", GetOptions{Observer: &o}, later(9))
	s.Delete(key("n"), &DeleteOptions{Observer: &o, RemoveValue: true}, noon)
	s.mustSet(t, "large", strings.Repeat("v", 100_000), SetOptions{Observer: &o}, noon)
	s.FlushAll(later(10).Seconds(), later(10))
	s.get("quiet", GetOptions{Observer: &o}, later(11))
	want := []string{
		"lookup k 0 size 0", fmt.Sprintf("store k status 0 mode 0 expiry %d size 3", later(9).Seconds()),
		"lookup k 1 size 3", "store k status 2 mode 1 expiry 0 size 1",
		"lookup k 1 size 3",
		"store big status 4 mode 0 expiry 0 size 0", "lookup big 0 size 0",
		"lookup n 0 size 0", "lookup n 0 size 0", "store n status 0 mode 1 expiry 0 size 1",
		"lookup k 3 size 0",
		"lookup k 3 size 0",
		"lookup n 1 size 1", "lookup n 1 size 1", "store n status 0 mode 0 expiry 0 size 0", "delete n size 0",
		"lookup large 0 size 0", "store large status 0 mode 0 expiry 0 size 100000",
		"lookup quiet 2 size 0",
	}
	if !slices.Equal(o, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(o, "\n"), strings.Join(want, "\n"))
	}
}

// An upload tells the observer of the moment, and none that it was not given.
func TestObserverOfUpload(t *testing.T) {
	s := newTestStore(t, Config{})
	var first, last eventLog
	for _, observed := range []bool{true, false} {
		var u Upload
		if st := s.Begin(key("k"), 4, &SetOptions{Observer: &first}, noon, &u); st != OK {
			t.Fatal(st)
		}
		if observed {
			u.Observe(&last)
		}
		u.Write([]byte("abcd"), noon)
		u.Commit(noon)
	}
	if want := (eventLog{"lookup k 0 size 0", "store k status 0 mode 0 expiry 0 size 4"}); len(first) != 0 || !slices.Equal(last, want) {
		t.Errorf("got %q and %q, want none and %q", first, last, want)
	}
}

// The observer of the store is told of what goes for others.
func TestObserverOfStore(t *testing.T) {
	s := newTestStore(t, tiny)
	var o eventLog
	s.Observe(&o)
	for i := range 200 {
		s.Set(key(fmt.Sprint("k", i)), make([]byte, 500), &SetOptions{}, later(i))
	}
	var st Stats
	s.Snapshot(later(200), &st)
	n := 0
	for _, line := range o {
		if strings.HasPrefix(line, "evict k") && strings.HasSuffix(line, "size 500") {
			n++
		}
	}
	if n == 0 || uint64(n) != st.Total.Evicted {
		t.Errorf("told of %d evictions, want %d", n, st.Total.Evicted)
	}
	s.Observe(nil)
	n = len(o)
	s.Set(key("last"), make([]byte, 500), &SetOptions{}, later(201))
	if len(o) != n {
		t.Errorf("told of %q after the end", o[n:])
	}
}
