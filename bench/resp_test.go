package bench

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func respEncoder() *encoder {
	return &encoder{protocol: Redis, keys: newKeys(10, 4), values: newValues(fixedSizes(3))}
}

func TestRespRequests(t *testing.T) {
	e := respEncoder()
	key, value := string(e.keys.append(nil, 2)), string(e.values.append(nil, 2))
	for _, c := range []struct{ got, want string }{
		{string(e.get(nil, []uint64{2})), "*2\r\n$3\r\nGET\r\n$4\r\n" + key + "\r\n"},
		{string(e.get(nil, []uint64{2, 2})), "*3\r\n$4\r\nMGET\r\n$4\r\n" + key + "\r\n$4\r\n" + key + "\r\n"},
		{string(e.set(nil, 2)), "*3\r\n$3\r\nSET\r\n$4\r\n" + key + "\r\n$3\r\n" + value + "\r\n"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestScanResp: it makes no difference where the bytes are cut.
func TestScanResp(t *testing.T) {
	e := respEncoder()
	value := string(e.values.append(nil, 2))
	for _, c := range []struct {
		name   string
		keys   []uint64 // nil is a set
		reply  string
		want   counts
		failed bool
	}{
		{"hit", []uint64{2}, "$3\r\n" + value + "\r\n", counts{requests: 1, hits: 1}, false},
		{"miss", []uint64{2}, "$-1\r\n", counts{requests: 1, misses: 1}, false},
		{"several", []uint64{1, 2, 1}, "*3\r\n$-1\r\n$3\r\n" + value + "\r\n$-1\r\n", counts{requests: 1, hits: 1, misses: 2}, false},
		{"other data", []uint64{2}, "$3\r\n???\r\n", counts{requests: 1, hits: 1, corrupt: 1}, false},
		{"set", nil, "+OK\r\n", counts{requests: 1, sets: 1}, false},
		{"error", nil, "-OOM no\r\n", counts{requests: 1, errors: 1}, false},
		{"error of several", []uint64{1, 2}, "-ERR no\r\n", counts{requests: 1, errors: 1}, false},
		{"another number of keys", []uint64{1, 2}, "*3\r\n", counts{}, true},
		{"a line of memcached", []uint64{1}, "END\r\n", counts{}, true},
		{"set answers a get", []uint64{1}, "+OK\r\n", counts{}, true},
	} {
		for cut := range len(c.reply) {
			var n counts
			rs := &replies{queue: newQueue(1, max(len(c.keys), 1)), encoder: e, verify: true, counts: &n}
			if c.keys == nil {
				rs.queue.push(kindSet, 0)[0] = 2
			} else {
				copy(rs.queue.push(kindGet, 0), c.keys)
			}
			used, err := rs.scan([]byte(c.reply)[:cut])
			if err == nil {
				_, err = rs.scan([]byte(c.reply)[used:])
			}
			if (err != nil) != c.failed || n != c.want {
				t.Errorf("%s, cut at %d: got %+v, %v, want %+v", c.name, cut, n, err, c.want)
			}
		}
	}
}

// TestRedis runs loads against a real Redis.
func TestRedis(t *testing.T) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server is installed")
	}
	socket := t.TempDir() + "/redis.sock"
	redis := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no")
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = redis.Process.Kill()
		_ = redis.Wait()
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name       string
		set        func(c *Config)
		hits, sets uint64
	}{
		{"one at a time", func(*Config) {}, 1000, 100},
		{"pipeline", func(c *Config) { c.Pipeline = 16 }, 1000, 100},
		{"several keys", func(c *Config) { c.Multiget, c.Ratio = 7, Ratio{Gets: 1} }, 7700, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := Config{
				Server: "unix:" + socket, Protocol: Redis, Keys: 500, Conns: 4, Requests: 1100, Preload: true, Verify: true,
				Sizes: parseSizes(t, "log-uniform:1-9000"),
			}
			c.set(&config)
			r, err := Run(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			if r.Hits != c.hits || r.Sets != c.sets || r.Misses != 0 || r.Errors != 0 || r.Corrupt != 0 {
				t.Errorf("got %d hits, %d misses, %d sets, %d errors (%s), %d corrupt", r.Hits, r.Misses, r.Sets, r.Errors, r.FirstError, r.Corrupt)
			}
		})
	}
	if _, err := Run(t.Context(), Config{Server: "unix:" + socket, Requests: 1, Stall: time.Second}); err == nil || !strings.Contains(err.Error(), "-ERR") {
		t.Errorf("text to Redis: got %v", err)
	}
}
