package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// quarryd is the program under test: what it prints and what it exits with
// show only from outside.
var quarryd string

// patience bounds the start, and the end, of a program.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "quarryd")
	if err != nil {
		log.Fatal(err)
	}
	quarryd = filepath.Join(dir, "quarryd")
	out, err := exec.Command("go", "build", "-o", quarryd, ".").CombinedOutput()
	if err != nil {
		log.Fatalf("build: %v\n%s", err, out)
	}
	fromTheStart := goleak.IgnoreCurrent() // gnet's pool of workers
	goleak.VerifyTestMain(m, fromTheStart, goleak.Cleanup(func(code int) {
		os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// outcome is what is left of a program that has ended.
type outcome struct {
	code           int
	stdout, stderr string
}

// finish runs a program that is expected to end by itself. Its own name is
// name, whatever the program is.
func finish(t testing.TB, program, name string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Args[0] = name
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %q: %v", program, args, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// memcached gives the path of the memcached that quarryd is to be like, if it
// is there in the right version: the one that MEMCACHED names, or that on PATH.
func memcached(t testing.TB) (path string, found bool) {
	t.Helper()
	path = os.Getenv("MEMCACHED")
	if path == "" {
		path, _ = exec.LookPath("memcached")
	}
	if path == "" {
		return "", false
	}
	out, err := exec.Command(path, "-V").Output()
	if err != nil {
		return "", false
	}
	return path, strings.TrimSpace(string(out)) == compatible
}

func TestRefusals(t *testing.T) {
	const illegal = "Illegal argument \"?\"\n"
	reference, compare := memcached(t)
	if !compare {
		t.Logf("not compared: no %s found (set MEMCACHED)", compatible)
	}
	compareTLS := compare && strings.Contains(finish(t, reference, "memcached", "-h").stdout, "--enable-ssl")
	for _, tc := range []struct {
		args string // separated by spaces; '' is an empty word
		code int
		text string
		ours bool // memcached says something else, or starts
		tls  bool // memcached says the same if it has TLS
	}{
		{args: "-Q", code: 1, text: "quarryd: invalid option -- 'Q'\n" + illegal},
		{args: "-p", code: 1, text: "quarryd: option requires an argument -- 'p'\n" + illegal},
		{args: "--bogus", code: 1, text: "quarryd: unrecognized option '--bogus'\n" + illegal},
		{args: "--un=3", code: 1, text: "quarryd: option '--un=3' is ambiguous; possibilities: '--unix-socket' '--unix-mask'\n" + illegal, ours: true},
		{args: "--daemon=1", code: 1, text: "quarryd: option '--daemon' doesn't allow an argument\n" + illegal},
		{args: "--po", code: 1, text: "quarryd: option '--port' requires an argument\n" + illegal},
		{args: "-c 0 --bogus", code: 1, text: "Maximum connections must be greater than 0\n"},

		{args: "-c 0", code: 1, text: "Maximum connections must be greater than 0\n"},
		{args: "-c -1", code: 1, text: "Maximum connections must be greater than 0\n"},
		{args: "-c junk -c 5", code: 1, text: "Maximum connections must be greater than 0\n"},
		{args: "-c 0 -h", code: 1, text: "Maximum connections must be greater than 0\n"},
		{args: "-t 0", code: 1, text: "Number of threads must be greater than 0\n"},
		{args: "-R 0", code: 1, text: "Number of requests per event must be greater than 0\n"},
		{args: "-n 0", code: 1, text: "Chunk size must be greater than 0\n"},
		{args: "-f 1", code: 1, text: "Factor must be greater than 1\n"},
		{args: "-f junk", code: 1, text: "Factor must be greater than 1\n"},
		{args: "-D ''", code: 1, text: "No delimiter specified\n"},
		{args: "-N 0", code: 1, text: "Maximum number of NAPI IDs must be greater than 0\n"},
		{args: "-N 9", code: 64, text: "Number of napi_ids(9) cannot be greater than number of threads(4)\n"},
		{args: "-B http", code: 64, text: "Invalid value for binding protocol: http\n -- should be one of auto, binary, or ascii\n"},
		{args: "-S -B auto", code: 64, text: "ERROR: You cannot allow the ASCII protocol while using SASL.\n"},
		{args: "-S -B binary -B ascii", code: 64, text: "ERROR: You cannot allow the ASCII protocol while using SASL.\n"},
		{args: "-S -U 5", code: 64, text: "ERROR: Cannot enable UDP while using binary SASL authentication.\n"},

		{args: "-I 1000", code: 64, text: "Item max size cannot be less than 1024 bytes.\n"},
		{args: "-I 0", code: 64, text: "Item max size cannot be less than 1024 bytes.\n"},
		{args: "-I -1", code: 64, text: "Item max size cannot be less than 1024 bytes.\n"},
		{args: "-I 256m", code: 64, text: "Cannot set item size limit higher than 1/2 of memory max.\n"},
		{args: "-m 0", code: 64, text: "Cannot set item size limit higher than 1/2 of memory max.\n"},
		{args: "-m 4096 -I 1025m", code: 64, text: "Cannot set item size limit higher than a gigabyte.\n"},
		{args: "-I 100k", code: 64, text: "slab_chunk_max (bytes: 524288) cannot be larger than -I (item_size_max 102400)\n"},
		{args: "-I 1100k", code: 64, text: "-I (item_size_max: 1126400) must be evenly divisible by slab_chunk_max (bytes: 524288)\n"},
		{args: "-I 3m -m 64 -o slab_chunk_max=768", code: 64, text: "slab_chunk_max (bytes: 786432) must divide evenly into 1048576 (slab_page_size)\n"},
		{args: "-p 70000", code: 64, text: "ERROR: Invalid port number 70000.\n"},
		{args: "-U 70000", code: 64, text: "ERROR: Invalid port number 70000.\n"},
		{args: "-m -1", code: 64, text: "quarryd: -m -1: memory cannot be less than nothing\n", ours: true},

		{args: "-Z", code: 64, text: "Error loading the certificate chain: (null) : no such file or directory\n", ours: true},
		{args: "-Z -o ssl_chain_cert=/no/such", code: 64, text: "Error loading the certificate chain: /no/such : no such file or directory\n", ours: true},
		{args: "-Z -p 0", code: 64, text: "ERROR: You cannot enable SSL without a TCP port.\n", tls: true},
		{args: "-Y ''", code: 1, text: "Could not open authfile [] for reading, error no such file or directory\n", ours: true},
		{args: "-Y /dev/null -B auto", code: 64, text: "ERROR: You cannot allow the BINARY protocol while using ascii authentication tokens.\n"},
		{args: "-Y /dev/null -U 5", code: 64, text: "Cannot use UDP with ascii authentication enabled (-U 0 to disable)\n"},
		{args: "-S", code: 64, text: "quarryd: --sasl-file \"\": -S needs a file of users: this flag, or $MEMCACHED_SASL_PWDB\n", ours: true},
		{args: "-S --sasl-file /nowhere", code: 1, text: "quarryd: --sasl-file /nowhere: open /nowhere: no such file or directory\n", ours: true},
		{args: "--sasl-file /nowhere", code: 64, text: "quarryd: --sasl-file /nowhere: is of no use without -S\n", ours: true},

		{args: "--tenant-delimiter ::", code: 64, text: "quarryd: --tenant-delimiter ::: want one character\n", ours: true},
		{args: "--tenant-tracked 0", code: 1, text: "quarryd: --tenant-tracked: want a number greater than 0\n", ours: true},
		{args: "--tenant-quota a=rate:1", code: 64, text: "quarryd: --tenant-quota a: there are no tenants without --tenant-delimiter\n", ours: true},
		{args: "--tenant-delimiter : --tenant-quota a=memory:1x", code: 64, text: "quarryd: --tenant-quota a=memory:1x: memory:1x is no limit\n", ours: true},
		{args: "--tenant-delimiter : --tenant-default size:1", code: 64, text: "quarryd: --tenant-default size:1: size:1 is no limit: want memory, value, rate or grants\n", ours: true},

		{args: "-o foo", code: 1, text: "Illegal suboption \"foo\"\n"},
		{args: "-o foo=1,bar", code: 1, text: "Illegal suboption \"foo=1\"\n"},
		{args: "-o modern,,x", code: 1, text: "Illegal suboption \"\"\n"},
		{args: "-o Modern", code: 1, text: "Illegal suboption \"Modern\"\n"},
		{args: "-o hashpower", code: 1, text: "Missing numeric argument for hashpower\n"},
		{args: "-o hashpower=11", code: 1, text: "Initial hashtable multiplier of 11 is too low\n"},
		{args: "-o hashpower=33", code: 1, text: "Initial hashtable multiplier of 33 is too high\nChoose a value based on \"STAT hash_power_level\" from a running instance\n"},
		{args: "-o hash_algorithm", code: 1, text: "Missing hash_algorithm argument\n"},
		{args: "-o hash_algorithm=md5", code: 1, text: "Unknown hash_algorithm option (jenkins, murmur3, xxh3)\n"},
		{args: "-o tail_repair_time", code: 1, text: "Missing numeric argument for tail_repair_time\n"},
		{args: "-o tail_repair_time=9", code: 1, text: "Cannot set tail_repair_time to less than 10 seconds\n"},
		{args: "-o slab_automove=3", code: 1, text: "slab_automove must be between 0 and 2\n"},
		{args: "-o slab_automove_ratio", code: 1, text: "Missing slab_automove_ratio argument\n"},
		{args: "-o slab_automove_ratio=1.1", code: 1, text: "slab_automove_ratio must be > 0 and < 1\n"},
		{args: "-o slab_automove_window=2", code: 1, text: "slab_automove_window must be > 2 and < 1800\n"},
		{args: "-o slab_automove_freeratio", code: 1, text: "Missing slab_automove_freeratio argument\n"},
		{args: "-o slab_automove_freeratio=x", code: 1, text: "could not parse argument to slab_automove_freeratio\n"},
		{args: "-o lru_policy", code: 1, text: "Missing lru_policy argument\n", ours: true},
		{args: "-o lru_policy=lru", code: 1, text: "lru_policy must be tinylfu or segmented\n", ours: true},
		{args: "-o lru_crawler_sleep", code: 1, text: "Missing lru_crawler_sleep value\n"},
		{args: "-o lru_crawler_sleep=1000001", code: 1, text: "LRU crawler sleep must be between 0 and 1 second\n"},
		{args: "-o lru_crawler_tocrawl", code: 1, text: "Missing lru_crawler_tocrawl value\n"},
		{args: "-o lru_crawler_tocrawl=x", code: 1, text: "lru_crawler_tocrawl takes a numeric 32bit value\n"},
		{args: "-o hot_lru_pct", code: 1, text: "Missing hot_lru_pct argument\n"},
		{args: "-o hot_lru_pct=80", code: 1, text: "hot_lru_pct must be > 1 and < 80\n"},
		{args: "-o warm_lru_pct=0", code: 1, text: "warm_lru_pct must be > 1 and < 80\n"},
		{args: "-o hot_lru_pct=41", code: 64, text: "hot_lru_pct + warm_lru_pct cannot be more than 80% combined\n"},
		{args: "-o hot_max_factor=0", code: 1, text: "hot_max_factor must be > 0\n"},
		{args: "-o warm_max_factor", code: 1, text: "Missing warm_max_factor argument\n"},
		{args: "-o temporary_ttl", code: 1, text: "Missing temporary_ttl argument\n"},
		{args: "-o temporary_ttl=9 -o no_lru_maintainer", code: 64, text: "temporary_ttl requires lru_maintainer to be enabled\n"},
		{args: "-o idle_timeout", code: 1, text: "Missing numeric argument for idle_timeout\n"},
		{args: "-o watcher_logbuf_size", code: 1, text: "Missing watcher_logbuf_size argument\n"},
		{args: "-o watcher_logbuf_size=x", code: 1, text: "could not parse argument to watcher_logbuf_size\n"},
		{args: "-o worker_logbuf_size=x", code: 1, text: "could not parse argument to worker_logbuf_size\n"},
		{args: "-o read_buf_mem_limit=x", code: 1, text: "could not parse argument to read_buf_mem_limit\n"},
		{args: "-o slab_chunk_max", code: 1, text: "Missing slab_chunk_max argument\n"},
		{args: "-o slab_chunk_max=x", code: 1, text: "could not parse argument to slab_chunk_max\n"},
		{args: "-o slab_chunk_max=0", code: 1, text: "slab_chunk_max must be >= 0\n"},
		{args: "-o slab_chunk_max=-1", code: 1, text: "slab_chunk_max must be >= 0\n"},
		{args: "-o slab_chunk_max=1025", code: 1, text: "slab_chunk_max must be specified in kilobytes.\n"},
		{args: "-o slab_sizes=10", code: 64, text: "slab size 10 is out of valid range\n"},
		{args: "-o slab_sizes=100-x", code: 64, text: "slab size 0 is out of valid range\n"},
		{args: "-o slab_sizes=100-100", code: 64, text: "slab size 100 cannot be lower than or equal to a previous class size\n"},
		{args: "-o slab_sizes=100-108", code: 64, text: "slab size 108 must be at least 8 bytes larger than previous class\n"},
		{args: "-o slab_sizes", code: 1, text: "Missing slab_sizes argument\n", ours: true},
		{args: "-o ext_page_size", code: 1, text: "Missing ext_page_size argument\n"},
		{args: "-o ext_path=/x:1G", code: 64, text: "quarryd: -o ext_path: this server has no flash tier\n", ours: true},
		{args: "-o ssl_chain_cert", code: 1, text: "Missing ssl_chain_cert argument\n", tls: true},
		{args: "-o ssl_key", code: 1, text: "Missing ssl_key argument\n", tls: true},
		{args: "-o ssl_ca_cert", code: 1, text: "Missing ssl_ca_cert argument\n", tls: true},
		{args: "-o ssl_ciphers", code: 1, text: "Missing ssl_ciphers argument\n", tls: true},
		{args: "-o ssl_verify_mode", code: 1, text: "Missing ssl_verify_mode argument\n", tls: true},
		{args: "-o ssl_verify_mode=x", code: 1, text: "could not parse argument to ssl_verify_mode\n", tls: true},
		{args: "-o ssl_verify_mode=4", code: 1, text: "Invalid ssl_verify_mode. Use help to see valid options.\n", tls: true},
		{args: "-o ssl_verify_mode=-1", code: 1, text: "Invalid ssl_verify_mode. Use help to see valid options.\n", tls: true},
		{args: "-o ssl_keyformat", code: 1, text: "Missing ssl_keyformat argument\n", tls: true},
		{args: "-o ssl_keyformat=PEM", code: 1, text: "could not parse argument to ssl_keyformat\n", tls: true},
		{args: "-o ssl_keyformat=2", code: 64, text: "quarryd: -o ssl_keyformat=2: keys are read as PEM only, which is 1\n", ours: true},
		{args: "-o ssl_min_version", code: 1, text: "Missing ssl_min_version argument\n", tls: true},
		{args: "-o ssl_min_version=x", code: 1, text: "could not parse argument to ssl_min_version\n", tls: true},
		{args: "-o ssl_min_version=4", code: 1, text: "Invalid ssl_min_version. Use help to see valid options.\n", tls: true},
		{args: "-o ssl_wbuf_size", code: 1, text: "Missing ssl_wbuf_size argument\n", tls: true},
		{args: "-o ssl_wbuf_size=x", code: 1, text: "could not parse argument to ssl_wbuf_size\n", tls: true},
		{args: "-Z -o ssl_ciphers=HIGH", code: 64, text: "Error setting the provided cipher(s): HIGH: no cipher HIGH here\n", ours: true},
		{args: "-o proxy_config=/x", code: 64, text: "quarryd: -o proxy_config: this server is not built with a proxy\n", ours: true},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Fields(tc.args)
			for i := range args {
				if args[i] == "''" {
					args[i] = ""
				}
			}
			got := finish(t, quarryd, "quarryd", args...)
			if got.code != tc.code || got.stderr != tc.text || got.stdout != "" {
				t.Errorf("got %d %q %q want %d %q", got.code, got.stdout, got.stderr, tc.code, tc.text)
			}
			if !compare || tc.ours || tc.tls && !compareTLS {
				return
			}
			real := finish(t, reference, "quarryd", append([]string{"-u", "root"}, args...)...)
			if real.code != tc.code || real.stderr != tc.text {
				t.Errorf("memcached: got %d %q want %d %q", real.code, real.stderr, tc.code, tc.text)
			}
		})
	}
}

func TestRefusedAddresses(t *testing.T) {
	for args, begins := range map[string]string{
		"-p 31211 -l no.such.host.invalid": "failed to listen on one of interface(s) no.such.host.invalid: ",
		"-p 31211 -l 198.51.100.1":         "failed to listen on one of interface(s) 198.51.100.1: ",
		"-l 127.0.0.1:x":                   "failed to listen on one of interface(s) 127.0.0.1:x: ",
		"-s /no/such/folder/socket":        "failed to listen on UNIX socket: /no/such/folder/socket: ",
		"-d -s /no/such/folder/socket":     "failed to listen on UNIX socket: /no/such/folder/socket: ",
	} {
		got := finish(t, quarryd, "quarryd", strings.Fields(args)...)
		if got.code != 71 || !strings.Contains(got.stderr, begins) {
			t.Errorf("%s: got %d %q want 71 and %q", args, got.code, got.stderr, begins)
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	got := finish(t, quarryd, "quarryd", "-p", "-1", "-c", "2000000000")
	const begins = "failed to set rlimit for open files. Try starting as root or requesting smaller maxconns value"
	if got.code != 71 || !strings.HasPrefix(got.stderr, begins) {
		t.Errorf("got %d %q want 71 and %q", got.code, got.stderr, begins)
	}
}

func TestUnknownUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can be another user")
	}
	got := finish(t, quarryd, "quarryd", "-u", "no-such-user")
	if want := "can't find the user no-such-user to switch to\n"; got.code != 67 || got.stderr != want {
		t.Errorf("got %d %q want 67 %q", got.code, got.stderr, want)
	}
}

func TestVersion(t *testing.T) {
	for _, args := range [][]string{{"-V"}, {"--version"}, {"--vers"}, {"-p", "1", "-V", "-c", "0"}} {
		got := finish(t, quarryd, "quarryd", args...)
		first, second, _ := strings.Cut(got.stdout, "\n")
		own := strings.HasPrefix(second, "quarryd ") && strings.HasSuffix(second, ", "+runtime.Version()+"\n")
		if got.code != 0 || got.stderr != "" || first != compatible || !own {
			t.Errorf("%q: got %+v", args, got)
		}
	}
}

func TestLicense(t *testing.T) {
	got := finish(t, quarryd, "quarryd", "-i")
	if got.code != 0 || !strings.Contains(got.stdout, "Apache License, Version 2.0") {
		t.Errorf("got %+v", got)
	}
}

// The help has memcached's lines in memcached's order, and no flag that is
// refused.
func TestHelp(t *testing.T) {
	got := finish(t, quarryd, "quarryd", "-h")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("got %d %q", got.code, got.stderr)
	}
	lines := strings.Split(got.stdout, "\n")
	if lines[0] != compatible {
		t.Errorf("first line: got %q want %q", lines[0], compatible)
	}
	for _, want := range []string{
		"-p, --port=<num>          TCP port to listen on (default: 11211)",
		"-s, --unix-socket=<file>  UNIX socket to listen on (disables network support)",
		"-A, --enable-shutdown     enable ascii \"shutdown\" command",
		"-vv                       very verbose (also print client commands/responses)",
		"-h, --help                print this help and exit",
		"-e, --memory-file=<file>  keep items in <file>, which should be on a ram disk, so that",
		"-D <char>     Use <char> as the delimiter between key prefixes and IDs.",
		"              This is used for per-prefix stats reporting. The default is",
		"--tenant-delimiter=<char>        what stands before the first <char> of a key is the",
		"                                 tenant that it belongs to; see \"stats tenants\"",
		"-Z, --enable-ssl          enable TLS/SSL",
		"   - ssl_chain_cert:      certificate chain file in PEM format",
		"   - ssl_session_cache:   enable server-side SSL session cache, to support session",
		"-B, --protocol=<name>     protocol - one of ascii, binary, or auto (default: auto-negotiate)",
		"-S, --enable-sasl         turn on SASL authentication (PLAIN; binary protocol only);",
		"   - idle_timeout:        timeout for idle connections. (default: 0, no timeout)",
	} {
		if !strings.Contains(got.stdout, want+"\n") {
			t.Errorf("no line %q", want)
		}
	}
	for _, word := range []string{"ext_path", "proxy_", "no_drop_privileges"} {
		if strings.Contains(strings.ToLower(got.stdout), word) {
			t.Errorf("help has %q, which is refused or ignored", word)
		}
	}
	reference, found := memcached(t)
	if !found {
		return
	}
	real := finish(t, reference, "memcached", "-h")
	letters := regexp.MustCompile(`(?m)^-(\w)[ ,]`)
	order := make(map[string]int)
	for i, m := range letters.FindAllStringSubmatch(real.stdout, -1) {
		order[m[1]] = i + 1
	}
	last := 0
	for _, m := range letters.FindAllStringSubmatch(got.stdout, -1) {
		if order[m[1]] <= last {
			t.Errorf("-%s does not stand where memcached has it", m[1])
		}
		last = order[m[1]]
	}
	suboption := regexp.MustCompile(`(?m)^   - (\w+):`)
	order = make(map[string]int)
	for i, m := range suboption.FindAllStringSubmatch(real.stdout, -1) {
		order[m[1]] = i + 1
	}
	last = 0
	for _, m := range suboption.FindAllStringSubmatch(got.stdout, -1) {
		i, listed := order[m[1]]
		if m[1] == "slab_automove_freeratio" { // stands among those of the flash tier there
			continue
		}
		if listed && i <= last {
			t.Errorf("-o %s does not stand where memcached has it", m[1])
		}
		last = max(last, i)
	}
}

// process is a server that runs.
type process struct {
	cmd    *exec.Cmd
	stderr lockedBuffer
	ended  chan struct{}
	ports  string // the file with the ports
}

// lockedBuffer keeps what a program prints.
type lockedBuffer struct {
	mu  sync.Mutex // buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start starts a server and waits for none of it.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	return startProgram(t, exec.Command(quarryd, args...))
}

// startProgram starts a server that takes memcached's flags.
func startProgram(t testing.TB, cmd *exec.Cmd) *process {
	t.Helper()
	leakless(t)
	p := &process{
		cmd:   cmd,
		ended: make(chan struct{}),
		ports: filepath.Join(t.TempDir(), "ports"),
	}
	p.cmd.Env = append(os.Environ(), "MEMCACHED_PORT_FILENAME="+p.ports)
	p.cmd.Stderr = &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// await polls until ready, and fails when that takes too long.
func await(t testing.TB, what string, ready func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s after %v", what, patience)
		}
	}
}

