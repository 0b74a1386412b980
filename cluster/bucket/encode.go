package bucket

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The compact encoding, for the wire and for digests. Numbers are varints
// unless said otherwise, texts are their length and bytes:
//
//	"QMAP" 1 · cluster · epoch · predecessor 32 · node set · copies wanted
//	number of nodes · for each: id, address, zone, weight, state 1
//	for each bucket: owner · for each bucket: number of copies, copies
//	since, in runs: buckets, epoch
//	number of splits · for each: key, n, former, version
//	budget: foreground, background, direct loads
//	number of moves (0) · number of gutter nodes (0)
//
// The last two have their place, for versions to come; a map that has any is
// refused by this one.
const compactMagic = "QMAP\x01"

// compactMax bounds what Decode reads, so that a length cannot lie.
const compactMax = 1 << 20

// Compact is the map in its compact encoding, about 16 KB with one copy.
func (m *Map) Compact() []byte { return m.AppendCompact(nil) }

// AppendCompact appends the compact encoding.
func (m *Map) AppendCompact(dst []byte) []byte {
	number := func(n uint64) { dst = binary.AppendUvarint(dst, n) }
	text := func(s string) {
		number(uint64(len(s)))
		dst = append(dst, s...)
	}
	dst = append(dst, compactMagic...)
	text(m.Cluster)
	number(uint64(m.Epoch))
	dst = append(dst, m.Predecessor[:]...)
	number(uint64(m.NodeSet))
	number(uint64(m.CopiesWanted))
	number(uint64(len(m.Nodes)))
	for i := range m.Nodes {
		n := &m.Nodes[i]
		text(n.ID)
		text(n.Addr)
		text(n.Zone)
		number(uint64(n.Weight))
		dst = append(dst, stateByte(n.State))
	}
	for b := range m.Buckets {
		number(uint64(m.Buckets[b].Owner))
	}
	for b := range m.Buckets {
		number(uint64(len(m.Buckets[b].Copies)))
		for _, c := range m.Buckets[b].Copies {
			number(uint64(c))
		}
	}
	for b := 0; b < Count; {
		end := b + 1
		for end < Count && m.Buckets[end].Since == m.Buckets[b].Since {
			end++
		}
		number(uint64(end - b))
		number(uint64(m.Buckets[b].Since))
		b = end
	}
	number(uint64(len(m.Splits)))
	for i := range m.Splits {
		s := &m.Splits[i]
		text(string(s.Key))
		number(uint64(s.N))
		number(uint64(s.Former))
		number(s.Version)
	}
	number(uint64(m.Budget.Foreground))
	number(uint64(m.Budget.Background))
	number(uint64(m.Budget.DirectLoads))
	number(0)
	number(0)
	return dst
}

func stateByte(s State) byte {
	if s == Leaving {
		return 1
	}
	return 0
}

// Digest is what identifies the map.
func (m *Map) Digest() Digest { return sha256.Sum256(m.Compact()) }

// errCompact says that the bytes are no map in the compact encoding.
var errCompact = errors.New("bucket: not a map, or one of another version")

// reader takes the compact encoding apart. After an error everything is 0.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number(most uint64) uint64 {
	n, k := binary.Uvarint(r.b)
	if r.bad || k <= 0 || n > most || k > 1 && n < 1<<(7*(k-1)) { // one way to write each
		r.bad = true
		return 0
	}
	r.b = r.b[k:]
	return n
}

