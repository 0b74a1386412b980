package link

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quarrycache/quarry/meta"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a server of a few commands: mg k v answers the key as its value, mn
// answers MN, ms stores nothing, and some keys do what their names say.
type node struct {
	l       net.Listener
	mute    atomic.Bool  // takes requests and answers none
	unheard atomic.Int64 // requests that were not answered
	open    atomic.Int64
	dialled atomic.Int64
	mu      sync.Mutex
	conns   []net.Conn
	gone    sync.WaitGroup
}

func startNode(t testing.TB) *node {
	t.Helper()
	leakless(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{l: l}
	n.gone.Go(n.accept)
	t.Cleanup(func() {
		_ = l.Close()
		n.drop()
		n.gone.Wait()
	})
	return n
}

func (n *node) addr() string { return n.l.Addr().String() }

func (n *node) accept() {
	for {
		c, err := n.l.Accept()
		if err != nil {
			return
		}
		n.dialled.Add(1)
		n.mu.Lock()
		n.conns = append(n.conns, c)
		n.mu.Unlock()
		n.gone.Go(func() { n.serve(c) })
	}
}

// drop ends all connections.
func (n *node) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
}

func (n *node) serve(c net.Conn) {
	defer c.Close()
	r, w := bufio.NewReader(c), bufio.NewWriter(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Fields(line)
		if n.mute.Load() {
			n.unheard.Add(1)
			continue
		}
		switch words[0] {
		case "mn":
			w.WriteString("MN\r\n")
		case "set":
			size, _ := strconv.Atoi(words[4])
			secret := make([]byte, size+2)
			if _, err := io.ReadFull(r, secret); err != nil {
				return
			}
			if string(secret) == "peer secret\r\n" {
				w.WriteString("STORED\r\n")
			} else {
				w.WriteString("CLIENT_ERROR authentication failure\r\n")
			}
		case "ms":
			size, _ := strconv.Atoi(words[2])
			if _, err := io.CopyN(io.Discard, r, int64(size+2)); err != nil {
				return
			}
			fmt.Fprintf(w, "HD s%d\r\n", size)
		case "mg":
			key := words[1]
			switch {
			case key == "garbage":
				w.WriteString("VA x\r\n")
			case strings.HasPrefix(key, "big"):
				size, _ := strconv.Atoi(key[3:])
				fmt.Fprintf(w, "VA %d\r\n%s\r\n", size, bytes.Repeat([]byte{'x'}, size))
			default:
				fmt.Fprintf(w, "VA %d\r\n%s\r\n", len(key), key)
			}
		}
		if r.Buffered() == 0 {
			w.Flush()
		}
	}
}

func newLink(t testing.TB, c Config) *Link {
	t.Helper()
	leakless(t)
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	l := New(c)
	t.Cleanup(l.Close)
	return l
}

func get(key string) *Call {
	c := NewCall()
	c.Request.Op, c.Request.Verb = meta.OpGet, meta.VerbMetaGet
	c.Request.Key = []byte(key)
	c.Request.AddFlag('v')
	return c
}

func ask(ctx context.Context, l *Link, key string) (string, error) {
	c := get(key)
	if err := l.Do(ctx, c); err != nil {
		return "", err
	}
	defer c.Free()
	return string(c.Reply.Value), nil
}

func TestCalls(t *testing.T) {
	n := startNode(t)
	l := newLink(t, Config{Addr: n.addr()})
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for i := range 200 {
				key := fmt.Sprintf("k%d-%d", g, i)
				if got, err := ask(t.Context(), l, key); err != nil || got != key {
					t.Errorf("%s: %q, %v", key, got, err)
				}
			}
		})
	}
	all.Wait()
	if n.dialled.Load() != 1 {
		t.Errorf("%d connections, want 1", n.dialled.Load())
	}
	if s := l.Stats(); s.Calls != 16*200 || s.Failed != 0 || s.Waiting != 0 || !s.Connected {
		t.Errorf("stats %+v", s)
	}
}

