package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quarrycache/quarry/server/store"
	"go.uber.org/goleak"
)

// get fetches url, on a connection of its own, and expects status.
func get(t testing.TB, url string, status int) string {
	t.Helper()
	body, got := fetch(t, "GET", url)
	if got.StatusCode != status {
		t.Errorf("GET %s: %s, want %d", url, got.Status, status)
	}
	return body
}

func fetch(t testing.TB, method, url string) (string, *http.Response) {
	t.Helper()
	client := http.Client{Timeout: testTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), resp
}

// Without --admin-listen there is no HTTP.
func TestAdminOff(t *testing.T) {
	s, _ := startServer(t, Config{})
	if a := s.AdminAddr(); a != nil {
		t.Errorf("admin HTTP at %v", a)
	}
}

func TestAdminAddress(t *testing.T) {
	for _, tc := range []struct {
		text  string
		hosts []string
		port  int
		bad   bool
	}{
		{text: "9150", hosts: []string{"127.0.0.1", "::1"}, port: 9150},
		{text: ":9150", hosts: []string{"127.0.0.1", "::1"}, port: 9150},
		{text: "0", hosts: []string{"127.0.0.1", "::1"}},
		{text: "*:9150", hosts: []string{""}, port: 9150},
		{text: "10.0.0.1:1", hosts: []string{"10.0.0.1"}, port: 1},
		{text: "[::1]:1", hosts: []string{"::1"}, port: 1},
		{text: "localhost:1", hosts: []string{"localhost"}, port: 1},
		{text: "-1", bad: true},
		{text: "65536", bad: true},
		{text: "localhost", bad: true},
		{text: "::1", bad: true},
		{text: "a:b", bad: true},
	} {
		a, err := parseAdmin(tc.text)
		if (err != nil) != tc.bad {
			t.Errorf("%s: %v", tc.text, err)
		}
		if !tc.bad && (a.port != tc.port || strings.Join(a.hosts, " ") != strings.Join(tc.hosts, " ")) {
			t.Errorf("%s: got %v %d", tc.text, a.hosts, a.port)
		}
		c := Config{AdminListen: tc.text}
		var refused *ConfigError
		if err := c.Validate(); errors.As(err, &refused) != tc.bad {
			t.Errorf("%s: Validate says %v", tc.text, err)
		}
	}
	c := Config{AdminPprof: true}
	if c.Validate() == nil {
		t.Error("pprof without an admin port is accepted")
	}
}

// A bare port is that of the loopback (S3-41).
func TestAdminLoopback(t *testing.T) {
	s, _ := startServer(t, Config{AdminListen: "0"})
	for _, ln := range s.admin.ln.listeners {
		if !ln.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("listens on %v", ln.Addr())
		}
	}
	if s.admin.isOpen() {
		t.Error("seems open")
	}
	open, _ := startServer(t, Config{AdminListen: "*:0"})
	if !open.admin.isOpen() {
		t.Error("0.0.0.0 seems closed")
	}
}

// A port that is taken is an error of the start, and nothing is left.
func TestAdminPortTaken(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s, err := New(Config{Port: -1, AdminListen: ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	var taken *ListenError
	if err := s.Start(context.Background()); !errors.As(err, &taken) || !strings.Contains(err.Error(), "admin address") {
		t.Errorf("got %v", err)
	}
	goleak.VerifyNone(t, before)
}

func TestAdminAnswers(t *testing.T) {
	_, _, url := startAdmin(t, Config{})
	for _, tc := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/healthz", 200, "ok\n"},
		{"GET", "/readyz", 200, "ready\n"},
		{"HEAD", "/metrics", 200, ""},
		{"POST", "/metrics", 405, ""},
		{"PUT", "/healthz", 405, ""},
		{"DELETE", "/readyz", 405, ""},
		{"GET", "/nothing", 404, ""},
		{"GET", "/debug/pprof/", 404, ""},
		{"GET", "/debug/pprof/heap", 404, ""},
	} {
		body, resp := fetch(t, tc.method, url+tc.path)
		if resp.StatusCode != tc.status || tc.body != "" && body != tc.body {
			t.Errorf("%s %s: %s %q", tc.method, tc.path, resp.Status, body)
		}
		if got := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; ") {
			t.Errorf("%s %s: policy %q", tc.method, tc.path, got)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: headers %v", tc.method, tc.path, resp.Header)
		}
	}
}

// Profiles are there if asked for; the command line is not.
func TestAdminPprof(t *testing.T) {
	_, _, url := startAdmin(t, Config{AdminPprof: true})
	if body := get(t, url+"/debug/pprof/", 200); !strings.Contains(body, "goroutine") {
		t.Error("no index of profiles")
	}
	get(t, url+"/debug/pprof/heap", 200)
	if body := get(t, url+"/debug/pprof/mutex?debug=1", 200); !strings.Contains(body, "sampling period=100\n") {
		t.Errorf("no waits for locks are profiled:\n%s", body)
	}
	get(t, url+"/debug/pprof/cmdline", 404)
}

// While the server stops, it is not ready, and says so; afterwards nothing is
// left of admin HTTP, whatever was under way (S1-74).
func TestAdminStops(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, _, url := startAdmin(t, Config{AdminPprof: true})
	host := strings.TrimPrefix(url, "http://")
	idle, profile := dial(t, host), dial(t, host)
	fmt.Fprint(idle, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := bufio.NewReader(idle).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(profile, "GET /debug/pprof/trace?seconds=600 HTTP/1.1\r\nHost: a\r\n\r\n")
	s.conns.close()
	if body := get(t, url+"/readyz", 503); body != "stopping\n" {
		t.Errorf("got %q", body)
	}
	get(t, url+"/healthz", 200)
	get(t, url+"/metrics", 200)
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("closing took %v", d)
	}
	if s.admin.look(func(*Server, store.Time) {}) {
		t.Error("the store can be looked at after its end")
	}
	goleak.VerifyNone(t, before)
}

// What a peer can make admin HTTP hold is bounded: headers and connections.
func TestAdminBounds(t *testing.T) {
	s, _, url := startAdmin(t, Config{})
	host := strings.TrimPrefix(url, "http://")
	big := dial(t, host)
	fmt.Fprintf(big, "GET / HTTP/1.1\r\nHost: a\r\nX-A: %s\r\n\r\n", strings.Repeat("a", 64<<10))
	if line, _ := bufio.NewReader(big).ReadString('\n'); !strings.Contains(line, "431") {
		t.Errorf("large headers: %q", line)
	}
	conns := make([]net.Conn, 2*adminConnsMax)
	for i := range conns {
		conns[i] = dial(t, host)
	}
	eventually(t, "all places are taken", func() bool { return len(s.admin.ln.places) == adminConnsMax })
	for _, c := range conns {
		c.Close()
	}
	get(t, url+"/healthz", 200)
}
