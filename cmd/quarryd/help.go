package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// compatible is the memcached that quarryd answers as. Scripts read it in the
// first line of -h and -V.
const compatible = "memcached 1.6.45"

// Columns at which texts begin in -h. Source: memcached's help.
const (
	helpColumn      = 26
	letterColumn    = 14 // of a flag without a long form
	suboptionColumn = 26
	ownColumn       = 33 // of Quarry's own flags
)

// printHelp is -h in the form of memcached's: it walks kong's model, and the
// table of sub-options below -o. Clients and tests look in it for the names of
// features, so it has nothing that quarryd does not do.
func printHelp(_ kong.HelpOptions, ctx *kong.Context) error {
	var w strings.Builder
	fmt.Fprintf(&w, "%s\n", compatible)
	for _, f := range ctx.Model.Flags {
		if f.Hidden || f.Tag.Has("own") {
			continue
		}
		head, column := "-"+string(f.Short), helpColumn
		if f.Tag.Has("letteronly") {
			head, column = head+" <"+f.PlaceHolder+">", letterColumn
		} else {
			head += ", --" + f.Name
			if !f.IsBool() && !f.IsCounter() {
				head += "=<" + f.PlaceHolder + ">"
			}
		}
		printLines(&w, head, f.Help, column)
		if f.Short == 'o' {
			printSuboptions(&w, false)
		}
	}
	w.WriteString("Not in memcached:\n")
	printSuboptions(&w, true)
	for _, f := range ctx.Model.Flags {
		if !f.Tag.Has("own") || f.Hidden {
			continue
		}
		head := "--" + f.Name
		if !f.IsBool() {
			head += "=<" + f.PlaceHolder + ">"
		}
		printLines(&w, head, f.Help, ownColumn)
	}
	_, err := io.WriteString(ctx.Stdout, w.String())
	return err
}

// printSuboptions prints what -o takes: memcached's, or Quarry's own.
func printSuboptions(w *strings.Builder, own bool) {
	for _, o := range suboptions {
		text := o.help
		if text == "" && (o.class == ignored || o.class == ofSlabs) {
			text = "accepted, without effect"
		}
		if text == "" || o.own != own {
			continue
		}
		if own {
			printLines(w, "--extended="+o.name, text, ownColumn)
		} else {
			printLines(w, "   - "+o.name+":", text, suboptionColumn)
		}
	}
}

// printLines prints head, and text beside it from column on. A line of text
// that is itself a flag, as -vv, begins at the margin.
func printLines(w *strings.Builder, head, text string, column int) {
	for i, line := range strings.Split(text, "\n") {
		switch {
		case i == 0:
			fmt.Fprintf(w, "%-*s %s\n", column-1, head, line)
		case strings.HasPrefix(line, "-"):
			fmt.Fprintf(w, "%s\n", line)
		default:
			fmt.Fprintf(w, "%*s%s\n", column, "", line)
		}
	}
}

// license is -i.
const license = compatible + ` (Quarry)

Copyright The Quarry Authors

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this program except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
`
