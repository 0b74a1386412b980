package control

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

// etcdVariable makes this program an etcd: "CLIENT-ADDRESS PEER-ADDRESS DIR".
// One in a process of its own can be killed, and leaves no goroutines here.
const etcdVariable = "QUARRY_CONTROL_TEST_ETCD"

func TestMain(m *testing.M) {
	if v := os.Getenv(etcdVariable); v != "" {
		if err := serveEtcd(strings.SplitN(v, " ", 3)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// serveEtcd is an etcd until standard input ends.
func serveEtcd(args []string) error {
	c := embed.NewConfig()
	client, peer := url.URL{Scheme: "http", Host: args[0]}, url.URL{Scheme: "http", Host: args[1]}
	c.Dir = args[2]
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	c.TickMs, c.ElectionMs = 20, 200
	c.UnsafeNoFsync = true
	s, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer s.Close()
	<-s.Server.ReadyNotify()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// etcd is an etcd of the tests.
type etcd struct {
	dir, client, peer string
	cmd               *exec.Cmd
	stdin             io.Closer
}

func newEtcd(t testing.TB) *etcd {
	t.Helper()
	leakless(t)
	s := &etcd{dir: t.TempDir() + "/etcd", client: freeAddr(t), peer: freeAddr(t)}
	s.start(t)
	t.Cleanup(s.kill)
	return s
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *etcd) start(t testing.TB) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd = exec.Command(self)
	s.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", etcdVariable, s.client, s.peer, s.dir))
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("etcd says %q, %v", line, err)
	}
}

// kill ends it as a machine that loses its power does.
func (s *etcd) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		_ = s.stdin.Close()
		s.cmd = nil
	}
}

func (s *etcd) name() string { return "etcd:" + s.client }

// admin is a plain client of it.
func (s *etcd) admin(t testing.TB) (*clientv3.Client, context.Context) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.client}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c, ctx
}
