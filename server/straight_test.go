package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server/store"
)

// packetSet is a set of value under key in the binary protocol, and its reply
// but for the CAS.
func packetSet(key string, value []byte) (request, reply []byte) {
	p := make([]byte, 24+8, 24+8+len(key)+len(value))
	p[0], p[1], p[4] = 0x80, 0x01, 8
	binary.BigEndian.PutUint16(p[2:], uint16(len(key)))
	binary.BigEndian.PutUint32(p[8:], uint32(8+len(key)+len(value)))
	reply = make([]byte, 24)
	reply[0], reply[1] = 0x81, 0x01
	return append(append(p, key...), value...), reply
}

// Values that are read straight into their chunks are stored byte for byte,
// whatever their size, whatever comes behind them, and wherever what arrives is
// torn. Nothing of them is lost or counted twice.
func TestStraightReads(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s, addr := startServer(t, Config{Threads: 1, MemoryMB: 64, ItemMaxBytes: 2 << 20})
	sent := 0
	allRead := func() bool { return s.totals.sum().bytesRead == uint64(sent) }
	sizes := []int{readBytes - 100, readBytes, readBytes + 1, readBytes + moreBytes, 100_000,
		turnReadBytes - 1, turnReadBytes + readBytes, turnReadBytes + readBytes + 1, 1 << 20, 2<<20 - 200}
	for _, packets := range []bool{false, true} {
		t.Run(fmt.Sprint("packets=", packets), func(t *testing.T) {
			c := dial(t, addr)
			reader := dial(t, addr)
			_ = c.SetDeadline(time.Now().Add(testTimeout))
			_ = reader.SetDeadline(time.Now().Add(testTimeout))
			for round := range 3 * len(sizes) {
				var send, want, read, values []byte
				for i := range 1 + rng.IntN(3) {
					n := sizes[(round+i)%len(sizes)] + rng.IntN(2)*rng.IntN(20)
					value := make([]byte, n)
					for j := range value {
						value[j] = byte(rng.Uint32())
					}
					key := fmt.Sprint("k", i)
					if packets {
						p, reply := packetSet(key, value)
						send, want = append(send, p...), append(want, reply...)
					} else {
						send = fmt.Appendf(send, "set %s 7 0 %d\r\n%s\r\n", key, n, value)
						want = append(want, "STORED\r\n"...)
						if rng.IntN(2) == 0 {
							send, want = append(send, "mn\r\n"...), append(want, "MN\r\n"...)
						}
					}
					read = fmt.Appendf(read, "mg %s v\r\n", key)
					values = fmt.Appendf(values, "VA %d\r\n%s\r\n", n, value)
				}
				pieces := [][]byte{send}
				if rng.IntN(2) == 0 {
					at := rng.IntN(len(send))
					pieces = [][]byte{send[:at], send[at:]}
				}
				for i, p := range pieces {
					if _, err := c.Write(p); err != nil {
						t.Fatal(err)
					}
					if sent += len(p); i < len(pieces)-1 {
						await(t, "the first part is read", allRead)
					}
				}
				got := make([]byte, len(want))
				if _, err := io.ReadFull(c, got); err != nil {
					t.Fatalf("round %d: %v after %q", round, err, got)
				}
				if packets {
					for p := got; len(p) > 0; p = p[24:] {
						clear(p[16:24])
					}
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("round %d: got %q, want %q", round, got, want)
				}
				await(t, "all is counted as read", allRead)
				if _, err := reader.Write(read); err != nil {
					t.Fatal(err)
				}
				sent += len(read)
				got = make([]byte, len(values))
				if _, err := io.ReadFull(reader, got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, values) {
					t.Fatalf("round %d: %d bytes of values are wrong", round, len(values))
				}
			}
		})
	}
	var st store.Stats
	if s.store.Snapshot(s.now(), &st); st.UploadBytes != 0 {
		t.Errorf("%d bytes are still being uploaded", st.UploadBytes)
	}
}

// A value that is read straight and finds no room any more is answered as
// memcached does, and what comes behind it is understood.
func TestStraightReadsWithoutRoom(t *testing.T) {
	_, addr := startServer(t, Config{Threads: 1, MemoryMB: 4, NoEvict: true})
	c := dial(t, addr)
	_ = c.SetDeadline(time.Now().Add(testTimeout))
	value := strings.Repeat("v", 900_000)
	refused, stored := 0, 0
	for i := range 12 {
		text := fmt.Sprintf("set k%d 0 0 %d\r\n%s\r\nmn\r\n", i, len(value), value)
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		var got []byte
		for buf := make([]byte, 100); !bytes.HasSuffix(got, []byte("MN\r\n")); {
			n, err := c.Read(buf)
			if err != nil {
				t.Fatalf("%v after %q", err, got)
			}
			got = append(got, buf[:n]...)
		}
		switch string(got) {
		case "STORED\r\nMN\r\n":
			stored++
		case "SERVER_ERROR Out of memory during read\r\nMN\r\n", "SERVER_ERROR out of memory storing object\r\nMN\r\n":
			refused++
		default:
			t.Fatalf("set %d: %q", i, got)
		}
	}
	if stored == 0 || refused == 0 {
		t.Errorf("%d sets were stored, %d refused", stored, refused)
	}
}
