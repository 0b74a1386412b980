package slab

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func newTestArena(t testing.TB, pageBytes int, limit int64) *Arena {
	t.Helper()
	a, err := NewArena(OwnClasses(pageBytes), NewBudget(limit), 4*limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkArena(t, a)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if got := a.budget.Taken(); got != 0 {
			t.Errorf("after Close the budget has %d bytes taken", got)
		}
	})
	return a
}

func checkArena(t interface{ Error(...any) }, a *Arena) {
	for _, err := range a.Check() {
		t.Error(err)
	}
}

func TestClasses(t *testing.T) {
	for _, pageBytes := range []int{1 << 10, 16 << 10, 64 << 10, 1 << 20} {
		tab := OwnClasses(pageBytes)
		if got, want := tab.Largest(), pageBytes/8; got != want {
			t.Errorf("page %d: largest chunk %d, want %d", pageBytes, got, want)
		}
		for n := 1; n <= tab.Largest(); n++ {
			c := tab.For(n)
			if tab.Bytes(c) < n || c > 0 && tab.Bytes(c-1) >= n {
				t.Fatalf("page %d: For(%d) = class %d of %d bytes", pageBytes, n, c, tab.Bytes(c))
			}
		}
		for c := range tab.Len() {
			if tab.Bytes(c)%chunkAlignBytes != 0 {
				t.Errorf("page %d: class %d has %d bytes, no multiple of 8", pageBytes, c, tab.Bytes(c))
			}
		}
	}
}

// The rounding of values of 100 to 2048 bytes: DESIGN's 4.5 % in the mean.
func TestClassesRounding(t *testing.T) {
	tab := OwnClasses(1 << 20)
	var wanted, given float64
	for n := 100; n <= 2048; n++ {
		wanted += 1
		given += float64(tab.Bytes(tab.For(n))) / float64(n)
	}
	if mean := given/wanted - 1; mean > 0.05 {
		t.Errorf("mean rounding %.1f %%, want at most 5 %%", 100*mean)
	}
}

func TestFactorClasses(t *testing.T) {
	// memcached's first classes with its defaults.
	want := []int{96, 120, 152, 192, 240, 304, 384, 480, 600, 752, 944, 1184}
	tab := FactorClasses(1<<20, 96, 1.25)
	for c, n := range want {
		if got := tab.Bytes(c); got != n {
			t.Errorf("class %d: %d bytes, want %d", c, got, n)
		}
	}
}

