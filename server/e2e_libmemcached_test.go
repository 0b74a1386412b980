package server

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/server/store"
)

// memccapableFails are the tests of memccapable that memcached 1.6.45 fails
// too: they want `delete k 0` and the like to be refused.
var memccapableFails = map[string]bool{
	"ascii delete":         true,
	"ascii delete noreply": true,
}

// TestMemccapable runs libmemcached's tests of both protocols.
func TestMemccapable(t *testing.T) {
	memccapable := needProgram(t, "libmemcached-tools", "memccapable")
	for _, tt := range []struct {
		protocol, flag string
		tests          int
	}{{"ascii", "-a", 27}, {"binary", "-b", 27}} {
		t.Run(tt.protocol, func(t *testing.T) {
			_, addr := startServer(t, Config{})
			host, port := splitAddr(t, addr)
			out, _ := runProgram(t, memccapable, "-h", host, "-p", port, tt.flag)

			// A line is a test's name and its result; the summary is printed to
			// another stream and may stand between the two.
			line := regexp.MustCompile(`(?m)^(` + tt.protocol + ` [a-z ]*?)\s{2,}`)
			names := line.FindAllStringSubmatchIndex(out, -1)
			if len(names) < tt.tests {
				t.Fatalf("got %d tests, want %d:\n%s", len(names), tt.tests, out)
			}
			for i, at := range names {
				name, end := out[at[2]:at[3]], len(out)
				if i+1 < len(names) {
					end = names[i+1][0]
				}
				result := out[at[3]:end]
				switch pass := strings.Contains(result, "[pass]"); {
				case !pass && !memccapableFails[name]:
					t.Errorf("%s: got %s", name, strings.TrimSpace(result))
				case pass && memccapableFails[name]:
					t.Errorf("%s passes, unlike with memcached", name)
				}
			}
		})
	}
}

// TestLibmemcachedTools copies files into the cache and out of it again.
func TestLibmemcachedTools(t *testing.T) {
	memccp := needProgram(t, "libmemcached-tools", "memccp")
	tools := map[string]string{}
	for _, name := range []string{"memccat", "memcstat", "memcexist", "memcrm", "memctouch", "memcping", "memcflush"} {
		tools[name] = needProgram(t, "libmemcached-tools", name)
	}
	_, addr := startServer(t, Config{})
	servers := "--servers=" + addr
	dir := t.TempDir()

	var files []string
	contents := map[string][]byte{}
	for i, size := range []int{1, 100, 5000, 70000, 600000} {
		path := filepath.Join(dir, fmt.Sprintf("file%d", i))
		data := bytes.Repeat([]byte{byte('a' + i)}, size)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, path)
		contents[filepath.Base(path)] = data
	}
	mustRun(t, tools["memcping"], servers)
	mustRun(t, memccp, append([]string{servers}, files...)...)
	for key, data := range contents {
		got := mustRun(t, tools["memccat"], servers, key)
		if strings.TrimSuffix(got, "\n") != string(data) {
			t.Errorf("memccat %s: got %d bytes, want %d", key, len(got), len(data))
		}
		mustRun(t, tools["memcexist"], servers, key)
		mustRun(t, tools["memctouch"], servers, "--expire=1000", key)
	}
	stat := mustRun(t, tools["memcstat"], servers)
	for _, want := range []string{"version: " + Version, "curr_items: 5", "cmd_touch: 5"} {
		if !strings.Contains(stat, want) {
			t.Errorf("memcstat: no %q in\n%s", want, stat)
		}
	}
	mustRun(t, tools["memcrm"], servers, "file0")
	if out, err := runProgram(t, tools["memcexist"], servers, "file0"); err == nil {
		t.Errorf("memcexist of a deleted key: got no error: %s", out)
	}
	mustRun(t, tools["memcflush"], servers)
	if out, err := runProgram(t, tools["memcexist"], servers, "file1"); err == nil {
		t.Errorf("memcexist after memcflush: got no error: %s", out)
	}
}

// TestMemcdump lists all keys, with stats cachedump.
func TestMemcdump(t *testing.T) {
	memcdump := needProgram(t, "libmemcached-tools", "memcdump")
	s, addr := startServer(t, Config{Threads: 2})
	want := map[string]bool{}
	for i := range 3000 {
		k := fmt.Sprint("k", i)
		o := store.SetOptions{}
		s.store.Set(store.KeyOf([]byte(k)), bytes.Repeat([]byte("v"), i%7*i), &o, s.clock())
		want[k] = true
	}
	for k := range strings.FieldsSeq(mustRun(t, memcdump, "--servers="+addr)) {
		if !want[k] {
			t.Fatalf("got %s, which is not there, or twice", k)
		}
		delete(want, k)
	}
	if len(want) > 0 {
		t.Errorf("%d of 3000 keys are missing", len(want))
	}
}
