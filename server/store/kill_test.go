package store

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// A killed process leaves what it was just doing half done: whatever is found
// then must be what somebody stored, whole.

const (
	killedFileEnv = "QUARRY_TEST_KILLED_FILE"
	killedLoadEnv = "QUARRY_TEST_KILLED_LOAD"
	killedKeys    = 400
	killedStep    = 111_111_111_111 // digits alike: no mixture of two multiples is a third
)

// What a child does.
const (
	killChurn  = "churn"  // all kinds of operations in little memory
	killSealed = "sealed" // the same, with checksums
	killLog    = "log"    // see writeLog
)

func killedConfig(file, load string) Config {
	c := Config{LimitBytes: 1 << 20, Shards: 2, PageBytes: 4 << 10, ItemMaxBytes: 16 << 10,
		File: file, Recover: true, ItemChecksums: load == killSealed, Now: noon}
	if load == killLog {
		c.LimitBytes = 64 << 20
	}
	return c
}

// TestKilledChild is the process that is killed.
func TestKilledChild(t *testing.T) {
	file, load := os.Getenv(killedFileEnv), os.Getenv(killedLoadEnv)
	if file == "" {
		t.Skip("skipped: it is started by TestKill and killed")
	}
	s, err := Open(killedConfig(file, load))
	if err != nil {
		t.Fatal(err)
	}
	if load == killLog {
		s.writeLog(os.Stderr)
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() { s.churn(rand.New(rand.NewPCG(uint64(i), uint64(os.Getpid())))) })
	}
	fmt.Fprintln(os.Stderr, "ready")
	wg.Wait()
}

// churn does everything that can be done to items, for ever. Values are units
// that name their key, or numbers that no mixture of two makes.
func (s *Store) churn(rng *rand.Rand) {
	for {
		k := fmt.Sprint("key", rng.IntN(killedKeys))
		unit := []byte(k + ";")
		var value []byte
		for range rng.IntN([]int{2, 40, 1500}[rng.IntN(3)]) {
			value = append(value, unit...)
		}
		number := fmt.Sprint("number", rng.IntN(20))
		switch rng.IntN(14) {
		case 0, 1, 2, 3:
			s.Set(KeyOf([]byte(k)), value, &SetOptions{Flags: uint32(rng.IntN(2))}, noon)
		case 4, 5:
			var u Upload
			if s.Begin(KeyOf([]byte(k)), len(value), &SetOptions{}, noon, &u) != OK {
				continue
			}
			cut := rng.IntN(len(value) + 1)
			if u.Write(value[:cut], noon) != OK || rng.IntN(4) == 0 || u.Write(value[cut:], noon) != OK {
				u.Abort()
				continue
			}
			u.Commit(noon)
		case 6:
			s.Set(KeyOf([]byte(k)), unit, &SetOptions{Mode: ModeAppend + Mode(rng.IntN(2))}, noon)
		case 7:
			s.Delete(KeyOf([]byte(k)), &DeleteOptions{}, noon)
		case 8:
			s.Get(KeyOf([]byte(k)), &GetOptions{Touch: true, Expiry: later(rng.IntN(1000) + 1).Seconds()}, noon, nil)
		case 9, 10, 11:
			if rng.IntN(8) == 0 {
				s.Set(KeyOf([]byte(number)), []byte(strconv.Itoa(killedStep)), &SetOptions{Mode: ModeAdd}, noon)
			}
			s.Arith(KeyOf([]byte(number)), &ArithOptions{Delta: killedStep, Decr: rng.IntN(2) == 0}, noon, nil)
		case 12:
			s.Reassign(-1, 1+rng.IntN(s.table.Len()))
		case 13:
			if rng.IntN(5000) == 0 {
				s.FlushAll(0, noon)
			}
			s.Sweep(noon)
		}
	}
}

