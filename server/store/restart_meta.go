package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/quarrycache/quarry/lru"
	"github.com/quarrycache/quarry/slab"
)

// The metadata of a memory file is what a graceful stop writes beside it, and
// the next start reads and removes: what is known of the items that is not in
// the file, and a CRC of each page.
//
//	magic 8 · version 4 · run 8 · tenant delimiter 1 · shards 4
//	each shard (shardMeta), its sketch last
//	CRC 4 of all that

// metaSuffix is what the name of the metadata has behind that of the file.
const metaSuffix = ".meta"

var metaMagic = [8]byte{'Q', 'U', 'A', 'R', 'R', 'Y', 'M', 'D'}

// metadata is one such file.
type metadata struct {
	run       uint64
	delimiter byte // of the tenants
	shards    []shardMeta

	f *os.File // for the sketches; nil when it was not read from a file
}

// shardMeta is what is written of a shard.
type shardMeta struct {
	seq, flushed uint64
	flushAt      uint32
	level        uint32 // of the index
	split        uint32
	items        uint64
	window       float64
	inserts      float64
	classes      []classMeta // by order class
	pages        []pageMeta  // by number
	tenants      []string    // those with a row
	fresh        freshMeta

	sketchOff, sketchBytes int64 // where in the file
}

type classMeta struct {
	lru.ClassState
	classBalance
}

type pageMeta struct {
	slab.PageUse
	sum uint32 // CRC of its bytes, if it is of a class
}

// pageNoClass is how a page without a class is written.
const pageNoClass = 0xff

// metaWriter writes metadata. Its first error stays.
type metaWriter struct {
	w   *bufio.Writer
	sum uint32
	err error
}

// Write implements io.Writer.
func (w *metaWriter) Write(p []byte) (int, error) {
	if w.err == nil {
		w.sum = crc32.Update(w.sum, castagnoli, p)
		_, w.err = w.w.Write(p)
	}
	return len(p), w.err
}

func (w *metaWriter) u8(v uint8)    { _, _ = w.Write([]byte{v}) }
func (w *metaWriter) u32(v uint32)  { _, _ = w.Write(binary.LittleEndian.AppendUint32(nil, v)) }
func (w *metaWriter) u64(v uint64)  { _, _ = w.Write(binary.LittleEndian.AppendUint64(nil, v)) }
func (w *metaWriter) f64(v float64) { w.u64(math.Float64bits(v)) }

// write writes m; sketch writes that of a shard.
func (m *metadata) write(to io.Writer, sketch func(shard int, w io.Writer) error) error {
	w := &metaWriter{w: bufio.NewWriterSize(to, 1<<20)}
	_, _ = w.Write(metaMagic[:])
	w.u32(fileVersion)
	w.u64(m.run)
	w.u8(m.delimiter)
	w.u32(uint32(len(m.shards)))
	for i := range m.shards {
		m.shards[i].write(w)
		if err := sketch(i, w); err != nil {
			return err
		}
	}
	sum := w.sum
	w.u32(sum)
	if w.err != nil {
		return w.err
	}
	return w.w.Flush()
}

func (sm *shardMeta) write(w *metaWriter) {
	w.u64(sm.seq)
	w.u64(sm.flushed)
	w.u32(sm.flushAt)
	w.u32(sm.level)
	w.u32(sm.split)
	w.u64(sm.items)
	w.f64(sm.window)
	w.f64(sm.inserts)
	w.u32(uint32(len(sm.classes)))
	for i := range sm.classes {
		c := &sm.classes[i]
		for s := range lru.Segments {
			w.u32(uint32(c.Head[s]))
			w.u32(uint32(c.Tail[s]))
			w.u32(c.N[s])
		}
		for _, v := range []float64{c.Stay, c.classBalance.inserts, c.gone, c.goneRead, c.lowHits} {
			w.f64(v)
		}
	}
	w.u32(uint32(len(sm.pages)))
	for _, p := range sm.pages {
		class := uint8(pageNoClass)
		if p.Class >= 0 {
			class = uint8(p.Class)
		}
		w.u8(class)
		w.u8(uint8(number(p.Held)))
		w.u32(uint32(p.Carved))
		w.u32(p.sum)
	}
	w.u32(uint32(len(sm.tenants)))
	for _, name := range sm.tenants {
		w.u8(uint8(len(name)))
		_, _ = w.Write([]byte(name))
	}
	sm.fresh.write(w)
	w.u64(uint64(sm.sketchBytes))
}

// metaReader reads metadata. Its first error stays, and all that is read
// afterwards is 0.
type metaReader struct {
	r   *bufio.Reader
	at  int64
	sum uint32
	err error
	buf [8]byte
}

func (r *metaReader) fill(p []byte) bool {
	if r.err != nil {
		return false
	}
	if _, r.err = io.ReadFull(r.r, p); r.err != nil {
		return false
	}
	r.at += int64(len(p))
	r.sum = crc32.Update(r.sum, castagnoli, p)
	return true
}

func (r *metaReader) u8() uint8 {
	if !r.fill(r.buf[:1]) {
		return 0
	}
	return r.buf[0]
}

func (r *metaReader) u32() uint32 {
	if !r.fill(r.buf[:4]) {
		return 0
	}
	return binary.LittleEndian.Uint32(r.buf[:])
}

func (r *metaReader) u64() uint64 {
	if !r.fill(r.buf[:8]) {
		return 0
	}
	return binary.LittleEndian.Uint64(r.buf[:])
}

// f64 is a number that is neither negative nor too large to count with, else 0.
func (r *metaReader) f64() float64 {
	if v := math.Float64frombits(r.u64()); v >= 0 && v <= 1<<62 {
		return v
	}
	return 0
}

