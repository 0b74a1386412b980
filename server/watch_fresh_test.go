package server

import (
	"fmt"
	"strings"
	"testing"
)

// TestWatchFreshness: grants, fills, refusals and notices are told in their order.
func TestWatchFreshness(t *testing.T) {
	clock := newTestClock()
	_, addr := startServer(t, Config{Clock: clock.Now, Threads: 2, Fresh: FreshConfig{EarlyBeta: 1e6, GrantOnly: []string{"only:"}}})
	w := dialWatcher(t, addr, "freshness")
	c := dialFresh(t, addr, clock)
	want := func(format string, args ...any) {
		t.Helper()
		line := strings.TrimSuffix(w.line(), "\n")
		_, got, _ := strings.Cut(line, " type=")
		got, _, _ = strings.Cut(got, " cfd=")
		if want := fmt.Sprintf(format, args...) + fmt.Sprintf(" at=%d", c.now()); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	c.want("get a", "END") // of no interest
	a := c.lookup("a G500").token
	want("grant key=a class=foreground early=no life=500 floor=0")
	c.lookup("a G500") // nothing comes of it
	c.advance(20)
	c.wantFill("a", a, 7, "abc", 0)
	want("fill key=a kind=value version=7 took=20 size=3")
	c.wantFill("a", a, 7, "abc", 1)
	want("refused key=a reason=r1 version=7")
	a = c.lookup("a G500").token
	want("grant key=a class=background early=yes life=500 floor=7")
	c.want(fmt.Sprintf("ms a 0 MV G%s Y7 A%d", a, c.in(1000)), "HD", "")
	want("fill key=a kind=revalidation version=7 took=1 size=3")
	c.want("md a I Y8", "HD")
	want("notice key=a kind=stale version=8 news=yes")
	c.want("md a Y8 q", "MN", "mn")
	want("notice key=a kind=takedown version=8 news=no")
	a = c.lookup("a G500s").token
	want("grant key=a class=strong early=no life=500 floor=8")
	c.want("md a G"+a, "HD")
	want("given_back key=a")
	c.want("md a G"+a, "NF r1")
	want("refused key=a reason=r1 version=0")
	a = c.lookup("a G500b").token
	want("grant key=a class=background early=no life=500 floor=8")
	c.want(fmt.Sprintf("ms a 0 MN G%s Y18446744073709551615 A%d", a, c.in(1000)), "HD", "")
	want("fill key=a kind=absence version=18446744073709551615 took=1 size=0")
	c.want("set only:a 0 0 1", "NOT_STORED", "x")
	want("refused key=only%%3Aa reason=r11 version=0")
	large := strings.Repeat("x", 100_000)
	c.want("ms b 100000 Y5", "HD", large)
	want("fill key=b kind=write version=5 took=0 size=100000")
	c.want("ms b 100000 Y4", "NS r5", large)
	want("refused key=b reason=r5 version=4")
}
