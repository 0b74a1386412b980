package manual

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// example has one of everything that a command line may have.
func example() *Program {
	return &Program{
		Name: "prog", Short: "example of a program", Synopsis: "[options]", Version: "1.2.3", Date: "2026-01-31",
		Root: Command{
			Options: []Option{
				{Letter: 'p', Name: "port", Argument: "num", Help: "TCP port (default: 1)\n.5 is off"},
				{Letter: 'v', Name: "verbose", Help: "say more\n-vv          say all: it's [too] much"},
				{Letter: 'D', Argument: "char", Help: `delimiter, as \n`},
				{Letter: 's', Name: "socket", Argument: "file", Kind: File, Help: "socket"},
				{Letter: 'u', Name: "user", Argument: "user", Kind: User, Help: "user"},
				{Letter: 'B', Name: "protocol", Argument: "name", Values: []string{"auto", "ascii", "binary"}, Help: "protocol"},
				{Letter: 'o', Name: "extended", Argument: "list", Kind: List, Values: []string{"modern", "slab_sizes"}, Help: "more"},
			},
			Commands: []Command{
				{Name: "bench", Help: "Measure.", Options: []Option{{Name: "rows", Argument: "name", Values: []string{"table", "other"}, Help: "Rows."}},
					Commands: []Command{
						{Name: "replay", Help: "Replay traces.", Options: []Option{{Name: "trace-dir", Argument: "dir", Kind: File, Help: "Folder."}}},
						{Name: "load", Help: "Put load.", Default: true, Options: []Option{{Name: "rows", Argument: "name", Help: "Rows."}}},
					}},
				{Name: "completion", Help: "Complete.", Args: []string{"bash", "zsh", "fish"}},
			},
		},
		Sections: []Section{
			{Title: "DESCRIPTION", Text: "First.\n\n'Second' paragraph, which is so long that its source has to be broken somewhere before its end."},
			{Title: "SIGNALS", Terms: []Term{{"SIGTERM", "ends it."}}},
		},
	}
}

const examplePage = `.TH PROG 1 "2026-01-31" "prog 1.2.3"
.ad l
.nh
.SH NAME
prog \- example of a program
.SH SYNOPSIS
.B prog
[options]
.SH "DESCRIPTION"
First.
.PP
\&'Second' paragraph, which is so long that its source has to be broken
somewhere before its end.
.SH OPTIONS
.TP
\fB\-p\fR \fInum\fR, \fB\-\-port\fR=\fInum\fR
TCP port (default: 1)
.br
\&.5 is off
.TP
\fB\-v\fR, \fB\-\-verbose\fR
say more
.TP
\fB\-vv\fR
say all: it's [too] much
.TP
\fB\-D\fR \fIchar\fR
delimiter, as \en
`

func TestPage(t *testing.T) {
	page := example().Page()
	if !strings.HasPrefix(page, examplePage) {
		t.Errorf("got\n%s\nwant it to begin with\n%s", page, examplePage)
	}
	for _, want := range []string{
		".SH \"PROG BENCH REPLAY\"\nReplay traces.\n.TP\n\\fB\\-\\-trace\\-dir\\fR=\\fIdir\\fR\nFolder.\n",
		"protocol\n.br\nOne of auto, ascii, binary.\n",
		".SH \"SIGNALS\"\n.TP\n.B SIGTERM\nends it.\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(page, "PROG BENCH LOAD") {
		t.Errorf("the default command stands on its own, too:\n%s", page)
	}
}

// TestPageLint asks mandoc, and groff as man runs it, what they think of it.
func TestPageLint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prog.1")
	if err := os.WriteFile(path, []byte(example().Page()), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"mandoc": {"-Tlint", "-Wstyle", path},
		"groff":  {"-man", "-Tutf8", "-ww", "-z", path},
	} {
		t.Run(name, func(t *testing.T) {
			program, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("skipped: %s is not installed", name)
			}
			if out, err := exec.Command(program, args...).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// A shellTest is what a shell makes of a line with tabs in it: the words that
// the program would get.
type shellTest struct{ typed, want string }

var shellTests = []shellTest{
	{"prog --po\t1", "<--port=1>"},
	{"prog --verb\t-p 5", "<--verbose><-p><5>"},
	{"prog -B au\t", "<-B><auto>"},
	{"prog --protocol=bi\t", "<--protocol=binary>"},
	{"prog -s ./socket-f\t", "<-s><./socket-file>"},
	{"prog -u roo\t", "<-u><root>"},
	{"prog -o slab\t", "<-o><slab_sizes>"},
	{"prog -o modern,slab\t", "<-o><modern,slab_sizes>"},
	{"prog ben\trep\t--tra\tx", "<bench><replay><--trace-dir=x>"},
	{"prog bench --rows=ta\t", "<bench><--rows=table>"},
	{"prog comp\tfi\t", "<completion><fish>"},
}

// TestShells types into real shells.
func TestShells(t *testing.T) {
	for shell, start := range map[string]string{
		"bash": "bash --norc --noprofile -i",
		"zsh":  "zsh -f -i",
	} {
		t.Run(shell, func(t *testing.T) {
			for _, needed := range []string{shell, "script"} {
				if _, err := exec.LookPath(needed); err != nil {
					t.Skipf("skipped: %s is not installed", needed)
				}
			}
			setup := "prog() { printf '<%s>' \"$@\"; echo; }\n"
			if shell == "zsh" {
				setup += "autoload -U compinit; compinit -u -D\n"
			}
			got := typeInto(t, shell, start, setup)
			for i, tc := range shellTests {
				if i >= len(got) || got[i] != tc.want {
					t.Errorf("%q: got %q want %s", tc.typed, got[min(i, len(got)):min(i+1, len(got))], tc.want)
				}
			}
		})
	}
}

// typeInto types all lines of shellTests into a shell at a terminal, and gives
// what the program got.
func typeInto(t *testing.T, shell, start, setup string) []string {
	t.Helper()
	dir := t.TempDir()
	script, err := example().Completion(shell)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"setup": setup + script, "socket-file": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	typed := "source ./setup\n"
	for _, tc := range shellTests {
		typed += tc.typed + "\n"
	}
	cmd := exec.Command("script", "-qfec", start, "/dev/null")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TERM=dumb", "HOME="+dir)
	cmd.Stdin = strings.NewReader(typed + "exit\n")
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "<") && strings.HasSuffix(line, ">") {
			got = append(got, line)
		}
	}
	return got
}

func TestFish(t *testing.T) {
	fish, err := exec.LookPath("fish")
	if err != nil {
		t.Skip("skipped: fish is not installed")
	}
	dir := t.TempDir()
	script, err := example().Completion("fish")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"prog.fish": script, "socket-file": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for line, want := range map[string]string{
		"prog --po":               "--port",
		"prog -B au":              "auto",
		"prog --protocol=bi":      "--protocol=binary",
		"prog -s ./socket-f":      "./socket-file",
		"prog -u roo":             "root",
		"prog -o modern,slab":     "modern,slab_sizes",
		"prog ben":                "bench",
		"prog bench rep":          "replay",
		"prog bench replay --tra": "--trace-dir",
		"prog bench --rows ta":    "table",
		"prog completion fi":      "fish",
	} {
		cmd := exec.Command(fish, "-c", "source prog.fish; complete -C "+fishQuote(line))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		got, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\t")
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v want %q", line, out, err, want)
		}
	}
}

func TestUnknownShell(t *testing.T) {
	if _, err := example().Completion("csh"); err == nil || err.Error() != "manual: completion for csh: want one of bash, zsh, fish" {
		t.Errorf("got %v", err)
	}
}
