package server

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// TestTwemproxy puts nutcracker in front of three quarryd, stores and reads
// many keys through it, and takes one of the three away.
func TestTwemproxy(t *testing.T) {
	nutcracker := needProgram(t, "nutcracker", "nutcracker")
	const nServers, nKeys = 3, 2000
	quarryd := buildQuarryd(t)
	var servers []*process
	var addrs []string
	for range nServers {
		p, addr := startQuarryd(t, quarryd, "-t", "1")
		servers = append(servers, p)
		addrs = append(addrs, addr)
	}
	proxy := startTwemproxy(t, nutcracker, addrs)
	c := memcache.New(proxy)
	defer c.Close()
	c.Timeout = 10 * time.Second

	key := func(i int) string { return "key-" + strconv.Itoa(i) }
	value := func(i int) []byte { return bytes.Repeat([]byte(key(i)+"."), 1+i%50) }
	keys := make([]string, nKeys)
	for i := range keys {
		keys[i] = key(i)
		if err := c.Set(&memcache.Item{Key: keys[i], Value: value(i)}); err != nil {
			t.Fatalf("set %s: %v", keys[i], err)
		}
	}
	items, err := c.GetMulti(keys)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if it := items[key]; it == nil || !bytes.Equal(it.Value, value(i)) {
			t.Fatalf("get %s: got %v", key, it)
		}
	}

	held := make([]int, nServers) // keys on each server, asked without the proxy
	for i, addr := range addrs {
		direct := memcache.New(addr)
		found, err := direct.GetMulti(keys)
		if err != nil {
			t.Fatal(err)
		}
		direct.Close()
		if held[i] = len(found); held[i] < nKeys/nServers/4 {
			t.Errorf("server %d holds %d of %d keys", i, held[i], nKeys)
		}
	}
	if sum := held[0] + held[1] + held[2]; sum != nKeys {
		t.Errorf("the servers hold %d keys, want %d", sum, nKeys)
	}

	if err := c.Delete(keys[0]); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := c.Set(&memcache.Item{Key: "n", Value: []byte("5")}); err != nil {
		t.Errorf("set: %v", err)
	}
	if n, err := c.Increment("n", 37); err != nil || n != 42 {
		t.Errorf("increment: got %d, %v, want 42", n, err)
	}

	// Without one of them, twemproxy ejects it and sends its keys elsewhere:
	// they miss there, and can be stored again.
	servers[0].kill()
	stored := 0
	for deadline := time.Now().Add(testTimeout); stored < nKeys && time.Now().Before(deadline); {
		stored = 0
		for i, key := range keys {
			if c.Set(&memcache.Item{Key: key, Value: value(i)}) == nil {
				stored++
			}
		}
	}
	if stored < nKeys {
		t.Fatalf("with two servers left %d of %d keys can be stored", stored, nKeys)
	}
	for i, key := range keys {
		it, err := c.Get(key)
		if err != nil || !bytes.Equal(it.Value, value(i)) {
			t.Fatalf("get %s with two servers left: got %v, %v", key, it, err)
		}
	}
}

// startTwemproxy starts it in front of servers and gives its address.
func startTwemproxy(t *testing.T, nutcracker string, servers []string) string {
	t.Helper()
	dir := t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	config := new(bytes.Buffer)
	fmt.Fprintf(config, `quarry:
  listen: %s
  hash: fnv1a_64
  distribution: ketama
  auto_eject_hosts: true
  server_retry_timeout: 60000
  server_failure_limit: 1
  timeout: 5000
  servers:
`, addr)
	for i, server := range servers {
		fmt.Fprintf(config, "   - %s:1 server%d\n", server, i)
	}
	path := filepath.Join(dir, "nutcracker.yml")
	if err := os.WriteFile(path, config.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, exec.Command(nutcracker,
		"-c", path,
		"-p", filepath.Join(dir, "pid"),
		"-o", filepath.Join(dir, "log"),
		"-a", "127.0.0.1", "-s", strconv.Itoa(freePort(t))))
	p.await(t, "its port", func() bool { return accepts(addr) })
	return addr
}
