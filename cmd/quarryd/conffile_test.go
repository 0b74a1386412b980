package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeConf writes a file for --memcached-conf.
func writeConf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "memcached.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// debianConf is the file that Debian's package brings, without its comments'
// prose.
const debianConf = `# memcached default config file
# 2003 - Jay Bonci <jaybonci@debian.org>

# Run memcached as a daemon.
-d

# Log memcached's output to /var/log/memcached
logfile /var/log/memcached.log

# Be verbose
# -v

-m 64
-p 11211
-u memcache

# Specify which IP address to listen on.
-l 127.0.0.1
# -c 1024

# Use a pidfile
-P /var/run/memcached/memcached.pid
`

func TestConfWords(t *testing.T) {
	t.Setenv("QUARRY_TEST_MEMORY", "128")
	for _, tc := range []struct{ name, text, want string }{
		{"Debian's own", debianConf, "-m|64|-p|11211|-u|memcache|-l|127.0.0.1|-P|/var/run/memcached/memcached.pid"},
		{"empty", "", ""},
		{"no newline at the end", "-m 64", "-m|64"},
		{"carriage returns", "-m 64\r\n-v\r\n", "-m|64|-v"},
		{"space around", "  -m\t64  \n", "-m|64"},
		{"comment after an option", "-m 64 # MB\n-c 10# ten\n", "-m|64|-c|10"},
		{"comments in comments", "-m 64 # a # b\n", "-m|64"},
		{"escaped comment sign", `-D \#`, "-D|#"},
		{"quotes", `-s "/run/a b" -D '/'`, "-s|/run/a b|-D|/"},
		{"several options in a line", "-o no_modern,idle_timeout=5 -vv", "-o|no_modern,idle_timeout=5|-vv"},
		{"every address", "-l *", "-l|*"},
		{"long option", "--memory-limit=64", "--memory-limit=64"},
		{"variable", "-m $QUARRY_TEST_MEMORY", "-m|128"},
		{"daemon and help", "-d\n-h\n-daemon\n-v", "-v"},
		{"no options", "logfile /x\nlogfile\n64\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			words, err := confWords(writeConf(t, tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(words, "|"); got != tc.want {
				t.Errorf("got %q want %q", got, tc.want)
			}
		})
	}
}

func TestConfRefusals(t *testing.T) {
	const illegal = "\nIllegal argument \"?\""
	long := writeConf(t, strings.Repeat("# nothing\n", confBytesMax/10+1))
	quote := writeConf(t, "-v\n-s '/run\n")
	sign := writeConf(t, "-D '#'\n") // a comment, quoted or not, as for the wrapper
	command := writeConf(t, "-m `id`\n")
	unknown := writeConf(t, "-Q 1\n")
	another := writeConf(t, "--memcached-conf=/etc/memcached.conf\n")
	value := writeConf(t, "-c 0\n")
	for _, tc := range []struct{ name, path, text string }{
		{"no such file", "/no/such/file", "quarryd: --memcached-conf: open /no/such/file: no such file or directory"},
		{"a folder", "/", "quarryd: --memcached-conf: read /: is a directory"},
		{"too long", long, "quarryd: --memcached-conf: " + long + " is larger than 1048576 bytes"},
		{"quote not closed", quote, "quarryd: --memcached-conf: " + quote + ":2: 1:4: reached EOF without closing quote `'`"},
		{"comment in quotes", sign, "quarryd: --memcached-conf: " + sign + ":1: 1:4: reached EOF without closing quote `'`"},
		{"command of a shell", command, "quarryd: --memcached-conf: " + command + ":1: unexpected command substitution at 1:4"},
		{"unknown option", unknown, "quarryd: " + unknown + ": invalid option -- 'Q'" + illegal},
		{"another file", another, "quarryd: --memcached-conf: " + another + " names another file"},
		{"bad value", value, "Maximum connections must be greater than 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := finish(t, quarryd, "quarryd", "--memcached-conf", tc.path)
			if got.code != 1 || got.stderr != tc.text+"\n" {
				t.Errorf("got %d, %q want 1, %q", got.code, got.stderr, tc.text+"\n")
			}
		})
	}
}

func TestConfComesBeforeTheCommandLine(t *testing.T) {
	path := writeConf(t, "-m 100\n-c 10\n-l 127.0.0.1\n-v\n")
	f := new(flags)
	if _, err := f.parse([]string{"quarryd", "-m", "200", "--memcached-conf", path, "-t", "2", "-l", "::1", "-v"}); err != nil {
		t.Fatal(err)
	}
	if f.Memory != 200 || f.Conns != 10 || f.Threads != 2 || f.Verbose != 2 || !slices.Equal(f.Listen, []string{"127.0.0.1", "::1"}) {
		t.Errorf("got -m %d -c %d -t %d -v %d -l %q", f.Memory, f.Conns, f.Threads, f.Verbose, f.Listen)
	}
}

func FuzzConfWords(f *testing.F) {
	f.Add(debianConf)
	f.Add("-s \"a b\" \\# # x\n-o ${x:-y}\n-m $((1+1))")
	path := filepath.Join(f.TempDir(), "memcached.conf")
	opts := options(model(f))
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if words, err := confWords(path); err == nil {
			canonical("quarryd", opts, words)
		} else if asRefusal(err) == nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
