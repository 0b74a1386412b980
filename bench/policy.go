package bench

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// policy is a simulated cache that counts bytes and holds none.
type policy interface {
	// request asks for key k, or writes it, which is request i of the trace.
	// If it was not there the key is stored, or the policy turns it away.
	request(i int, k uint32) (hit bool)
	// evictions is how many keys were removed for room.
	evictions() uint64
}

// policies make the simulators, by name.
var policies = map[string]func(w *workload, capacity uint64, cost []uint32) policy{
	"lru":        newLRU,
	"s3fifo":     newS3FIFO,
	"wtinylfu":   newTiny,         // window of 1 %
	"adaptive":   newTinyAdaptive, // W-TinyLFU with a climbing window
	"belady":     newBelady,
	"beladysize": newBeladySize,
}

// PolicyNames are the names of the simulators, for help.
func PolicyNames() string {
	return strings.Join(slices.Sorted(maps.Keys(policies)), ", ")
}

// ReplayColumns are ReplayConfig.Columns: names, in which a simulator without
// bytes behind it stands for one column with each of the overheads.
func ReplayColumns(names []string, overheads []int) ([]string, error) {
	var columns []string
	for _, name := range names {
		if policies[name] == nil {
			columns = append(columns, name)
			continue
		}
		for _, overhead := range overheads {
			if overhead < 0 {
				return nil, fmt.Errorf("bench: overhead %d: want none below 0", overhead)
			}
			columns = append(columns, name+strconv.Itoa(overhead))
		}
	}
	return columns, nil
}

// splitPolicy takes the bytes charged for each item off the end of a column's
// name: s3fifo40 is s3fifo and 40.
func splitPolicy(column string) (name string, overhead int, err error) {
	for name := range policies {
		digits, ok := strings.CutPrefix(column, name)
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(digits, 10, 20); err == nil {
			return name, int(n), nil
		}
	}
	return "", 0, fmt.Errorf("bench: column %q: want store, server or one of %s with the bytes an item is charged, such as lru40",
		column, PolicyNames())
}

// simulate replays w against one of the policies with so many bytes for keys,
// values and an overhead for each item.
func simulate(w *workload, name string, overhead int, capacity uint64) Result {
	cost := make([]uint32, len(w.sizes))
	for k, size := range w.sizes {
		cost[k] = keyTextBytes + size + uint32(overhead)
	}
	p := policies[name](w, capacity, cost)
	var res Result
	for i, k := range w.trace.Requests {
		hit := p.request(i, k)
		if !w.isWrite(i) {
			res.count(w.sizes[k], hit)
		}
	}
	res.Evictions = p.evictions()
	return res
}

// queueNone says that a key is in no queue.
const queueNone = 0xff

// queues are double linked lists over the keys of a trace; a key is in one of
// them or in none.
//
//	next, prev:  │ a place for each key │ heads of the queues │
//
// A head's next is the newest key, its prev the oldest, itself if empty.
type queues struct {
	next, prev []uint32
	in         []uint8  // the queue of each key
	cost       []uint32 // bytes charged for each key
	bytes      []uint64 // charged in each queue
	n          []int    // keys in each queue
}

func newQueues(n int, cost []uint32) *queues {
	q := &queues{
		next:  make([]uint32, len(cost)+n),
		prev:  make([]uint32, len(cost)+n),
		in:    make([]uint8, len(cost)),
		cost:  cost,
		bytes: make([]uint64, n),
		n:     make([]int, n),
	}
	for k := range q.in {
		q.in[k] = queueNone
	}
	for head := len(cost); head < len(q.next); head++ {
		q.next[head], q.prev[head] = uint32(head), uint32(head)
	}
	return q
}

// push makes k, which is in none, the newest of a queue.
func (q *queues) push(queue int, k uint32) {
	head := uint32(len(q.in) + queue)
	first := q.next[head]
	q.next[k], q.prev[k] = first, head
	q.next[head], q.prev[first] = k, k
	q.in[k] = uint8(queue)
	q.n[queue]++
	q.bytes[queue] += uint64(q.cost[k])
}

// remove takes k out of its queue.
func (q *queues) remove(k uint32) {
	next, prev := q.next[k], q.prev[k]
	q.next[prev], q.prev[next] = next, prev
	q.n[q.in[k]]--
	q.bytes[q.in[k]] -= uint64(q.cost[k])
	q.in[k] = queueNone
}

// move makes k the newest of a queue.
func (q *queues) move(queue int, k uint32) {
	q.remove(k)
	q.push(queue, k)
}

// oldest is the oldest key of a queue, if there is one.
func (q *queues) oldest(queue int) (k uint32, ok bool) {
	k = q.prev[len(q.in)+queue]
	return k, int(k) < len(q.in)
}
