package server

import (
	"fmt"
	"net"
	"path/filepath"
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

// copyTest is a cluster in which one bucket is looked at: node 0 owns it, and the
// map says who else has copies.
type copyTest struct {
	*testCluster
	t    *testing.T
	b    int
	keys []string // of the bucket
	hard int64

	had map[heardKey]uint64 // drops, when it was told of the key last
}

// heardKey is one of the keys, at a node.
type heardKey struct {
	node *Server
	i    int
}

// patientRelay lets no link break, however busy the machine is.
var patientRelay = ClusterConfig{RelayTimeout: testTimeout}

// startCopyTest starts n nodes; the nodes of copies have copies of the bucket.
func startCopyTest(t *testing.T, n int, copies ...bucket.NodeIndex) *copyTest {
	t.Helper()
	return newCopyTest(t, startCluster(t, n, bucket.CopiesMax, Config{Cluster: patientRelay}), copies...)
}

func newCopyTest(t *testing.T, tc *testCluster, copies ...bucket.NodeIndex) *copyTest {
	t.Helper()
	ct := &copyTest{testCluster: tc, t: t, hard: time.Now().Add(time.Hour).UnixMilli(), had: map[heardKey]uint64{}}
	ct.b = bucket.Of([]byte(ct.keyOf(0)))
	for i := 0; len(ct.keys) < 3; i++ {
		if key := fmt.Sprint("key", i); bucket.Of([]byte(key)) == ct.b {
			ct.keys = append(ct.keys, key)
		}
	}
	ct.publish(t, withCopies(ct.m, ct.b, copies...))
	return ct
}

// store has the owner store a version of keys[i].
func (ct *copyTest) store(owner, i, version int) {
	ct.t.Helper()
	if got := talkTo(ct.t, ct.addrs[owner], fmt.Sprintf("ms %s 2 Y%d A%d\r\nv%d\r\n", ct.keys[i], version, ct.hard, version)); got != "HD\r\n" {
		ct.t.Fatalf("key %d, version %d: %q", i, version, got)
	}
}

// has reports whether what node reads as a copy of keys[i] is this version, or
// nothing, for 0.
func (ct *copyTest) has(node, i, version int) bool {
	got := talkTo(ct.t, ct.addrs[node], fmt.Sprintf("mg %s v y P%d,c\r\n", ct.keys[i], ct.m.Epoch))
	return version == 0 && strings.HasPrefix(got, "EN") || strings.HasPrefix(got, fmt.Sprintf("VA 2 y%d ", version)) && strings.Contains(got, " X")
}

// told waits until all of nodes have this version.
func (ct *copyTest) told(i, version int, nodes ...int) {
	ct.t.Helper()
	for _, node := range nodes {
		await(ct.t, fmt.Sprintf("key %d, version %d at node %d", i, version, node), func() bool { return ct.has(node, i, version) })
		ct.had[heardKey{ct.nodes[node], i}] = ct.drops(node)
	}
}

// drops counts buckets that node has dropped.
func (ct *copyTest) drops(node int) uint64 {
	n := ct.nodes[node].node
	return n.copies.gaps.Load() + n.hidden.Load()
}

// dropped reports whether node has dropped what it had: the key is not there, or it
// was told again, as happens where it could not answer soon enough.
func (ct *copyTest) dropped(node, i int) bool {
	return ct.has(node, i, 0) || ct.drops(node) > ct.had[heardKey{ct.nodes[node], i}]
}

// want says what the nodes have of keys[i] now: 0 is what they had before is not
// there.
func (ct *copyTest) want(what string, i int, versions map[int]int) {
	ct.t.Helper()
	for node, version := range versions {
		if version == 0 && ct.dropped(node, i) {
			continue
		}
		if !ct.has(node, i, version) {
			ct.t.Errorf("%s: node %d does not have version %d of key %d", what, node, version, i)
		}
	}
}

// gaps is how often node has dropped a bucket for a gap.
func (ct *copyTest) gaps(node int) uint64 { return ct.nodes[node].node.copies.gaps.Load() }

// A bucket with several copies gets one more, loses one, gets another one instead,
// and one that it had before: the others keep what they have, and hear of what
// changes as before.
func TestCopiesStay(t *testing.T) {
	ct := startCopyTest(t, 5, 1, 2)
	ct.store(0, 0, 5)
	ct.told(0, 5, 1, 2)
	g1, g2 := ct.gaps(1), ct.gaps(2)
	version := 5
	for _, step := range []struct {
		what   string
		copies []bucket.NodeIndex
		all    []int       // that have copies by then
		want   map[int]int // what they have of the key that nobody has changed
	}{
		{"one more", []bucket.NodeIndex{1, 2, 3}, []int{1, 2, 3}, map[int]int{1: 5, 2: 5, 3: 0}},
		{"another one instead", []bucket.NodeIndex{4, 2, 1}, []int{1, 2, 4}, map[int]int{1: 5, 2: 5, 4: 0}},
		{"one less", []bucket.NodeIndex{1, 2}, []int{1, 2}, map[int]int{1: 5, 2: 5}},
		{"one of before again", []bucket.NodeIndex{1, 3, 2}, []int{1, 2, 3}, map[int]int{1: 5, 2: 5, 3: 0}},
	} {
		ct.publish(t, withCopies(ct.m, ct.b, step.copies...))
		version++
		ct.store(0, 1, version)
		ct.told(1, version, step.all...)
		ct.want(step.what, 0, step.want)
	}
	if ct.gaps(1) != g1 || ct.gaps(2) != g2 {
		t.Errorf("copies that stay have dropped %d and %d buckets", ct.gaps(1)-g1, ct.gaps(2)-g2)
	}
}

// A copy that is taken away and added again while others stay drops what it had,
// also when it has missed the map between, and the others do not.
func TestCopyComesBackAmongOthers(t *testing.T) {
	for _, missed := range []bool{false, true} {
		t.Run(fmt.Sprint("missed=", missed), func(t *testing.T) {
			ct := startCopyTest(t, 4, 1, 2, 3)
			ct.store(0, 0, 5)
			ct.store(0, 1, 5)
			ct.told(0, 5, 1, 2, 3)
			ct.told(1, 5, 1, 2, 3)
			without := withCopies(ct.m, ct.b, 1, 3)
			again := withCopies(without, ct.b, 3, 2, 1)
			for i, s := range ct.nodes {
				if i == 2 && missed {
					continue
				}
				if err := s.ApplyMap(without); err != nil {
					t.Fatal(err)
				}
			}
			ct.store(0, 0, 6) // who has no copy is not told
			ct.told(0, 6, 1, 3)
			ct.publish(t, again)
			await(t, "nothing of before", func() bool { return ct.dropped(2, 0) && ct.dropped(2, 1) })
			ct.want("others", 0, map[int]int{1: 6, 3: 6})
			ct.want("others", 1, map[int]int{1: 5, 3: 5})
			ct.store(0, 2, 7)
			ct.told(2, 7, 1, 2, 3)
			ct.want("after a change", 0, map[int]int{1: 6, 2: 0, 3: 6})
		})
	}
}

// Of several copies one misses something: that one drops the bucket, and others
// keep it.
func TestCopyGapAmongOthers(t *testing.T) {
	ct := startCopyTest(t, 4, 1, 2, 3)
	ct.store(0, 0, 5)
	ct.told(0, 5, 1, 2, 3)
	n := ct.nodes[0].node
	use := func(to *peer) (was *peer) {
		n.peersMu.Lock()
		defer n.peersMu.Unlock()
		was = n.peers[ct.addrs[2]]
		n.peers[ct.addrs[2]] = to
		return was
	}
	dead := &peer{Link: link.New(link.Config{Addr: closedAddr(t)})}
	defer dead.Close()
	up := use(dead)
	ct.store(0, 1, 6)
	ct.told(1, 6, 1, 3)
	await(t, "nobody listens", func() bool { return n.copies.unsent.Load() > 0 })
	use(up)
	ct.told(1, 6, 2) // again
	ct.want("after a gap", 0, map[int]int{1: 5, 2: 0, 3: 5})

	// And one that the next map brings about is no less a gap than before it.
	up = use(dead)
	before := n.copies.unsent.Load()
	ct.store(0, 1, 7)
	ct.told(1, 7, 1, 3)
	await(t, "nobody listens", func() bool { return n.copies.unsent.Load() > before })
	ct.publish(t, withCopies(ct.m, ct.b, 2, 3))
	use(up)
	ct.told(1, 7, 2)
	ct.want("after a gap and a map", 0, map[int]int{2: 0, 3: 5})
}

// Another owner has another stream: copies that stay copies drop what the former
// one told, whether they hear of it by the map or by the stream, and keep what they
// have heard of the new one before they have its map. A former owner is not
// listened to any more.
func TestCopiesOfAnotherOwner(t *testing.T) {
	ct := startCopyTest(t, 4, 2, 3)
	ct.store(0, 0, 5)
	ct.told(0, 5, 2, 3)
	first := ct.m
	next := give(first, ct.b, 1)
	next.Buckets[ct.b].Copies = []bucket.NodeIndex{2, 3, 0}
	if err := ct.nodes[2].ApplyMap(next); err != nil {
		t.Fatal(err)
	}
	ct.want("by the map", 0, map[int]int{2: 0, 3: 5})
	if err := ct.nodes[1].ApplyMap(next); err != nil {
		t.Fatal(err)
	}
	ct.store(1, 1, 6)
	ct.told(1, 6, 2, 3)
	ct.want("by the stream", 0, map[int]int{2: 0, 3: 0})
	late := fmt.Sprintf("ms %s 2 Y5 A%d P%d,c L77.1\r\nv5\r\n", ct.keys[0], ct.hard, first.Epoch)
	for i, who := range map[int]string{1: "the owner", 2: "a copy"} {
		if got := talkTo(t, ct.addrs[i], late); !strings.HasPrefix(got, "SERVER_ERROR MOVED ") {
			t.Errorf("a former owner tells %s: %q", who, got)
		}
	}
	if got := talkTo(t, ct.addrs[1], fmt.Sprintf("mg %s v\r\n", ct.keys[0])); got != "EN\r\n" {
		t.Errorf("the owner has what the former one told it: %q", got)
	}
	ct.publish(t, next)
	ct.store(1, 2, 7)
	ct.told(2, 7, 0, 2, 3)
	ct.want("the new owner's", 1, map[int]int{2: 6, 3: 6})
	ct.want("the former owner's", 0, map[int]int{0: 0, 2: 0, 3: 0})

	// A copy becomes the owner: it begins empty, and the others with it.
	promoted := give(ct.m, ct.b, 2)
	promoted.Buckets[ct.b].Copies = []bucket.NodeIndex{0, 3, 1}
	ct.publish(t, promoted)
	if got := talkTo(t, ct.addrs[2], fmt.Sprintf("mg %s v\r\nmg %s v\r\n", ct.keys[1], ct.keys[2])); got != "EN\r\nEN\r\n" {
		t.Errorf("the copy that became the owner: %q", got)
	}
	ct.store(2, 0, 8)
	ct.told(0, 8, 0, 1, 3)
	ct.want("after that", 1, map[int]int{0: 0, 1: 0, 3: 0})
	ct.want("after that", 2, map[int]int{0: 0, 1: 0, 3: 0})
}

// S1-59: the bucket goes to another node and comes back, past a copy that missed
// the map between: it drops what it has, though it is the same owner's copy.
func TestCopyOfAnOwnerThatCameBack(t *testing.T) {
	ct := startCopyTest(t, 4, 2, 3)
	ct.store(0, 0, 5)
	ct.told(0, 5, 2, 3)
	away := give(ct.m, ct.b, 1)
	away.Buckets[ct.b].Copies = []bucket.NodeIndex{2, 3}
	back := give(away, ct.b, 0)
	back.Buckets[ct.b].Copies = []bucket.NodeIndex{2, 3}
	for _, i := range []int{0, 1, 2} { // not 3
		if err := ct.nodes[i].ApplyMap(away); err != nil {
			t.Fatal(err)
		}
	}
	ct.store(1, 0, 6)
	ct.told(0, 6, 2)
	ct.publish(t, back)
	ct.want("after it came back", 0, map[int]int{2: 0, 3: 0})
	ct.store(0, 1, 7)
	ct.told(1, 7, 2, 3)
	ct.want("after a change", 0, map[int]int{2: 0, 3: 0})
}

// A node that starts again drops what it had as a copy, and the others keep it;
// after a start of the owner all drop it, with the first thing that it tells.
func TestCopiesAfterRestarts(t *testing.T) {
	var configs [4]Config
	for i := range configs {
		dir := t.TempDir()
		configs[i] = Config{MemoryMB: 8, MemoryFile: filepath.Join(dir, "memory"), Cluster: patientRelay}
		configs[i].Cluster.DataDir = dir
	}
	ct := newCopyTest(t, startClusterOf(t, bucket.CopiesMax, configs[:]), 1, 2, 3)
	ct.store(0, 0, 5)
	ct.told(0, 5, 1, 2, 3)
	ct.restart(t, 2, configs[2])
	ct.want("a copy starts again", 0, map[int]int{1: 5, 2: 5, 3: 5})
	ct.publish(t, withCopies(ct.m, ct.b, 3, 2)) // one less: no stream begins
	ct.store(0, 1, 6)
	ct.told(1, 6, 2, 3)
	ct.want("after a change", 0, map[int]int{2: 0, 3: 5})

	ct.restart(t, 0, configs[0])
	ct.want("the owner starts again", 0, map[int]int{3: 5})
	ct.store(0, 1, 7)
	ct.told(1, 7, 2, 3)
	ct.want("after a change", 0, map[int]int{2: 0, 3: 0})
}
