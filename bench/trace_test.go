package bench

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// writeTrace writes a trace's file, zipped if its name says so.
func writeTrace(t testing.TB, dir, name string, content []byte) {
	t.Helper()
	if filepath.Ext(name) == ".gz" {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		content = zipped.Bytes()
	}
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpenTrace(t *testing.T) {
	for _, c := range []struct {
		file, content string
		keys          []uint64
		requests      []uint32
		sizes         []uint32
	}{
		{"a.lis", "7 3 0 1\n8 1 0 2\n", []uint64{7, 8, 9}, []uint32{0, 1, 2, 1}, nil},
		{"b.be32.gz", "\x00\x00\x00\x05\xff\x00\x00\x01\x00\x00\x00\x05", []uint64{5, 0xff000001}, []uint32{0, 1, 0}, nil},
		{"c.be64", "\x00\x00\x00\x00\x00\x00\x00\x05\xff\xff\xff\xff\xff\xff\xff\xfe", []uint64{5, 1<<64 - 2}, []uint32{0, 1}, nil},
		{"d.oracle24.gz", "\x01\x00\x00\x00" + "\x09\x00\x00\x00\x00\x00\x00\x80" + "\x00\x02\x00\x00" + "\xff\xff\xff\xff\xff\xff\xff\xff",
			[]uint64{1<<63 + 9}, []uint32{0}, []uint32{512}},
		// The size of the first request counts; the largest object fits, one more byte does not.
		{"e.txt", "1 0 68\n2  1 7454\n3 0 99\n4 2 1047552\n5 3 1047553", []uint64{0, 1, 2}, []uint32{0, 1, 0, 2}, []uint32{68, 7454, 1047552}},
		{"f.trace.gz", "4\r\n*\r\n\r\n2\n4\n", []uint64{4, 2}, []uint32{0, 1, 0}, nil},
	} {
		dir := t.TempDir()
		writeTrace(t, dir, c.file, []byte(c.content))
		want := &Trace{Name: c.file[:1], Keys: c.keys, Requests: c.requests, Sizes: c.sizes}
		if got, err := OpenTrace(dir, c.file[:1]); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", c.file, got, err, want)
		}
		want.Name = filepath.Join(dir, c.file)
		if got, err := OpenTrace("elsewhere", want.Name); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s by its path: got %+v, %v, want %+v", c.file, got, err, want)
		}
	}
}

// TestOpenTraceWithWrites reads a disk's requests: what a record too large to
// replay was does not count.
func TestOpenTraceWithWrites(t *testing.T) {
	var content []byte
	for _, r := range []struct {
		block   uint64
		size    uint32
		command uint16
	}{{7, 512, 0x2a}, {1 << 40, 4096, 0x28}, {8, 1 << 30, 0x28}, {7, 512, 0x88}, {9, 1, 0x8a}} {
		content = binary.LittleEndian.AppendUint32(content, 0)
		content = binary.LittleEndian.AppendUint32(content, r.size)
		content = binary.LittleEndian.AppendUint32(content, 1)
		content = binary.LittleEndian.AppendUint16(content, r.command)
		content = binary.LittleEndian.AppendUint16(content, 256)
		content = binary.LittleEndian.AppendUint64(content, r.block)
		content = binary.LittleEndian.AppendUint64(content, 1)
	}
	dir := t.TempDir()
	writeTrace(t, dir, "a.vscsi", content)
	want := &Trace{Name: "a", Keys: []uint64{7, 1 << 40, 9}, Requests: []uint32{0, 1, 0, 2}, Writes: []bool{true, false, false, true}, Sizes: []uint32{512, 4096, 1}}
	if got, err := OpenTrace(dir, "a"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestOpenTraceRefuses(t *testing.T) {
	for _, c := range []struct{ name, file, content string }{
		{"no such file", "a.lis", ""},
		{"unknown ending", "x.csv", "1"},
		{"word", "x.lis", "7 x 0 1\n"},
		{"short line", "x.txt", "1 2\n"},
		{"short record", "x.be32", "\x00\x00\x00\x05\x00"},
		{"not zipped", "x.lis", ""},
	} {
		dir := t.TempDir()
		writeTrace(t, dir, c.file, []byte(c.content))
		if c.name == "not zipped" {
			if err := os.Rename(filepath.Join(dir, "x.lis"), filepath.Join(dir, "x.lis.gz")); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := OpenTrace(dir, "x"); err == nil {
			t.Errorf("%s: got %+v, want an error", c.name, got)
		}
	}
}

// TestTraceSize holds the rule against values worked out apart from it.
func TestTraceSize(t *testing.T) {
	for _, c := range []struct {
		key  uint64
		mean int
		want uint32
	}{
		{1, 8000, 8026},
		{2, 8000, 26303},
		{12345678901, 2000, 4606},
		{18446744073709551615, 224, 151},
		{77, 1, 1},
		{2, 200000, 500_000}, // held to the largest
	} {
		if got := traceSize(c.key, c.mean); got != c.want {
			t.Errorf("key %d, mean %d: got %d, want %d", c.key, c.mean, got, c.want)
		}
	}
	var sum float64
	const n = 1_000_000
	for k := range uint64(n) {
		sum += float64(traceSize(k, 2000))
	}
	if mean := sum / n; mean < 1980 || mean > 2020 {
		t.Errorf("mean size: got %.0f, want about 2000", mean)
	}
}
