package server

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// S1-28, S1-66: 1,000 callers look one absent key up at once. One of them gets the
// grant; when it dies, all wait out its second, and then one more does.
func TestFreshnessOneGrantForMany(t *testing.T) {
	const callers = 1000
	clock := newTestClock()
	_, addr := startServer(t, Config{Clock: clock.Now, Threads: 4, MaxConns: callers + 10})
	conns := make([]net.Conn, callers)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", addr); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		conns[i].SetDeadline(time.Now().Add(time.Minute))
	}
	round := func() (winner int, granted int) {
		winner = -1
		var mu sync.Mutex
		var all sync.WaitGroup
		start := make(chan struct{})
		for i, conn := range conns {
			if conn == nil {
				continue
			}
			all.Go(func() {
				<-start
				_, err := io.WriteString(conn, "mg k v G1000\r\n")
				line, err2 := bufio.NewReaderSize(conn, 128).ReadString('\n')
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil || err2 != nil:
					t.Errorf("%v, %v", err, err2)
				case strings.HasPrefix(line, "EN W g"):
					granted++
					winner = i
				case !strings.HasPrefix(line, "EN Z w"):
					t.Errorf("got %q", line)
				}
			})
		}
		close(start)
		all.Wait()
		return winner, granted
	}
	for range 3 {
		winner, granted := round()
		if granted != 1 {
			t.Fatalf("%d grants, want 1", granted)
		}
		conns[winner].Close() // it dies with its grant
		conns[winner] = nil
		if _, granted = round(); granted != 0 {
			t.Fatalf("%d grants while the first one is out", granted)
		}
		clock.Advance(999 * time.Millisecond)
		if _, granted = round(); granted != 0 {
			t.Fatalf("%d grants before its second is over", granted)
		}
		clock.Advance(time.Millisecond)
	}
}

// S1-10, S1-63, S1-64: a scan over 10,000 different absent keys with a budget of
// 100 a second. What watch freshness tells has at most 100 grants in any second of
// the node's clock, and the budget is used.
func TestFreshnessBudgetOfAScan(t *testing.T) {
	const keys, rate, perBatch = 10_000, 100, 50
	clock := newTestClock()
	_, addr := startServer(t, Config{Clock: clock.Now, Threads: 2, Fresh: FreshConfig{RateForeground: rate}})
	w := dialWatcher(t, addr, "freshness")
	var scans []*freshClient
	for range 4 {
		scans = append(scans, dialFresh(t, addr, clock))
	}
	granted, refused := 0, 0
	for i := 0; i < keys; i += perBatch {
		c := scans[i/perBatch%len(scans)]
		var b strings.Builder
		for j := range perBatch {
			fmt.Fprintf(&b, "mg scan:%d v G1000\r\n", i+j)
		}
		if _, err := io.WriteString(c.conn, b.String()); err != nil {
			t.Fatal(err)
		}
		for range perBatch {
			switch rep := c.reply(); {
			case rep.Fresh.Granted:
				granted++
			case rep.Fresh.Denied && rep.Fresh.DenyMillis > 0 && rep.Fresh.DenyMillis <= 1001:
				refused++
			default:
				t.Fatalf("%+v", rep)
			}
		}
		clock.Advance(time.Duration(i/perBatch*7%50) * time.Millisecond)
	}
	var at []int64
	for range granted {
		line := w.line()
		ms, err := strconv.ParseInt(field(line, "at"), 10, 64)
		if err != nil || field(line, "type") != "grant" {
			t.Fatalf("%q", line)
		}
		at = append(at, ms)
	}
	slices.Sort(at)
	most := 0
	for i := range at {
		n := 0
		for j := i; j < len(at) && at[j] <= at[i]+1000; j++ {
			n++
		}
		most = max(most, n)
	}
	seconds := (at[len(at)-1] - at[0]) / 1000
	t.Logf("%d grants and %d denials over %d s of the node's clock, at most %d in a second", granted, refused, seconds, most)
	if most > rate {
		t.Errorf("%d grants in a second, want at most %d", most, rate)
	}
	if granted < int(seconds)*rate*9/10 || refused == 0 {
		t.Errorf("%d grants in %d s: the budget was not used", granted, seconds)
	}
}

// S1-45, S1-77: a million keys that never come again, under as many tenants, with
// grants and notices. What is kept of them has its bound, and memory is flat.
func TestFreshnessRandomKeysAreBounded(t *testing.T) {
	if raceEnabled {
		t.Skip("a million requests take too long under the race detector")
	}
	const keys, batch = 1_000_000, 1000
	p := newTestPeer(t, Config{MemoryMB: 8, TenantDelimiter: ':', TenantsTracked: 64,
		TenantDefault: Quota{GrantsInFlight: 1}})
	var half, whole store.FreshStats
	var heap [2]uint64
	measure := func(f *store.FreshStats) uint64 {
		*f = p.srv.snapshot(*p.now).store.Fresh
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var in []byte
	for i := 0; i < keys; i += batch {
		in = in[:0]
		for j := range batch / 2 {
			in = fmt.Appendf(in, "mg t%d:%d v G1000\r\nmd u%d:%d I Y%d\r\n", i+j, i, i+j, i, i+1)
		}
		p.w.now = *p.now
		p.run(in)
		*p.now += 20
		if i == keys/2 {
			heap[0] = measure(&half)
		}
	}
	heap[1] = measure(&whole)
	t.Logf("records %d of %d, %d bytes; floors dropped %d; heap %d and %d bytes", whole.Records, whole.RecordsMax, whole.RecordBytes,
		whole.FloorsDropped, heap[0], heap[1])
	if whole.Records > whole.RecordsMax || whole.RecordBytes != half.RecordBytes {
		t.Errorf("%d records of %d, %d bytes, and half way %d bytes", whole.Records, whole.RecordsMax, whole.RecordBytes, half.RecordBytes)
	}
	if whole.FloorsDropped == 0 || whole.FloorsUnknown == 0 {
		t.Errorf("%d floors dropped, unknown in %d shards", whole.FloorsDropped, whole.FloorsUnknown)
	}
	if heap[1] > heap[0]+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heap[0], heap[1])
	}
	if tenants, _ := p.srv.store.Tenants(math.MaxInt); len(tenants) > 64*p.srv.store.Shards() {
		t.Errorf("%d tenants are tracked", len(tenants))
	}
}

