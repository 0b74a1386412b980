package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// testClient is a connection to a server under test.
type testClient struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dialClient(t testing.TB, addr string) *testClient {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	return &testClient{t, conn, bufio.NewReader(conn)}
}

// line is the next line that comes.
func (c *testClient) line() string {
	c.t.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil {
		c.t.Fatalf("got %q and then %v", line, err)
	}
	return line
}

// ask sends a command, and gives the first line of the answer.
func (c *testClient) ask(command string) string {
	c.t.Helper()
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		c.t.Fatal(err)
	}
	return c.line()
}

// dialWatcher is a connection that watches.
func dialWatcher(t testing.TB, addr, words string) *testClient {
	t.Helper()
	c := dialClient(t, addr)
	if got := c.ask("watch " + words); got != "OK\r\n" {
		t.Fatalf("watch %s: got %q", words, got)
	}
	return c
}

// field is the value behind name= in a line.
func field(line, name string) string {
	_, rest, _ := strings.Cut(" "+line, " "+name+"=")
	value, _, _ := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
	return value
}

// askStat is the value of a statistic.
func askStat(t testing.TB, addr, name string) uint64 {
	t.Helper()
	c := dialClient(t, addr)
	defer c.Close()
	for line := c.ask("stats"); line != "END\r\n"; line = c.line() {
		if value, ok := strings.CutPrefix(line, "STAT "+name+" "); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no statistic %s", name)
	return 0
}

// An eviction is told before the store that it made room for, with what the
// item was.
func TestWatchEvictions(t *testing.T) {
	clock := newTestClock()
	_, addr := startServer(t, Config{MemoryMB: 2, Threads: 2, Clock: clock.Now})
	c := dialClient(t, addr)
	value := strings.Repeat("v", 1000)
	set := func(i, ttl int) {
		t.Helper()
		if got := c.ask(fmt.Sprintf("set key/%d 0 %d %d\r\n%s", i, ttl, len(value), value)); got != "STORED\r\n" {
			t.Fatalf("set: got %q", got)
		}
	}
	w := dialWatcher(t, addr, "evictions mutations")
	sizes := map[string]int{}
	for i, evictions := 0, 0; evictions < 100; i++ {
		set(i, 1000*(i%2))
		sizes[fmt.Sprintf("key%%2F%d", i)] = i
		clock.Advance(10 * time.Millisecond)
		for {
			line := w.line()
			if field(line, "type") == "item_store" {
				break
			}
			evictions++
			n, ok := sizes[field(line, "key")]
			ttl, err := strconv.Atoi(field(line, "ttl"))
			if !ok || err != nil || field(line, "size") != "1000" || field(line, "fetch") != "no" ||
				(n%2 == 0) != (ttl == -1) || ttl > 1000 || ttl == 0 {
				t.Fatalf("eviction: got %q", line)
			}
			delete(sizes, field(line, "key"))
			if got := c.ask("mg " + strings.ReplaceAll(field(line, "key"), "%2F", "/")); got != "EN\r\n" {
				t.Errorf("it was not evicted: %q", got)
			}
		}
	}
}

// Pages that move are told of.
func TestWatchMoves(t *testing.T) {
	_, addr := startServer(t, Config{MemoryMB: 2, Threads: 1})
	c := dialClient(t, addr)
	for i := range 1000 {
		if got := c.ask(fmt.Sprintf("set %d 0 0 %d\r\n%s", i, 1000, strings.Repeat("v", 1000))); got != "STORED\r\n" {
			t.Fatalf("set: got %q", got)
		}
	}
	src := strings.TrimPrefix(strings.Fields(c.ask("me 999"))[6], "cls=")
	w := dialWatcher(t, addr, "sysevents")
	if got := c.ask("slabs reassign " + src + " 3"); got != "OK\r\n" {
		t.Fatalf("slabs reassign: got %q", got)
	}
	if got, want := w.line(), " type=slab_move src="+src+" dst=3 state=ok\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q at its end", got, want)
	}
}