// tcp waits for the ports and gives the first TCP address.
func (p *process) tcp(t testing.TB) string {
	t.Helper()
	await(t, "ports", func() bool {
		select {
		case <-p.ended:
			t.Fatalf("ended: %s", p.stderr.String())
		default:
		}
		_, err := os.Stat(p.ports)
		return err == nil
	})
	return p.addr(t)
}

// addr is the first TCP address of a server that is known to listen.
func (p *process) addr(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(p.ports)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	port, ok := strings.CutPrefix(line, "TCP INET: ")
	if !ok {
		t.Fatalf("ports: got %q", text)
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// end sends a signal and wants exit code 0.
func (p *process) end(t testing.TB, s os.Signal) {
	t.Helper()
	p.cmd.Process.Signal(s)
	p.wantEnd(t)
}

func (p *process) wantEnd(t testing.TB) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("still there after %v: %s", patience, p.stderr.String())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code: got %d want 0: %s", code, p.stderr.String())
	}
}

// ask sends a command and returns the first line of the reply.
func ask(t testing.TB, network, addr, command string) string {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatalf("%s: %v", command, err)
	}
	return strings.TrimRight(line, "\r\n")
}

func TestServesUntilASignal(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGUSR1} {
		t.Run(unix.SignalName(s), func(t *testing.T) {
			p := start(t, "-p", "-1", "left", "over", "-t2", "--memory-l=32")
			addr := p.tcp(t)
			if got := ask(t, "tcp", addr, "version"); got != "VERSION 1.6.45" {
				t.Errorf("version: got %q", got)
			}
			if got := ask(t, "tcp", addr, "set k 0 0 1\r\nv"); got != "STORED" {
				t.Errorf("set: got %q", got)
			}
			if got := ask(t, "tcp", addr, "mg k v"); got != "VA 1" {
				t.Errorf("mg: got %q", got)
			}
			p.cmd.Process.Signal(unix.SIGHUP) // changes nothing
			p.end(t, s)
			if text := p.stderr.String(); !strings.Contains(text, addr) {
				t.Errorf("banner without %s: %s", addr, text)
			}
		})
	}
}

