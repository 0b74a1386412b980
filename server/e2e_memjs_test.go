package server

import (
	"strings"
	"testing"
)

// TestMemjs runs a program that uses memjs, a client of Node.js, over the
// binary protocol, with a login and without. It knows no unix sockets.
func TestMemjs(t *testing.T) {
	npm := needProgram(t, "npm", "npm")
	node := needProgram(t, "nodejs", "node")
	modules := strings.TrimSpace(mustRun(t, npm, "root", "-g"))
	t.Setenv("NODE_PATH", modules)
	if _, err := runProgram(t, node, "-e", "require('memjs')"); err != nil {
		t.Skip("skipped: node has no memjs (npm install -g memjs)")
	}
	clientOver(t, []string{"tcp", "sasl"}, node, "testdata/memjs_e2e.js")
}
