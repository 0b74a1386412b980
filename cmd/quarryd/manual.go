package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/cmd/manual"
)

// versionLines are -V: first that of memcached, which scripts read.
func versionLines() string {
	version, _ := manual.Build()
	if version == "" {
		version = "(devel)"
	}
	return fmt.Sprintf("%s\nquarryd %s, %s\n", compatible, version, runtime.Version())
}

// program describes quarryd for its man page and for shells. It has the flags
// that -h shows.
func program(model *kong.Application) *manual.Program {
	p := &manual.Program{
		Name:     "quarryd",
		Short:    "cache server that speaks memcached's protocols",
		Synopsis: "[options]",
		Sections: sections(),
	}
	p.Version, p.Date = manual.Build()
	for _, f := range model.Flags {
		if !f.Hidden {
			p.Root.Options = append(p.Root.Options, documented(f))
		}
	}
	return p
}

// documented is a flag for the man page and for shells.
func documented(f *kong.Flag) manual.Option {
	o := manual.Option{Letter: byte(f.Short), Name: f.Name, Help: f.Help}
	if f.Tag.Has("letteronly") {
		o.Name = ""
	}
	if f.Tag.Has("values") {
		o.Values = strings.Split(f.Tag.Get("values"), ",")
	}
	if f.IsBool() || f.IsCounter() {
		return o
	}
	o.Argument = f.PlaceHolder
	switch f.PlaceHolder {
	case "file":
		o.Kind = manual.File
	case "user":
		o.Kind = manual.User
	case "list":
		o.Kind = manual.List
		for _, s := range suboptions {
			if s.class == honoured {
				o.Values = append(o.Values, s.name)
			}
		}
	}
	return o
}

// sections are what the man page says beside the flags.
func sections() []manual.Section {
	extended := manual.Section{
		Title: "EXTENDED OPTIONS",
		Text:  "These can be given after -o, several of them separated by commas. memcached's others are accepted.",
	}
	for _, o := range suboptions {
		if o.help != "" {
			extended.Terms = append(extended.Terms, manual.Term{Term: o.name, Text: o.help})
		}
	}
	return []manual.Section{
		{Title: "DESCRIPTION", Text: `
quarryd is a cache server. It answers as ` + compatible + ` does: its flags, its
protocols, its error lines and its statistics. Programs, proxies and dashboards
made for memcached work with it as they are.

Started without flags it serves the loopback addresses at port 11211, with 64
megabytes for items. -l '*' opens it to the network.`},
		extended,
		{Title: "SIGNALS", Terms: []manual.Term{
			{Term: "SIGTERM, SIGINT", Text: "end the server."},
			{Term: "SIGUSR1", Text: "ends it gracefully, as the command shutdown graceful does."},
			{Term: "SIGHUP", Text: "makes it read again the files that it was given, such as the one of -Y."},
		}},
		{Title: "ENVIRONMENT", Terms: []manual.Term{
			{Term: "MEMCACHED_PORT_FILENAME", Text: "names a file that the ports are written to: for programs that start a server with -p -1."},
			{Term: "NOTIFY_SOCKET", Text: "is where systemd is told that the server is ready."},
			{Term: "GOMAXPROCS, GOGC, GOMEMLIMIT", Text: "are the Go runtime's. -v shows what is in force."},
		}},
		{Title: "EXIT STATUS", Terms: []manual.Term{
			{Term: "0", Text: "after a signal or the command shutdown."},
			{Term: "1", Text: "for a bad value."},
			{Term: "64", Text: "for flags that do not go together, or cannot be had."},
			{Term: "67", Text: "if the user of -u does not exist."},
			{Term: "71", Text: "for what the system refuses, such as an address that is taken."},
		}},
		{Title: "SEE ALSO", Text: "quarry(1), memcached(1)"},
	}
}