// A batch is bounded by its bytes, unless -R says by how many requests: then
// others have their turn after as many.
func TestRequestsPerEvent(t *testing.T) {
	for _, tt := range []struct{ args, setting, yields string }{
		{"", "0", "0"},
		{"-R 20", "20", "4"},
	} {
		p := start(t, append([]string{"-p", "-1", "-t", "1"}, strings.Fields(tt.args)...)...)
		addr := p.tcp(t)
		if got, want := converse(t, addr, strings.Repeat("get k\r\n", 90)+"stats settings"), "STAT reqs_per_event "+tt.setting+"\r\n"; !strings.Contains(got, want) {
			t.Errorf("%q: %q is not in\n%s", tt.args, want, got)
		}
		if got, want := converse(t, addr, "stats"), "STAT conn_yields "+tt.yields+"\r\n"; !strings.Contains(got, want) {
			t.Errorf("%q: %q is not in\n%s", tt.args, want, got)
		}
		p.end(t, unix.SIGTERM)
	}
}

func TestTenantFlags(t *testing.T) {
	p := start(t, "-p", "-1", "--tenant-delimiter=/", "--tenant-quota", "a=value:5", "--tenant-quota", "b=rate:1", "--tenant-default", "value:9")
	addr := p.tcp(t)
	for _, tt := range []struct{ command, want string }{
		{"set a/1 0 0 6\r\n123456", "SERVER_ERROR object too large for cache"},
		{"set b/1 0 0 1\r\n1", "STORED"},
		{"set c/1 0 0 9\r\n123456789", "STORED"},
		{"set c/1 0 0 10\r\n1234567890", "SERVER_ERROR object too large for cache"},
		{"stats tenants", "STAT delimiter /"},
	} {
		if got := ask(t, "tcp", addr, tt.command); got != tt.want {
			t.Errorf("%q: got %q want %q", tt.command, got, tt.want)
		}
	}
	p.end(t, unix.SIGTERM)
}

