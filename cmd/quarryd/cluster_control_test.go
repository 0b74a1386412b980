package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/control"
	"github.com/quarrycache/quarry/cluster/controller"
)

// plant is processes that are nodes, with a disk each, which can be stopped and
// started.
type plant struct {
	t      testing.TB
	nodes  []bucket.Node
	store  func(i int) string // --cluster of each
	dir    string
	all    []*process
	epochs []bucket.Epoch // the highest that each has shown
}

func newPlant(t testing.TB, n int, store func(i int) string) *plant {
	p := &plant{t: t, store: store, dir: t.TempDir(), all: make([]*process, n), epochs: make([]bucket.Epoch, n)}
	for i := range n {
		p.nodes = append(p.nodes, bucket.Node{ID: fmt.Sprint("n", i), Addr: "127.0.0.1:" + freePort(t), Zone: fmt.Sprint("z", i)})
	}
	return p
}

// run starts node i, which knows what is in its --data.
func (p *plant) run(i int, flags ...string) {
	p.t.Helper()
	_, port, _ := net.SplitHostPort(p.nodes[i].Addr)
	p.all[i] = start(p.t, append([]string{"-p", port, "-l", "127.0.0.1", "--cluster", p.store(i), "--node-id", p.nodes[i].ID, "--relay-timeout", "5s"}, flags...)...)
	p.all[i].tcp(p.t)
}

func (p *plant) data(i int) []string { return []string{"--data", filepath.Join(p.dir, p.nodes[i].ID)} }

// stat is a figure of node i. No epoch ever falls, whenever one looks.
func (p *plant) stat(i int, name string) (value string) {
	p.t.Helper()
	for line := range strings.Lines(converse(p.t, p.nodes[i].Addr, "stats cluster")) {
		words := strings.Fields(line)
		if len(words) != 3 {
			continue
		}
		if words[1] == name {
			value = words[2]
		}
		if words[1] == "epoch" {
			e, err := bucket.ParseEpoch(words[2])
			if err != nil || e < p.epochs[i] {
				p.t.Errorf("node %d: epoch %s after %s, %v", i, words[2], p.epochs[i], err)
			}
			p.epochs[i] = max(p.epochs[i], e)
		}
	}
	return value
}

func (p *plant) await(i int, name, want string) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("node %d: %s %s", i, name, want), func() bool { return p.stat(i, name) == want })
}

func (p *plant) awaitLog(i int, line string) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("node %d: %q in its log", i, line), func() bool { return strings.Contains(p.all[i].stderr.String(), line) })
}

// grant asks node i, as its client that knows the map, for a grant, and ends
// it.
func (p *plant) grant(i int, key string) bool {
	p.t.Helper()
	answer := converse(p.t, p.nodes[i].Addr, fmt.Sprintf("mg %s v G10000 P1", key))
	if strings.HasPrefix(answer, "EN W g") {
		converse(p.t, p.nodes[i].Addr, fmt.Sprintf("md %s P1", key)) // ends it
		return true
	}
	if !strings.HasPrefix(answer, "EN d") && !strings.HasPrefix(answer, "SERVER_ERROR MOVED ") {
		p.t.Errorf("node %d, %s: %q", i, key, answer)
	}
	return false
}

