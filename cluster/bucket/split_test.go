package bucket

import "testing"

// S2-08: reads are shared by the places of a key, writes go to all of them.
func TestSplitLimit(t *testing.T) {
	for _, tt := range []struct {
		reads, writes float64
		want          int
	}{
		{90_000, 0, SplitMax},
		{0, 0, SplitMax},
		{90_000, 1, SplitMax},
		{90_000, 3_000, 3}, // of each place: 30,000 reads, and 3,000 writes
		{90_000, 3_001, 2},
		{90_000, 9_000, 1},
		{90_000, 9_001, 0},
		{0, 1, 0},
	} {
		if got := SplitLimit(tt.reads, tt.writes); got != tt.want {
			t.Errorf("%.0f reads and %.0f writes: %d places, want %d", tt.reads, tt.writes, got, tt.want)
		}
	}
}
