package bucket

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// samples are maps of all kinds.
func samples(t testing.TB) []*Map {
	one := first(t, 1, 0, 0)
	many := first(t, 17, 3, 2)
	many = plan(t, many, Change{Remove: []string{"n003"}, Weights: map[string]int{"n005": 7}, Budget: &Budget{12000, 8000, 50},
		Split: []Split{{Key: "hot", N: 8}, {Key: "bin\xff\x00\"\\", N: 2}}})
	many = plan(t, many, Change{Split: []Split{{Key: "hot", N: 3}}})
	return []*Map{one, many, many.At(many.Epoch.Takeover(99))}
}

func TestEncodings(t *testing.T) {
	for _, m := range samples(t) {
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{"compact": m.Compact(), "JSON": m.JSON()} {
			got, err := Decode(text)
			if err != nil {
				t.Fatalf("%s of map %s: %v", name, m.Epoch, err)
			}
			if got.Digest() != m.Digest() || !reflect.DeepEqual(normal(got), normal(m)) {
				t.Errorf("%s of map %s is read as another map", name, m.Epoch)
			}
			if again := map[string][]byte{"compact": got.Compact(), "JSON": got.JSON()}[name]; !bytes.Equal(again, text) {
				t.Errorf("%s of map %s is not canonical", name, m.Epoch)
			}
		}
	}
	if n := len(samples(t)[1].Compact()); n > 22<<10 {
		t.Errorf("a map of 16 nodes with two copies has %d bytes", n)
	}
	if n := len(first(t, 100, 3, 1).Compact()); n > 18<<10 {
		t.Errorf("a map of 100 nodes has %d bytes, want about 16 KB", n)
	}
}

// normal makes empty and nil slices the same.
func normal(m *Map) *Map {
	c := m.Clone()
	for b := range c.Buckets {
		if len(c.Buckets[b].Copies) == 0 {
			c.Buckets[b].Copies = nil
		}
	}
	if len(c.Splits) == 0 {
		c.Splits = nil
	}
	return c
}

func TestEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Epoch(rapid.Uint64().Draw(t, "epoch"))
		if got, err := ParseEpoch(e.String()); err != nil || got != e {
			t.Errorf("%s is %v, %v", e, got, err)
		}
		if e.Term() < termMax {
			if next := e.Takeover(rapid.Uint64().Draw(t, "random")); next <= e || next.Term() != e.Term()+1 {
				t.Errorf("a takeover of %s is %s", e, next)
			}
		}
	})
	for _, bad := range []string{"", "1", ".", "1.", "65536.0", "0.281474976710656", "-1.0", "1.2.3"} {
		if e, err := ParseEpoch(bad); err == nil {
			t.Errorf("%q is epoch %s", bad, e)
		}
	}
}

// Follows finds each way of not following.
func TestFollows(t *testing.T) {
	m := first(t, 3, 0, 0)
	next := plan(t, m, Change{Add: []Node{{ID: "x", Addr: "h:1"}}})
	if err := next.Follows(m); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(m *Map){
		"an epoch that stays":           func(n *Map) { n.Epoch = m.Epoch },
		"another predecessor":           func(n *Map) { n.Predecessor[3]++ },
		"another cluster":               func(n *Map) { n.Cluster = "other" },
		"a node set that stays":         func(n *Map) { n.NodeSet = m.NodeSet },
		"an owner since before":         func(n *Map) { n.Buckets[n.Moved(m)[0]].Since = m.Epoch },
		"a bucket that stays, since":    func(n *Map) { n.Buckets[stays(n, m)].Since = 0 },
		"a node set without reason":     func(n *Map) { n.NodeSet-- },
		"an owner that changed quietly": func(n *Map) { b := stays(n, m); n.Buckets[b].Owner = (n.Buckets[b].Owner + 1) % 3 },
	} {
		bad := next.Clone()
		change(bad)
		if err := bad.Follows(m); err == nil {
			t.Errorf("%s: it follows", name)
		}
	}
	for name, n := range map[string]*Map{
		"a higher epoch":        next.At(next.Epoch + 5),
		"one that begins anew":  next.Begin(func(int) bool { return true }),
		"one after the next":    plan(t, next, Change{Remove: []string{"x"}}),
		"a takeover":            next.Takeover(7),
		"a takeover of the old": m.Takeover(7),
	} {
		if err := n.Follows(m); err != nil {
			t.Errorf("%s does not follow: %v", name, err)
		}
	}
}

func stays(n, m *Map) int {
	for b := range n.Buckets {
		if n.OwnerOf(b).ID == m.OwnerOf(b).ID {
			return b
		}
	}
	return -1
}

// S1-47, S2-02, S3-09: keys and their buckets, for clients in other languages.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Vectors []struct {
			Key    RawKey `json:"key"`
			Hash   string `json:"xxh64"`
			Bucket int    `json:"bucket"`
		} `json:"vectors"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) < 20 {
		t.Errorf("there are %d vectors", len(file.Vectors))
	}
	for _, v := range file.Vectors {
		if got := Of([]byte(v.Key)); got != v.Bucket {
			t.Errorf("%q is in bucket %d, want %d", v.Key, got, v.Bucket)
		}
		var h uint64
		if _, err := fmt.Sscanf(v.Hash, "%016x", &h); err != nil || OfHash(h) != v.Bucket {
			t.Errorf("%q: hash %s is in bucket %d, want %d", v.Key, v.Hash, OfHash(h), v.Bucket)
		}
	}
}

// Whatever is read is a map that is written again as it was.
func FuzzDecode(f *testing.F) {
	f.Add(first(f, 3, 2, 1).JSON())
	for _, m := range samples(f) {
		f.Add(m.Compact())
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		m, err := Decode(p)
		if err != nil {
			return
		}
		if got, err := Decode(m.Compact()); err != nil || got.Digest() != m.Digest() {
			t.Errorf("a map that was read is not read again: %v", err)
		}
		if got, err := Decode(m.JSON()); err != nil || got.Digest() != m.Digest() {
			t.Errorf("a map that was read is not read again as JSON: %v", err)
		}
	})
}

func BenchmarkOf(b *testing.B) {
	key := []byte("user:1234567890:profile")
	for b.Loop() {
		Of(key)
	}
}

func BenchmarkPlan(b *testing.B) {
	m := first(b, 100, 3, 1)
	for b.Loop() {
		plan(b, m, Change{Add: []Node{{ID: "x", Addr: "h:1", Zone: "z0"}}})
	}
}
