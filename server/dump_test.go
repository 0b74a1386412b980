package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// fill stores n items with the keys k0, k1 and so on.
func fill(t testing.TB, s *Server, n int) {
	t.Helper()
	for i := range n {
		o := store.SetOptions{}
		if res := s.store.Set(store.KeyOf(fmt.Appendf(nil, "k%d", i)), []byte("value"), &o, s.clock()); res.Status != store.OK {
			t.Fatalf("k%d: got status %d", i, res.Status)
		}
	}
}

// readDump reads a dump up to its end and returns how often each key is in it.
func readDump(t testing.TB, r *bufio.Reader, keyOf func(line string) string, end string) map[string]int {
	t.Helper()
	keys := map[string]int{}
	for first := true; ; first = false {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d keys: %v", len(keys), err)
		}
		switch {
		case first && line != "OK\r\n":
			t.Fatalf("got %q, want OK", line)
		case first:
		case line == end:
			return keys
		default:
			keys[keyOf(line)]++
		}
	}
}

func metaKey(line string) string {
	key, _, _ := strings.Cut(strings.TrimPrefix(line, "key="), " ")
	return key
}

func mgKey(line string) string { return strings.TrimSuffix(strings.TrimPrefix(line, "mg "), "\r\n") }

// Under load both dumps have every item that stays exactly once, and what was
// asked behind them is answered.
func TestDumpUnderLoad(t *testing.T) {
	const n = 50_000
	s, addr := startServer(t, Config{Threads: 2})
	fill(t, s, n)
	var load sync.WaitGroup
	var stop atomic.Bool
	t.Cleanup(func() {
		stop.Store(true)
		load.Wait()
	})
	for g := range 2 {
		c := dial(t, addr)
		load.Go(func() {
			r := bufio.NewReader(c)
			for i := 0; !stop.Load(); i++ {
				var out []byte
				for j := range 50 {
					out = fmt.Appendf(out, "set load%d-%d 0 0 3\r\nabc\r\nget k%d\r\n", g, (i*50+j)%200_000, (i*50+j)%n)
				}
				if _, err := c.Write(append(out, "mn\r\n"...)); err != nil {
					return
				}
				for {
					line, err := r.ReadString('\n')
					if err != nil || line == "MN\r\n" {
						break
					}
				}
			}
		})
	}
	for _, kind := range []struct {
		command, end string
		key          func(string) string
	}{
		{"metadump all", "END\r\n", metaKey},
		{"mgdump hash", "EN\r\n", mgKey},
	} {
		c := dial(t, addr)
		if _, err := fmt.Fprintf(c, "lru_crawler %s\r\nget k7\r\nmn\r\n", kind.command); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(c)
		keys := readDump(t, r, kind.key, kind.end)
		for i := range n {
			if k := fmt.Sprint("k", i); keys[k] != 1 {
				t.Fatalf("%s: %s is there %d times", kind.command, k, keys[k])
			}
		}
		for k, times := range keys {
			if times != 1 {
				t.Fatalf("%s: %s is there %d times", kind.command, k, times)
			}
		}
		want := "VALUE k7 0 5\r\nvalue\r\nEND\r\nMN\r\n"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Errorf("behind %s: got %q, %v, want %q", kind.command, got, err, want)
		}
	}
}

