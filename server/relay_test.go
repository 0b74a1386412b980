package server

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

// relayKeys are the keys of the pipelines: about half are this node's.
const relayKeys = 24

// textPipeline is n random commands of the text protocol, whose replies say
// nothing that differs between servers: CAS numbers do.
func textPipeline(rng *rand.Rand, n int) string {
	var b strings.Builder
	key := func() string { return fmt.Sprint("k", rng.IntN(relayKeys)) }
	value := func() string {
		size := rng.IntN(30)
		switch rng.IntN(40) {
		case 0:
			size = 20_000 + rng.IntN(200_000)
		case 1:
			size = 0
		}
		return strings.Repeat(string(rune('a'+rng.IntN(26))), size)
	}
	noreply := func() string {
		if rng.IntN(4) == 0 {
			return " noreply"
		}
		return ""
	}
	for range n {
		switch rng.IntN(17) {
		case 0, 1, 2:
			fmt.Fprintf(&b, "get %s\r\n", key())
		case 3:
			b.WriteString("get")
			for range 1 + rng.IntN(100) {
				b.WriteString(" " + key())
			}
			b.WriteString("\r\n")
		case 4, 5:
			v := value()
			word := []string{"set", "add", "replace", "append", "prepend"}[rng.IntN(5)]
			fmt.Fprintf(&b, "%s %s %d %d %d%s\r\n%s\r\n", word, key(), rng.IntN(3), 100*rng.IntN(2), len(v), noreply(), v)
		case 6:
			fmt.Fprintf(&b, "delete %s%s\r\n", key(), noreply())
		case 7:
			fmt.Fprintf(&b, "incr %s %d%s\r\n", key(), rng.IntN(1000), noreply())
		case 8:
			fmt.Fprintf(&b, "set %s 0 0 2%s\r\n%02d\r\n", key(), noreply(), rng.IntN(100))
		case 9:
			fmt.Fprintf(&b, "touch %s 1000\r\ngat 500 %s %s\r\n", key(), key(), key())
		case 10:
			v := value()
			fmt.Fprintf(&b, "ms %s %d F%d M%c O%d k%s\r\n%s\r\n", key(), len(v), rng.IntN(9), "SEARP"[rng.IntN(5)], rng.IntN(99), []string{"", " q"}[rng.IntN(2)], v)
		case 11:
			fmt.Fprintf(&b, "mg %s %s\r\n", key(), []string{"v", "s f", "v k O1 t", "v q", "", "N30 v t", "v T99"}[rng.IntN(7)])
		case 12:
			fmt.Fprintf(&b, "md %s %s\r\nmn\r\n", key(), []string{"", "q", "I T30", "x O3"}[rng.IntN(4)])
		case 13:
			fmt.Fprintf(&b, "ma %s %s\r\n", key(), []string{"v", "N0 J5 v", "MD D3 q", "v t O9"}[rng.IntN(4)])
		case 14: // what is wrong is wrong at any node
			b.WriteString([]string{"set k1 0 0 3\r\nabcdef\r\n", "nonsense\r\n", "incr k2 x\r\n", "mg k3 !\r\n", "get " + strings.Repeat("x", 251) + "\r\n", "verbosity\r\n"}[rng.IntN(6)])
		case 15:
			fmt.Fprintf(&b, "set %s 0 0 1100000\r\n%s\r\n", key(), strings.Repeat("L", 1_100_000))
		case 16:
			fmt.Fprintf(&b, "mg %s v E%d\r\nversion\r\n", key(), 1+rng.IntN(50))
		}
	}
	return b.String()
}

// packetPipeline is the same in packets, which carry no CAS to be compared but in
// their replies.
func packetPipeline(rng *rand.Rand, n int) string {
	var b []byte
	for i := range n {
		key := fmt.Sprint("k", rng.IntN(relayKeys))
		var opcode byte
		var extras, value []byte
		switch rng.IntN(8) {
		case 0, 1:
			opcode = []byte{0x00, 0x09, 0x0c, 0x0d}[rng.IntN(4)] // get, getq, getk, getkq
		case 2, 3:
			opcode = []byte{0x01, 0x02, 0x03, 0x11}[rng.IntN(4)] // set, add, replace, setq
			extras = make([]byte, 8)
			value = bytes.Repeat([]byte{byte('a' + i%26)}, rng.IntN(40)*(1+999*(rng.IntN(20)/19)))
		case 4:
			opcode = []byte{0x0e, 0x0f, 0x19}[rng.IntN(3)] // append, prepend, appendq
			value = []byte("tail")
		case 5:
			opcode = []byte{0x04, 0x14}[rng.IntN(2)] // delete, deleteq
		case 6:
			opcode = []byte{0x05, 0x06, 0x15}[rng.IntN(3)] // incr, decr, incrq
			extras = make([]byte, 20)
			extras[7], extras[15] = byte(rng.IntN(9)), 7
		case 7:
			opcode = []byte{0x1c, 0x1d}[rng.IntN(2)] // touch, gat
			extras = []byte{0, 0, 1, 0}
		}
		head := make([]byte, 24)
		head[0], head[1], head[4] = 0x80, opcode, byte(len(extras))
		binary.BigEndian.PutUint16(head[2:], uint16(len(key)))
		binary.BigEndian.PutUint32(head[8:], uint32(len(extras)+len(key)+len(value)))
		binary.BigEndian.PutUint32(head[12:], uint32(i))
		b = append(append(append(append(b, head...), extras...), key...), value...)
	}
	head := make([]byte, 24)
	head[0], head[1] = 0x80, 0x0a // noop
	return string(append(b, head...))
}

