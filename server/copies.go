package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quarrycache/quarry/cluster/bucket"
	"github.com/quarrycache/quarry/cluster/link"
	"github.com/quarrycache/quarry/meta"
	"github.com/quarrycache/quarry/server/store"
)

// The owner of a bucket tells the nodes that have copies of it what becomes of
// its versioned keys: values, known absences and floors, as they are when they
// are sent. What it tells is numbered, for each bucket and each of its copies, in
// a stream that begins anew with each start of the owner, with each of its
// ownerships, and whenever the map makes a node a copy. A number that is missing,
// and another stream, make the copy drop the bucket: what it did not hear may have
// made anything in it old. So nothing waits for a copy, and a copy that was away
// is never believed: one that the map has just made one hears of its stream at
// once, in case it had been one before and has missed the maps between. Other
// copies of the bucket have streams of their own, and keep what they have.
//
// A node drops what it has of a bucket when it becomes a copy of it, and, unless
// what it has is the new owner's already, when the bucket gets another owner. A
// former owner, which has not heard that it is none any more, is not listened to.
//
// What a copy did not take, as the link to it was not up or as it had another map,
// is told again: keys as they are by then, and where there were too many of them
// the bucket itself, so that the copy sees the gap before the next change.
//
//	ms <key> <len> Y<version> A<deadlines> F T P<epoch>,c L<stream>.<number>   a value
//	ms <key> 0 MN Y<version> A<deadlines> P<epoch>,c L…                        no such row
//	md <key> I Y<floor> P<epoch>,c L…                                          a floor
//	md <key> P<epoch>,c L…                                                     nothing with a version
type copies struct {
	node    *node
	stream  uint64               // that streams which begin now have: above those of before
	streams [bucket.Count][]told // by bucket: of those who have copies of it, CopiesMax at most

	untold  map[string]struct{} // keys that a copy did not take
	owed    [bucket.Count]bool  // buckets of which there were more than untold has room for
	pause   time.Duration       // before they are told again, at retryAt; 0: there are none
	retryAt time.Time

	restored bool // there is what an earlier start was told; set before anything is served

	mu    sync.Mutex // all below
	from  [bucket.Count]heard
	anew  map[int][]string // by bucket: ids of nodes whose streams begin anew
	since bucket.Epoch     // of the map that said so last

	sent, unsent, got, gaps atomic.Uint64
}

// told is what a copy of a bucket has been told.
type told struct {
	to           string // id of the node
	stream, last uint64 // the stream, and the number in it that was last
}

// heard is what a copy has been told of a bucket last.
type heard struct {
	stream, number uint64
	begun          uint64 // the owner's epoch when the stream began here
}

const (
	// copiesTick is how often changes are sent.
	copiesTick = 5 * time.Millisecond
	// copiesTimeout is how long a copy may take to answer.
	copiesTimeout = time.Second
	// copiesBatchBytes and copiesBatchMax bound what is sent at once.
	copiesBatchBytes = 1 << 20
	copiesBatchMax   = 1024
	// untoldMax bounds the keys that are told again, after copiesPauseMin first, and
	// after twice as long each time, copiesPauseMax at most.
	untoldMax      = 256
	copiesPauseMin = 50 * time.Millisecond
	copiesPauseMax = 2 * time.Second
)

// track notes what changes from now on, if there are copies of v to be told.
func (c *copies) track(v *view) { c.node.srv.store.TrackChanges(v.hasCopies()) }

// hasCopies reports whether this node has to tell copies anything.
func (v *view) hasCopies() bool { return v != nil && v.member && v.m.CopiesWanted > 0 }

