package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"pgregory.net/rapid"
)

// model is kong's picture of the flags.
func model(t testing.TB) *kong.Application {
	t.Helper()
	k, err := newParser(new(flags))
	if err != nil {
		t.Fatal(err)
	}
	return k.Model
}

func TestCanonical(t *testing.T) {
	opts := options(model(t))
	for _, tc := range []struct {
		name string
		args string // separated by spaces
		want string
		err  string // getopt's line
	}{
		{"nothing", "", "", ""},
		{"letter", "-v", "--verbose", ""},
		{"letters together", "-vv", "--verbose --verbose", ""},
		{"letters, then a value", "-vAp1", "--verbose --enable-shutdown --port=1", ""},
		{"value in the same word", "-p11211", "--port=11211", ""},
		{"value in the next word", "-p 11211", "--port=11211", ""},
		{"negative value", "-p -1", "--port=-1", ""},
		{"value that looks like an option", "-P -v", "--pidfile=-v", ""},
		{"value that ends the options", "-P -- -v", "--pidfile=-- --verbose", ""},
		{"long with =", "--port=11211", "--port=11211", ""},
		{"long with the next word", "--port 11211", "--port=11211", ""},
		{"long with an empty value", "--port= -v", "--port= --verbose", ""},
		{"long with = in the value", "--extended=hashpower=20", "--extended=hashpower=20", ""},
		{"abbreviation", "--thr=3", "--threads=3", ""},
		{"abbreviation of a switch", "--daem", "--daemon", ""},
		{"abbreviation that is memcached's", "--t=3 --t 4", "--threads=3 --threads=4", ""},
		{"abbreviation of one of ours", "--tenant-del=/", "--tenant-delimiter=/", ""},
		{"long alone", "--tenant-quota a=rate:1 --tenant-quota=b=", "--tenant-quota=a=rate:1 --tenant-quota=b=", ""},
		{"exact name that begins no other", "--user=u", "--user=u", ""},
		{"optional value given", "--verbose=3", "--verbose", ""},
		{"optional value does not take the next word", "--verbose 3", "--verbose", ""},
		{"left-over words", "a -v b -A c", "--verbose --enable-shutdown", ""},
		{"a lone dash is a word", "- -v", "--verbose", ""},
		{"end of options", "-v -- -A", "--verbose", ""},
		{"last one wins later", "-t 1 -t 2", "--threads=1 --threads=2", ""},
		{"letter without a name", "-D/", "--prefix-delimiter=/", ""},
		{"help ends it", "-v --help --bogus", "--verbose --help", ""},
		{"version ends it within a word", "-vVv", "--verbose --version", ""},
		{"unknown letter", "-v -Q -A", "--verbose", "quarryd: invalid option -- 'Q'"},
		{"unknown letter in a word", "-vQA", "--verbose", "quarryd: invalid option -- 'Q'"},
		{"unknown name", "--bogus", "", "quarryd: unrecognized option '--bogus'"},
		{"unknown name with a value", "--bogus=1", "", "quarryd: unrecognized option '--bogus=1'"},
		{"no long form", "--prefix-delimiter=x", "", "quarryd: unrecognized option '--prefix-delimiter=x'"},
		{"ambiguous", "--un=3", "", "quarryd: option '--un=3' is ambiguous; possibilities: '--unix-socket' '--unix-mask'"},
		{"ambiguous among ours", "--tenant=3", "", "quarryd: option '--tenant=3' is ambiguous; possibilities: '--tenant-delimiter' '--tenant-quota' '--tenant-default' '--tenant-tracked'"},
		{"value missing", "-p", "", "quarryd: option requires an argument -- 'p'"},
		{"value missing in a word", "-vp", "--verbose", "quarryd: option requires an argument -- 'p'"},
		{"long value missing", "--po", "", "quarryd: option '--port' requires an argument"},
		{"value not wanted", "--daemon=1", "", "quarryd: option '--daemon' doesn't allow an argument"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := canonical("quarryd", opts, strings.Fields(tc.args))
			if g := strings.Join(got, " "); g != tc.want {
				t.Errorf("canonical(%q): got %q want %q", tc.args, g, tc.want)
			}
			want := tc.err
			if want != "" {
				want += "\nIllegal argument \"?\""
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != want {
				t.Errorf("canonical(%q): got error %q want %q", tc.args, text, want)
			}
		})
	}
}

func TestCanonicalSkipsSpaceBeforeValues(t *testing.T) {
	got, err := canonical("quarryd", options(model(t)), []string{"-s", " \t/tmp/a b", "-p", ""})
	want := []string{"--unix-socket=/tmp/a b", "--port="}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v want %q", got, err, want)
	}
}

// Whatever the words are, kong understands what canonical makes of them: the
// only errors left are about values.
func TestCanonicalLeavesKongNothingToGuess(t *testing.T) {
	opts := options(model(t))
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOf(rapid.StringMatching(`-{0,2}[a-zA-Z0-9=,. -]{0,12}`)).Draw(t, "args")
		words, _ := canonical("quarryd", opts, args)
		k, err := newParser(new(flags))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(words); err != nil && asRefusal(err) == nil {
			t.Fatalf("%q became %q, which kong refuses: %v", args, words, err)
		}
	})
}

func TestNumbersAsInC(t *testing.T) {
	for _, tc := range []struct {
		text string
		atoi int
		atof float64
	}{
		{"", 0, 0},
		{"junk", 0, 0},
		{"12", 12, 12},
		{" \t12", 12, 12},
		{"+12", 12, 12},
		{"-1", -1, -1},
		{"--1", 0, 0},
		{"12abc", 12, 12},
		{"1.25", 1, 1.25},
		{"1.25x", 1, 1.25},
		{".5", 0, .5},
		{"1e2", 1, 100},
		{"1e", 1, 1},
		{"0x10", 0, 0},
		{"1_000", 1, 1},
		{"nan", 0, 0},
		{"inf", 0, 0},
		{"99999999999", 2147483647, 99999999999},
		{"-99999999999", -2147483647, -99999999999},
	} {
		if got := atoi(tc.text); got != tc.atoi {
			t.Errorf("atoi(%q): got %d want %d", tc.text, got, tc.atoi)
		}
		if got := atof(tc.text); got != tc.atof {
			t.Errorf("atof(%q): got %g want %g", tc.text, got, tc.atof)
		}
	}
}

func TestOctal(t *testing.T) {
	for text, want := range map[string]uint32{
		"": 0, "700": 0o700, "0777": 0o777, "8": 0, "78": 7, "x": 0, "1777": 0o1777, "777777777777": 0o7777,
	} {
		if got := octal(text); got != want {
			t.Errorf("octal(%q): got %o want %o", text, got, want)
		}
	}
}
