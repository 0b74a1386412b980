package store

import "testing"

// What was there at a start is not shown while it may be another's, unless it
// has a version; what is stored meanwhile is, and what nobody asked for is there
// again.
func TestWithholdPlain(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 1 << 20, PageBytes: 4 << 10})
	for _, k := range []string{"read", "add", "append", "delete", "left"} {
		s.mustSet(t, k, "old", SetOptions{}, noon)
	}
	s.versioned("row", "seven", 7, noon+60_000, noon)
	s.WithholdPlain(true)

	if _, st := s.get("read", GetOptions{}, noon); st != Miss {
		t.Error("a value without a version is shown")
	}
	if got, st := s.get("row", GetOptions{}, noon); st != OK || got.value != "seven" {
		t.Error("a value with a version is not shown")
	}
	if res := s.Set(key("append"), []byte("x"), &SetOptions{Mode: ModeAppend}, noon); res.Status != NotStored {
		t.Errorf("append to what is withheld: status %d", res.Status)
	}
	if st := s.Delete(key("delete"), &DeleteOptions{}, noon); st != Miss {
		t.Errorf("delete of what is withheld: status %d", st)
	}
	s.mustSet(t, "add", "new", SetOptions{Mode: ModeAdd}, noon)
	if got, _ := s.get("add", GetOptions{}, noon); got.value != "new" {
		t.Errorf("what was stored since is %q", got.value)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}

	s.WithholdPlain(false)
	for k, want := range map[string]Status{"read": Miss, "append": Miss, "delete": Miss, "add": OK, "left": OK} {
		if _, st := s.get(k, GetOptions{}, noon); st != want {
			t.Errorf("%s afterwards: status %d, want %d", k, st, want)
		}
	}
}

// A share bounds what the flags allow, and lifts nothing.
func TestLimitFills(t *testing.T) {
	f := newFreshKey(t, FreshConfig{RateForeground: 3, RateBackground: 0})
	for _, tt := range []struct{ foreground, background, wantF, wantB int }{
		{0, 0, 3, 0}, {2, 5, 2, 5}, {9, 0, 3, 0},
	} {
		f.s.LimitFills(tt.foreground, tt.background)
		if a, b := f.s.FillLimits(); a != tt.wantF || b != tt.wantB {
			t.Errorf("limits %d, %d: got %d, %d, want %d, %d", tt.foreground, tt.background, a, b, tt.wantF, tt.wantB)
		}
	}
	f.s.LimitFills(1, 0)
	f.want("EN W")
	f.k = key("another")
	f.want("EN d")
	f.s.LimitFills(0, 0)
	f.want("EN W")
}

// Only items from before the last change of owner are looked at twice.
func TestHideBuckets(t *testing.T) {
	s := newTestStore(t, Config{LimitBytes: 1 << 20, PageBytes: 4 << 10})
	s.mustSet(t, "a", "x", SetOptions{}, noon)
	s.mustSet(t, "b", "x", SetOptions{}, noon)
	s.mustSet(t, "numbered", "x", SetOptions{HasNewCAS: true, NewCAS: 1 << 60}, noon)
	s.HideBuckets([]int{key("a").Bucket(), key("numbered").Bucket()}, noon)
	s.mustSet(t, "again", "x", SetOptions{}, noon)
	for k, want := range map[string]Status{"a": Miss, "b": OK, "numbered": Miss, "again": OK} {
		if _, st := s.get(k, GetOptions{}, noon); st != want {
			t.Errorf("%s: status %d, want %d", k, st, want)
		}
	}
	s.mustSet(t, "a", "y", SetOptions{}, noon)
	if got, _ := s.get("a", GetOptions{}, noon); got.value != "y" {
		t.Errorf("stored since: %q", got.value)
	}
}