// converseInPieces sends text in random pieces, and returns what comes back up to
// end.
func converseInPieces(t *testing.T, rng *rand.Rand, c net.Conn, text, end string) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	go func() {
		for len(text) > 0 {
			n := min(1+rng.IntN(1+rng.IntN(100_000)), len(text))
			if _, err := io.WriteString(c, text[:n]); err != nil {
				return
			}
			text = text[n:]
			if rng.IntN(8) == 0 {
				time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
		}
	}()
	var got []byte
	buf := make([]byte, 64<<10)
	for !bytes.HasSuffix(got, []byte(end)) {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			t.Fatalf("%d bytes, then %v", len(got), err)
		}
	}
	return string(got)
}

// withoutCAS is replies in packets with their CAS taken out.
func withoutCAS(t *testing.T, replies string) []string {
	var list []string
	for p := []byte(replies); len(p) > 0; {
		if len(p) < 24 {
			t.Fatalf("%d bytes are no packet", len(p))
		}
		n := 24 + int(binary.BigEndian.Uint32(p[8:]))
		clear(p[16:24])
		list = append(list, string(p[:n]))
		p = p[n:]
	}
	return list
}

// Pipelines of requests for keys of this node and of another one answer byte for
// byte what a single server does, in text and in packets, in any pieces, over TCP
// and TLS.
func TestClusterPipelines(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ca := newTestCA(t, "ca")
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprint("tls=", encrypted), func(t *testing.T) {
			c := Config{Threads: 2, MemoryMB: 64, Clock: newTestClock().Now}
			dialTo := func(addr string) net.Conn { return dial(t, addr) }
			c.Cluster.RelayTimeout = 30 * time.Second // the machine may be busy
			if encrypted {
				c.TLS = ca.server(t)
				c.Cluster.Peer.TLS = &tls.Config{RootCAs: ca.client(t).RootCAs}
				dialTo = func(addr string) net.Conn { return dialTLS(t, addr, ca.client(t)) }
			}
			tc := startCluster(t, 2, 0, c)
			c.Cluster = ClusterConfig{}
			_, single := startServer(t, c)
			rng := rand.New(rand.NewPCG(seed, 1))
			for round := range 6 {
				// The last reply is one that nothing before it can give, or a read that
				// stops between two packets is taken for the end.
				text, end := textPipeline(rng, 300), "NF kend Oend\r\n"
				if round%3 == 2 {
					text, end = packetPipeline(rng, 400), string(append([]byte{0x81, 0x0a}, make([]byte, 22)...))
				} else {
					text += "md end k Oend\r\n"
				}
				want := converseInPieces(t, rand.New(rand.NewPCG(seed, 2)), dialTo(single), text, end)
				got := converseInPieces(t, rand.New(rand.NewPCG(seed, 3)), dialTo(tc.addrs[round%2]), text, end)
				wants, gots := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
				if round%3 == 2 {
					wants, gots = withoutCAS(t, want), withoutCAS(t, got)
				}
				for i := range min(len(wants), len(gots)) {
					if wants[i] != gots[i] {
						t.Fatalf("round %d, reply %d: got %.80q, want %.80q; before it %.80q", round, i, gots[i], wants[i], wants[max(i-3, 0):i])
					}
				}
				if len(wants) != len(gots) {
					t.Fatalf("round %d: %d replies, want %d", round, len(gots), len(wants))
				}
			}
			relayed := tc.nodes[0].node.relayed.Load() + tc.nodes[1].node.relayed.Load()
			if failed := tc.nodes[0].node.relayFailed.Load() + tc.nodes[1].node.relayFailed.Load(); failed > 0 || relayed < 1000 {
				t.Errorf("%d requests were relayed, %d failed", relayed, failed)
			}
		})
	}
}

// A value that never comes whole leaves nothing at the owner, and what was
// gathered of it is given back.
func TestClusterHalfSentValue(t *testing.T) {
	tc := startCluster(t, 2, 0, Config{})
	key := tc.keyOf(1)
	talkTo(t, tc.addrs[0], "set "+key+" 0 0 3\r\nold\r\n")
	c := dial(t, tc.addrs[0])
	if _, err := io.WriteString(c, "set "+key+" 0 0 500000\r\nhalf"); err != nil {
		t.Fatal(err)
	}
	n := tc.nodes[0].node
	await(t, "it is being gathered", func() bool { return n.gathering.Load() == 500_000 })
	c.Close()
	await(t, "it is given up", func() bool { return n.gathering.Load() == 0 })
	if got := talkTo(t, tc.addrs[0], "get "+key+"\r\n"); got != "VALUE "+key+" 0 3\r\nold\r\nEND\r\n" {
		t.Errorf("got %q", got)
	}
}

// Many large replies are not waited for all at once.
func TestClusterLargeReplies(t *testing.T) {
	c := Config{}
	c.Cluster.RelayTimeout = 30 * time.Second
	tc := startCluster(t, 2, 0, c)
	key := tc.keyOf(1)
	value := strings.Repeat("x", 900_000)
	talkTo(t, tc.addrs[0], fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", key, len(value), value))
	one := fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", key, len(value), value)
	if got := talkTo(t, tc.addrs[0], strings.Repeat("get "+key+"\r\n", 60)); got != strings.Repeat(one, 60) {
		t.Errorf("%d bytes, want %d", len(got), 60*len(one))
	}
	s := new(session)
	s.learn(relaysStart, relaysStart*len(one))
	if s.holes() != 1 {
		t.Errorf("after replies of 900 KB: %d at once, want 1", s.holes())
	}
	for range 10 {
		s.learn(s.holes(), 100)
	}
	if s.holes() != relaysMax {
		t.Errorf("after small ones: %d at once, want %d", s.holes(), relaysMax)
	}
}
