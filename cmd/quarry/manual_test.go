package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/cmd/manual"
)

// printed is what quarry prints for a command line.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	k, err := kong.New(new(cli), append(options(), kong.Writers(&out, &out))...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := k.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	if err := ctx.Run(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestManualHasEveryCommand holds the man page and the completions against
// kong's model: each command with each of its flags.
func TestManualHasEveryCommand(t *testing.T) {
	page := printed(t, "man")
	scripts := map[string]string{}
	for _, shell := range manual.Shells {
		scripts[shell] = printed(t, "completion", shell)
	}
	k, err := kong.New(new(cli), options()...)
	if err != nil {
		t.Fatal(err)
	}
	escaped := strings.NewReplacer("-", `\-`)
	n := 0
	kong.Visit(k.Model, func(v kong.Visitable, next kong.Next) error {
		var word string
		switch v := v.(type) {
		case *kong.Command:
			if v.Hidden {
				return nil
			}
			word = v.Name
		case *kong.Flag:
			word = "--" + v.Name
			if !strings.Contains(page, escaped.Replace(word)) {
				t.Errorf("%s is not in the man page", word)
			}
			word = v.Name
		default:
			return next(nil)
		}
		n++
		for shell, script := range scripts {
			if !strings.Contains(script, word) {
				t.Errorf("%s is not in %s's completion", word, shell)
			}
		}
		return next(nil)
	})
	if n < 40 {
		t.Errorf("got %d commands and flags, want more", n)
	}
	for _, want := range []string{".SH \"QUARRY BENCH\"\n", ".SH \"QUARRY BENCH REPLAY\"\n", ".SH \"QUARRY BENCH CLUSTER\"\n", `One of text, meta, binary, redis.`} {
		if !strings.Contains(page, want) {
			t.Errorf("the man page has no %q", want)
		}
	}
}

func TestVersion(t *testing.T) {
	if got := printed(t, "version"); !strings.HasPrefix(got, "quarry ") || !strings.Contains(got, "go1.") {
		t.Errorf("got %q", got)
	}
}