func (r *reader) bytes(n int) []byte {
	if r.bad || len(r.b) < n {
		r.bad = true
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) text(most int) string { return string(r.bytes(int(r.number(uint64(most))))) }

// Decode reads a map in either encoding, and validates it.
func Decode(p []byte) (*Map, error) {
	if len(p) > compactMax {
		return nil, fmt.Errorf("bucket: a map of %d bytes: want at most %d", len(p), compactMax)
	}
	if bytes.HasPrefix(bytes.TrimLeft(p, " \t\r\n"), []byte{'{'}) {
		return decodeJSON(p)
	}
	if !bytes.HasPrefix(p, []byte(compactMagic)) {
		return nil, errCompact
	}
	const addrMax = 300
	r := &reader{b: p[len(compactMagic):]}
	m := &Map{Cluster: r.text(nameMax), Epoch: Epoch(r.number(1<<64 - 1))}
	copy(m.Predecessor[:], r.bytes(len(m.Predecessor)))
	m.NodeSet = uint32(r.number(NodeSetMax))
	m.CopiesWanted = int(r.number(CopiesMax))
	for range r.number(NodesMax) {
		n := Node{ID: r.text(nameMax), Addr: r.text(addrMax), Zone: r.text(nameMax), Weight: int(r.number(WeightMax)), State: Active}
		switch state := r.bytes(1); {
		case r.bad || state[0] > 1:
			return nil, errCompact
		case state[0] == 1:
			n.State = Leaving
		}
		m.Nodes = append(m.Nodes, n)
	}
	for b := range m.Buckets {
		m.Buckets[b].Owner = NodeIndex(r.number(NodesMax))
	}
	for b := range m.Buckets {
		for range r.number(CopiesMax) {
			m.Buckets[b].Copies = append(m.Buckets[b].Copies, NodeIndex(r.number(NodesMax)))
		}
	}
	for b := 0; b < Count; {
		n, since := int(r.number(uint64(Count-b))), Epoch(r.number(1<<64-1))
		if n == 0 || b > 0 && m.Buckets[b-1].Since == since {
			return nil, errCompact
		}
		for range n {
			m.Buckets[b].Since = since
			b++
		}
	}
	for range r.number(SplitsMax) {
		m.Splits = append(m.Splits, Split{Key: RawKey(r.text(SplitKeyMax)), N: int(r.number(SplitMax)), Former: int(r.number(SplitMax)), Version: r.number(1<<64 - 1)})
	}
	const rateMax = 1 << 40
	m.Budget = Budget{int(r.number(rateMax)), int(r.number(rateMax)), int(r.number(rateMax))}
	r.number(0)
	r.number(0)
	if r.bad || len(r.b) > 0 {
		return nil, errCompact
	}
	return m, m.Validate()
}

// readable is the map as JSON has it. Buckets are in runs of equal rows, and
// nodes go by their ids.
type readable struct {
	Version     int           `json:"version"`
	Cluster     string        `json:"cluster"`
	Epoch       Epoch         `json:"epoch"`
	Predecessor Digest        `json:"predecessor"`
	NodeSet     uint32        `json:"node_set"`
	Copies      int           `json:"copies"`
	Budget      Budget        `json:"budget"`
	Nodes       []Node        `json:"nodes"`
	Splits      []Split       `json:"splits,omitempty"`
	Buckets     []readableRun `json:"buckets"`

	// Their place, for versions to come.
	Moves  []struct{} `json:"moves,omitempty"`
	Gutter []struct{} `json:"gutter,omitempty"`
}

// readableRun is a run of buckets, such as "0-240" or "17".
type readableRun struct {
	Range  string `json:"b"`
	Owner  string `json:"owner"`
	Copies string `json:"copies,omitempty"` // ids, with commas
	Since  Epoch  `json:"since"`
}

const readableVersion = 1

// JSON is the map in its readable encoding: the same bytes for the same map.
func (m *Map) JSON() []byte {
	r := readable{
		Version: readableVersion, Cluster: m.Cluster, Epoch: m.Epoch, Predecessor: m.Predecessor,
		NodeSet: m.NodeSet, Copies: m.CopiesWanted, Budget: m.Budget, Nodes: m.Nodes, Splits: m.Splits,
	}
	for b := 0; b < Count; {
		k, end := &m.Buckets[b], b+1
		for end < Count && k.equal(&m.Buckets[end]) {
			end++
		}
		run := readableRun{Range: strconv.Itoa(b), Owner: m.Nodes[k.Owner].ID, Since: k.Since}
		if end > b+1 {
			run.Range += "-" + strconv.Itoa(end-1)
		}
		for i, c := range k.Copies {
			if i > 0 {
				run.Copies += ","
			}
			run.Copies += m.Nodes[c].ID
		}
		r.Buckets = append(r.Buckets, run)
		b = end
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	if err := e.Encode(r); err != nil {
		panic(fmt.Sprintf("bucket: a map that is no JSON: %v", err))
	}
	return out.Bytes()
}

// bounds are the first and the last bucket of a run.
func (r *readableRun) bounds() (from, to int, err error) {
	low, high, ok := strings.Cut(r.Range, "-")
	if !ok {
		high = low
	}
	from, err = strconv.Atoi(low)
	if err == nil {
		to, err = strconv.Atoi(high)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("bucket: buckets %q: want a number or FROM-TO", r.Range)
	}
	return from, to, nil
}

func decodeJSON(p []byte) (*Map, error) {
	var r readable
	d := json.NewDecoder(bytes.NewReader(p))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("bucket: not a map: %w", err)
	}
	if d.More() {
		return nil, errors.New("bucket: something follows the map")
	}
	switch {
	case r.Version != readableVersion:
		return nil, fmt.Errorf("bucket: a map of version %d: want %d", r.Version, readableVersion)
	case len(r.Moves)+len(r.Gutter) > 0:
		return nil, errors.New("bucket: a map with moves or a gutter is one for a later version")
	}
	m := &Map{
		Cluster: r.Cluster, Epoch: r.Epoch, Predecessor: r.Predecessor, NodeSet: r.NodeSet,
		CopiesWanted: r.Copies, Budget: r.Budget, Nodes: r.Nodes, Splits: r.Splits,
	}
	next := 0
	for _, run := range r.Buckets {
		from, to, err := run.bounds()
		if err != nil {
			return nil, err
		}
		if from != next || to < from || to >= Count {
			return nil, fmt.Errorf("bucket: buckets %q: want those from %d on", run.Range, next)
		}
		row := Bucket{Since: run.Since}
		var ok bool
		if row.Owner, ok = m.NodeOf(run.Owner); !ok {
			return nil, fmt.Errorf("bucket: buckets %s: there is no node %q", run.Range, run.Owner)
		}
		for b := from; b <= to; b++ {
			k := row
			if run.Copies != "" {
				for id := range strings.SplitSeq(run.Copies, ",") {
					c, ok := m.NodeOf(id)
					if !ok {
						return nil, fmt.Errorf("bucket: buckets %s: there is no node %q", run.Range, id)
					}
					k.Copies = append(k.Copies, c)
				}
			}
			m.Buckets[b] = k
		}
		next = to + 1
	}
	if next != Count {
		return nil, fmt.Errorf("bucket: buckets up to %d: want %d", next-1, Count-1)
	}
	return m, m.Validate()
}