// A peer that does not read its dump holds up nobody but those who want a dump
// too, takes bounded memory, and when it goes the dump ends.
func TestDumpUnread(t *testing.T) {
	const n = 100_000
	s, addr := startServer(t, Config{Threads: 1, sendBufferBytes: smallSend})
	fill(t, s, n)
	c := dial(t, addr)
	if err := c.(*net.TCPConn).SetReadBuffer(smallSend); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "lru_crawler metadump all\r\n"); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(c, first); err != nil || string(first) != "OK\r\n" {
		t.Fatalf("got %q, %v", first, err)
	}
	other := dial(t, addr)
	r := bufio.NewReader(other)
	for _, step := range []struct{ send, want string }{
		{"get k1\r\n", "VALUE k1 0 5\r\nvalue\r\nEND\r\n"},
		{"lru_crawler metadump all\r\n", "BUSY currently processing crawler request\r\n"},
		{"lru_crawler mgdump all\r\n", "BUSY currently processing crawler request\r\n"},
		{"lru_crawler crawl all\r\n", "BUSY currently processing crawler request\r\n"},
	} {
		if _, err := io.WriteString(other, step.send); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(step.want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != step.want {
			t.Fatalf("%q: got %q, %v, want %q", step.send, got, err, step.want)
		}
	}
	if f := s.crawler.figures(); !f.running || f.starts != 1 {
		t.Errorf("got running %v and %d starts, want true and 1", f.running, f.starts)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the dump has ended without a reader", func() bool { return !s.crawler.figures().running })
}

// A step of a dump makes no more output than is said, and none but the first
// is made where the session was asked: that may be a loop.
func TestDumpSteps(t *testing.T) {
	p := newTestPeer(t, Config{MemoryMB: 8})
	long := strings.Repeat("\xff", 245)
	for i := range 10_000 {
		p.send(fmt.Sprintf("set %s%05d 0 0 1 noreply\r\nx\r\n", long, i))
	}
	p.w.now = p.srv.clock()
	in := []byte("lru_crawler metadump all\r\nmn\r\n")
	used, v := p.s.feed(&p.w, in)
	if got := string(p.w.out.buf); got != "OK\r\n" || v != verdictWait || used != len(in)-len("mn\r\n") {
		t.Fatalf("got %q, verdict %d, %d bytes taken", short(got), v, used)
	}
	p.w.out.reset()
	p.w.mayWait = true
	steps, lines := 0, 0
	for ; v == verdictWait; steps++ {
		_, v = p.s.feed(&p.w, in[used:])
		if n := p.w.out.pending(); n > 300<<10 {
			t.Fatalf("%d bytes in one step", n)
		}
		lines += bytes.Count(p.w.out.buf, []byte("\n"))
		p.w.out.reset()
	}
	if lines != 10_000+2 || steps < 10_000/(dumpItemsAStep+4*108) {
		t.Errorf("%d lines in %d steps", lines, steps)
	}
}

// The answer to stats cachedump is bounded.
func TestCachedumpBound(t *testing.T) {
	p := newTestPeer(t, Config{MemoryMB: 32})
	long := strings.Repeat("k", 240)
	for i := range 20_000 {
		p.send(fmt.Sprintf("set %s%05d 0 0 1 noreply\r\nx\r\n", long, i))
	}
	var st store.Stats
	p.srv.store.Snapshot(p.srv.clock(), &st)
	for i := range st.Classes {
		if st.Classes[i].Items == 0 {
			continue
		}
		got := p.send(fmt.Sprintf("stats cachedump %d 0\r\nmn\r\n", i+1))
		if len(got) > cachedumpMaxBytes+len("MN\r\n") || len(got) < cachedumpMaxBytes-500 || !strings.HasSuffix(got, "\r\nEND\r\nMN\r\n") {
			t.Errorf("got %d bytes that end in %q", len(got), got[len(got)-20:])
		}
		got = p.send(fmt.Sprintf("stats cachedump %d 7\r\n", i+1))
		if n := strings.Count(got, "ITEM "); n != 7 {
			t.Errorf("asked for 7 items, got %d", n)
		}
	}
}

// A crawl frees what has expired, in the background.
func TestCrawlCommand(t *testing.T) {
	clock := newTestClock()
	s, addr := startServer(t, Config{Threads: 1, Clock: clock.Now, Extended: Extended{NoLRUCrawler: true, NoLRUMaintainer: true}})
	for i := range 1000 {
		o := store.SetOptions{Expiry: clock.Now().Seconds() + uint32(i%2)*10}
		if i%2 == 0 {
			o.Expiry = 0
		}
		s.store.Set(store.KeyOf(fmt.Appendf(nil, "k%d", i)), []byte("v"), &o, clock.Now())
	}
	clock.Advance(11 * time.Second)
	var st store.Stats
	s.store.Snapshot(clock.Now(), &st)
	before := st.Looks
	eventually(t, "the background has looked", func() bool {
		s.store.Snapshot(clock.Now(), &st)
		return st.Looks > before+1
	})
	if st.Total.Items != 1000 {
		t.Fatalf("%d items: without a crawler the background leaves all 1000 alone", st.Total.Items)
	}
	s.enableCrawler(true)
	c := dial(t, addr)
	if _, err := io.WriteString(c, "lru_crawler crawl all\r\n"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "OK\r\n" {
		t.Fatalf("got %q, %v", got, err)
	}
	eventually(t, "500 items are left", func() bool {
		s.store.Snapshot(clock.Now(), &st)
		return st.Total.Items == 500 && !s.crawler.figures().running
	})
	if st.Total.SweepReclaimed != 500 || st.Total.SweepChecked < 500 {
		t.Errorf("%d freed of %d looked at, want 500", st.Total.SweepReclaimed, st.Total.SweepChecked)
	}
}

// BenchmarkDump is a step of a dump, without sending what it makes.
func BenchmarkDump(b *testing.B) {
	p := newTestPeer(b, Config{MemoryMB: 512, Threads: 2})
	const n = 1_000_000
	fill(b, p.srv, n)
	for _, kind := range []string{"metadump", "mgdump"} {
		b.Run(kind, func(b *testing.B) {
			p.srv.crawler.sleepMicros = 0
			p.w.mayWait = true
			dumps := 0
			for b.Loop() {
				p.w.now = p.srv.clock()
				for _, v := p.s.feed(&p.w, []byte("lru_crawler "+kind+" all\r\n")); v == verdictWait; {
					p.w.out.reset()
					_, v = p.s.feed(&p.w, nil)
				}
				p.w.out.reset()
				dumps++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(dumps)/n, "ns/item")
		})
	}
}