// The password file is read again on SIGHUP; a bad one changes nothing.
func TestAuthFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("ann:first\n")
	p := start(t, "-p", "-1", "-Y", path)
	addr := p.tcp(t)
	login := func(password string) string {
		return ask(t, "tcp", addr, fmt.Sprintf("set a 0 0 %d\r\nann %s", len("ann ")+len(password), password))
	}
	hangUp := func(says string) {
		t.Helper()
		n := strings.Count(p.stderr.String(), says)
		if err := p.cmd.Process.Signal(unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		await(t, says, func() bool { return strings.Count(p.stderr.String(), says) > n })
	}
	const failed = "CLIENT_ERROR authentication failure"
	want := func(first, second string) {
		t.Helper()
		if got := login("first"); got != first {
			t.Errorf("the first password: got %q want %q", got, first)
		}
		if got := login("second"); got != second {
			t.Errorf("the second password: got %q want %q", got, second)
		}
	}
	if got := ask(t, "tcp", addr, "version"); got != "CLIENT_ERROR unauthenticated" {
		t.Errorf("version: got %q", got)
	}
	want("STORED", failed)
	write("ann:second")
	want("STORED", failed)
	hangUp("authfile read again")
	want(failed, "STORED")
	write("no colon\n")
	hangUp("authfile not read again")
	want(failed, "STORED")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	hangUp("authfile not read again")
	want(failed, "STORED")
	p.end(t, unix.SIGTERM)

	write("malformed")
	for path, text := range map[string]string{
		path:            "Authfile [" + path + "] has a malformed entry. Should be 'user:password'\n",
		"/no/such/file": "Could not open authfile [/no/such/file] for reading, error no such file or directory\n",
	} {
		got := finish(t, quarryd, "quarryd", "-p", "-1", "-Y", path)
		if got.code != 1 || !strings.HasSuffix(got.stderr, text) {
			t.Errorf("got %d %q want 1 %q", got.code, got.stderr, text)
		}
	}
}

