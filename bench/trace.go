package bench

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// objectBytesMax is the largest object that is replayed: what fits in an item
// of memcached's default -I, 1 MiB, with its header and key. Requests for
// larger ones are left out.
const objectBytesMax = 1<<20 - 1<<10

// Trace is the requests that a real system made, in their order. A key is
// known by its index in Keys, so that a simulation needs no map.
type Trace struct {
	Name     string
	Keys     []uint64 // distinct keys, in the order of their first request
	Requests []uint32 // indices of Keys
	Writes   []bool   // by request; nil if the trace tells none
	Sizes    []uint32 // bytes of each key's object when first asked for; nil if the trace tells none
}

// isWrite reports whether the trace says of request i that it is a write.
func (t *Trace) isWrite(i int) bool { return t.Writes != nil && t.Writes[i] }

// traceFormats are the readers of traces, by the ending of the file's name
// before .gz.
var traceFormats = map[string]func(*bufio.Reader, *traceBuilder) error{
	".lis":      readARC,
	".be32":     readBE32,
	".be64":     readBE64,
	".oracle24": readOracle24,
	".txt":      readTimeIDSize,
	".trace":    readDecimal,
	".vscsi":    readVSCSI,
}

// OpenTrace reads the trace called name in dir, a file name.FORMAT or
// name.FORMAT.gz. The formats are lis (the ARC paper's "start count ignored
// n"), be32 and be64 (big-endian keys), oracle24 (libCacheSim's little-endian
// records of time, id, size and next access), txt ("time id size"), trace (a
// decimal key a line) and vscsi (VMware's records of a disk's reads and writes,
// their first version). A name may have folders, and its ending too.
func OpenTrace(dir, name string) (*Trace, error) {
	path, err := findTrace(dir, name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var r io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		unzipped, err := gzip.NewReader(bufio.NewReader(file))
		if err != nil {
			return nil, fmt.Errorf("bench: trace %s: %w", path, err)
		}
		r = unzipped
	}
	b := &traceBuilder{trace: Trace{Name: name}, index: map[uint64]uint32{}}
	read := traceFormats[filepath.Ext(strings.TrimSuffix(path, ".gz"))]
	if err := read(bufio.NewReaderSize(r, 1<<16), b); err != nil {
		return nil, fmt.Errorf("bench: trace %s: request %d: %w", path, len(b.trace.Requests)+1, err)
	}
	return &b.trace, nil
}

// findTrace is the file of the trace called name.
func findTrace(dir, name string) (string, error) {
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join(dir, name)
	}
	if _, known := traceFormats[filepath.Ext(strings.TrimSuffix(path, ".gz"))]; known {
		return path, nil
	}
	for format := range traceFormats {
		for _, end := range []string{format + ".gz", format} {
			if _, err := os.Stat(path + end); err == nil {
				return path + end, nil
			}
		}
	}
	return "", fmt.Errorf("bench: trace %s: no such file with a known ending in %s", name, filepath.Dir(path))
}

// traceBuilder gathers a trace.
type traceBuilder struct {
	trace Trace
	index map[uint64]uint32 // of each key in trace.Keys
}

// add adds a request for a key.
func (b *traceBuilder) add(key uint64) {
	k, seen := b.index[key]
	if !seen {
		k = uint32(len(b.trace.Keys))
		b.index[key] = k
		b.trace.Keys = append(b.trace.Keys, key)
	}
	b.trace.Requests = append(b.trace.Requests, k)
}

// addSized adds a request for a key whose object has so many bytes.
func (b *traceBuilder) addSized(key, size uint64) {
	if size > objectBytesMax {
		return
	}
	b.add(key)
	if len(b.trace.Sizes) < len(b.trace.Keys) {
		b.trace.Sizes = append(b.trace.Sizes, uint32(size))
	}
}

// readARC reads lines "start count ignored n": count keys from start.
func readARC(r *bufio.Reader, b *traceBuilder) error {
	return eachLine(r, func(line []byte) error {
		var numbers [2]uint64
		if err := parseNumbers(line, numbers[:]); err != nil {
			return err
		}
		for i := range numbers[1] {
			b.add(numbers[0] + i)
		}
		return nil
	})
}

// readTimeIDSize reads lines "time id size".
func readTimeIDSize(r *bufio.Reader, b *traceBuilder) error {
	return eachLine(r, func(line []byte) error {
		var numbers [3]uint64
		if err := parseNumbers(line, numbers[:]); err != nil {
			return err
		}
		b.addSized(numbers[1], numbers[2])
		return nil
	})
}

// readDecimal reads a key a line; lines of * mark phases and are no requests.
func readDecimal(r *bufio.Reader, b *traceBuilder) error {
	return eachLine(r, func(line []byte) error {
		if line[0] == '*' {
			return nil
		}
		var numbers [1]uint64
		if err := parseNumbers(line, numbers[:]); err != nil {
			return err
		}
		b.add(numbers[0])
		return nil
	})
}

func readBE32(r *bufio.Reader, b *traceBuilder) error {
	var record [4]byte
	return eachRecord(r, record[:], func() { b.add(uint64(binary.BigEndian.Uint32(record[:]))) })
}

func readBE64(r *bufio.Reader, b *traceBuilder) error {
	var record [8]byte
	return eachRecord(r, record[:], func() { b.add(binary.BigEndian.Uint64(record[:])) })
}

// readOracle24 reads libCacheSim's records, little-endian:
//
//	0      4    12     16            24
//	│ time │ id │ size │ next access │
func readOracle24(r *bufio.Reader, b *traceBuilder) error {
	var record [24]byte
	return eachRecord(r, record[:], func() {
		b.addSized(binary.LittleEndian.Uint64(record[4:]), uint64(binary.LittleEndian.Uint32(record[12:])))
	})
}

// The SCSI commands of a vscsi record that read, by the size of their address;
// all others are writes.
const (
	scsiRead6  = 0x08
	scsiRead10 = 0x28
	scsiRead12 = 0xa8
	scsiRead16 = 0x88
)

// readVSCSI reads VMware's records of a disk, little-endian:
//
//	0        4      8          12        14        16      24     32
//	│ number │ size │ elements │ command │ version │ block │ time │
func readVSCSI(r *bufio.Reader, b *traceBuilder) error {
	var record [32]byte
	return eachRecord(r, record[:], func() {
		command := binary.LittleEndian.Uint16(record[12:])
		read := command == scsiRead6 || command == scsiRead10 || command == scsiRead12 || command == scsiRead16
		n := len(b.trace.Requests)
		b.addSized(binary.LittleEndian.Uint64(record[16:]), uint64(binary.LittleEndian.Uint32(record[4:])))
		if len(b.trace.Requests) > n {
			b.trace.Writes = append(b.trace.Writes, !read)
		}
	})
}

// eachLine calls use with each line that is not blank.
func eachLine(r *bufio.Reader, use func(line []byte) error) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := use(line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// eachRecord fills record again and again, and calls use each time.
func eachRecord(r *bufio.Reader, record []byte, use func()) error {
	for {
		if _, err := io.ReadFull(r, record); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		use()
	}
}

// parseNumbers reads the first decimal numbers of a line.
func parseNumbers(line []byte, numbers []uint64) error {
	rest := line
	for i := range numbers {
		var word []byte
		word, rest, _ = bytes.Cut(bytes.TrimLeft(rest, " \t"), []byte(" "))
		n, err := strconv.ParseUint(string(word), 10, 64)
		if err != nil {
			return fmt.Errorf("line %q: number %d of %d: %w", line, i+1, len(numbers), err)
		}
		numbers[i] = n
	}
	return nil
}