func TestBatch(t *testing.T) {
	n := startNode(t)
	l := newLink(t, Config{Addr: n.addr()})
	var list []*Call
	for i := range 100 {
		c := get(fmt.Sprint("key", i))
		if i%10 == 3 {
			c.Request.Reset()
			c.Request.Op, c.Request.Verb, c.Request.Key = meta.OpSet, meta.VerbMetaSet, []byte("k")
			c.Value = bytes.Repeat([]byte{'v'}, i*1000)
		}
		list = append(list, c)
	}
	if err := l.Do(t.Context(), list...); err != nil {
		t.Fatal(err)
	}
	for i, c := range list {
		switch {
		case i%10 == 3 && (c.Reply.Code != meta.CodeHD || c.Reply.Item.Size != i*1000):
			t.Errorf("call %d: %v %d", i, c.Reply.Code, c.Reply.Item.Size)
		case i%10 != 3 && string(c.Reply.Value) != fmt.Sprint("key", i):
			t.Errorf("call %d: %q", i, c.Reply.Value)
		}
		c.Free()
	}
}

func TestLargeReplies(t *testing.T) {
	n := startNode(t)
	l := newLink(t, Config{Addr: n.addr(), ReplyMax: 4 << 20})
	for _, size := range []int{0, 65535, 65536, 1 << 20, 3 << 20, 5} {
		if got, err := ask(t.Context(), l, fmt.Sprint("big", size)); err != nil || len(got) != size {
			t.Errorf("%d bytes: %d, %v", size, len(got), err)
		}
	}
	if _, err := ask(t.Context(), l, fmt.Sprint("big", 5<<20)); !errors.Is(err, ErrBroken) {
		t.Errorf("a reply over ReplyMax: %v", err)
	}
	if got, err := ask(t.Context(), l, "after"); err != nil || got != "after" {
		t.Errorf("after it: %q, %v", got, err)
	}
}

// A node that takes requests and says nothing: calls end in time, and so does
// the connection.
func TestSilence(t *testing.T) {
	n := startNode(t)
	n.mute.Store(true)
	l := newLink(t, Config{Addr: n.addr(), Timeout: 300 * time.Millisecond})
	if _, err := ask(t.Context(), l, "k"); !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrBroken) {
		t.Errorf("no answer: %v", err)
	}
	n.mute.Store(false)
	dialled := int64(2)
	got, err := ask(t.Context(), l, "k")
	for end := time.Now().Add(time.Minute); errors.Is(err, ErrTimeout) && time.Now().Before(end); dialled++ {
		got, err = ask(t.Context(), l, "k") // a busy machine
	}
	if err != nil || got != "k" {
		t.Errorf("on a new connection: %q, %v", got, err)
	}
	if n := int64(n.dialled.Load()); n > dialled {
		t.Errorf("%d connections, want %d", n, dialled)
	}
}