// The sweeper tells what it met, once it has walked over all pages.
func TestWatchSweep(t *testing.T) {
	clock := newTestClock()
	s, addr := startServer(t, Config{Threads: 1, MemoryMB: 2, Clock: clock.Now})
	c := dialClient(t, addr)
	for i := range 10 {
		for _, ttl := range []int{1, 100, 10_000, 0} {
			if got := c.ask(fmt.Sprintf("set %d-%d 0 %d 1\r\nx", i, ttl, ttl)); got != "STORED\r\n" {
				t.Fatal(got)
			}
		}
	}
	w := dialWatcher(t, addr, "sysevents")
	clock.Advance(2 * time.Second)
	s.store.Sweep(clock.Now())
	sums := map[string]int{}
	for sums["examined"]+sums["reclaimed"] < 40 {
		line := w.line()
		if field(line, "type") != "lru_crawler" || field(line, "crawler") == "0" ||
			!strings.Contains("hot warm cold", field(line, "lru")) || field(line, "elapsed") != "0" {
			t.Fatalf("got %q", line)
		}
		for _, name := range []string{"examined", "reclaimed", "next_reclaims"} {
			n, err := strconv.Atoi(field(line, name))
			if err != nil {
				t.Fatalf("got %q", line)
			}
			sums[name] += n
		}
	}
	if want := (map[string]int{"examined": 30, "reclaimed": 10, "next_reclaims": 10}); !maps.Equal(sums, want) {
		t.Errorf("got %v, want %v", sums, want)
	}
}

// cfd is the number under which stats conns shows the connection.
func TestWatchDescriptors(t *testing.T) {
	_, addr := startServer(t, Config{Threads: 4})
	w := dialWatcher(t, addr, "fetchers")
	for range 8 {
		c := dialClient(t, addr)
		var fd string
		for line := c.ask("stats conns"); line != "END\r\n"; line = c.line() {
			if id, ok := strings.CutSuffix(line, ":state conn_parse_cmd\r\n"); ok {
				fd = strings.TrimPrefix(id, "STAT ")
			}
		}
		c.ask("get a")
		if line := w.line(); fd == "" || field(line, "cfd") != fd {
			t.Errorf("got %q, want cfd=%s", line, fd)
		}
	}
	c := dialClient(t, addr)
	eventually(t, "a connection watches", func() bool {
		watching := false
		for line := c.ask("stats conns"); line != "END\r\n"; line = c.line() {
			watching = watching || strings.HasSuffix(line, ":state conn_watch\r\n")
		}
		return watching
	})
}

// With many connections and watchers every watcher is told of everything, in
// order.
func TestWatchMany(t *testing.T) {
	_, addr := startServer(t, Config{Threads: 4, Extended: Extended{
		WorkerBufferBytes: 8 << 20, WatcherBufferBytes: 8 << 20,
	}})
	const clients, requests = 8, 200
	var watchers []*testClient
	for range watchersMax {
		watchers = append(watchers, dialWatcher(t, addr, "fetchers mutations"))
	}
	if got, want := dialClient(t, addr).ask("watch"), "WATCHER_TOO_MANY log watcher limit reached\r\n"; got != want {
		t.Errorf("one more: got %q, want %q", got, want)
	}
	if got := askStat(t, addr, "log_watchers"); got != watchersMax {
		t.Errorf("log_watchers %d, want %d", got, watchersMax)
	}
	var wg sync.WaitGroup
	for i := range clients {
		c := dialClient(t, addr)
		wg.Go(func() {
			for n := range requests {
				fmt.Fprintf(c, "set %d-%d 0 0 1\r\nx\r\nget %d-%d\r\n", i, n, i, n)
				for range 4 {
					c.line()
				}
			}
		})
	}
	for _, w := range watchers {
		wg.Go(func() {
			next := map[string]int{} // by client: line that comes next, three for each request
			last := uint64(0)
			for range clients * requests * 3 {
				line := w.line()
				gid, err := strconv.ParseUint(field(line, "gid"), 10, 64)
				if err != nil || gid <= last {
					t.Errorf("after gid %d: %q", last, line)
					return
				}
				last = gid
				client, _, _ := strings.Cut(field(line, "key"), "-")
				n := next[client]
				want := [...]string{"item_get", "item_store", "item_get"}[n%3]
				if field(line, "key") != client+"-"+strconv.Itoa(n/3) || field(line, "type") != want {
					t.Errorf("line %d of client %s: %q", n, client, line)
					return
				}
				next[client]++
			}
		})
	}
	wg.Wait()
	if got, want := askStat(t, addr, "log_worker_written"), uint64(clients*requests*3); got != want {
		t.Errorf("log_worker_written %d, want %d", got, want)
	}
	if got, want := askStat(t, addr, "log_watcher_sent"), uint64(clients*requests*3*watchersMax); got != want {
		t.Errorf("log_watcher_sent %d, want %d", got, want)
	}
	for _, name := range []string{"log_worker_dropped", "log_watcher_skipped"} {
		if got := askStat(t, addr, name); got != 0 {
			t.Errorf("%s %d", name, got)
		}
	}
	for _, w := range watchers {
		w.Close()
	}
	eventually(t, "log_watchers is 0", func() bool { return askStat(t, addr, "log_watchers") == 0 })
	// There is room for others.
	dialWatcher(t, addr, "")
}

