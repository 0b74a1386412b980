package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/quarrycache/quarry/slab"
)

// Whatever bytes are changed in a memory file or its metadata, nothing crashes,
// no key has a value that was not stored under it, and Check finds nothing.

// image is a memory file and its metadata after a stop, to be damaged.
type image struct {
	c     Config
	file  []byte
	meta  []byte
	parts []int // offsets of the blocks of file that have something in them
	keys  int

	known *metadata // what meta says
}

const imageBlock = 1 << 10

// theImage is made once.
var theImage = sync.OnceValues(func() (*image, error) {
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	im := &image{
		c: Config{
			LimitBytes: 48 << 10, Shards: 2, PageBytes: 1 << 10, ItemMaxBytes: 8 << 10, Now: noon,
			File: filepath.Join(dir, "items"), ItemChecksums: true,
			Tenants: TenantConfig{Delimiter: 'y', TrackedMax: 4},
		},
		keys: 60,
	}
	s, err := Open(im.c)
	if err != nil {
		return nil, err
	}
	for i := range im.keys {
		k := fmt.Sprint("key", i)
		o := SetOptions{Flags: uint32(i % 3), Expiry: later(100 + i).Seconds()}
		if i%5 == 0 {
			o.Fill = &Fill{Version: uint64(i + 1)}
		}
		s.Set(key(k), []byte(told(k, toldBytes(i))), &o, noon)
		s.Get(key(k), &GetOptions{}, noon, nil)
	}
	s.Notice(key("nothing"), 9, false, noon)
	s.HideBuckets([]int{key("key3").Bucket()}, noon)
	if err := s.Save(); err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	if im.file, err = os.ReadFile(im.c.File); err != nil {
		return nil, err
	}
	if im.meta, err = os.ReadFile(im.c.File + metaSuffix); err != nil {
		return nil, err
	}
	if im.known, err = parseMeta(bytes.NewReader(im.meta)); err != nil {
		return nil, err
	}
	for off := 0; off < len(im.file); off += imageBlock {
		for _, b := range im.file[off : off+imageBlock] {
			if b != 0 {
				im.parts = append(im.parts, off)
				break
			}
		}
	}
	return im, nil
})

// scratch is a folder in memory, if there is one: every Open syncs.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "quarry")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// put writes the image with its changes, sparse as it was.
func (im *image) put(t testing.TB, path string, file map[int]byte, meta []byte) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(len(im.file))); err != nil {
		t.Fatal(err)
	}
	for _, off := range im.parts {
		f.WriteAt(im.file[off:off+imageBlock], int64(off))
	}
	for off, xor := range file {
		f.WriteAt([]byte{im.file[off] ^ xor}, int64(off))
	}
	os.Remove(path + metaSuffix)
	if meta != nil {
		if err := os.WriteFile(path+metaSuffix, meta, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// open opens what was put at path, checks it, and works with it.
func (im *image) open(t testing.TB, path string) Restart {
	t.Helper()
	c := im.c
	c.File, c.Recover = path, true
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	s.checkTold(t, im.keys)
	for i := range im.keys {
		k := fmt.Sprint("key", i)
		s.Get(key(k), &GetOptions{}, noon, nil)
		s.Set(key(k+"+"), []byte(told(k, toldBytes(i))), &SetOptions{}, noon)
		if i%3 == 0 {
			s.Delete(key(k), &DeleteOptions{}, noon)
		}
	}
	s.Sweep(later(1000))
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s.Restart()
}

// A flipped byte is found wherever it says something: in the pages, in the
// ledgers, in the superblock, in the metadata.
func TestFlippedBytes(t *testing.T) {
	im, err := theImage()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(scratch(t), "items")
	step := 131
	if raceEnabled || testing.Short() {
		step = 1501
	}
	marksEnd := superBytes + im.c.Shards*marksBytes + im.c.Shards*hiddenBytes
	n := 0
	for i := 0; i < len(im.parts)*imageBlock; i += step {
		off := im.parts[i/imageBlock] + i%imageBlock
		change := map[int]byte{off: 1 << (i % 8)}
		im.put(t, path, change, nil)
		im.open(t, path) // recovered, with checksums
		if off >= superLen && off < marksEnd || im.isSpare(off) {
			continue // of no meaning after a graceful stop, or at all
		}
		im.put(t, path, change, im.meta)
		if rs := im.open(t, path); !rs.Lost() && !rs.Recovered {
			t.Errorf("byte %d of the file is changed, and nobody knows: %+v", off, rs)
		}
		n++
	}
	for i := 0; i < len(im.meta); i += step {
		meta := append([]byte(nil), im.meta...)
		meta[i] ^= 1 << (i % 8)
		im.put(t, path, nil, meta)
		if rs := im.open(t, path); !rs.Recovered {
			t.Errorf("byte %d of the metadata is changed, and nobody knows: %+v", i, rs)
		}
		n++
	}
	t.Log(n, "bytes flipped")
}

// isSpare reports whether nobody cares for the byte at off: it is in a page of
// no class, or the rest of a ledger.
func (im *image) isSpare(off int) bool {
	const arenaBytes = slab.FileAlignBytes
	arenas := len(im.file) - im.c.Shards*arenaBytes
	if off < arenas {
		return im.file[off] == 0
	}
	shard, n := (off-arenas)/arenaBytes, (off-arenas)%arenaBytes/im.c.PageBytes
	pages := im.known.shards[shard].pages
	return n >= len(pages) || pages[n].Class < 0
}

// changes reads what a fuzzer has made as changes of single bytes: 3 bytes of
// place, modulo n, and one to put over what is there.
func changes(data []byte, n int) map[int]byte {
	m := make(map[int]byte)
	for ; len(data) >= 4; data = data[4:] {
		place := int(data[0]) | int(data[1])<<8 | int(data[2])<<16
		m[place%n] ^= data[3]
	}
	return m
}

func FuzzMemoryFile(f *testing.F) {
	im, err := theImage()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0, 0, 0, 1}, false)
	f.Add([]byte{0, 0x10, 0, 0x80, 0, 0x20, 0, 4}, true)
	f.Add([]byte{3, 0x18, 0, 0x40}, false)
	path := filepath.Join(scratch(f), "items")
	f.Fuzz(func(t *testing.T, data []byte, crash bool) {
		file := make(map[int]byte)
		for place, xor := range changes(data, len(im.parts)*imageBlock) {
			file[im.parts[place/imageBlock]+place%imageBlock] = xor
		}
		meta := im.meta
		if crash {
			meta = nil
		}
		im.put(t, path, file, meta)
		im.open(t, path)
	})
}

// With mended, the checksum is made right again: a file that somebody wrote to
// harm us.
func FuzzMetadata(f *testing.F) {
	im, err := theImage()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0, 0, 0, 1}, false)
	for place := 20; place < 200; place += 7 {
		f.Add([]byte{byte(place), 0, 0, 0xff}, true)
	}
	path := filepath.Join(scratch(f), "items")
	f.Fuzz(func(t *testing.T, data []byte, mended bool) {
		meta := append([]byte(nil), im.meta...)
		for place, xor := range changes(data, len(meta)) {
			meta[place] ^= xor
		}
		if n := len(meta) - 4; mended {
			binary.LittleEndian.PutUint32(meta[n:], crc32.Checksum(meta[:n], castagnoli))
		}
		im.put(t, path, nil, meta)
		rs := im.open(t, path)
		if changed := string(meta) != string(im.meta); changed && !mended && !rs.Recovered {
			t.Errorf("metadata is changed, and nobody knows: %+v", rs)
		}
	})
}
