package server

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/link"
)

// withCopies is the map after m in which bucket b has these copies.
func withCopies(m *bucket.Map, b int, copies ...bucket.NodeIndex) *bucket.Map {
	next := m.Clone()
	next.Epoch, next.Predecessor = m.Epoch+1, m.Digest()
	next.Buckets[b].Copies = copies
	return next
}

// S1-59: a node that has a copy of a bucket loses it, the source moves on, and
// the node has a copy again: nothing from before is read there, also when it has
// missed the map between.
func TestCopyComesBack(t *testing.T) {
	for _, missed := range []bool{false, true} {
		t.Run(fmt.Sprint("missed=", missed), func(t *testing.T) {
			tc := startCluster(t, 2, 1, Config{})
			key := tc.keyOf(0)
			b := bucket.Of([]byte(key))
			hard := time.Now().Add(time.Hour).UnixMilli()
			other := key + "-" // of another bucket of the same owner, which keeps its copy
			for tc.m.OwnerOf(bucket.Of([]byte(other))).ID != "n0" || bucket.Of([]byte(other)) == b {
				other += "-"
			}
			read := func(key string) string {
				return talkTo(t, tc.addrs[1], fmt.Sprintf("mg %s v y P%d,c\r\n", key, tc.m.Epoch))
			}
			store := func(key string, version int) {
				t.Helper()
				if got := talkTo(t, tc.addrs[0], fmt.Sprintf("ms %s 2 Y%d A%d\r\nv%d\r\n", key, version, hard, version)); got != "HD\r\n" {
					t.Fatalf("version %d: %q", version, got)
				}
			}
			told := func(key string, version int) {
				t.Helper()
				await(t, "the copy", func() bool { return strings.Contains(read(key), fmt.Sprintf(" y%d ", version)) })
			}
			store(key, 5)
			told(key, 5)

			without := withCopies(tc.m, b)
			again := withCopies(without, b, 1)
			if err := tc.nodes[0].ApplyMap(without); err != nil {
				t.Fatal(err)
			}
			if !missed {
				tc.publish(t, without)
			}
			store(key, 6) // who has no copy is not told
			store(other, 6)
			told(other, 6)
			tc.publish(t, again)
			if got := read(key); !missed && got != "EN\r\n" {
				t.Errorf("what it had before is read: %q", got)
			}
			await(t, "nothing of before", func() bool { return read(key) == "EN\r\n" })
			store(key, 7)
			told(key, 7)
		})
	}
}

// What changes from the first moment of a map with copies on is told: nothing is
// lost before the owner has begun to look.
func TestCopiesFromTheStart(t *testing.T) {
	for range 5 {
		tc := startCluster(t, 2, 1, Config{})
		key := tc.keyOf(0)
		talkTo(t, tc.addrs[0], fmt.Sprintf("ms %s 1 Y5\r\nx\r\n", key))
		await(t, "the copy", func() bool {
			return strings.HasPrefix(talkTo(t, tc.addrs[1], fmt.Sprintf("mg %s v y P%d,c\r\n", key, tc.m.Epoch)), "VA 1 y5 ")
		})
	}
}

