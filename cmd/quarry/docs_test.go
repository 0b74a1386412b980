package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDocumentedCommands types the commands of docs/cluster.md, and holds what
// comes against what the page says. Ports are others, and widths may be.
func TestDocumentedCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	bin, dir := t.TempDir(), t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "quarryd"), "../quarryd").CombinedOutput(); err != nil {
		t.Fatalf("build quarryd: %v\n%s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wrapper := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", mainVariable, self)
	if err := os.WriteFile(filepath.Join(bin, "quarry"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, dir: dir, env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))}
	// etcd's own port is the default of quarry control, so that is said.
	page := strings.ReplaceAll(string(text), "quarry control --data control &", "quarry control --data control --listen 127.0.0.1:2379 &")
	page = strings.ReplaceAll(page, "$ quarryd --cluster", "$ quarryd --relay-timeout 5s --cluster") // the machine may be busy
	for _, port := range []string{"11211", "11212", "11213", "11221", "2379"} {
		_, free, _ := net.SplitHostPort(deadAddr(t))
		page = strings.ReplaceAll(page, port, free)
	}
	p.run(page)
	if p.commands < 25 {
		t.Errorf("%d commands were typed, want more", p.commands)
	}
}

// page types the commands of a page.
type page struct {
	t        *testing.T
	dir      string
	env      []string
	commands int
}

func (p *page) run(text string) {
	for block := range strings.SplitSeq(text, "```console") {
		head, block, _ := strings.Cut(block, "\n")
		block, _, closed := strings.Cut(block, "```")
		if !closed || head != "" && head != " loosely" {
			continue // what is before the first block
		}
		for session := range strings.SplitSeq("\n"+block, "\n$ ") {
			if command, want, _ := strings.Cut(session, "\n"); command != "" {
				p.command(command, want, head != "")
			}
		}
	}
}

var (
	spaces    = regexp.MustCompile(` +`)
	moments   = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:]+Z`)
	anyNumber = regexp.MustCompile(`[\d.]+( [KMG]iB)?`)
)

func normal(text string, loosely bool) string {
	text = spaces.ReplaceAllString(moments.ReplaceAllString(strings.TrimSpace(text), "TIME"), " ")
	if loosely {
		text = anyNumber.ReplaceAllString(text, "N")
	}
	return text
}

func (p *page) command(command, want string, loosely bool) {
	t := p.t
	t.Helper()
	p.commands++
	if name, value, ok := strings.Cut(strings.TrimPrefix(command, "export "), "="); ok && strings.HasPrefix(command, "export ") {
		p.env = append(p.env, name+"="+value)
		return
	}
	if daemon, ok := strings.CutSuffix(command, " &"); ok {
		p.daemon(daemon)
		return
	}
	var got string
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		c := exec.Command("bash", "-c", command)
		c.Dir, c.Env = p.dir, p.env
		out, err := c.CombinedOutput()
		if got = string(out); err == nil && normal(got, loosely) == normal(want, loosely) {
			return
		}
		// What only looks may look again: nodes take a moment.
		looks := strings.HasPrefix(command, "quarry cluster show") || strings.HasPrefix(command, "quarry top") || strings.HasPrefix(command, "quarry cluster plan")
		if !looks || time.Now().After(end) {
			t.Errorf("$ %s\ngot\n%s(%v)\nwant\n%s", command, got, err, want)
			return
		}
	}
}

// daemon starts what goes on, and waits until it listens.
func (p *page) daemon(command string) {
	t := p.t
	t.Helper()
	c := exec.Command("bash", "-c", "exec "+command)
	c.Dir, c.Env = p.dir, p.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
		_ = c.Wait()
	})
	go func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			t.Logf("%s: %s", strings.Fields(command)[0], s.Text())
		}
	}()
	fields := strings.Fields(command)
	addr := fields[len(fields)-1]
	if !strings.Contains(addr, ":") {
		addr = "127.0.0.1:" + addr
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", addr); err == nil {
			_ = conn.Close()
			return
		}
	}
	t.Fatalf("$ %s &\nnobody listens on %s", command, addr)
}