// A watcher that does not read loses lines, is told how many, and holds up
// neither the server nor other watchers.
func TestWatchSlow(t *testing.T) {
	s, addr := startServer(t, Config{
		Threads: 2, sendBufferBytes: 4096,
		Extended: Extended{WatcherBufferBytes: 8 << 10},
	})
	slow, fast := dialWatcher(t, addr, ""), dialWatcher(t, addr, "")
	if err := slow.Conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	c := dialClient(t, addr)
	spacer := strings.Repeat("X", 180)
	gets := 0
	lost := make(chan int)
	go func() { // the fast one
		n := 0
		for {
			line, err := fast.r.ReadString('\n')
			if err != nil {
				lost <- n
				return
			}
			if skipped, ok := strings.CutPrefix(strings.TrimSpace(line), "skipped="); ok {
				k, _ := strconv.Atoi(skipped)
				n += k
			}
		}
	}()
	for s.watch.skipped.Load() < 1000 {
		c.ask(fmt.Sprintf("get foo%d%s", gets, spacer))
		gets++
	}
	fast.Close()
	if n := <-lost; n > 500 {
		t.Errorf("who reads lost %d lines", n)
	}
	// Now it reads: first what was kept, then the number of those lost, behind
	// which the next one comes.
	var line string
	kept := 0
	deadline := time.Now().Add(testTimeout)
	for !strings.HasPrefix(line, "skipped=") {
		slow.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		part, err := slow.r.ReadString('\n')
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(deadline):
			line += part
			c.ask("get foo")
			gets++
			continue
		case err != nil:
			t.Fatal(err)
		}
		if line += part; !strings.HasPrefix(line, "skipped=") {
			if field(line, "key") != fmt.Sprintf("foo%d%s", kept, spacer) {
				t.Fatalf("line %d: %q", kept, line)
			}
			kept++
			line = ""
		}
	}
	slow.SetReadDeadline(deadline)
	skipped, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "skipped=")))
	if err != nil || skipped == 0 {
		t.Errorf("got %q", line)
	}
	if line := slow.line(); field(line, "type") != "item_get" || kept+skipped >= gets {
		t.Errorf("after %d and %d lost of %d: %q", kept, skipped, gets, line)
	}
}

// A ring that is full drops records and counts them.
func TestWatchDrops(t *testing.T) {
	s, addr := startServer(t, Config{Threads: 1, Extended: Extended{WorkerBufferBytes: 1 << 10}})
	w := dialWatcher(t, addr, "")
	c := dialClient(t, addr)
	const keys = 500
	c.ask("get" + strings.Repeat(" k", keys))
	written, dropped := s.watch.stats().Written, s.watch.stats().Dropped
	if written+dropped != keys || dropped < keys/2 {
		t.Errorf("%d written, %d dropped, want %d, most of them dropped", written, dropped, keys)
	}
	for range written {
		if line := w.line(); field(line, "key") != "k" {
			t.Fatalf("got %q", line)
		}
	}
	if got := askStat(t, addr, "log_worker_dropped"); got != dropped {
		t.Errorf("log_worker_dropped %d, want %d", got, dropped)
	}
	if got := c.ask("stats reset"); got != "RESET\r\n" {
		t.Fatal(got)
	}
	if got := askStat(t, addr, "log_worker_dropped"); got != 0 {
		t.Errorf("log_worker_dropped %d after reset", got)
	}
}

