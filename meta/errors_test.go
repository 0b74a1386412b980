package meta_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quarrycache/quarry/meta"
)

func sprint(v any) string { return fmt.Sprint(v) }

// silentErrors have no line.
var silentErrors = map[meta.Error]bool{
	meta.ErrNone: true, meta.ErrHTTP: true,
	meta.ErrPacketMagic: true, meta.ErrPacketShort: true, meta.ErrPacketLong: true, meta.ErrPacketForm: true,
	meta.ErrPacketUnauthenticated: true, meta.ErrMechanismName: true, meta.ErrAuthNoMemory: true,
}

// TestErrorLines holds that every error has a line of its own that a client
// recognizes, but for the two that are silent and those of packets alone.
func TestErrorLines(t *testing.T) {
	seen := map[string]meta.Error{}
	for e := meta.ErrNone; e < meta.ErrorCount; e++ {
		line := e.String()
		if got := string(e.AppendTo([]byte("x"))); got != "x"+line {
			t.Errorf("error %d: AppendTo gives %q, String %q", e, got, line)
		}
		if silent := silentErrors[e]; silent || line == "" {
			if !silent || line != "" {
				t.Errorf("error %d: line %q", e, line)
			}
			continue
		}
		if other, ok := seen[line]; ok {
			t.Errorf("errors %d and %d: both %q", other, e, line)
		}
		seen[line] = e
		if !strings.HasSuffix(line, "\r\n") || strings.Count(line, "\n") != 1 {
			t.Errorf("error %d: line %q", e, line)
		}
		var rep meta.Reply
		if n, _, err := rep.Parse([]byte(line)); n != len(line) || err != nil || !rep.Code.IsError() && rep.Code != meta.CodeText {
			t.Errorf("%q: got %d bytes, %q, %v", line, n, rep.Code, err)
		}
	}
}

func TestErrorCloses(t *testing.T) {
	for e, want := range map[meta.Error]bool{
		meta.ErrNone: false, meta.ErrBadLine: false, meta.ErrHTTP: true,
		meta.ErrTooManyConnections: true, meta.ErrRequestNoMemory: true,
		meta.ErrPacketMagic: true, meta.ErrPacketForm: true, meta.ErrMechanismName: false,
	} {
		if got := e.Closes(); got != want {
			t.Errorf("%q: got %v want %v", e, got, want)
		}
	}
}