// A caller that leaves does not disturb the calls behind its own.
func TestCallersThatLeave(t *testing.T) {
	n := startNode(t)
	l := newLink(t, Config{Addr: n.addr()})
	if _, err := ask(t.Context(), l, "warm"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 == 0 {
					go cancel()
				}
				key := fmt.Sprintf("k%d-%d", g, i)
				got, err := ask(ctx, l, key)
				if err == nil && got != key || err != nil && (i%3 != 0 || !errors.Is(err, context.Canceled)) {
					t.Errorf("%s: %q, %v", key, got, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

func TestLostConnections(t *testing.T) {
	n := startNode(t)
	l := newLink(t, Config{Addr: n.addr()})
	for _, key := range []string{"garbage", "k"} {
		_, err := ask(t.Context(), l, key)
		if key == "garbage" && !errors.Is(err, ErrBroken) || key == "k" && err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	n.mute.Store(true)
	done := make(chan error)
	go func() {
		_, err := ask(t.Context(), l, "waits")
		done <- err
	}()
	for l.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	n.drop()
	if err := <-done; !errors.Is(err, ErrBroken) {
		t.Errorf("the connection was lost: %v", err)
	}
}

// Nobody there: calls fail at once while the next dial waits.
func TestDialBackoff(t *testing.T) {
	n := startNode(t)
	_ = n.l.Close()
	l := newLink(t, Config{Addr: n.addr()})
	for range 50 {
		if _, err := ask(t.Context(), l, "k"); !errors.Is(err, ErrDial) {
			t.Fatalf("nobody there: %v", err)
		}
	}
	if s := l.Stats(); s.Dials > 5 || s.DialFails != s.Dials {
		t.Errorf("50 calls dialled %d times, %d failed", s.Dials, s.DialFails)
	}
}

func TestBounds(t *testing.T) {
	n := startNode(t)
	n.mute.Store(true)
	l := newLink(t, Config{Addr: n.addr(), CallsMax: 10})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := ask(ctx, l, "k"); !errors.Is(err, context.Canceled) {
				t.Errorf("a call that waits: %v", err)
			}
		})
	}
	for l.Stats().Waiting < 10 {
		time.Sleep(time.Millisecond)
	}
	if _, err := ask(t.Context(), l, "k"); !errors.Is(err, ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	cancel()
	all.Wait()
}

// A connection that was idle is asked first; one that is gone by then is made
// anew without a request lost.
func TestIdleProbe(t *testing.T) {
	n := startNode(t)
	l := newLink(t, Config{Addr: n.addr(), IdleProbe: time.Nanosecond})
	for i := range 50 {
		key := fmt.Sprint("k", i)
		if got, err := ask(t.Context(), l, key); err != nil || got != key {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	var list []*Call
	for i := range 10 {
		list = append(list, get(fmt.Sprint("b", i)))
	}
	if err := l.Do(t.Context(), list...); err != nil {
		t.Fatal(err)
	}
	for i, c := range list {
		if string(c.Reply.Value) != fmt.Sprint("b", i) {
			t.Errorf("call %d: %q", i, c.Reply.Value)
		}
		c.Free()
	}

	l = newLink(t, Config{Addr: n.addr(), IdleProbe: time.Nanosecond, Timeout: time.Second})
	if _, err := ask(t.Context(), l, "warm"); err != nil {
		t.Fatal(err)
	}
	n.mute.Store(true) // as a firewall does that has forgotten the connection
	go func() {
		for n.unheard.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		n.mute.Store(false)
	}()
	if got, err := ask(t.Context(), l, "later"); err != nil || got != "later" {
		t.Errorf("on a connection that was gone: %q, %v", got, err)
	}
}

func TestLogin(t *testing.T) {
	n := startNode(t)
	l := newLink(t, Config{Addr: n.addr(), User: "peer", Password: "secret"})
	if got, err := ask(t.Context(), l, "k"); err != nil || got != "k" {
		t.Errorf("%q, %v", got, err)
	}
	l = newLink(t, Config{Addr: n.addr(), User: "peer", Password: "wrong"})
	if _, err := ask(t.Context(), l, "k"); !errors.Is(err, ErrDial) || !strings.Contains(err.Error(), "authentication failure") {
		t.Errorf("a wrong password: %v", err)
	}
}

func TestClose(t *testing.T) {
	n := startNode(t)
	n.mute.Store(true)
	l := newLink(t, Config{Addr: n.addr()})
	done := make(chan error)
	go func() {
		_, err := ask(t.Context(), l, "k")
		done <- err
	}()
	for l.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	l.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("a call that waits: %v", err)
	}
	if _, err := ask(t.Context(), l, "k"); !errors.Is(err, ErrClosed) {
		t.Errorf("one more: %v", err)
	}
}

func BenchmarkDo(b *testing.B) {
	n := startNode(b)
	l := newLink(b, Config{Addr: n.addr()})
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprint("goroutines/", goroutines), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism((goroutines + 1) / 2)
			key := []byte("some-key")
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c := NewCall()
					c.Request.Op, c.Request.Verb, c.Request.Key = meta.OpGet, meta.VerbMetaGet, key
					c.Request.AddFlag('v')
					if err := l.Do(b.Context(), c); err != nil {
						b.Fatal(err)
					}
					c.Free()
				}
			})
		})
	}
}
