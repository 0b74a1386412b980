package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quarrycache/quarry/cluster/control"
	"go.uber.org/goleak"
)

// mainVariable makes the test program quarry itself, to be killed.
const mainVariable = "QUARRY_TEST_MAIN"

// gnet's pool of workers, which the servers of tests bring, runs from the start of
// the program.
var fromTheStart = goleak.IgnoreCurrent()

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m, fromTheStart)
}

// process is a quarry of its own.
type process struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func startQuarry(t testing.TB, args ...string) *process {
	t.Helper()
	leakless(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, args...)}
	p.cmd.Env = append(os.Environ(), mainVariable+"=1")
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if testing.Verbose() {
		p.cmd.Stderr = os.Stderr
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// ready waits until a controller listens.
func (p *process) ready(t testing.TB) {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if !strings.HasPrefix(line, "quarry control listens on ") {
		t.Fatalf("quarry control says %q, %v", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, p.out) }()
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// Three processes agree. The active one is killed, and publishing goes on; it
// comes back with its data and follows; with two of three gone nothing can be
// changed, and with one of them back it can.
func TestControlOfThree(t *testing.T) {
	dir := t.TempDir()
	names := []string{"x", "y", "z"}
	listen, peers, data := map[string]string{}, map[string]string{}, map[string]string{}
	for _, name := range names {
		listen[name], peers[name], data[name] = deadAddr(t), deadAddr(t), filepath.Join(dir, name)
	}
	start := func(name string, more ...string) *process {
		args := []string{"control", "--data", data[name], "--name", name, "--listen", listen[name]}
		for _, name := range names {
			args = append(args, "--peer", name+"="+peers[name])
		}
		return startQuarry(t, append(args, more...)...)
	}
	running := map[string]*process{}
	for _, name := range names {
		running[name] = start(name)
	}
	for _, p := range running {
		p.ready(t)
	}
	t.Setenv("QUARRY_CLUSTER", fmt.Sprintf("etcd:%s,%s,%s", listen["x"], listen["y"], listen["z"]))
	must(t, "cluster", "init", "--name", "test", "--node", "a="+deadAddr(t), "-y")
	copies := 0
	publish := func() error {
		copies = (copies + 1) % 4
		var err error
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			if _, err = try(t, "cluster", "set", "--copies", fmt.Sprint(copies), "-y", "--trust-store"); err == nil {
				return nil
			}
			if strings.Contains(err.Error(), "so already") {
				return nil // the answer to an earlier try got lost
			}
		}
		return err
	}
	show := func() showReport {
		t.Helper()
		var r showReport
		if err := json.Unmarshal([]byte(must(t, "cluster", "show", "--json")), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	controllers := func(n int) []string {
		t.Helper()
		var r showReport
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if r = show(); len(r.Controllers) == n {
				return r.Controllers
			}
		}
		t.Fatalf("the controllers are %v, want %d", r.Controllers, n)
		return nil
	}
	first := controllers(3)[0]
	running[first].kill()
	if err := publish(); err != nil {
		t.Fatalf("with two of three: %v", err)
	}
	if left := controllers(2); slices.Contains(left, first) {
		t.Errorf("%s was killed, and the controllers are %v", first, left)
	}
	running[first] = start(first)
	running[first].ready(t)
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	epoch := show().Epoch

	// It knows what was published without it.
	s, err := control.Open("etcd:"+listen[first], control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if m, err := s.Get(t.Context()); err != nil || m.Epoch != epoch {
		t.Errorf("%s has map %v, %v, want %s", first, m, err, epoch)
	}

	i := slices.Index(names, first)
	second, third := names[(i+1)%3], names[(i+2)%3]
	running[second].kill()
	running[third].kill()
	if out, err := try(t, "cluster", "set", "--copies", fmt.Sprint((copies+1)%4), "-y", "--trust-store"); err == nil {
		t.Errorf("one of three publishes alone:\n%s", out)
	}
	running[second] = start(second)
	running[second].ready(t)
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	if got := show().Epoch; got <= epoch {
		t.Errorf("map %s after %s", got, epoch)
	}

	// The third one has lost its data: another one takes its place.
	data[third], peers[third] = filepath.Join(dir, "another"), deadAddr(t)
	must(t, "cluster", "replace-controller", third+"="+peers[third])
	must(t, "cluster", "replace-controller", third+"="+peers[third]) // once more changes nothing
	running[third] = start(third, "--join")
	running[third].ready(t)
	controllers(3)
	if _, err := try(t, "cluster", "replace-controller", "w=127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "no process") {
		t.Errorf("nobody is replaced: %v", err)
	}

	// It ends when it is told to.
	p := running[second]
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("quarry control ends with %v", err)
	}
}

func TestControlRefuses(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:0"}, "open to the network"},
		{[]string{"--peer", "a=127.0.0.1:1"}, "not among the peers"},
		{[]string{"--peer", "a"}, "NAME=HOST:PORT"},
	} {
		args := append([]string{"control", "--data", t.TempDir()}, tt.args...)
		if _, err := try(t, args...); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want %q", args, err, tt.want)
		}
	}
}
