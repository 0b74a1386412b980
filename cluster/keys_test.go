package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/cluster/bucket"
)

// TestKeys: S1-07, S3-20.
func TestKeys(t *testing.T) {
	for _, k := range []struct {
		namespace  string
		schema     uint32
		tenant, id string
		want       string
	}{
		{"catalog", 1, "acme", "item42", "catalog:v1:acme:item42"},
		{"catalog", 2, "", "42", "catalog:v2::42"},
		{"a:b", 1, "c#1", "d e%~", "a%3Ab:v1:c%231:d%20e%25%7E"},
		{"", 0, "", "", ":v0::"},
	} {
		got := NewKeySpace(k.namespace, k.schema).Key(k.tenant, k.id)
		if got != k.want {
			t.Errorf("got %q, want %q", got, k.want)
		}
		if tenant := TenantOf(got); tenant != k.tenant && !strings.Contains(k.tenant, "#") {
			t.Errorf("%q: got tenant %q, want %q", got, tenant, k.tenant)
		}
	}
	s := NewKeySpace(long(5000), 1<<32-1)
	if got := len(s.Key(strings.Repeat(" ", 999), long(idMax)+"y")); got > bucket.SplitKeyMax {
		t.Errorf("a key of %d bytes: want at most %d", got, bucket.SplitKeyMax)
	}
	if most := namespaceMax + len(":v4294967295:") + tenantMax + len(":") + idMax; most > bucket.SplitKeyMax {
		t.Errorf("the longest key is %d bytes: want at most %d", most, bucket.SplitKeyMax)
	}
	if a, b := s.Key("t", long(idMax)+"y"), s.Key("t", long(idMax)+"z"); a == b {
		t.Errorf("two long ids give the same key %q", a)
	}
	if got := TenantOf("other"); got != "" {
		t.Errorf("got %q", got)
	}
}

// FuzzKeys: no two different namespaces, schemas, tenants and ids give the same
// key (S1-07).
func FuzzKeys(f *testing.F) {
	f.Add("a", uint32(1), "b", "c", "a", uint32(1), "b:c", "")
	f.Add("a:v1:b", uint32(1), "", "c", "a", uint32(1), "b", "c")
	f.Add("a", uint32(1), "%3A", "c", "a", uint32(1), ":", "c")
	f.Add("a", uint32(1), "~", long(130), "a", uint32(1), "~", long(131))
	f.Add("a#1", uint32(1), "", "", "a", uint32(1), "#1", "")
	f.Add("a", uint32(1), "2", "", "a", uint32(12), "", "")
	f.Fuzz(func(t *testing.T, n1 string, s1 uint32, t1, i1, n2 string, s2 uint32, t2, i2 string) {
		a, b := NewKeySpace(n1, s1).Key(t1, i1), NewKeySpace(n2, s2).Key(t2, i2)
		if (a == b) != (n1 == n2 && s1 == s2 && t1 == t2 && i1 == i2) {
			t.Errorf("%q, schema %d, and %q, schema %d: %q and %q", []string{n1, t1, i1}, s1, []string{n2, t2, i2}, s2, a, b)
		}
		if len(a) > bucket.SplitKeyMax || strings.ContainsAny(a, " #\r\n\x00\x7f") {
			t.Errorf("%q is no key that can be split", a)
		}
		if a == NewKeySpace(n1, s1+1).Key(t1, i1) {
			t.Errorf("%q is the same in another schema", a)
		}
	})
}

func ExampleKeySpace() {
	items := NewKeySpace("catalog", 1)
	fmt.Println(items.Key("acme", "42"))
	fmt.Println(items.Key("acme:eu", "4 2"))
	// Output:
	// catalog:v1:acme:42
	// catalog:v1:acme%3Aeu:4%202
}