// ask is control.Ask of real nodes.
func (p *plant) ask(_ context.Context, n bucket.Node) (*bucket.Map, error) {
	c, err := net.Dial("tcp", n.Addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "config get quarry\r\n"); err != nil {
		return nil, err
	}
	r, size := bufio.NewReader(c), 0
	if _, err := fmt.Fscanf(r, "CONFIG quarry 0 %d\r\n", &size); err != nil {
		return nil, err
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	return bucket.Decode(text)
}

// keyThat is a key whose bucket is ok.
func keyThat(ok func(b int) bool) string {
	for n := 0; ; n++ {
		if key := fmt.Sprint("key", n); ok(bucket.Of([]byte(key))) {
			return key
		}
	}
}

func startControl(t testing.TB, data, addr string) *controller.Controller {
	t.Helper()
	leakless(t)
	var k *controller.Controller
	await(t, "control plane", func() (ok bool) { // its port may be in use for a moment longer
		var err error
		k, err = controller.Start(controller.Config{Data: data, Listen: addr, Log: slog.New(slog.DiscardHandler), TickMs: 10})
		return err == nil
	})
	t.Cleanup(func() { _ = k.Close() })
	select {
	case <-k.Ready():
	case <-time.After(3 * patience):
		t.Fatal("the control plane is not ready")
	}
	return k
}

func publish(t testing.TB, s control.Store, old, next *bucket.Map) *bucket.Map {
	t.Helper()
	var err error
	await(t, "publication", func() bool {
		err = s.CompareAndSwap(context.Background(), old, next)
		if errors.Is(err, control.ErrConflict) {
			if there, e := s.Get(context.Background()); e == nil && there.Digest() == next.Digest() {
				return true // an answer was lost
			}
			t.Fatal(err)
		}
		return err == nil
	})
	return next
}

func plan(t testing.TB, m *bucket.Map, c bucket.Change) *bucket.Map {
	t.Helper()
	next, err := m.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// The control plane is stopped, and the nodes are, and start again while it is
// away: they serve from the map on their disks, and give grants only when enough
// of them agree that there is no newer one. Then it comes back restored from an
// old backup: nothing is taken from it that is older, there is an alarm, and by
// two maps of one epoch nobody gives grants (S3-15, S1-59).
func TestClusterControlPlaneIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("the nodes are processes, in which nobody looks for races")
	}
	dir := t.TempDir()
	data, addr := filepath.Join(dir, "control"), "127.0.0.1:"+freePort(t)
	k := startControl(t, data, addr)
	p := newPlant(t, 3, func(int) string { return "etcd:" + addr })
	s, err := control.Open("etcd:"+addr, control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, err := bucket.First("test", p.nodes, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, s, nil, first)
	for i := range p.nodes {
		p.run(i, p.data(i)...)
	}
	for i := range p.nodes {
		p.await(i, "confirmed", "yes")
		if !p.grant(i, keyOn(first, i)) {
			t.Errorf("node %d gives no grants", i)
		}
		await(t, "write through another node", func() bool { // which may have tried this one before it was there
			return converse(t, p.nodes[(i+1)%3].Addr, "set "+keyOn(first, i)+"- 0 0 1\r\nx") == "STORED\r\n"
		})
	}

	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "backup"), os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	for i := range p.nodes {
		if !p.grant(i, keyOn(first, i)) {
			t.Errorf("without the control plane node %d gives no grants, and it never stopped", i)
		}
	}
	for i := range p.nodes {
		p.all[i].end(t, unix.SIGTERM)
	}
	p.run(0, p.data(0)...)
	mine := keyOn(first, 0)
	for range 20 { // nobody can confirm
		if got := converse(t, p.nodes[0].Addr, fmt.Sprintf("set %s 0 0 1\r\nx\r\nget %s\r\ndelete %s", mine, mine, mine)); got != "STORED\r\nVALUE "+mine+" 0 1\r\nx\r\nEND\r\nDELETED\r\n" {
			t.Errorf("from the map on disk: %q", got)
		}
		if p.stat(0, "epoch") != first.Epoch.String() || p.stat(0, "confirmed") != "no" || p.grant(0, mine) {
			t.Error("a grant by a map that nobody has confirmed")
		}
	}
	p.run(1, p.data(1)...)
	for i := range 2 { // two of three
		p.await(i, "confirmed", "yes")
		await(t, "grants", func() bool { return p.grant(i, keyOn(first, i)) })
	}
	p.run(2, p.data(2)...)
	p.await(2, "confirmed", "yes")

	// It comes back, and maps go on.
	k = startControl(t, data, addr)
	second := publish(t, s, first, plan(t, first, bucket.Change{Weights: map[string]int{"n0": 2}}))
	third := publish(t, s, second, plan(t, second, bucket.Change{Weights: map[string]int{"n1": 2}}))
	for i := range p.nodes {
		p.await(i, "epoch", third.Epoch.String())
		p.await(i, "confirmed", "yes")
	}

	// It comes back again, and knows the first map alone.
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "backup"), data); err != nil {
		t.Fatal(err)
	}
	startControl(t, data, addr)
	for i := range p.nodes {
		await(t, "alarm", func() bool { return p.stat(i, "store_behind") != "0" })
		p.awaitLog(i, "ALARM: the map store has an older map than this node")
		if p.stat(i, "epoch") != third.Epoch.String() || !p.grant(i, keyOn(third, i)) {
			t.Errorf("node %d does not go on by its map", i)
		}
	}
	// Somebody publishes without a look at the nodes, up to their epoch.
	other := publish(t, s, first, plan(t, first, bucket.Change{Weights: map[string]int{"n2": 3}}))
	other = publish(t, s, other, plan(t, other, bucket.Change{}))
	if other.Epoch != third.Epoch {
		t.Fatalf("epoch %s, want %s again", other.Epoch, third.Epoch)
	}
	gives := func(m *bucket.Map, b, i int) bool { return m.OwnerOf(b).ID == p.nodes[i].ID }
	for i := range p.nodes {
		p.await(i, "conflict", "yes")
		p.awaitLog(i, "ALARM: two maps of one epoch")
		differs := keyThat(func(b int) bool { return (gives(third, b, i) || gives(other, b, i)) && third.Differs(other, b) })
		if p.grant(i, differs) {
			t.Errorf("node %d gives a grant by one of two maps", i)
		}
		same := keyThat(func(b int) bool { return gives(third, b, i) && !third.Differs(other, b) })
		if !p.grant(i, same) {
			t.Errorf("node %d gives no grant where both maps say the same", i)
		}
	}
	// One who looks, as the tool does, ends it.
	stock, err := control.Take(t.Context(), s, p.ask, control.Known{})
	if err != nil {
		t.Fatal(err)
	}
	next, err := stock.Next(func(base *bucket.Map) (*bucket.Map, error) { return base.Plan(bucket.Change{}) })
	if err != nil {
		t.Fatal(err)
	}
	publish(t, s, stock.Stored, next)
	for i := range p.nodes {
		p.await(i, "epoch", next.Epoch.String())
		p.await(i, "conflict", "no")
		p.await(i, "confirmed", "yes")
		if !p.grant(i, keyOn(next, i)) {
			t.Errorf("node %d gives no grants", i)
		}
	}
	for _, one := range p.all {
		one.end(t, unix.SIGTERM)
	}
}