// S1-63: --fill-adapt. A source slows from 5 ms to 500 ms: as many questions are
// under way as before, and then fewer, where without it there would be as many as
// it can queue; and when it is well again, there are more.
func TestFreshnessAdapt(t *testing.T) {
	if raceEnabled {
		t.Skip("one request after the other: there is nothing for the race detector")
	}
	run := func(adapt bool) (before, slow, after int) {
		clock := newTestClock()
		_, addr := startServer(t, Config{Clock: clock.Now, Fresh: FreshConfig{Adapt: adapt}})
		c := dialFresh(t, addr, clock)
		type reader struct {
			key, token string
			done       int64
		}
		var out []reader
		n := 0
		phase := func(millis, latency int64) (most int) {
			for end := c.now() + millis; c.now() < end; c.advance(5) {
				var late []reader
				for _, r := range out {
					if r.done > c.now() {
						late = append(late, r)
						continue
					}
					c.wantFill(r.key, r.token, 1, "x", 0)
				}
				out = late
				for range 20 { // callers that come
					n++
					key := "k" + strconv.Itoa(n)
					f := c.lookup(key + " G1000")
					if f.token == "" {
						break
					}
					out = append(out, reader{key, f.token, c.now() + latency})
				}
				most = max(most, len(out))
			}
			return most
		}
		before = phase(3000, 5)
		phase(600, 500)
		slow = phase(3000, 500)
		phase(2000, 5)
		return before, slow, phase(1000, 5)
	}
	before, slow, after := run(true)
	_, without, _ := run(false)
	t.Logf("under way at once: %d, from a slow source %d, and again %d; without adapting %d", before, slow, after, without)
	if slow > before {
		t.Errorf("%d are under way when the source is slow, %d before", slow, before)
	}
	if after < 15 {
		t.Errorf("%d are under way when the source is well again", after)
	}
	if without < 1000 {
		t.Errorf("without adapting only %d: this was no test", without)
	}
}

// S3-34: early refresh. Of many values that are read often and take 100 ms to
// fill, most are refreshed before they are due, some fill times ahead, each by one
// caller; none where the background budget has nothing left, or beta is 0.
func TestFreshnessEarlyRefresh(t *testing.T) {
	if raceEnabled {
		t.Skip("one request after the other: there is nothing for the race detector")
	}
	const items, delta, step = 300, 100, 10
	run := func(c FreshConfig) (leads []int64, all int) {
		c.Seed = 7
		clock := newTestClock()
		_, addr := startServer(t, Config{Clock: clock.Now, Fresh: c})
		client := dialFresh(t, addr, clock)
		tokens := make([]string, items)
		for i := range tokens {
			tokens[i] = client.grant("k" + strconv.Itoa(i))
		}
		client.advance(delta)
		soft := client.now() + 5000
		for i, token := range tokens {
			client.want(fmt.Sprintf("ms k%d 1 G%s Y1 A%d,%d", i, token, soft+30_000, soft), "HD", "x")
		}
		won := make([]bool, items)
		client.advance(soft - client.now() - 15*delta) // e^-15 is never
		for ; client.now() <= soft; client.advance(step) {
			for i := range items {
				f := client.lookup("k" + strconv.Itoa(i) + " G60000")
				if f.token == "" {
					if f.Item.WinSent && client.now() < soft {
						t.Errorf("k%d: others are told Z before it is due", i)
					}
					continue
				}
				if won[i] && client.now() < soft {
					t.Errorf("k%d has two winners", i)
				}
				won[i] = true
				if all++; client.now() < soft {
					leads = append(leads, soft-client.now())
				}
			}
		}
		return leads, all
	}
	leads, _ := run(FreshConfig{GrantMaxMillis: 60_000})
	sum := int64(0)
	for _, l := range leads {
		sum += l
	}
	mean := float64(sum) / float64(max(len(leads), 1))
	// The k-th look before soft wins with exp(-k·step/delta): a Gumbel
	// distribution, whose mean this is.
	want := delta * (math.Log(delta/step) + 0.5772)
	t.Logf("%d of %d were refreshed early, %.0f ms ahead in the mean, want %.0f", len(leads), items, mean, want)
	if len(leads) < items*9/10 || math.Abs(mean-want) > 0.15*want {
		t.Errorf("%d refreshed early, %.0f ms ahead", len(leads), mean)
	}
	if leads, _ := run(FreshConfig{GrantMaxMillis: 60_000, EarlyBeta: -1}); len(leads) != 0 {
		t.Errorf("%d refreshed early without it", len(leads))
	}
	if leads, all := run(FreshConfig{GrantMaxMillis: 60_000, RateBackground: 1}); len(leads) > 6 || all < items-10 {
		t.Errorf("%d refreshed early, %d in all, with a background budget of 1 a second", len(leads), all)
	}
}