func TestShutdownCommand(t *testing.T) {
	p := start(t, "-p", "-1", "-A")
	if got := ask(t, "tcp", p.tcp(t), "shutdown"); got != "" {
		t.Errorf("shutdown: got %q", got)
	}
	p.wantEnd(t)
}

func TestWarnings(t *testing.T) {
	p := start(t, "-p", "-1", "-N", "2", "-o", "modern,hashpower=20,relaxed_privileges")
	p.tcp(t)
	p.end(t, unix.SIGTERM)
	text := p.stderr.String()
	for _, want := range []string{"-N: connections are not spread by NIC queue", "-o hashpower is accepted"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("want one line with %q: %s", want, text)
		}
	}
	for _, word := range []string{"modern", "relaxed_privileges", "-k"} {
		if strings.Contains(text, word) {
			t.Errorf("want no word of %s: %s", word, text)
		}
	}
}

func TestPIDFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	if err := os.WriteFile(path, fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-p", "-1", "-P", path)
	want := fmt.Sprintf("%d\n", p.cmd.Process.Pid)
	await(t, "pid file", func() bool {
		got, _ := os.ReadFile(path)
		return string(got) == want
	})
	warning := fmt.Sprintf("WARNING: The pid file contained the following (running) pid: %d", os.Getpid())
	if text := p.stderr.String(); !strings.Contains(text, warning) {
		t.Errorf("want %q: %s", warning, text)
	}
	p.end(t, unix.SIGTERM)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the pid file stays without -d: %v", err)
	}
}

