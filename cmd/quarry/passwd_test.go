package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

func TestPasswdLine(t *testing.T) {
	for _, tt := range []struct {
		name, password string
		cost           int
		err            string
	}{
		{"user", "secret words", 4, ""},
		{"user", strings.Repeat("x", 72), 4, ""},
		{"user", strings.Repeat("x", 73), 4, "quarry: bcrypt: password length exceeds 72 bytes"},
		{"user", "", 4, "quarry: the password is empty"},
		{"user", "a\x00b", 4, "quarry: the password has a NUL in it"},
		{"", "secret", 4, `quarry: no user can have the name ""`},
		{"a:b", "secret", 4, `quarry: no user can have the name "a:b"`},
		{"#a", "secret", 4, `quarry: no user can have the name "#a"`},
		{"user", "secret", 15, "quarry: --cost 15: want 4 to 14"},
		{"user", "secret", 3, "quarry: --cost 3: want 4 to 14"},
	} {
		line, err := (&passwdCommand{Name: tt.name, Cost: tt.cost}).line(tt.password)
		switch {
		case err != nil && err.Error() != tt.err, err == nil && tt.err != "":
			t.Errorf("%q: got %v, want %q", tt.name, err, tt.err)
		case err == nil:
			hash, ok := strings.CutPrefix(line, tt.name+":")
			if !ok || bcrypt.CompareHashAndPassword([]byte(hash), []byte(tt.password)) != nil {
				t.Errorf("%q: got %q", tt.name, line)
			}
		}
	}
}

func TestAskPassword(t *testing.T) {
	for in, want := range map[string]string{"secret\n": "secret", "two words\r\nmore\n": "two words", "no end": "no end", "": ""} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString(in); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if got, err := askPassword(r, io.Discard); got != want || err != nil {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
		r.Close()
	}
}
