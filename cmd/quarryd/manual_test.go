package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/cmd/manual"
)

// TestManualHasEveryFlag holds the man page and the completions against the
// flags: each that -h shows is in them, none that does nothing.
func TestManualHasEveryFlag(t *testing.T) {
	page := finish(t, quarryd, "quarryd", "--man").stdout
	help := finish(t, quarryd, "quarryd", "-h").stdout
	scripts := map[string]string{}
	for _, shell := range manual.Shells {
		got := finish(t, quarryd, "quarryd", "--completion", shell)
		if got.code != 0 || got.stderr != "" {
			t.Fatalf("%s: got %+v", shell, got)
		}
		scripts[shell] = got.stdout
	}
	for _, f := range model(t).Flags {
		letter, long := "-"+string(f.Short), "--"+f.Name
		escaped := strings.NewReplacer("-", `\-`)
		var inPage bool
		forms := map[string]string{"bash": long, "zsh": "'*" + long, "fish": " -l " + f.Name + " "}
		if f.Tag.Has("letteronly") {
			inPage = strings.Contains(page, `\fB`+escaped.Replace(letter)+`\fR`)
			forms = map[string]string{"bash": " " + letter + " ", "zsh": "'*" + letter, "fish": " -s " + string(f.Short) + " "}
		} else {
			inPage = strings.Contains(page, `\fB`+escaped.Replace(long)+`\fR`)
		}
		if inHelp := strings.Contains(help, long) || f.Tag.Has("letteronly"); inPage == f.Hidden || inHelp == f.Hidden {
			t.Errorf("%s: in the man page %v, in -h %v, hidden %v", long, inPage, inHelp, f.Hidden)
		}
		for shell, form := range forms {
			if strings.Contains(scripts[shell], form) == f.Hidden {
				t.Errorf("%s: %s's completion: want it there %v", long, shell, !f.Hidden)
			}
		}
	}
	for _, o := range suboptions {
		if o.class == honoured && !strings.Contains(scripts["bash"], " "+o.name+" ") && !strings.Contains(scripts["bash"], "'"+o.name) && !strings.Contains(scripts["bash"], o.name+"'") {
			t.Errorf("-o %s: not in bash's completion", o.name)
		}
	}
}

// TestManualValues holds the values that shells offer against those that are
// taken.
func TestManualValues(t *testing.T) {
	for _, o := range program(model(t)).Root.Options {
		if o.Kind == manual.List {
			continue
		}
		for _, v := range o.Values {
			f := new(flags)
			if _, err := f.parse([]string{"quarryd", "--" + o.Name, v}); err != nil {
				t.Errorf("--%s %s: %v", o.Name, v, err)
			}
		}
	}
}

// TestManualLint asks mandoc, and groff as man runs it, what they think of it.
func TestManualLint(t *testing.T) {
	p := program(model(t))
	p.Date = "2026-01-31" // a build without a commit has none
	for name, args := range map[string][]string{
		"mandoc": {"-Tlint", "-Wstyle"},
		"groff":  {"-man", "-Tutf8", "-ww", "-z"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("skipped: %s is not installed", name)
			}
			cmd := exec.Command(path, args...)
			cmd.Stdin = strings.NewReader(p.Page())
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestCompletionRefusals(t *testing.T) {
	got := finish(t, quarryd, "quarryd", "--completion", "csh")
	if want := (outcome{1, "", "manual: completion for csh: want one of bash, zsh, fish\n"}); got != want {
		t.Errorf("got %+v want %+v", got, want)
	}
}