func TestDaemon(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pid")
	p := start(t, "-d", "-p", "-1", "-P", path)
	p.wantEnd(t)
	text, err := os.ReadFile(path) // there already: the first process waited for it
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(pid, unix.SIGKILL) })
	if pid == p.cmd.Process.Pid {
		t.Errorf("the daemon is the process that was started")
	}
	if got := ask(t, "tcp", p.addr(t), "version"); got != "VERSION 1.6.45" {
		t.Errorf("version: got %q", got)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session: got %d, %v want %d", sid, err, pid)
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	for name, want := range map[string]string{"cwd": "/", "fd/0": "/dev/null", "fd/1": "/dev/null", "fd/2": "/dev/null"} {
		if got, err := os.Readlink(proc + name); err != nil || got != want {
			t.Errorf("%s: got %q, %v want %q", name, got, err, want)
		}
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, "removal of the pid file", func() bool {
		_, err := os.Stat(path)
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestDaemonReportsABusyPort(t *testing.T) {
	p := start(t, "-p", "-1")
	_, port, _ := net.SplitHostPort(p.tcp(t))
	got := finish(t, quarryd, "quarryd", "-d", "-l", "127.0.0.1", "-p", port)
	if got.code != 71 || !strings.Contains(got.stderr, "failed to listen on one of interface(s) 127.0.0.1: ") {
		t.Errorf("got %d %q want 71", got.code, got.stderr)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 2 { // an old socket is in nobody's way
		p := start(t, "-s", path, "-a", "640")
		await(t, "socket", func() bool {
			conn, err := net.Dial("unix", path)
			if err == nil {
				conn.Close()
			}
			return err == nil
		})
		if got := ask(t, "unix", path, "version"); got != "VERSION 1.6.45" {
			t.Errorf("version: got %q", got)
		}
		fi, err := os.Stat(path)
		if err != nil || fi.Mode().Perm() != 0o640 {
			t.Errorf("mode: got %v, %v want 640", fi.Mode(), err)
		}
		p.end(t, unix.SIGTERM)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the socket stays: %v", err)
	}
}

func TestUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can be another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("skipped: no user nobody")
	}
	p := start(t, "-p", "-1", "-u", "nobody")
	os.Chmod(filepath.Dir(p.ports), 0o777)
	await(t, "other user", func() bool {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		return err == nil && strings.Contains(string(status), "Uid:\t"+nobody.Uid+"\t"+nobody.Uid)
	})
	p.end(t, unix.SIGTERM)
	if strings.Contains(p.stderr.String(), "as root") {
		t.Errorf("want no warning: %s", p.stderr.String())
	}
}

func TestCoreDumps(t *testing.T) {
	p := start(t, "-p", "-1", "-r")
	p.tcp(t)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`Max core file size +0 `).Match(limits) {
		t.Errorf("no core files: %s", limits)
	}
	p.end(t, unix.SIGTERM)
}

// -k locks what is in use, not the address space that is reserved.
func TestLockMemory(t *testing.T) {
	p := start(t, "-p", "-1", "-k", "-m", "512")
	addr := p.tcp(t)
	if text := p.stderr.String(); strings.Contains(text, "-k invalid") {
		t.Skipf("skipped: memory cannot be locked here: %s", text)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	kilobytes := func(name string) int {
		t.Helper()
		m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(status)
		if m == nil {
			t.Fatalf("no %s: %s", name, status)
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := kilobytes("VmLck"); n == 0 {
		t.Error("nothing is locked")
	}
	if n := kilobytes("VmRSS"); n > 128<<10 {
		t.Errorf("%d kB are resident", n)
	}
	if got := ask(t, "tcp", addr, "set k 0 0 1\r\nv"); got != "STORED" {
		t.Errorf("set: got %q", got)
	}
	p.end(t, unix.SIGTERM)
}

func TestLargePages(t *testing.T) {
	if !largePagesAllowed() {
		got := finish(t, quarryd, "quarryd", "-p", "-1", "-L")
		if got.code != 1 || !strings.Contains(got.stderr, "Cannot enable large pages on this system\n") {
			t.Errorf("got %d %q want 1", got.code, got.stderr)
		}
		return
	}
	p := start(t, "-p", "-1", "-L")
	if got := ask(t, "tcp", p.tcp(t), "set k 0 0 1\r\nv"); got != "STORED" {
		t.Errorf("set: got %q", got)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^VmFlags:.* hg( |$)`).Match(maps) {
		t.Error("no memory is advised to have large pages")
	}
	p.end(t, unix.SIGTERM)
}

func TestSlabSizes(t *testing.T) {
	p := start(t, "-p", "-1", "-o", "slab_sizes=104-200-400-800")
	addr := p.tcp(t)
	for value, class := range map[int]string{1: "cls=1 ", 120: "cls=2 ", 300: "cls=3 ", 700: "cls=4 ", 800: "cls=5 "} {
		ask(t, "tcp", addr, fmt.Sprintf("set k%d 0 0 %d\r\n%s", value, value, strings.Repeat("v", value)))
		if got := ask(t, "tcp", addr, fmt.Sprintf("me k%d", value)); !strings.Contains(got, class) {
			t.Errorf("%d bytes: got %q want %s", value, got, class)
		}
	}
	p.end(t, unix.SIGTERM)
}

func TestVerboseShowsTheRuntime(t *testing.T) {
	p := start(t, "-p", "-1", "-v")
	p.tcp(t)
	await(t, "line about the runtime", func() bool { return strings.Contains(p.stderr.String(), "gomaxprocs=") })
	p.end(t, unix.SIGTERM)
}
