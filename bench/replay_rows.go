package bench

// RowsTable are the rows that memcached's own misses are published for, in
// the same order.
func RowsTable() []Row {
	return []Row{
		{"arc-oltp", 8000, 64},
		{"arc-oltp", 8000, 128},
		{"arc-oltp", 8000, 256},
		{"arc-oltp", 8000, 512},
		{"orm-busy", 8000, 64},
		{"orm-busy", 8000, 128},
		{"orm-busy", 8000, 256},
		{"orm-busy", 8000, 512},
		{"cloudphysics", 0, 128},
		{"cloudphysics", 0, 256},
		{"cloudphysics", 0, 512},
		{"cloudphysics", 0, 1024},
		{"arc-p3", 2000, 64},
		{"arc-p3", 2000, 256},
		{"arc-p3", 224, 32},
		{"arc-p3", 224, 64},
		{"scarab", 4000, 64},
		{"scarab", 4000, 256},
		{"adaptsize", 0, 64},
		{"adaptsize", 0, 128},
	}
}

// RowsOther are rows that nothing is tuned to: other sizes and other memory,
// at least 64 MB, below which memcached uses more than it is told.
func RowsOther() []Row {
	return []Row{
		{"arc-oltp", 3000, 64},
		{"arc-oltp", 3000, 192},
		{"arc-oltp", 20000, 128},
		{"arc-oltp", 20000, 768},
		{"orm-busy", 2500, 64},
		{"orm-busy", 20000, 96},
		{"orm-busy", 20000, 384},
		{"cloudphysics", 0, 192},
		{"cloudphysics", 0, 384},
		{"cloudphysics", 0, 768},
		{"arc-p3", 1000, 96},
		{"arc-p3", 1000, 192},
		{"arc-p3", 400, 72},
		{"arc-p3", 100, 64},
		{"scarab", 1500, 64},
		{"scarab", 1500, 160},
		{"scarab", 10000, 384},
		{"adaptsize", 0, 96},
		{"adaptsize", 0, 192},
		{"web07", 20000, 64},
		{"web07", 8000, 80},
	}
}