// Watchers come and go, in every way, while lines flow.
func TestWatchersLeave(t *testing.T) {
	s, addr := startServer(t, Config{Threads: 2, sendBufferBytes: 4096})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		c := dialClient(t, addr)
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := fmt.Fprintf(c, "set k%d 0 0 1\r\nx\r\n", n%100); err != nil {
					t.Error(err)
					return
				}
				if _, err := c.r.ReadString('\n'); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 60 {
		w := dialWatcher(t, addr, "fetchers mutations connevents")
		switch i % 4 {
		case 0: // reads, and closes
			w.line()
			w.Close()
		case 1: // does not read; is reset
			w.Conn.(*net.TCPConn).SetLinger(0)
			w.Close()
		case 2: // says that it has nothing to say, and does not read
			w.Conn.(*net.TCPConn).CloseWrite()
		case 3: // talks, and leaves
			io.WriteString(w, "get a\r\nquit\r\n")
			w.line()
			w.Close()
		}
	}
	close(stop)
	wg.Wait()
	eventually(t, "no watcher is left", func() bool { return len(*s.watch.list.Load()) == 0 })
	eventually(t, "their connections have ended", func() bool { return s.counts.aside.Load() == 0 })
	if got := s.watch.wanted.Load(); got != 0 {
		t.Errorf("streams %b are wanted by nobody", got)
	}
}

// A connection that is aside can become a watcher, and stays one.
func TestWatchFromAside(t *testing.T) {
	s, addr := startServer(t, Config{Threads: 1, sendBufferBytes: 4096})
	c := dialClient(t, addr)
	size := 900_000
	if got := c.ask(fmt.Sprintf("set large 0 0 %d\r\n%s", size, strings.Repeat("v", size))); got != "STORED\r\n" {
		t.Fatal(got)
	}
	w := dialClient(t, addr)
	io.WriteString(w, "get large\r\n")
	eventually(t, "it is aside", func() bool { return s.counts.aside.Load() == 1 })
	for line := w.line(); line != "END\r\n"; line = w.line() {
	}
	if got := w.ask("watch"); got != "OK\r\n" {
		t.Fatalf("watch: got %q", got)
	}
	// For longer than a connection that is aside waits for input.
	for end := time.Now().Add(4 * asideIdle); time.Now().Before(end); {
		c.ask("get a")
		if line := w.line(); field(line, "key") != "a" {
			t.Fatalf("got %q", line)
		}
	}
}