func TestMemcachedClasses(t *testing.T) {
	all := []int{96, 120, 152, 192, 240, 304, 384, 480, 600, 752, 944, 1184, 1480, 1856, 2320, 2904, 3632, 4544, 5680,
		7104, 8880, 11104, 13880, 17352, 21696, 27120, 33904, 42384, 52984, 66232, 82792, 103496, 129376, 161720,
		202152, 252696, 315872, 394840, 524288}
	for _, c := range []struct {
		name  string
		first int
		f     float64
		sizes []int
		most  int
		want  []int
	}{
		{"defaults", 96, 1.25, nil, 512 << 10, all},
		{"-f 2 slab_chunk_max=4", 96, 2, nil, 4 << 10, []int{96, 192, 384, 768, 1536, 4096}},
		{"slab_sizes", 96, 1.25, []int{100, 200, 300}, 512 << 10, []int{104, 200, 304, 524288}},
		{"slab_sizes to the largest", 96, 1.25, []int{100, 4096}, 4 << 10, []int{104, 4096, 4096}},
	} {
		tab := MemcachedClasses(1<<20, c.first, c.f, c.sizes, c.most)
		var got []int
		for i := range tab.Len() {
			got = append(got, tab.Bytes(i))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
	if tab := MemcachedClasses(1<<20, 96, 1.01, nil, 512<<10); tab.Len() != 63 {
		t.Errorf("with a small factor: %d classes, want 63", tab.Len())
	}
}

func TestBudgetBounds(t *testing.T) {
	const pageBytes, limit = 1 << 10, 16 << 10
	a := newTestArena(t, pageBytes, limit)
	c := a.table.For(100)
	var refs []Ref
	for {
		r, ok := a.Alloc(c)
		if !ok {
			break
		}
		refs = append(refs, r)
	}
	if want := limit / pageBytes * a.table.PerPage(c); len(refs) != want {
		t.Errorf("%d chunks before the budget is spent, want %d", len(refs), want)
	}
	for _, r := range refs {
		a.Free(r)
	}
	// Any other class can now have the memory.
	other := a.table.For(128)
	n := 0
	for {
		if _, ok := a.Alloc(other); !ok {
			break
		}
		n++
	}
	if want := (limit/pageBytes - 1) * a.table.PerPage(other); n < want {
		t.Errorf("%d chunks of another class after all were freed, want at least %d", n, want)
	}
}

func TestEmptying(t *testing.T) {
	a := newTestArena(t, 1<<10, 4<<10)
	c := a.table.For(100)
	r1, _ := a.Alloc(c)
	r2, _ := a.Alloc(c)
	a.Free(r1)
	n := a.PageOf(r2)
	a.BeginEmptying(n)
	r3, _ := a.Alloc(c)
	if a.PageOf(r3) == n {
		t.Fatalf("chunk %d was handed out of a page being emptied", r3)
	}
	checkArena(t, a)
	a.AbortEmptying()
	checkArena(t, a)
	a.BeginEmptying(n)
	a.Free(r2)
	checkArena(t, a)
	a.FinishEmptying()
	if got := a.Page(n).Class; got >= 0 {
		t.Errorf("the emptied page is of class %d", got)
	}
	if got := a.IdlePages(); got != 1 {
		t.Errorf("%d idle pages, want 1", got)
	}
}

// Random allocation over tiny arenas: chunks never overlap, what was written
// stays, and Check finds nothing after any step.
func TestArenaModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pageBytes := rapid.SampledFrom([]int{512, 1024, 4096}).Draw(t, "page")
		b := NewBudget(int64(pageBytes) * 12)
		table := OwnClasses(pageBytes)
		var arenas [2]*Arena
		type chunk struct {
			a    int
			r    Ref
			n    int
			fill byte
		}
		for i := range arenas {
			a, err := NewArena(table, b, int64(pageBytes)*12)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			arenas[i] = a
		}
		var live []chunk
		fill := byte(0)
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				i := rapid.IntRange(0, 1).Draw(t, "arena")
				n := rapid.IntRange(1, table.Largest()).Draw(t, "n")
				r, ok := arenas[i].Alloc(table.For(n))
				if !ok {
					return
				}
				fill++
				payload := arenas[i].Bytes(r.Off()+LinksEnd, arenas[i].ChunkBytes(r)-LinksEnd)
				for j := range payload {
					payload[j] = fill
				}
				live = append(live, chunk{i, r, len(payload), fill})
			},
			"free": func(t *rapid.T) {
				if len(live) == 0 {
					return
				}
				j := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				c := live[j]
				live[j] = live[len(live)-1]
				live = live[:len(live)-1]
				for _, got := range arenas[c.a].Bytes(c.r.Off()+LinksEnd, c.n) {
					if got != c.fill {
						t.Fatalf("chunk %d: byte %#x, want %#x", c.r, got, c.fill)
					}
				}
				arenas[c.a].Free(c.r)
			},
			"emptying": func(t *rapid.T) {
				a := arenas[0]
				if a.Emptying() != 0 {
					a.AbortEmptying()
					return
				}
				n := uint32(rapid.IntRange(1, 12).Draw(t, "page"))
				if n < a.Pages() && a.Page(n).Class >= 0 {
					a.BeginEmptying(n)
				}
			},
			"finishEmptying": func(t *rapid.T) {
				a := arenas[0]
				if n := a.Emptying(); n != 0 && a.UsedIn(n) == 0 {
					a.FinishEmptying()
				}
			},
			"returnIdle": func(t *rapid.T) { arenas[0].ReturnIdle(rapid.IntRange(0, 2).Draw(t, "keep")) },
			"": func(t *rapid.T) {
				var held int64
				for _, a := range arenas {
					for _, err := range a.Check() {
						t.Error(err)
					}
					held += a.HeldBytes()
				}
				if held != b.Taken() || held > b.Limit() {
					t.Errorf("arenas hold %d bytes, budget says %d of %d", held, b.Taken(), b.Limit())
				}
			},
		})
	})
}

func BenchmarkAllocFree(b *testing.B) {
	a := newTestArena(b, 1<<20, 64<<20)
	c := a.table.For(144)
	for b.Loop() {
		r, _ := a.Alloc(c)
		a.Free(r)
	}
}