// What a copy cannot be told, as the link to it is not up, it is told when it is: a
// few keys as they are by then, and of more that there is a gap. It does not keep
// what is old until the next change.
func TestCopyIsToldAgain(t *testing.T) {
	tc := startCluster(t, 2, 1, Config{})
	hard := time.Now().Add(time.Hour).UnixMilli()
	var keys []string // of the first node
	for i := 0; len(keys) < untoldMax+100; i++ {
		if key := fmt.Sprint("key", i); tc.m.OwnerOf(bucket.Of([]byte(key))).ID == "n0" {
			keys = append(keys, key)
		}
	}
	store := func(version int, keys ...string) {
		t.Helper()
		var b, want strings.Builder
		for _, key := range keys {
			fmt.Fprintf(&b, "ms %s 2 Y%d A%d\r\nv%d\r\n", key, version, hard, version)
			want.WriteString("HD\r\n")
		}
		if got := talkTo(t, tc.addrs[0], b.String()); got != want.String() {
			t.Fatalf("version %d: %q", version, got)
		}
	}
	has := func(version int, key string) bool {
		return strings.Contains(talkTo(t, tc.addrs[1], fmt.Sprintf("mg %s v y P%d,c\r\n", key, tc.m.Epoch)), fmt.Sprintf(" y%d ", version))
	}
	n := tc.nodes[0].node
	use := func(to *peer) (was *peer) {
		n.peersMu.Lock()
		defer n.peersMu.Unlock()
		was = n.peers[tc.addrs[1]]
		n.peers[tc.addrs[1]] = to
		return was
	}
	unsent := func(count int) {
		t.Helper()
		before := n.copies.unsent.Load()
		await(t, "nobody listens", func() bool { return n.copies.unsent.Load() >= before+uint64(count) })
	}
	store(5, keys[0], keys[1])
	for _, key := range keys[:2] {
		await(t, "the copy", func() bool { return has(5, key) })
	}

	dead := &peer{Link: link.New(link.Config{Addr: closedAddr(t)})}
	defer dead.Close()
	up := use(dead)
	store(6, keys[0])
	unsent(1)
	use(up)
	await(t, "what it was not told", func() bool { return has(6, keys[0]) })

	use(dead)
	store(5, keys[2:]...)
	unsent(len(keys) - 2)
	store(6, keys[1])
	unsent(2 * untoldMax) // and all have been told twice
	use(up)
	await(t, "the gap, or the value", func() bool { return !has(5, keys[1]) })
	await(t, "most of the keys", func() bool {
		some := 0
		for _, key := range keys[2:] {
			if has(5, key) {
				some++
			}
		}
		return some >= untoldMax/2
	})
	store(7, keys[1])
	await(t, "the next change", func() bool { return has(7, keys[1]) })
}

// closedAddr is an address where nobody listens.
func closedAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A node that was away drops what it was told before: an earlier start's too,
// and what came over a link that has lost something.
func TestCopyGaps(t *testing.T) {
	tc := startCluster(t, 2, 1, Config{})
	key := tc.keyOf(0)
	tell := func(number int, text string) {
		t.Helper()
		if got := talkTo(t, tc.addrs[1], fmt.Sprintf(text, key, fmt.Sprintf("P%d,c L77.%d", tc.m.Epoch, number))); got != "HD\r\n" {
			t.Fatalf("number %d: %q", number, got)
		}
	}
	read := func() string {
		got, _, _ := strings.Cut(talkTo(t, tc.addrs[1], fmt.Sprintf("mg %s y P%d,c\r\n", key, tc.m.Epoch)), "\r\n")
		return got
	}
	tell(3, "ms %s 1 Y5 %s\r\nx\r\n")
	tell(4, "md %s I Y5 %s\r\n")
	if got := read(); got != "HD y5 Z X" {
		t.Errorf("in order: %q", got)
	}
	tell(6, "md %s I Y5 %s\r\n")
	if got := read(); got != "EN" {
		t.Errorf("after a gap: %q", got)
	}
	tell(7, "ms %s 1 Y8 %s\r\nx\r\n")
	if got := read(); got != "HD y8 Z X" {
		t.Errorf("after the gap: %q", got)
	}
	tc.nodes[1].node.copies.mu.Lock()
	tc.nodes[1].node.copies.from = [bucket.Count]heard{} // as after a restart, with what is in memory
	tc.nodes[1].node.copies.restored = true
	tc.nodes[1].node.copies.mu.Unlock()
	tell(8, "md %s I Y5 %s\r\n")
	if got := read(); got != "EN" {
		t.Errorf("after a restart: %q", got)
	}
}
