package bench

// RowsTable are the rows that memcached's own misses are published for, in
// the same order.
func RowsTable() []Row {
	return []Row{
		{Trace: "arc-oltp", MeanBytes: 8000, MemoryMiB: 64},
		{Trace: "arc-oltp", MeanBytes: 8000, MemoryMiB: 128},
		{Trace: "arc-oltp", MeanBytes: 8000, MemoryMiB: 256},
		{Trace: "arc-oltp", MeanBytes: 8000, MemoryMiB: 512},
		{Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 64},
		{Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 128},
		{Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 256},
		{Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 512},
		{Trace: "cloudphysics", MemoryMiB: 128},
		{Trace: "cloudphysics", MemoryMiB: 256},
		{Trace: "cloudphysics", MemoryMiB: 512},
		{Trace: "cloudphysics", MemoryMiB: 1024},
		{Trace: "arc-p3", MeanBytes: 2000, MemoryMiB: 64},
		{Trace: "arc-p3", MeanBytes: 2000, MemoryMiB: 256},
		{Trace: "arc-p3", MeanBytes: 224, MemoryMiB: 32},
		{Trace: "arc-p3", MeanBytes: 224, MemoryMiB: 64},
		{Trace: "scarab", MeanBytes: 4000, MemoryMiB: 64},
		{Trace: "scarab", MeanBytes: 4000, MemoryMiB: 256},
		{Trace: "adaptsize", MemoryMiB: 64},
		{Trace: "adaptsize", MemoryMiB: 128},
	}
}

// RowsOther are rows that nothing is tuned to: other sizes and other memory,
// at least 64 MB, below which memcached uses more than it is told.
func RowsOther() []Row {
	return []Row{
		{Trace: "arc-oltp", MeanBytes: 3000, MemoryMiB: 64},
		{Trace: "arc-oltp", MeanBytes: 3000, MemoryMiB: 192},
		{Trace: "arc-oltp", MeanBytes: 20000, MemoryMiB: 128},
		{Trace: "arc-oltp", MeanBytes: 20000, MemoryMiB: 768},
		{Trace: "orm-busy", MeanBytes: 2500, MemoryMiB: 64},
		{Trace: "orm-busy", MeanBytes: 20000, MemoryMiB: 96},
		{Trace: "orm-busy", MeanBytes: 20000, MemoryMiB: 384},
		{Trace: "cloudphysics", MemoryMiB: 192},
		{Trace: "cloudphysics", MemoryMiB: 384},
		{Trace: "cloudphysics", MemoryMiB: 768},
		{Trace: "arc-p3", MeanBytes: 1000, MemoryMiB: 96},
		{Trace: "arc-p3", MeanBytes: 1000, MemoryMiB: 192},
		{Trace: "arc-p3", MeanBytes: 400, MemoryMiB: 72},
		{Trace: "arc-p3", MeanBytes: 100, MemoryMiB: 64},
		{Trace: "scarab", MeanBytes: 1500, MemoryMiB: 64},
		{Trace: "scarab", MeanBytes: 1500, MemoryMiB: 160},
		{Trace: "scarab", MeanBytes: 10000, MemoryMiB: 384},
		{Trace: "adaptsize", MemoryMiB: 96},
		{Trace: "adaptsize", MemoryMiB: 192},
		{Trace: "web07", MeanBytes: 20000, MemoryMiB: 64},
		{Trace: "web07", MeanBytes: 8000, MemoryMiB: 80},
	}
}

// RowsWrites are rows with writes: some of the requests whatever their keys, as
// values are written through, or all those for some of the keys, which fill
// memory that nobody reads.
func RowsWrites() []Row {
	return []Row{
		{Trace: "arc-oltp", MeanBytes: 8000, MemoryMiB: 128, WritePercent: 30},
		{Trace: "arc-oltp", MeanBytes: 8000, MemoryMiB: 256, WritePercent: 80},
		{Trace: "arc-oltp", MeanBytes: 3000, MemoryMiB: 64, WrittenPercent: 50},
		{Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 64, WritePercent: 10},
		{Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 128, WritePercent: 80},
		{Trace: "orm-busy", MeanBytes: 8000, MemoryMiB: 128, WrittenPercent: 30},
		{Trace: "orm-busy", MeanBytes: 2500, MemoryMiB: 64, WritePercent: 30, WrittenPercent: 20},
		{Trace: "cloudphysics", MemoryMiB: 256, WritePercent: 60},
		{Trace: "cloudphysics", MemoryMiB: 512, WritePercent: 20, WrittenPercent: 40},
		{Trace: "arc-p3", MeanBytes: 2000, MemoryMiB: 256, WritePercent: 30},
		{Trace: "arc-p3", MeanBytes: 224, MemoryMiB: 64, WrittenPercent: 30},
		{Trace: "scarab", MeanBytes: 4000, MemoryMiB: 64, WritePercent: 30},
		{Trace: "scarab", MeanBytes: 4000, MemoryMiB: 256, WritePercent: 10, WrittenPercent: 20},
		{Trace: "scarab", MeanBytes: 1500, MemoryMiB: 64, WritePercent: 80},
		{Trace: "adaptsize", MemoryMiB: 64, WritePercent: 30},
		{Trace: "web07", MeanBytes: 20000, MemoryMiB: 64, WritePercent: 30, WrittenPercent: 20},
	}
}
