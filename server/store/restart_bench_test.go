package store

import (
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkOpen opens a file of a million items.
func BenchmarkOpen(b *testing.B) {
	const items = 1_000_000
	for _, crash := range []bool{false, true} {
		b.Run(map[bool]string{false: "graceful", true: "crash"}[crash], func(b *testing.B) {
			c := Config{LimitBytes: 512 << 20, Shards: 1, File: filepath.Join(scratch(b), "items"), Recover: true, Now: noon}
			s, err := Open(c)
			if err != nil {
				b.Fatal(err)
			}
			value := make([]byte, 165)
			for i := range items {
				s.Set(KeyOf(fmt.Appendf(nil, "key:%012d", i*7919%items)), value, &SetOptions{}, noon+Time(i))
			}
			for b.Loop() {
				b.StopTimer()
				leave(b, s, crash)
				b.StartTimer()
				if s, err = Open(c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/items, "ns/item")
			s.Close()
		})
	}
}