// A server closes with watchers that do not read.
func TestWatchClose(t *testing.T) {
	s, addr := startServer(t, Config{Threads: 1, sendBufferBytes: 4096})
	idle := dialWatcher(t, addr, "sysevents")
	dialWatcher(t, addr, "fetchers")
	c := dialClient(t, addr)
	for s.watch.skipped.Load() == 0 {
		c.ask("get" + strings.Repeat(" "+strings.Repeat("k", 200), 100))
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if line, err := idle.r.ReadString('\n'); err == nil {
		t.Errorf("got %q", line)
	}
}

// On a unix socket, a peer has no address.
func TestWatchUnixSocket(t *testing.T) {
	path := socketPath(t)
	startServer(t, Config{UnixSocket: path, Threads: 1})
	dial := func() *testClient {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return &testClient{t, conn, bufio.NewReader(conn)}
	}
	w := dial()
	w.ask("watch connevents")
	dial().Close()
	for _, want := range []string{
		"type=conn_new rip=unix rport=0 transport=local cfd=",
		"type=conn_close rip=unix rport=0 transport=local reason=normal cfd=",
	} {
		if line := w.line(); !strings.Contains(line, want) {
			t.Errorf("got %q, want %q in it", line, want)
		}
	}
}

// A watcher with TLS is told the same, and of what goes wrong with TLS.
func TestWatchTLS(t *testing.T) {
	ca := newTestCA(t, "ca")
	s, addr := startServer(t, Config{Threads: 1, TLS: ca.server(t)})
	dialed := func() *testClient {
		conn := dialTLS(t, addr, ca.client(t))
		return &testClient{t, conn, bufio.NewReader(conn)}
	}
	w := dialed()
	if got := w.ask("watch fetchers connevents"); got != "OK\r\n" {
		t.Fatalf("watch: got %q", got)
	}
	told := func(wants ...string) {
		t.Helper()
		for _, want := range wants {
			if line := w.line(); !strings.Contains(line, want) {
				t.Errorf("got %q, want %q in it", line, want)
			}
		}
	}
	c := dialed()
	c.ask("get a")
	c.Close()
	told("type=conn_new rip=127.0.0.1 ", "type=item_get key=a status=not_found ", "type=conn_close rip=127.0.0.1 ")
	io.WriteString(dial(t, addr), "get a\r\n")
	told("type=conn_new rip=127.0.0.1 ", "type=conntlserr fd=", "type=conn_close rip=127.0.0.1 ")
	// It may talk, and not read, and leave.
	io.WriteString(w, "get a\r\n")
	c = dialed()
	for s.watch.skipped.Load() == 0 {
		c.ask("get" + strings.Repeat(" "+strings.Repeat("k", 200), 100))
	}
	w.Close()
	eventually(t, "no watcher is left", func() bool { return len(*s.watch.list.Load()) == 0 })
	// One that waits ends with the server.
	w = dialed()
	w.ask("watch mutations")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if line, err := w.r.ReadString('\n'); err == nil {
		t.Errorf("got %q", line)
	}
}

// Watching allocates nothing where requests are served.
func TestWatchNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops what it is given under the race detector")
	}
	for _, tc := range steady {
		p := newTestPeer(t, Config{})
		w := p.srv.watch.add(p.s.conn, streamsOfRequests|streamEvictions)
		p.send(tc.setup)
		in := []byte(tc.in)
		run := func() {
			p.w.begin(p.srv, p.s.conn, p.srv.watch.common())
			p.run(in)
		}
		run()
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s: %v allocations", tc.name, n)
		}
		if got := p.srv.watch.stats(); got.Written+got.Dropped == 0 && !strings.HasSuffix(strings.ToLower(tc.name), "noop") {
			t.Errorf("%s: nobody was watched", tc.name)
		}
		p.srv.watch.remove(w)
	}
}

// BenchmarkWatchGet is what watching costs a loop: gets without a watcher,
// with one, and with one of something else.
func BenchmarkWatchGet(b *testing.B) {
	for _, bc := range []struct {
		name    string
		streams stream
	}{
		{"none", 0}, {"another", streamMutations}, {"fetchers", streamFetchers},
	} {
		b.Run(bc.name, func(b *testing.B) {
			p := newTestPeer(b, Config{})
			p.send("set k 0 0 100\r\n" + value100 + "\r\n")
			h := &p.srv.watch
			if bc.streams != 0 {
				stop := make(chan struct{})
				var wg sync.WaitGroup
				w := h.add(p.s.conn, bc.streams)
				wg.Go(func() { h.run(stop) })
				wg.Go(func() { // reads all
					var lines []byte
					for {
						select {
						case <-stop:
							return
						case <-w.ready:
							lines = w.next(lines)
						}
					}
				})
				defer func() { close(stop); wg.Wait(); h.remove(w) }()
			}
			in := []byte(strings.Repeat("get k\r\n", 16))
			b.ReportAllocs()
			for b.Loop() {
				p.w.begin(p.srv, p.s.conn, h.common())
				p.run(in)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*16), "ns/req")
		})
	}
}

// The number of a connection is the lowest that is free.
func TestNumbers(t *testing.T) {
	n := numbers{first: 10}
	for i := range 200 {
		if got, want := n.take(), 10+i; got != want {
			t.Fatalf("take: got %d, want %d", got, want)
		}
	}
	for _, number := range []int{150, 10, 73} {
		n.giveBack(number)
	}
	for _, want := range []int{10, 73, 150, 210} {
		if got := n.take(); got != want {
			t.Errorf("take: got %d, want %d", got, want)
		}
	}
}