// checkChurned fails if an item is not one that churn stores.
func (s *Store) checkChurned(t *testing.T) (items int) {
	t.Helper()
	for i := range killedKeys {
		k := fmt.Sprint("key", i)
		if got, st := s.get(k, GetOptions{NoBump: true}, noon); st == OK {
			items++
			if unit := k + ";"; got.value != strings.Repeat(unit, len(got.value)/len(unit)) {
				t.Fatalf("%s: %d bytes %.60q", k, len(got.value), got.value)
			}
		}
	}
	for i := range 20 {
		k := fmt.Sprint("number", i)
		got, st := s.get(k, GetOptions{NoBump: true}, noon)
		n, err := strconv.Atoi(strings.TrimRight(got.value, " "))
		if st == OK && (err != nil || n%killedStep != 0) {
			t.Fatalf("%s: %q", k, got.value)
		}
	}
	return items
}

// writeLog stores one key after the other, and tells w what is done. Every
// logFlushEvery keys it flushes.
func (s *Store) writeLog(w io.Writer) {
	value := []byte(strings.Repeat("v", 100))
	for i := 1; ; i++ {
		s.Set(key(fmt.Sprint(i)), value, &SetOptions{}, noon)
		if i > logKeep {
			s.Delete(key(fmt.Sprint(i-logKeep)), &DeleteOptions{}, noon)
		}
		if i%logFlushEvery == 0 {
			s.FlushAll(0, noon)
			fmt.Fprintln(w, "flushed", i)
		}
		if i%100 == 0 {
			fmt.Fprintln(w, "stored", i)
		}
	}
}

const (
	logKeep       = 5000
	logFlushEvery = 20_000
)

// kill starts a child on file, lets it work for a moment once it says so, and
// kills it. It returns the last number behind each word that it said.
func kill(t *testing.T, file, load string, after time.Duration) map[string]int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledChild$")
	cmd.Env = append(os.Environ(), killedFileEnv+"="+file, killedLoadEnv+"="+load)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := make(map[string]int)
	lines := bufio.NewScanner(said)
	for first := true; lines.Scan(); first = false {
		if first {
			time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
		word, num, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.Atoi(num) // a line may be cut by the end
		last[word] = max(last[word], n)
	}
	cmd.Wait()
	if len(last) == 0 {
		t.Fatal("the child said nothing")
	}
	return last
}

func TestKill(t *testing.T) {
	if raceEnabled {
		t.Skip("skipped: with the race detector memory is not in the file")
	}
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	withItems := 0 // now and then the kill comes just after a flush
	for i := range rounds {
		load := []string{killChurn, killSealed}[i%2]
		file := filepath.Join(dir, load)
		kill(t, file, load, time.Duration(20+rng.IntN(100))*time.Millisecond)
		s, err := Open(killedConfig(file, load))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		rs := s.Restart()
		if s.checkChurned(t) > 0 {
			withItems++
		}
		if !rs.Recovered {
			t.Errorf("round %d: %s", i, rs.String())
		}
		t.Logf("round %d: %s", i, rs.String())
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if withItems <= rounds/2 {
		t.Errorf("items in %d rounds of %d", withItems, rounds)
	}
}

// What was stored before the kill is there, and what was deleted or flushed is
// not.
func TestKillLosesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("skipped: with the race detector memory is not in the file")
	}
	for i := range 4 {
		file := filepath.Join(t.TempDir(), "items")
		last := kill(t, file, killLog, time.Duration(50+60*i)*time.Millisecond)
		s, err := Open(killedConfig(file, killLog))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		stored, flushed := last["stored"], last["flushed"]
		has := func(n int) bool {
			_, st := s.get(fmt.Sprint(n), GetOptions{}, noon)
			return st == OK
		}
		for n := 1; n <= max(flushed, stored-logKeep); n++ {
			if has(n) {
				t.Fatalf("%d is back: stored %d, flushed %d", n, stored, flushed)
			}
		}
		// Some of the oldest may be deleted, and the next flush done, unheard.
		if next := flushed + logFlushEvery; stored < next-200 {
			for n := max(flushed+1, stored-logKeep+200); n <= stored; n++ {
				if !has(n) {
					t.Fatalf("%d is gone: stored %d, flushed %d", n, stored, flushed)
				}
			}
		}
		t.Logf("stored %d, flushed %d: %s", stored, flushed, fmt.Sprint(s.Restart().Items))
		s.Close()
	}
}
