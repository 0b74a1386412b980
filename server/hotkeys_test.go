package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// S3-28: a planted key is found within two windows, among many that are not.
func TestHotKeys(t *testing.T) {
	s, addr := startServer(t, Config{})
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "get cold%d\r\n", i)
		if i%2 == 0 {
			b.WriteString("get planted\r\n")
		}
		if i%20 == 0 {
			b.WriteString("set written 0 0 1 noreply\r\nx\r\n")
		}
	}
	s.hot.mu.Lock() // nobody else merges
	defer s.hot.mu.Unlock()
	s.hot.mergeLocked(time.Now(), nil)
	talkTo(t, addr, b.String())
	s.hot.mergeLocked(s.hot.merged.Add(time.Second), nil)
	// 10,000 reads of it, seen by 1 %: three sigma are 30 %.
	reads := ratesOf(t, addr, "planted")[0]
	if reads < 6000 || reads > 14_000 {
		t.Errorf("planted: %d reads/s, want about 10000", reads)
	}
	if hottest := s.hot.keys()[0].key; hottest != "planted" {
		t.Errorf("%s is the hottest key", hottest)
	}
	if n := len(s.hot.keys()); n > hotKeysMax {
		t.Errorf("%d keys are kept", n)
	}
	// Nobody asks any more: it is forgotten.
	for range 12 {
		s.hot.mergeLocked(s.hot.merged.Add(time.Second), nil)
	}
	if n := len(s.hot.keys()); n != 0 {
		t.Errorf("%d keys are hot when nobody asks for any", n)
	}
}

// ratesOf is the line of key in stats hotkeys.
func ratesOf(t *testing.T, addr, key string) (n [5]int) {
	t.Helper()
	for line := range strings.Lines(talkTo(t, addr, "stats hotkeys\r\n")) {
		if rest, ok := strings.CutPrefix(line, "STAT "+key+" "); ok {
			if _, err := fmt.Sscan(rest, &n[0], &n[1], &n[2], &n[3], &n[4]); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return n
		}
	}
	return n
}

// S2-05, S2-08: the hint is arithmetic, and never for what is written much.
func TestHotKeyCopies(t *testing.T) {
	var nodes []bucket.Node
	for i := range 16 {
		nodes = append(nodes, bucket.Node{ID: fmt.Sprintf("n%02d", i), Addr: fmt.Sprintf("127.0.0.1:%d", 1000+i)})
	}
	m, err := bucket.First("test", nodes, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	m, err = m.Plan(bucket.Change{Split: []bucket.Split{{Key: "split", N: 4}}})
	if err != nil {
		t.Fatal(err)
	}
	h := new(hotKeys)
	h.init(1, 100_000)
	for _, tt := range []struct {
		key           string
		reads, writes float64
		want          uint32
	}{
		{"k", 400_000, 0, 5},
		{"k", 1_000, 0, 0},
		{"k", 2_500, 0, 1},
		{"k", 90_000, 0, 2},
		{"k", 10_000_000, 0, 16}, // no more than nodes
		{"k", 400_000, 80_000, 0},
		{"k", 400_000, 20_000, 2}, // 400,000 / 2 reads of a copy, and 20,000 writes
		{"k", 400_000, 1_000, 5},
		{strings.Repeat("k", 248), 400_000, 0, 1},
		{"split#3", 400_000, 0, 1},
		{"other#3", 400_000, 0, 5},
	} {
		if got := h.copiesFor(&hotKey{key: tt.key, hotRate: hotRate{tt.reads, tt.writes}}, m); got != tt.want {
			t.Errorf("%.8s with %.0f reads/s and %.0f writes/s: %d copies, want %d", tt.key, tt.reads, tt.writes, got, tt.want)
		}
	}
	if got := h.copiesFor(&hotKey{key: "k", hotRate: hotRate{1e6, 0}}, nil); got != 0 {
		t.Errorf("without a cluster: %d copies", got)
	}
}

// Clients that know the map are told of hot keys, others are not; what their near
// caches hide they tell.
func TestHotKeyHint(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	s, key, e := tc.nodes[0], tc.keyOf(0), uint64(tc.m.Epoch)
	s.hot.mu.Lock() // nobody else merges
	s.hot.mergeLocked(time.Now(), tc.m)
	talkTo(t, tc.addrs[0], strings.Repeat("get "+key+"\r\n", 10_000))
	s.hot.mergeLocked(s.hot.merged.Add(20*time.Millisecond), tc.m) // as if 500,000 in a second
	for _, tt := range []struct{ send, want string }{
		{fmt.Sprintf("ms %s 1 P%d\r\nx\r\n", key, e), "HD\r\n"},
		{fmt.Sprintf("mg %s v P%d\r\n", key, e), "VA 1 n2\r\nx\r\n"},
		{fmt.Sprintf("mg %s v P%d\r\n", key, e-1), fmt.Sprintf("VA 1 n2 p%d\r\nx\r\n", e)},
		{fmt.Sprintf("mg %s v y P%d Y1\r\n", key, e), "EN n2\r\n"},
		{fmt.Sprintf("mg %s v\r\n", key), "VA 1\r\nx\r\n"},
		{fmt.Sprintf("mg cold%s v P%d\r\n", tc.keyOf(0), e), ""},
	} {
		got := talkTo(t, tc.addrs[0], tt.send)
		if tt.want == "" && strings.Contains(got, " n") || tt.want != "" && got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.send, got, tt.want)
		}
	}
	s.hot.mu.Unlock()
	for _, tt := range []struct{ send, want string }{
		{"config report " + key + " 3000\r\n", "OK\r\n"},
		{"config report " + key + "\r\n", "CLIENT_ERROR bad command line format\r\n"},
		{"config report " + key + " x\r\n", "CLIENT_ERROR bad command line format\r\n"},
	} {
		if got := talkTo(t, tc.addrs[0], tt.send); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.send, got, tt.want)
		}
	}
	s.hot.mu.Lock()
	s.hot.mergeLocked(s.hot.merged.Add(time.Millisecond), tc.m)
	s.hot.mu.Unlock()
	if n := ratesOf(t, tc.addrs[0], key)[3]; n < 60 || n > 100 {
		t.Errorf("%d reads/s are hidden, want 3000 over 30 s", n)
	}
	for i := range 2 * hotHiddenMax {
		s.hot.report(fmt.Append(nil, "reported", i), 1<<62)
	}
	s.hot.mu.Lock()
	defer s.hot.mu.Unlock()
	if n := len(s.hot.hidden); n > hotHiddenMax {
		t.Errorf("%d reported keys are kept", n)
	}
}

