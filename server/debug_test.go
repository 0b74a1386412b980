//go:build debug

package server

import (
	"strings"
	"testing"

	"github.com/quarrycache/quarry/server/store"
)

// debugtime moves, stops and starts the clock that everything goes by.
func TestDebugTime(t *testing.T) {
	p := newTestPeer(t, Config{})
	for _, step := range []struct {
		send, want string
	}{
		{"set k 0 5 1\r\nx\r\n", "STORED\r\n"},
		{"debugtime 4\r\nget k\r\n", "OK\r\nVALUE k 0 1\r\nx\r\nEND\r\n"},
		{"debugtime 1\r\nget k\r\n", "OK\r\nEND\r\n"},
		{"set k 0 5 1\r\nx\r\ndebugtime -1\r\ndebugtime 5\r\nmg k t\r\n", "STORED\r\nOK\r\nOK\r\nHD t1\r\n"},
		{"debugtime p\r\n", "OK\r\n"},
		{"debugtime\r\ndebugtime x\r\n", "ERROR\r\nERROR\r\n"},
	} {
		if got := p.send(step.send); got != step.want {
			t.Errorf("%q: got %q, want %q", step.send, got, step.want)
		}
	}
	p.sleep(100)
	if got := p.send("mg k t\r\n"); got != "HD t1\r\n" {
		t.Errorf("while it is stopped: got %q", got)
	}
	if got := p.send("debugtime r\r\nmg k t\r\n"); got != "OK\r\nEN\r\n" {
		t.Errorf("when it runs again: got %q", got)
	}
}

// debugitem keeps an item's memory where it is.
func TestDebugItem(t *testing.T) {
	p := newTestPeer(t, Config{MemoryMB: 4, Extended: Extended{CompatSlabs: true, NoSlabAutomove: true}})
	value := strings.Repeat("v", 1000)
	for _, k := range []string{"a", "b", "c"} {
		p.send("set " + k + " 0 0 1000\r\n" + value + "\r\n")
	}
	for send, want := range map[string]string{
		"debugitem\r\n": "ERROR\r\n", "debugitem ref\r\n": "ERROR\r\n", "debugitem bogus a\r\n": "ERROR\r\n",
		"debugitem ref none\r\n": "MISS\r\n", "debugitem lock none\r\ndebugitem unlock none\r\n": "OK\r\nOK\r\n",
	} {
		if got := p.send(send); got != want {
			t.Errorf("%q: got %q, want %q", send, got, want)
		}
	}
	pinned := func() int64 {
		var st store.Stats
		p.srv.store.Snapshot(p.srv.clock(), &st)
		return st.PinnedBytes
	}
	p.send("debugitem lock a\r\ndebugitem ref b\r\ndebugitem ref c\r\n")
	if n := pinned(); n != 3000 {
		t.Errorf("%d bytes are held, want those of three items", n)
	}
	p.send("debugitem unlock a\r\ndebugitem unref reffed\r\n")
	if n := pinned(); n != 1000 {
		t.Errorf("%d bytes are held, want those of the item referred to before", n)
	}
	p.srv.debug.close()
	if n := pinned(); n != 0 {
		t.Errorf("%d bytes are held in the end", n)
	}
}

// The environment of memcached's tests makes the store fuller than it is.
func TestDebugClaim(t *testing.T) {
	t.Setenv("T_MEMD_INITIAL_MALLOC", "1048576")
	p := newTestPeer(t, Config{})
	defer p.srv.store.Claim(-1048576) // Check knows better
	if got := p.send("stats slabs\r\n"); !strings.Contains(got, "STAT total_malloced 1048576\r\n") {
		t.Errorf("got %q", got)
	}
}
