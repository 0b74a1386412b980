package store

// Memory says what every byte of a store is spent on. KeyValueBytes to
// UncarvedBytes are Stats.HeldBytes, without a rest; all but UncarvedBytes are
// what the system has given the store, but for its Go objects.
type Memory struct {
	KeyValueBytes int64 // of items that can be found
	HeaderBytes   int64 // of those: headers, client flags, links of large ones
	PinnedBytes   int64 // items that are gone, but still being sent, with all they take
	UploadBytes   int64 // values on their way in, the same
	RoundingBytes int64 // by which chunks are larger than what is in them, and pages than their chunks
	FreeBytes     int64 // free chunks that were in use before
	IdleBytes     int64 // pages that belong to no class now
	// UncarvedBytes are what is not cut into chunks yet of the pages that
	// classes are at. Where such a page is new, and nearly all are, nobody has
	// written there, and the system has not given memory for it.
	UncarvedBytes int64

	IndexBytes    int64 // buckets
	OverflowBytes int64 // overflow buckets, freed ones too
	SketchBytes   int64
	RecordBytes   int64 // floors and grants of keys apart from their items

	usedBytes int64 // chunks in use
	tailBytes int64 // of those: what is behind the last chunk
}

// add adds what shard sh holds. It must be locked.
func (m *Memory) add(sh *shard) {
	t := sh.s.table
	for c := range t.Len() {
		use := sh.a.Use(c)
		chunk := int64(t.Bytes(c))
		m.usedBytes += int64(use.Used) * chunk
		m.FreeBytes += int64(use.Free-use.Uncarved) * chunk
		m.UncarvedBytes += int64(use.Uncarved) * chunk
		m.tailBytes += int64(use.Pages) * (int64(t.PageBytes()) - int64(t.PerPage(c))*chunk)
	}
	for c := range sh.classes {
		n := &sh.classes[c]
		m.KeyValueBytes += int64(n.payload)
		m.HeaderBytes += int64(n.memRequested - n.payload)
	}
	m.HeaderBytes += sh.pieceBytes
	m.PinnedBytes += sh.goneBytes
	m.IdleBytes += int64(sh.a.IdlePages()) * int64(t.PageBytes())
	m.IndexBytes += int64(sh.idx.buckets()) * bucketBytes
	m.OverflowBytes += sh.idx.bytes() - int64(sh.idx.buckets())*bucketBytes
	m.SketchBytes += sh.order.SketchBytes()
	m.RecordBytes += sh.records.bytes()
}

// settle finds what is left when all shards have been added.
func (m *Memory) settle(st *Stats) {
	m.UploadBytes = st.UploadBytes
	used := m.KeyValueBytes + m.HeaderBytes + m.PinnedBytes + m.UploadBytes
	// Shards are looked at one after the other, so uploads may have come and
	// gone meanwhile.
	m.RoundingBytes = max(m.usedBytes-used, 0) + m.tailBytes
}

// Pages is the part of m that comes out of the limit.
func (m *Memory) Pages() int64 {
	return m.KeyValueBytes + m.HeaderBytes + m.PinnedBytes + m.UploadBytes + m.RoundingBytes +
		m.FreeBytes + m.IdleBytes + m.UncarvedBytes
}

// Sum is what of m is in memory.
func (m *Memory) Sum() int64 {
	return m.Pages() - m.UncarvedBytes + m.IndexBytes + m.OverflowBytes + m.SketchBytes + m.RecordBytes
}
