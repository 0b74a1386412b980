package server

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/quarrycache/quarry/server/store"
)

// What clients see of one key must be explained by an order of the operations
// on it, each of which takes effect at one moment between its call and its
// return: the key is linearizable. Porcupine looks for such an order.

// registerOp is what a client asked of a key.
type registerOp struct {
	key  int
	verb string // mg, ms, cas, md, ma
	n    uint64 // ms, cas: the value; ma: what is added
	cas  uint64 // cas: what is compared
}

// registerReply is what it was told.
type registerReply struct {
	code string // of the meta protocol
	n    uint64 // the value read, or counted to
	cas  uint64 // of the value afterwards
}

// register is a key: a number, or nothing.
type register struct {
	stored bool
	n, cas uint64
}

// registerModel is a key as the protocol describes it. The CAS of a new value
// is the server's to choose, as long as it is another one.
var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(registerOp).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		r, op, reply := state.(register), input.(registerOp), output.(registerReply)
		written := register{true, op.n, reply.cas}
		switch op.verb {
		case "mg":
			if !r.stored {
				return reply.code == "EN", r
			}
			return reply == registerReply{"VA", r.n, r.cas}, r
		case "ms":
			return reply.code == "HD" && reply.cas != r.cas, written
		case "cas":
			switch {
			case !r.stored:
				return reply.code == "NF", r
			case r.cas != op.cas:
				return reply.code == "EX", r
			}
			return reply.code == "HD" && reply.cas != r.cas, written
		case "md":
			if !r.stored {
				return reply.code == "NF", r
			}
			return reply.code == "HD", register{}
		case "ma":
			if !r.stored {
				return reply.code == "NF", r
			}
			return reply.code == "VA" && reply.n == r.n+op.n && reply.cas != r.cas, register{true, reply.n, reply.cas}
		}
		return false, r
	},
}

// line is the request for op, its data block included.
func (op registerOp) line() string {
	n := strconv.FormatUint(op.n, 10)
	switch op.verb {
	case "mg":
		return fmt.Sprintf("mg key%d v c\r\n", op.key)
	case "ms":
		return fmt.Sprintf("ms key%d %d c\r\n%s\r\n", op.key, len(n), n)
	case "cas":
		return fmt.Sprintf("ms key%d %d c C%d\r\n%s\r\n", op.key, len(n), op.cas, n)
	case "md":
		return fmt.Sprintf("md key%d\r\n", op.key)
	}
	return fmt.Sprintf("ma key%d v c D%d\r\n", op.key, op.n)
}

// readReply reads one reply of a meta command.
func readReply(in *bufio.Reader) (reply registerReply, err error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return reply, err
	}
	words := strings.Fields(line)
	reply.code = words[0]
	for _, word := range words[1:] {
		if word[0] == 'c' {
			if reply.cas, err = strconv.ParseUint(word[1:], 10, 64); err != nil {
				return reply, err
			}
		}
	}
	if reply.code == "VA" {
		if line, err = in.ReadString('\n'); err != nil {
			return reply, err
		}
		reply.n, err = strconv.ParseUint(strings.TrimSpace(line), 10, 64)
	}
	return reply, err
}

// TestLinearizable: clients that send pipelines to a server with two loops see
// keys that are linearizable.
func TestLinearizable(t *testing.T) {
	testLinearizable(t, Config{Threads: 2}, "mg", "mg", "ms", "cas", "cas", "ma", "ma", "md")
}

// TestLinearizableReadAlong is the same with reads that take no lock.
func TestLinearizableReadAlong(t *testing.T) {
	if !store.ReadsAlong {
		t.Skip("reads take the lock here")
	}
	s := testLinearizable(t, Config{Threads: 2, Extended: Extended{OptimisticReads: true}},
		"mg", "mg", "mg", "mg", "mg", "mg", "mg", "mg", "mg", "mg", "mg", "ms", "cas", "cas", "ma", "md")
	var st store.Stats
	if s.store.Snapshot(s.now(), &st); st.ReadAlong == 0 {
		t.Error("no read was without the lock: this shows nothing")
	}
	t.Logf("%d of %d hits without the lock, %d were read again under it", st.ReadAlong, st.Total.GetHits, st.ReadInVain)
}

// testLinearizable has clients send the verbs to a server with config.
func testLinearizable(t *testing.T, config Config, verbs ...string) *Server {
	const clients, keys, depth = 6, 3, 4
	batches := 150
	if testing.Short() || raceEnabled {
		batches = 60
	}
	s, address := startServer(t, config)
	began := time.Now()
	histories := make([][]porcupine.Operation, clients)
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			random := rand.New(rand.NewPCG(1, uint64(client)))
			var seen [keys]uint64 // the CAS read last
			for range batches {
				var ops [depth]registerOp
				var out strings.Builder
				for i := range ops {
					op := registerOp{key: random.IntN(keys), n: random.Uint64N(1000)}
					op.verb = verbs[random.IntN(len(verbs))]
					op.cas = seen[op.key]
					ops[i] = op
					out.WriteString(op.line())
				}
				call := int64(time.Since(began))
				if _, err := io.WriteString(c, out.String()); err != nil {
					t.Error(err)
					return
				}
				for _, op := range ops {
					reply, err := readReply(in)
					if err != nil {
						t.Error(err)
						return
					}
					if reply.cas != 0 {
						seen[op.key] = reply.cas
					}
					histories[client] = append(histories[client], porcupine.Operation{
						ClientId: client, Input: op, Call: call, Output: reply, Return: int64(time.Since(began)),
					})
				}
			}
		})
	}
	running.Wait()
	var history []porcupine.Operation
	codes := map[string]int{}
	for _, h := range histories {
		history = append(history, h...)
		for _, op := range h {
			codes[op.Input.(registerOp).verb+" "+op.Output.(registerReply).code]++
		}
	}
	for _, code := range []string{"mg VA", "mg EN", "ms HD", "cas HD", "cas EX", "ma VA", "md HD"} {
		if codes[code] == 0 {
			t.Errorf("no %s among %v: this shows too little", code, codes)
		}
	}
	if result := porcupine.CheckOperationsTimeout(registerModel, history, time.Minute); result != porcupine.Ok {
		t.Errorf("%d operations: %s", len(history), result)
	}
	// A value that nobody could have read then is found out.
	for i := range history {
		if reply := history[i].Output.(registerReply); reply.code == "VA" && history[i].Input.(registerOp).verb == "mg" {
			reply.n += 500_000
			history[i].Output = reply
			break
		}
	}
	if result := porcupine.CheckOperationsTimeout(registerModel, history, time.Minute); result != porcupine.Illegal {
		t.Errorf("with a wrong value in it: %s", result)
	}
	return s
}
