package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/shell"
)

// confBytesMax bounds the file of --memcached-conf: far above any that a
// person wrote.
const confBytesMax = 1 << 20

// confComment is what Debian's systemd-memcached-wrapper takes for one: from a
// # on, unless a backslash stands before it.
var confComment = regexp.MustCompile(`(^|[^\\])#.*`)

// confWords reads a file in the format of Debian's /etc/memcached.conf: the
// words of one option a line. It does as the wrapper that reads it for
// memcached, which leaves the words to a shell: quotes, backslashes and
// variables are understood. -d is dropped, since who runs the server says
// whether it is a daemon, and -h; so are lines that are no options (logfile).
func confWords(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, refuse(exitError, "quarryd: --memcached-conf: %v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, confBytesMax+1))
	if err != nil {
		return nil, refuse(exitError, "quarryd: --memcached-conf: %v", err)
	}
	if len(text) > confBytesMax {
		return nil, refuse(exitError, "quarryd: --memcached-conf: %s is larger than %d bytes", path, confBytesMax)
	}
	var words []string
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(confComment.ReplaceAllString(line, "$1"))
		if !strings.HasPrefix(line, "-") || strings.HasPrefix(line, "-d") || strings.HasPrefix(line, "-h") {
			continue
		}
		fields, err := shell.Fields(line, nil)
		if err != nil {
			return nil, refuse(exitError, "quarryd: --memcached-conf: %s:%d: %v", path, i+1, err)
		}
		words = append(words, fields...)
	}
	return words, nil
}

// withConf puts what the file of --memcached-conf says before the words of the
// command line, if they name one: so what stands in both, the command line
// decides. Words are in canonical form.
func withConf(program string, opts []option, words []string) ([]string, error) {
	path := ""
	for _, w := range words {
		if p, ok := strings.CutPrefix(w, confFlag); ok {
			path = p
		}
	}
	if path == "" {
		return words, nil
	}
	raw, err := confWords(path)
	if err != nil {
		return nil, err
	}
	conf, err := canonical(fmt.Sprintf("%s: %s", program, path), opts, raw)
	if err != nil {
		return nil, err
	}
	for _, w := range conf {
		if strings.HasPrefix(w, confFlag) {
			return nil, refuse(exitError, "quarryd: --memcached-conf: %s names another file", path)
		}
	}
	return append(conf, words...), nil
}

// confFlag is --memcached-conf in canonical form.
const confFlag = "--memcached-conf="
