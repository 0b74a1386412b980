package store

import (
	"testing"

	"pgregory.net/rapid"
)

// ticket is a grant that a budget has given.
type ticket struct {
	class   GrantClass
	at      Time
	ends    Time
	isFreed bool
}

// S1-63: in any second at most as many grants of a class are given as it may
// have, at most as many tokens are out as may be, and none is denied without a
// reason; places are free when a token has filled or its time has passed, once,
// also when shards read their clocks in another order than they come.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := map[GrantClass]int{
			GrantForeground: rapid.SampledFrom([]int{0, 1, 3, 20}).Draw(t, "foreground"),
			GrantBackground: rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "background"),
		}
		b := &budget{inflightMax: rapid.SampledFrom([]int{0, 1, 4, 30}).Draw(t, "in flight")}
		b.foreground.max, b.background.max = rates[GrantForeground], rates[GrantBackground]
		var given []*ticket
		now, latest := noon, noon
		out := func() (n int) {
			for _, g := range given {
				if !g.isFreed && g.ends > latest {
					n++
				}
			}
			return n
		}
		// within is how many of a class were given in the last ms milliseconds.
		within := func(c GrantClass, ms Time) (n int) {
			for _, g := range given {
				if g.class == c && latest-g.at < ms {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(t, "times") {
					class := rapid.SampledFrom([]GrantClass{GrantForeground, GrantBackground}).Draw(t, "class")
					life := Time(rapid.SampledFrom([]int{1, 30, 1000, GrantMillisLimit}).Draw(t, "life"))
					wait := b.take(class, now, now+life)
					latest = max(latest, now)
					most := b.inflightMax
					if class == GrantBackground && most > 0 {
						most = max(most*3/4, 1)
					}
					rate := rates[class]
					if wait == 0 {
						given = append(given, &ticket{class: class, at: latest, ends: max(now+life, latest+1)})
						if n := within(class, 1000); rate > 0 && n > rate {
							t.Fatalf("%d grants of class %d in a second, at most %d may be", n, class, rate)
						}
						if n := out(); most > 0 && n > most {
							t.Fatalf("%d tokens are out, at most %d may be", n, most)
						}
						continue
					}
					busy, full := rate > 0 && within(class, windowMillis) >= rate, most > 0 && out() >= most
					if !busy && !full {
						t.Fatalf("a grant of class %d is denied for %d ms without a reason", class, wait)
					}
					if busy && within(class, windowMillis-Time(wait)) >= rate {
						t.Fatalf("denied for %d ms: that is too short", wait)
					}
				}
			},
			"free": func(t *rapid.T) {
				if len(given) == 0 {
					return
				}
				g := rapid.SampledFrom(given).Draw(t, "grant")
				if latest = max(latest, now); g.isFreed || g.ends <= now {
					return // its shard knows
				}
				b.free(now, g.ends, Time(rapid.IntRange(0, 9).Draw(t, "filled")))
				g.isFreed = true
			},
			"time": func(t *rapid.T) {
				now += Time(rapid.SampledFrom([]int{0, 1, 7, 100, 999, 1000, 1001, 30_000, 70_000}).Draw(t, "ms"))
			},
			"an older reading": func(t *rapid.T) { now -= Time(rapid.IntRange(0, 40).Draw(t, "ms")) },
			"": func(t *rapid.T) {
				latest = max(latest, now)
				if got, want := b.inflight(now), out(); got != want {
					t.Fatalf("%d tokens are out, want %d", got, want)
				}
			},
		})
	})
}

// A ticket of a second ago makes room, and not one of less.
func TestBudgetWindow(t *testing.T) {
	var b budget
	b.foreground.max = 2
	for _, c := range []struct {
		at   Time
		wait int64
	}{{0, 0}, {400, 0}, {400, 601}, {1000, 1}, {1001, 0}, {1001, 400}, {1400, 1}, {1401, 0}, {60_000, 0}, {60_000, 0}, {60_000, 1001}} {
		if got := b.take(GrantForeground, noon+c.at, noon+c.at+10); got != c.wait {
			t.Errorf("at %d: wait %d ms, want %d", c.at, got, c.wait)
		}
	}
}
