package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"golang.org/x/sys/unix"
)

// adminURL is where a server says that its admin page is.
func (p *process) adminURL(t testing.TB) string {
	t.Helper()
	said := regexp.MustCompile(`msg="?admin page"? url=(\S+)|admin page url=(\S+)`)
	url := ""
	await(t, "admin page", func() bool {
		select {
		case <-p.ended:
			t.Fatalf("ended: %s", p.stderr.String())
		default:
		}
		if m := said.FindStringSubmatch(p.stderr.String()); m != nil {
			url = m[1] + m[2]
		}
		return url != ""
	})
	return url
}

func TestAdminFlags(t *testing.T) {
	p := start(t, "-p", "-1", "--admin-listen=0", "--admin-pprof")
	url := p.adminURL(t)
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("a bare port is at %s", url)
	}
	for path, want := range map[string]string{
		"healthz": "ok\n", "readyz": "ready\n", "metrics": "memcached_up 1\n",
		"debug/pprof/": "goroutine", "": "<h1>Quarry</h1>",
	} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s, %v, no %q", path, resp.Status, err, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	p.end(t, unix.SIGTERM)
}

func TestAdminRefusals(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--admin-listen=nowhere"}, "quarryd: --admin-listen nowhere: want a port, or an address and a port\n"},
		{[]string{"--admin-listen=99999"}, "quarryd: --admin-listen 99999: invalid port number: \"99999\"\n"},
		{[]string{"--admin-pprof"}, "quarryd: --admin-pprof on: there is no admin port without --admin-listen\n"},
	} {
		got := finish(t, quarryd, "quarryd", tc.args...)
		if got.code != exitUsage || got.stderr != tc.want {
			t.Errorf("%v: got %d %q, want %q", tc.args, got.code, got.stderr, tc.want)
		}
	}
}

// browser starts a headless Chromium, which ends with the test, and gives the
// context of a tab in it.
func browser(t testing.TB) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("skipped: chromium is not installed (Debian package chromium)")
	}
	leakless(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox)
	ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // which waits for its end
		cancel()
	})
	return ctx
}

// evaluate gives the value of a JavaScript expression.
func evaluate[T any](t testing.TB, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// shows waits until the text of the element that selector finds has want in it.
func shows(t testing.TB, ctx context.Context, selector, want string) {
	t.Helper()
	text := ""
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		text = evaluate[string](t, ctx, fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector))
		if strings.Contains(text, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s shows %q, want %q", selector, text, want)
		}
	}
}

// gets reads keys that are there, and others that are not.
func gets(t testing.TB, addr string, hits, misses int) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(c, strings.Repeat("mg shop:a\r\n", hits), strings.Repeat("mg nothing q\r\n", misses), "quit\r\n")
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Fatal(err)
	}
}

// TestAdminPage: in a real browser the page shows what the traffic was, goes
// on by itself when more comes, says so when the server is gone, and has
// nothing to complain of.
func TestAdminPage(t *testing.T) {
	ctx := browser(t)
	p := start(t, "-p", "-1", "-m", "64", "-t", "2", "--admin-listen=0", "--tenant-delimiter=:")
	addr, url := p.tcp(t), p.adminURL(t)
	const evil = `<img/src=x/onerror=document.title='broken'>`
	for _, command := range []string{"set shop:a 0 0 1\r\nv", "set " + evil + ":k 0 0 1\r\nv", "set plain 0 0 1\r\nv"} {
		if got := ask(t, "tcp", addr, command); got != "STORED" {
			t.Fatalf("%q: %q", command, got)
		}
	}
	gets(t, addr, 300, 100)

	console := chromedp.Console(ctx)
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(url)); err != nil {
		t.Fatal(err)
	}
	shows(t, ctx, "#state", "ready")
	shows(t, ctx, ".tile:nth-child(1) .under", "75.0 % since the start")
	shows(t, ctx, ".tile:nth-child(3) .under", "of 64.0 MiB, 3 items")
	shows(t, ctx, "#about", addr)
	shows(t, ctx, "#tenants", evil)
	shows(t, ctx, "#conns", "Limit1,024")
	if n := evaluate[int](t, ctx, "document.querySelectorAll('main img').length"); n != 0 {
		t.Errorf("a tenant's name made %d elements", n)
	}

	gets(t, addr, 400, 0) // 700 of 800
	shows(t, ctx, ".tile:nth-child(1) .under", "87.5 % since the start")
	shows(t, ctx, "#tile-ratio", "100.0%")
	shows(t, ctx, "#legend-ops", "hits")
	await(t, "growing chart", func() bool {
		d := evaluate[string](t, ctx, "document.querySelector('#chart-ops path').getAttribute('d')")
		return strings.Count(d, "L") > 5
	})
	shows(t, ctx, "#commands tbody tr:first-child th", "get")
	if !evaluate[bool](t, ctx, "document.querySelector('#fresh-card').hidden") {
		t.Error("versions and grants are shown before anybody used them")
	}
	if got := ask(t, "tcp", addr, "md plain I Y7"); got != "HD" {
		t.Fatalf("a notice: %q", got)
	}
	shows(t, ctx, "#fresh-card:not([hidden]) #fresh", "Versioned items1")

	// Light and dark, and a phone.
	ground := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		if err != nil {
			t.Fatal(err)
		}
		ground[scheme] = evaluate[string](t, ctx, "getComputedStyle(document.body).backgroundColor")
	}
	if ground["light"] == ground["dark"] {
		t.Errorf("light and dark are both %s", ground["light"])
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(360, 740)); err != nil {
		t.Fatal(err)
	}
	if over := evaluate[int](t, ctx, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		t.Errorf("the page is %d pixels wider than a phone", over)
	}

	if title := evaluate[string](t, ctx, "document.title"); !strings.HasSuffix(title, "· Quarry") {
		t.Errorf("the title is %q", title)
	}
	requests := evaluate[string](t, ctx, "performance.getEntriesByType('resource').map((r) => r.name).join(' ')")
	for _, r := range strings.Fields(requests) {
		if !strings.HasPrefix(r, url) {
			t.Errorf("the page asks for %s", r)
		}
	}
	// Marks the end of what the page had to say while all was well.
	evaluate[any](t, ctx, "console.log('so far')")
	for m, err := range console {
		if err != nil {
			t.Fatal(err)
		}
		if m.Text == "so far" {
			break
		}
		t.Errorf("the console says %v, %s line %d", m, m.URL, m.Line)
	}

	p.end(t, unix.SIGTERM)
	shows(t, ctx, "#state", "no answer")
}
