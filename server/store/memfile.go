package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"math/rand/v2"

	"github.com/quarrycache/quarry/slab"
)

// memFile is the file that a store's items are in, if they are to outlive the
// process:
//
//	0            superblock: what the file is, and with what settings
//	4096         the marks of each shard, in 64 bytes
//	hiddenOff    what each shard has hidden by bucket
//	ledgersOff   the ledger of each shard's arena (slab.Ledger)
//	headerBytes  the arenas, one behind the other, sparse
//
// What else is needed to go on, such as the ends of the lists, is written to
// another file at a graceful stop: restart_meta.go.
type memFile struct {
	path   string
	f      *slab.File
	header *slab.Memory
	run    uint64 // a random number for each start: metadata belongs to one run

	shards      int
	hiddenOff   int64
	ledgersOff  int64
	ledgerBytes int64
	headerBytes int64
	arenaBytes  int64
}

const (
	superBytes = 4096
	marksBytes = 64
	// fileVersion is that of the file's layout, the items' included, and of
	// the metadata.
	fileVersion = 1
)

var (
	fileMagic  = [8]byte{'Q', 'U', 'A', 'R', 'R', 'Y', 'M', 'F'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// settings are what the bytes in a memory file depend on.
type settings struct {
	limitBytes   uint64
	itemMaxBytes uint64
	shards       uint32
	pageBytes    uint32
	classes      uint32 // number of slab classes
	classSum     uint32 // CRC of their sizes
	noCAS        bool
	checksums    bool
	compat       bool // CompatSlabs
}

func (c *Config) settings(t *slab.Classes) settings {
	st := settings{
		limitBytes: uint64(c.LimitBytes), itemMaxBytes: uint64(c.ItemMaxBytes),
		shards: uint32(c.Shards), pageBytes: uint32(c.PageBytes),
		classes: uint32(t.Len()), noCAS: c.NoCAS, checksums: c.ItemChecksums, compat: c.CompatSlabs,
	}
	var sizes []byte
	for i := range t.Len() {
		sizes = binary.LittleEndian.AppendUint32(sizes, uint32(t.Bytes(i)))
	}
	st.classSum = crc32.Checksum(sizes, castagnoli)
	return st
}

// plausible reports whether a store could have these shards and pages.
func (st *settings) plausible() bool {
	power := func(n uint32) bool { return bits.OnesCount32(n) == 1 }
	return power(st.shards) && st.shards <= shardsMax && power(st.pageBytes) &&
		st.pageBytes >= filePageBytesMin && st.pageBytes <= pageBytesMax &&
		st.limitBytes/uint64(st.shards) >= uint64(st.pageBytes)*slabPagesMin
}

// filePageBytesMin is the smallest page that classes can be made for. Stores
// by the rule have larger ones.
const filePageBytesMin = 1 << 10

// differs says in which setting st is not like want, "" in none.
func (st *settings) differs(want *settings) string {
	yes := map[bool]string{false: "off", true: "on"}
	switch {
	case st.limitBytes != want.limitBytes:
		return fmt.Sprintf("it was made for %d bytes of items, not %d", st.limitBytes, want.limitBytes)
	case st.itemMaxBytes != want.itemMaxBytes:
		return fmt.Sprintf("it was made for items of at most %d bytes, not %d", st.itemMaxBytes, want.itemMaxBytes)
	case st.shards != want.shards || st.pageBytes != want.pageBytes || st.classes != want.classes || st.classSum != want.classSum ||
		st.compat != want.compat:
		return "it was made with other slab classes"
	case st.noCAS != want.noCAS:
		return "it was made with CAS " + yes[!st.noCAS]
	case st.checksums != want.checksums:
		return "it was made with item checksums " + yes[st.checksums]
	}
	return ""
}

// append writes the superblock of run number run.
func (st *settings) append(b []byte, run uint64) []byte {
	le := binary.LittleEndian
	b = append(b, fileMagic[:]...)
	b = le.AppendUint32(b, fileVersion)
	b = le.AppendUint64(b, run)
	b = le.AppendUint64(b, st.limitBytes)
	b = le.AppendUint64(b, st.itemMaxBytes)
	for _, n := range []uint32{st.shards, st.pageBytes, st.classes, st.classSum, number(st.noCAS), number(st.checksums), number(st.compat)} {
		b = le.AppendUint32(b, n)
	}
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// superLen is how many bytes of the superblock are used.
const superLen = 8 + 4 + 3*8 + 7*4 + 4

// parseSuper reads a superblock.
func parseSuper(b []byte) (st settings, run uint64, ok bool) {
	le := binary.LittleEndian
	if len(b) < superLen || [8]byte(b) != fileMagic || le.Uint32(b[8:]) != fileVersion ||
		le.Uint32(b[superLen-4:]) != crc32.Checksum(b[:superLen-4], castagnoli) {
		return st, 0, false
	}
	run = le.Uint64(b[12:])
	st = settings{
		limitBytes: le.Uint64(b[20:]), itemMaxBytes: le.Uint64(b[28:]),
		shards: le.Uint32(b[36:]), pageBytes: le.Uint32(b[40:]),
		classes: le.Uint32(b[44:]), classSum: le.Uint32(b[48:]),
		noCAS: le.Uint32(b[52:]) != 0, checksums: le.Uint32(b[56:]) != 0, compat: le.Uint32(b[60:]) != 0,
	}
	return st, run, st.plausible()
}

func openMemFile(path string) (*memFile, error) {
	f, err := slab.OpenFile(path)
	if err != nil {
		return nil, err
	}
	return &memFile{path: path, f: f}, nil
}

// super is what the file says that it is. fresh: it is empty.
func (mf *memFile) super() (st settings, ok, fresh bool, err error) {
	size, err := mf.f.Size()
	if err != nil || size == 0 {
		return st, false, size == 0, err
	}
	var b [superLen]byte
	if _, err := mf.f.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return st, false, false, fmt.Errorf("store: memory file %s: %w", mf.path, err)
	}
	st, mf.run, ok = parseSuper(b[:])
	return st, ok, false, nil
}

// open maps the file for a store with settings st: as it is, or emptied. It
// belongs to a new run from here on.
func (mf *memFile) open(st settings, t *slab.Classes, reserve int64, empty bool) error {
	round := func(n, to int64) int64 { return (n + to - 1) / to * to }
	mf.shards = int(st.shards)
	mf.ledgerBytes = round(slab.LedgerBytes(t, reserve), marksBytes)
	mf.hiddenOff = superBytes + int64(mf.shards)*marksBytes
	mf.ledgersOff = mf.hiddenOff + int64(mf.shards)*hiddenBytes
	used := mf.ledgersOff + int64(mf.shards)*mf.ledgerBytes
	mf.headerBytes = round(used, slab.FileAlignBytes)
	mf.arenaBytes = slab.ArenaBytes(t, reserve)
	if empty {
		if err := mf.f.Resize(0); err != nil {
			return err
		}
	}
	if err := mf.f.Resize(mf.headerBytes + int64(mf.shards)*mf.arenaBytes); err != nil {
		return err
	}
	var err error
	if mf.header, err = mf.f.Map(0, mf.headerBytes); err != nil {
		return err
	}
	if err := mf.header.Back(0, used); err != nil {
		return err
	}
	mf.run = rand.Uint64()
	copy(mf.header.Bytes(0, superLen), st.append(nil, mf.run))
	return mf.f.Sync()
}

// newArena is the arena of shard id, with what is in it.
func (mf *memFile) newArena(t *slab.Classes, b *slab.Budget, id int) (*slab.Arena, error) {
	m, err := mf.f.Map(mf.headerBytes+int64(id)*mf.arenaBytes, mf.arenaBytes)
	if err != nil {
		return nil, err
	}
	return slab.NewArenaIn(t, b, m, mf.header, uint64(mf.ledgersOff+int64(id)*mf.ledgerBytes)), nil
}

func (mf *memFile) close() error {
	var err error
	if mf.header != nil {
		err = mf.header.Release()
	}
	return errors.Join(err, mf.f.Close())
}

// marks are what a shard keeps in the file at all times, for the case that
// there will be no metadata:
//
//	 0  seq      8  stores before this run
//	 8  flushed  8  as in shard
//	16  flushAt  8
//	24  rebased  8  as in freshShard
//	32  CRC      8  of the above
type marks struct{ seq, flushed, flushAt, rebased uint64 }

const marksLen = 32

func (mk *marks) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(le.AppendUint64(b, mk.seq), mk.flushed)
	return le.AppendUint64(le.AppendUint64(b, mk.flushAt), mk.rebased)
}

func (mf *memFile) marksOff(id int) uint64 { return superBytes + uint64(id)*marksBytes }

func (mf *memFile) setMarks(id int, mk marks) {
	var buf [marksLen]byte
	mk.append(buf[:0])
	off := mf.marksOff(id)
	copy(mf.header.Bytes(off, marksLen), buf[:])
	mf.header.PutU64(off+marksLen, uint64(crc32.Checksum(buf[:], castagnoli)))
}

// marks are those of shard id. False: they make no sense, or are half written.
func (mf *memFile) marks(id int) (mk marks, ok bool) {
	off := mf.marksOff(id)
	mk = marks{mf.header.U64(off), mf.header.U64(off + 8), mf.header.U64(off + 16), mf.header.U64(off + 24)}
	sum := crc32.Checksum(mk.append(nil), castagnoli)
	return mk, mf.header.U64(off+marksLen) == uint64(sum)
}

// keepMarks writes down what the shard must not forget in a crash.
func (sh *shard) keepMarks() {
	if sh.s.file != nil {
		sh.s.file.setMarks(sh.id, marks{sh.seq, sh.flushed, uint64(sh.flushAt), sh.rebased})
	}
}

// What a shard has hidden by bucket is kept beside the marks: a CAS for each
// bucket, and the same inverted.
const (
	hiddenEntryBytes = 16
	hiddenBytes      = Buckets * hiddenEntryBytes
)

func (mf *memFile) hiddenEntry(id, bucket int) uint64 {
	return uint64(mf.hiddenOff) + uint64(id)*hiddenBytes + uint64(bucket)*hiddenEntryBytes
}

// keepHidden writes down that bucket b is hidden up to what it is now.
func (sh *shard) keepHidden(b int) {
	if mf := sh.s.file; mf != nil {
		off, cas := mf.hiddenEntry(sh.id, b), sh.owned.items[b]
		mf.header.PutU64(off, cas)
		mf.header.PutU64(off+8, ^cas)
	}
}

// hidden is what keepHidden has written, 0 nothing. False: it makes no sense,
// or is half written.
func (mf *memFile) hidden(id, b int) (cas uint64, ok bool) {
	off := mf.hiddenEntry(id, b)
	cas, inverse := mf.header.U64(off), mf.header.U64(off+8)
	return cas, cas == ^inverse || cas == 0 && inverse == 0
}
