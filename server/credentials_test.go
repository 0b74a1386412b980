package server

import (
	"strings"
	"testing"
)

func TestParseCredentials(t *testing.T) {
	long := strings.Repeat("x", credentialMaxBytes-len("a:\n"))
	for _, tt := range []struct {
		name, text string
		bad        bool
		n          int
		in, out    [][2]string // who gets in, who does not
	}{
		{name: "empty", out: [][2]string{{"", ""}}},
		{name: "one without a line end", text: "a:b", n: 1, in: [][2]string{{"a", "b"}}, out: [][2]string{{"a", ""}, {"", "b"}, {"a:", "b"}}},
		{name: "two", text: "a:b\nc:d\n", n: 2, in: [][2]string{{"a", "b"}, {"c", "d"}}, out: [][2]string{{"a", "d"}}},
		{name: "from Windows", text: "a:b\r\nc:d\r\n", n: 2, in: [][2]string{{"a", "b"}, {"c", "d"}}},
		{name: "colons and spaces in a password", text: "a:b:c d\n", n: 1, in: [][2]string{{"a", "b:c d"}}},
		{name: "nothing on either side", text: ":\n", n: 1, in: [][2]string{{"", ""}}},
		{name: "the longest line", text: "a:" + long + "\n", n: 1, in: [][2]string{{"a", long}}},
		{name: "too long a line", text: "a:" + long + "x\n", bad: true},
		{name: "no colon", text: "a:b\ncd\n", bad: true},
		{name: "an empty line", text: "a:b\n\nc:d\n", bad: true},
		{name: "a NUL", text: "a:b\x00c\n", bad: true},
		{name: "eight", text: strings.Repeat("a:b\n", 8), n: 8},
		{name: "more than are used", text: strings.Repeat("a:b\n", 8) + "c:d\n", n: 8, out: [][2]string{{"c", "d"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := parseCredentials([]byte(tt.text))
			if (err != nil) != tt.bad {
				t.Fatalf("got %v, bad %v", err, tt.bad)
			}
			if err != nil {
				return
			}
			if c.n != tt.n {
				t.Errorf("got %d users want %d", c.n, tt.n)
			}
			for _, pair := range tt.in {
				if !c.check([]byte(pair[0]), []byte(pair[1])) {
					t.Errorf("%q is not in", pair)
				}
			}
			for _, pair := range tt.out {
				if c.check([]byte(pair[0]), []byte(pair[1])) {
					t.Errorf("%q is in", pair)
				}
			}
		})
	}
}

// FuzzCredentials reads any file at all: it never panics, keeps its bounds,
// and lets in exactly the users of the lines that it took.
func FuzzCredentials(f *testing.F) {
	f.Add("a:b\nc:d\r\n", "a", "b")
	f.Add("a:b", "a", "")
	f.Add(":\n:\n", "", "")
	f.Add(strings.Repeat("user:password\n", 9), "user", "password")
	f.Add("a\x00:b\n\n", "a", "b")
	f.Fuzz(func(t *testing.T, text, user, password string) {
		c, err := parseCredentials([]byte(text))
		if err != nil {
			return
		}
		if c.n > credentialsMax {
			t.Fatalf("%d users", c.n)
		}
		want := false
		lines := strings.SplitAfter(text, "\n")
		for _, line := range lines[:min(len(lines), credentialsMax)] {
			line, _, _ = strings.Cut(line, "\n")
			line, _, _ = strings.Cut(line, "\r")
			want = want || line == user+":"+password && !strings.Contains(user, ":")
		}
		if got := c.check([]byte(user), []byte(password)); got != want {
			t.Errorf("%q %q in %q: got %v want %v", user, password, text, got, want)
		}
	})
}
