package slab

import (
	"slices"
	"testing"
)

func TestListClasses(t *testing.T) {
	const most = 64 << 10 / chunksPerPageMin
	for _, tt := range []struct{ given, want []int }{
		{[]int{100, 200, 301}, []int{104, 200, 304, most}},
		{[]int{8, 16, 32, 40}, []int{32, 40, most}},
		{[]int{100, most - 8, most, most + 8}, []int{104, most - 8, most}},
	} {
		c := ListClasses(64<<10, tt.given)
		var got []int
		for i := range c.Len() {
			got = append(got, c.Bytes(i))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v: got %v want %v", tt.given, got, tt.want)
		}
	}
}