// gained notes whose streams begin anew with the map next: a copy that stays one,
// of a bucket that stays this node's, goes on with its own.
func (c *copies) gained(old, next *view) {
	if old == nil || !next.hasCopies() {
		return // whoever has a copy knows no stream of this start
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := range next.m.Buckets {
		if next.roles[b] != roleOwner {
			continue
		}
		was, is := &old.m.Buckets[b], &next.m.Buckets[b]
		stays := old.roles[b] == roleOwner && was.Since == is.Since
		for _, i := range is.Copies {
			id := next.m.Nodes[i].ID
			if stays && slices.ContainsFunc(was.Copies, func(j bucket.NodeIndex) bool { return old.m.Nodes[j].ID == id }) ||
				slices.Contains(c.anew[b], id) {
				continue
			}
			if c.anew == nil {
				c.anew = make(map[int][]string)
			}
			c.anew[b] = append(c.anew[b], id)
		}
	}
	c.since = next.m.Epoch
}

// begin begins the streams of v that are to begin anew, and tells the copies so.
func (c *copies) begin(ctx context.Context, v *view, boxes map[bucket.NodeIndex]*outbox) {
	c.mu.Lock()
	if len(c.anew) == 0 || v.m.Epoch < c.since {
		c.mu.Unlock()
		return // or the map that says so is not in use yet
	}
	anew := c.anew
	c.anew = nil
	c.mu.Unlock()
	c.stream++
	for b, ids := range anew {
		if v.roles[b] != roleOwner {
			continue
		}
		var begin []bucket.NodeIndex
		for _, i := range v.m.Buckets[b].Copies {
			if slices.Contains(ids, v.m.Nodes[i].ID) {
				begin = append(begin, i)
			}
		}
		c.streams[b] = slices.DeleteFunc(c.streams[b], func(t told) bool {
			return slices.Contains(ids, t.to) || !v.hasCopy(b, t.to)
		})
		c.tell(ctx, v, boxes, b, keyIn(b), begin)
	}
}

// hasCopy reports whether node id has a copy of bucket b.
func (v *view) hasCopy(b int, id string) bool {
	return slices.ContainsFunc(v.m.Buckets[b].Copies, func(i bucket.NodeIndex) bool { return v.m.Nodes[i].ID == id })
}

// told is what node id has been told of bucket b.
func (c *copies) told(b int, id string) *told {
	list := c.streams[b]
	for i := range list {
		if list[i].to == id {
			return &list[i]
		}
	}
	c.streams[b] = append(list, told{to: id, stream: c.stream})
	return &c.streams[b][len(list)]
}

// run sends changes until ctx ends.
func (c *copies) run(ctx context.Context) {
	c.stream = rand.Uint64() >> 1
	tick := time.NewTicker(copiesTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if v := c.node.now.Load(); v.hasCopies() {
			c.send(ctx, v)
		}
	}
}

// outbox is what is to be sent to one node.
type outbox struct {
	addr  string
	calls []*link.Call
	keys  [][]byte // of calls
	bytes int
}

// send sends what has changed to those who have copies.
func (c *copies) send(ctx context.Context, v *view) {
	boxes := make(map[bucket.NodeIndex]*outbox)
	seen := make(map[string]bool)
	missing := func(b int) {
		if v.roles[b] != roleOwner {
			return
		}
		for i := range c.streams[b] {
			c.streams[b][i].last++ // the next thing that is told has a gap before it
		}
		c.tell(ctx, v, boxes, b, keyIn(b), v.m.Buckets[b].Copies)
	}
	c.begin(ctx, v, boxes)
	changed := func(key []byte) {
		b := bucket.Of(key)
		if v.roles[b] != roleOwner || len(v.m.Buckets[b].Copies) == 0 || seen[string(key)] {
			return
		}
		seen[string(key)] = true
		c.tell(ctx, v, boxes, b, key, v.m.Buckets[b].Copies)
	}
	c.node.srv.store.Changes(changed, missing)
	again := c.pause > 0 && !time.Now().Before(c.retryAt)
	if again {
		c.tellAgain(ctx, v, boxes, changed)
	}
	for _, box := range boxes {
		c.flush(ctx, box)
	}
	switch left := c.untold != nil || c.owed != [bucket.Count]bool{}; {
	case !left:
		c.pause = 0
	case again || c.pause == 0:
		c.pause = min(max(2*c.pause, copiesPauseMin), copiesPauseMax)
		c.retryAt = time.Now().Add(c.pause)
	}
}

// tellAgain tells what copies did not take.
func (c *copies) tellAgain(ctx context.Context, v *view, boxes map[bucket.NodeIndex]*outbox, changed func(key []byte)) {
	keys := c.untold
	c.untold = nil
	for key := range keys {
		changed([]byte(key))
	}
	for b := range c.owed {
		if c.owed[b] && c.untold == nil { // else there is somebody still who does not listen
			c.owed[b] = false
			if v.roles[b] == roleOwner && len(v.m.Buckets[b].Copies) > 0 {
				c.tell(ctx, v, boxes, b, keyIn(b), v.m.Buckets[b].Copies)
			}
		}
	}
}

// notTaken notes that a copy did not take what it was told of key.
func (c *copies) notTaken(key []byte) {
	c.unsent.Add(1)
	if len(c.untold) >= untoldMax {
		c.owed[bucket.Of(key)] = true
		return
	}
	if c.untold == nil {
		c.untold = make(map[string]struct{})
	}
	c.untold[string(key)] = struct{}{}
}

// keyIn is a key in bucket b that nobody uses, to tell of the bucket itself.
func keyIn(b int) []byte { return bucketKey(bucketKeys()[b]) }

func bucketKey(i int) []byte { return fmt.Appendf(nil, "\x00bucket%d", i) }

// bucketKeys has for each bucket the first i whose bucketKey is in it.
var bucketKeys = sync.OnceValue(func() *[bucket.Count]int {
	first := new([bucket.Count]int)
	for i, found := 1, 0; found < bucket.Count; i++ {
		if b := bucket.Of(bucketKey(i)); first[b] == 0 {
			first[b] = i
			found++
		}
		if i%1024 == 0 {
			runtime.Gosched()
		}
	}
	return first
})

// tell puts the state of key into the boxes of nodes that have copies of it.
func (c *copies) tell(ctx context.Context, v *view, boxes map[bucket.NodeIndex]*outbox, b int, key []byte, nodes []bucket.NodeIndex) {
	s := c.node.srv
	k := store.KeyOf(key)
	state := copyState{}
	floor, st := s.store.State(k, s.now(), &state)
	held := st == store.OK && state.version > 0 || st == store.OK && state.absent
	for _, to := range nodes {
		box := boxes[to]
		if box == nil {
			box = &outbox{addr: v.m.Nodes[to].Addr}
			boxes[to] = box
		}
		has := c.told(b, v.m.Nodes[to].ID)
		add := func(verb meta.Verb, op meta.Op, flags string, value []byte) {
			has.last++
			call := link.NewCall()
			q := &call.Request
			q.Op, q.Verb, q.Key = op, verb, append([]byte(nil), key...)
			q.Binary = !meta.ValidTextKey(key)
			q.AddFlags(flags + "PL")
			q.Route = meta.Route{Known: true, Epoch: uint64(v.m.Epoch), Copy: true, Numbered: true, Stream: has.stream, Sequence: has.last}
			call.Value = value
			state.fill(q)
			box.calls = append(box.calls, call)
			box.keys = append(box.keys, q.Key)
			box.bytes += len(value) + len(key)
		}
		switch {
		case held && state.absent:
			add(meta.VerbMetaSet, meta.OpSet, state.with("YM"), nil)
			box.calls[len(box.calls)-1].Request.Mode = meta.ModeAbsent
		case held:
			add(meta.VerbMetaSet, meta.OpSet, state.with("YFT"), state.value)
		case floor == 0:
			add(meta.VerbMetaDelete, meta.OpDelete, "", nil)
		}
		if floor > 0 && (!held || floor > state.version) {
			add(meta.VerbMetaDelete, meta.OpDelete, "IY", nil)
			box.calls[len(box.calls)-1].Request.Fresh = meta.Freshness{Version: floor}
			if !held {
				// The value that the copy may have, if any, had no place here.
				add(meta.VerbMetaDelete, meta.OpDelete, "Y", nil)
				box.calls[len(box.calls)-1].Request.Fresh = meta.Freshness{Version: floor}
			}
		}
		if len(box.calls) >= copiesBatchMax || box.bytes >= copiesBatchBytes {
			c.flush(ctx, box)
		}
	}
}

// flush sends what is in box. What a copy does not take it will miss by its
// number, and is told again.
func (c *copies) flush(ctx context.Context, box *outbox) {
	if len(box.calls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, copiesTimeout)
	defer cancel()
	l := c.node.peer(box.addr)
	if err := l.Send(box.calls...); err != nil {
		for i, call := range box.calls {
			call.Free()
			c.notTaken(box.keys[i])
		}
	} else {
		for i, call := range box.calls {
			err := call.Wait(ctx)
			if err != nil && err == ctx.Err() {
				c.notTaken(box.keys[i]) // it was left, and is not ours any more
				continue
			}
			moved := false
			if err == nil {
				_, moved = call.Reply.Moved()
			}
			call.Free()
			if err != nil || moved { // moved: by its map it has no copy, or not yet
				c.notTaken(box.keys[i])
				continue
			}
			c.sent.Add(1)
		}
	}
	box.calls, box.keys, box.bytes = box.calls[:0], box.keys[:0], 0
}

// copyState is what a key has that a copy is told.
type copyState struct {
	version   uint64
	deadlines meta.Deadlines
	absent    bool
	flags     uint32
	ttl       int64
	value     []byte
}

// VisitItem takes the state of an item.
func (c *copyState) VisitItem(it *store.Item) {
	c.flags, c.ttl = it.Flags, it.TTL
	f := it.Fresh
	if f == nil {
		return
	}
	c.version, c.absent = f.Version, f.Absent
	c.deadlines = meta.Deadlines{Hard: uint64(f.Hard), Soft: uint64(f.Soft), Read: uint64(f.Read)}
	if f.Version > 0 && !f.Absent {
		c.value = it.AppendValue(nil)
	}
}

// with adds A to flags, where there are deadlines.
func (c *copyState) with(flags string) string {
	if c.deadlines.Hard != 0 {
		flags += "A"
	}
	return flags
}

// fill says it in q.
func (c *copyState) fill(q *meta.Request) {
	q.Fresh.Version, q.Fresh.Deadlines, q.ClientFlags = c.version, c.deadlines, c.flags
	if q.TTL = max(c.ttl, 0); c.ttl == 0 {
		q.TTL = -1 // it ends this second
	}
}

// received checks the number of what this node is told as a copy of bucket b,
// and drops the bucket when there is one missing before it.
func (c *copies) received(b int, t *meta.Route) {
	c.got.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &c.from[b]
	follows := h.stream == t.Stream && h.number+1 == t.Sequence
	first := h.stream == 0 && !c.restored
	h.stream, h.number = t.Stream, t.Sequence
	if follows {
		return
	}
	h.begun = t.Epoch
	if !first {
		c.gaps.Add(1)
		c.node.srv.store.HideBuckets([]int{b}, c.node.srv.now())
	}
}

// isOf reports whether all that is here of bucket b came from the owner that has
// it since the epoch, which may be heard of before its map is. mu is held.
func (c *copies) isOf(b int, since bucket.Epoch) bool { return c.from[b].begun >= uint64(since) }