// Each machine has the map in a file of its own. One is edited by hand, its epoch
// left as it was: that node raises the alarm, and gives no grants by either map
// where they differ; started anew with the edited file alone, it never gives one
// before it has found out.
func TestClusterEditedMap(t *testing.T) {
	dir := t.TempDir()
	file := func(i int) string { return filepath.Join(dir, fmt.Sprint("map", i, ".json")) }
	p := newPlant(t, 3, func(i int) string { return "file:" + file(i) })
	m, err := bucket.First("test", p.nodes, 0, bucket.Budget{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(i int, m *bucket.Map) {
		t.Helper()
		if err := os.WriteFile(file(i)+".new", m.JSON(), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file(i)+".new", file(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range p.nodes {
		put(i, m)
		p.run(i)
	}
	for i := range p.nodes {
		p.await(i, "confirmed", "yes")
	}
	given, taken := keyOn(m, 1), keyOn(m, 0)
	edited := m.Clone()
	edited.Buckets[bucket.Of([]byte(given))].Owner, edited.Buckets[bucket.Of([]byte(taken))].Owner = 0, 1
	stays := keyThat(func(b int) bool { return m.Buckets[b].Owner == 0 && edited.Buckets[b].Owner == 0 })
	put(0, edited)
	p.await(0, "conflict", "yes")
	p.awaitLog(0, "ALARM: two maps of one epoch")
	if p.stat(0, "map_conflict") != "1" || p.stat(0, "digest") != m.Digest().String() {
		t.Error("the edited map is taken")
	}
	if p.grant(0, given) || p.grant(0, taken) || !p.grant(0, stays) || !p.grant(1, given) {
		t.Error("grants by an edited map, or none where the maps agree")
	}

	p.all[0].end(t, unix.SIGTERM)
	p.run(0)
	for {
		first := p.grant(0, given)
		second := p.grant(1, given)
		if first {
			t.Fatalf("node 0 gives grants by the edited map; node 1 does: %v", second)
		}
		if p.stat(0, "conflict") == "yes" && p.stat(1, "conflict") == "yes" {
			break
		}
		if p.stat(0, "confirmed") == "yes" && p.stat(0, "conflict") == "no" {
			t.Fatal("the edited map is confirmed")
		}
	}
	if p.grant(0, given) || p.grant(1, given) || !p.grant(0, stays) {
		t.Error("grants by one of two maps, or none where they agree")
	}
	next := plan(t, m, bucket.Change{}).Begin(func(b int) bool { return m.Differs(edited, b) })
	for i := range p.nodes {
		put(i, next)
	}
	for i := range p.nodes {
		p.await(i, "epoch", next.Epoch.String())
		p.await(i, "conflict", "no")
		p.await(i, "confirmed", "yes")
	}
	if !p.grant(1, given) || p.grant(0, given) {
		t.Error("the next map does not count")
	}
}