// count is how many of something follow, at most most.
func (r *metaReader) count(what string, most int) int {
	n := r.u32()
	if r.err == nil && n > uint32(most) {
		r.err = fmt.Errorf("%d %s, at most %d", n, what, most)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// skip reads n bytes and forgets them.
func (r *metaReader) skip(n int64) {
	buf := make([]byte, 64<<10)
	for n > 0 && r.err == nil {
		part := buf[:min(n, int64(len(buf)))]
		r.fill(part)
		n -= int64(len(part))
	}
}

var errMetaNotOurs = errors.New("not the metadata of this version")

// parseMeta reads metadata, and knows at the end whether it is what was
// written. Until then nothing in it is believed but that it could be.
func parseMeta(from io.Reader) (*metadata, error) {
	r := &metaReader{r: bufio.NewReaderSize(from, 1<<20)}
	var magic [8]byte
	if !r.fill(magic[:]) || magic != metaMagic || r.u32() != fileVersion {
		return nil, errMetaNotOurs
	}
	m := &metadata{run: r.u64(), delimiter: r.u8()}
	for range r.count("shards", shardsMax) {
		m.shards = append(m.shards, parseShardMeta(r))
		if r.err != nil {
			break
		}
	}
	sum := r.sum
	if stored := r.u32(); r.err == nil && stored != sum {
		r.err = fmt.Errorf("checksum %#08x, want %#08x", sum, stored)
	}
	if _, err := r.r.ReadByte(); r.err == nil && !errors.Is(err, io.EOF) {
		r.err = errors.New("longer than it should be")
	}
	if errors.Is(r.err, io.EOF) || errors.Is(r.err, io.ErrUnexpectedEOF) {
		r.err = errors.New("shorter than it should be")
	}
	return m, r.err
}

func parseShardMeta(r *metaReader) shardMeta {
	sm := shardMeta{
		seq: r.u64(), flushed: r.u64(), flushAt: r.u32(),
		level: r.u32(), split: r.u32(), items: r.u64(),
		window: r.f64(), inserts: r.f64(),
	}
	for range r.count("classes", slab.ClassesMax+chainedClasses) {
		var c classMeta
		for s := range lru.Segments {
			c.Head[s], c.Tail[s], c.N[s] = slab.Ref(r.u32()), slab.Ref(r.u32()), r.u32()
		}
		c.Stay = r.f64()
		c.classBalance = classBalance{inserts: r.f64(), gone: r.f64(), goneRead: r.f64(), lowHits: r.f64()}
		sm.classes = append(sm.classes, c)
		if r.err != nil {
			return sm
		}
	}
	for range r.count("pages", slab.ArenaMaxBytes/filePageBytesMin) {
		p := pageMeta{PageUse: slab.PageUse{Class: int(r.u8())}}
		if p.Class == pageNoClass {
			p.Class = -1
		}
		p.Held = r.u8() != 0
		p.Carved = int(r.u32())
		p.sum = r.u32()
		sm.pages = append(sm.pages, p)
		if r.err != nil {
			return sm
		}
	}
	for range r.count("tenants", 1+TenantQuotasMax+TenantTrackedMax) {
		name := make([]byte, r.u8())
		r.fill(name)
		sm.tenants = append(sm.tenants, string(name))
		if r.err != nil {
			return sm
		}
	}
	sm.fresh = parseFreshMeta(r)
	n := r.u64()
	if n > slab.ArenaMaxBytes && r.err == nil {
		r.err = fmt.Errorf("sketch of %d bytes", n)
	}
	sm.sketchOff, sm.sketchBytes = r.at, int64(n)
	r.skip(sm.sketchBytes)
	return sm
}

// ErrMetaEmpty: there is a file for metadata, but nothing in it. Somebody else
// has put it there, or a disk is broken.
var ErrMetaEmpty = errors.New("store: the metadata file is empty")

// readMeta reads the metadata of the memory file at path, and removes it. why
// says why there is none, m is nil then.
func readMeta(path string) (m *metadata, why string, err error) {
	name := path + metaSuffix
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, "the server before was not stopped gracefully", nil
	} else if err != nil {
		return nil, "", fmt.Errorf("store: metadata: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, "", errors.Join(fmt.Errorf("store: metadata: %w", err), f.Close())
	case info.Size() == 0:
		return nil, "", errors.Join(fmt.Errorf("%w: %s", ErrMetaEmpty, name), f.Close())
	}
	m, bad := parseMeta(f)
	if err := removeDurably(name); err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	if bad != nil {
		return nil, fmt.Sprintf("its metadata is damaged: %v", bad), f.Close()
	}
	m.f = f
	return m, "", nil
}

func (m *metadata) close() error {
	if m == nil || m.f == nil {
		return nil
	}
	return m.f.Close()
}

// save writes m beside the memory file at path: another file first, which
// takes the name when it is whole and on the medium.
func (m *metadata) save(path string, sketch func(shard int, w io.Writer) error) error {
	name := path + metaSuffix
	f, err := os.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("store: metadata: %w", err)
	}
	err = m.write(f, sketch)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("store: metadata: %w", err)
	}
	return syncFolder(name)
}

// removeDurably removes a file, so that it is gone after a power cut too.
func removeDurably(name string) error {
	if err := os.Remove(name); err != nil {
		return fmt.Errorf("store: metadata: %w", err)
	}
	return syncFolder(name)
}

// syncFolder makes the names in the folder of file name durable.
func syncFolder(name string) error {
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return fmt.Errorf("store: metadata: %w", err)
	}
	// A file system without a medium may refuse; there is nothing to lose then.
	_ = d.Sync()
	return d.Close()
}