// What is in no loop is counted, too.
func TestHotKeysAside(t *testing.T) {
	s, addr := startServer(t, Config{})
	s.hot.mu.Lock() // nobody else merges
	defer s.hot.mu.Unlock()
	w := takeWorker()
	w.begin(s, new(connInfo), s.watch.common())
	w.hotWait = 0
	w.sampleKey([]byte("k"), true)
	returnWorker(w)
	s.hot.mergeLocked(s.hot.merged.Add(time.Second), nil)
	if got := ratesOf(t, addr, "k"); got[1] != hotSampled {
		t.Errorf("%v, want %d writes/s", got, hotSampled)
	}
}

// S2-11: a plain write to a split key is refused to those who know maps.
func TestSplitKeyWrites(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	key := tc.keyOf(0)
	next, err := tc.m.Plan(bucket.Change{Split: []bucket.Split{{Key: bucket.RawKey(key), N: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	tc.publish(t, next)
	e := uint64(next.Epoch)
	const refused = "SERVER_ERROR key is split\r\n"
	for _, tt := range []struct{ send, want string }{
		{fmt.Sprintf("ms %s 1 P%d\r\nx\r\n", key, e), refused},
		{fmt.Sprintf("ms %s 1 P%d q\r\nx\r\nmg %s v P%d\r\n", key, e-1, key, e), refused + "EN\r\n"},
		{fmt.Sprintf("md %s P%d\r\n", key, e), refused},
		{fmt.Sprintf("md %s I P%d\r\n", key, e), refused},
		{fmt.Sprintf("ma %s N0 P%d\r\n", key, e), refused},
		{fmt.Sprintf("md %s I Y7 P%d\r\n", key, e), "HD\r\n"},
		{fmt.Sprintf("ms %s 1 Y8 P%d\r\nx\r\n", key, e), "HD\r\n"},
		{fmt.Sprintf("ms %s 1\r\ny\r\n", key), "HD\r\n"}, // who knows no map reads here, too
		{fmt.Sprintf("mg %s v P%d\r\n", key, e), "VA 1\r\ny\r\n"},
	} {
		if got := talkTo(t, tc.addrs[0], tt.send); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.send, got, tt.want)
		}
	}
}
