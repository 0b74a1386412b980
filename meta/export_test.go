package meta

import (
	"fmt"
	"strings"
)

// ErrorCount is one more than the last Error.
const ErrorCount = errorCount

var opNames = [...]string{"none", "get", "set", "delete", "arith", "debug", "noop", "version", "verbosity", "quit",
	"flush_all", "stats", "shutdown", "cache_memlimit", "slabs", "lru", "crawler", "watch", "refresh_certs",
	"auth_list", "auth_start", "auth_step"}

// Describe writes r as tests compare it: its spelling, then every field that
// is not zero.
func (r *Request) Describe() string {
	var b strings.Builder
	field := func(name string, value any) { fmt.Fprintf(&b, " %s=%v", name, value) }
	fmt.Fprintf(&b, "%s/%s", opNames[r.Op], r.Verb)
	if r.Key != nil {
		field("key", fmt.Sprintf("%q", r.Key))
	}
	if string(r.KeyText) != string(r.Key) {
		field("text", fmt.Sprintf("%q", r.KeyText))
	}
	if r.Rest != nil {
		field("rest", fmt.Sprintf("%q", r.Rest))
	}
	for i, word := range r.Args[:r.NArgs] {
		field(fmt.Sprint("arg", i), fmt.Sprintf("%q", word))
	}
	if r.NFlags > 0 {
		field("flags", string(r.Flags[:r.NFlags]))
	}
	if r.Has != 0 {
		var has []byte
		for c := byte('A'); c <= 'z'; c++ {
			if r.Has.Has(c) {
				has = append(has, c)
			}
		}
		field("has", string(has))
	}
	if r.Opaque != nil {
		field("opaque", fmt.Sprintf("%q", r.Opaque))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"mode", int64(r.Mode)}, {"len", int64(r.ValueLen)}, {"swallow", int64(r.Swallow)},
		{"client", int64(r.ClientFlags)}, {"ttl", int64(r.TTL)}, {"vivify", int64(r.VivifyTTL)}, {"recache", int64(r.RecacheTTL)},
	} {
		if f.value != 0 {
			field(f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value uint64
	}{{"cas", r.CompareCAS}, {"newcas", r.NewCAS}, {"initial", r.Initial}, {"delta", r.Delta}} {
		if f.value != 0 {
			field(f.name, f.value)
		}
	}
	if r.Has&freshFlags != 0 {
		if f := &r.Fresh; *f != (Freshness{}) {
			fmt.Fprintf(&b, " fresh=%d,%q,%q,%d,%d,%d,%d", f.GrantMillis, f.GrantClass, f.Token(), f.Version, f.Hard, f.Soft, f.Read)
		}
	}
	for _, f := range []struct {
		name string
		set  bool
	}{{"quiet", r.Quiet}, {"hide", r.HideErrors}, {"binary", r.Binary}, {"decr", r.Decr}} {
		if f.set {
			b.WriteString(" " + f.name)
		}
	}
	return b.String()
}
