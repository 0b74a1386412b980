package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/quarrycache/quarry/cmd/manual"
)

// versionCommand is quarry version.
type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(k *kong.Kong) error {
	version, _ := manual.Build()
	if version == "" {
		version = "(devel)"
	}
	_, err := fmt.Fprintf(k.Stdout, "quarry %s, %s\n", version, runtime.Version())
	return err
}

// completionCommand is quarry completion.
type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

// Run prints the script that completes quarry's command line.
func (c *completionCommand) Run(k *kong.Kong) error {
	script, err := program(k.Model).Completion(c.Shell)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(k.Stdout, script)
	return err
}

// manCommand is quarry man.
type manCommand struct{}

// Run prints the man page's source.
func (manCommand) Run(k *kong.Kong) error {
	_, err := fmt.Fprint(k.Stdout, program(k.Model).Page())
	return err
}

// program describes quarry for its man page and for shells.
func program(model *kong.Application) *manual.Program {
	p := &manual.Program{
		Name:     "quarry",
		Short:    "operator's tool for Quarry cache servers",
		Synopsis: "command [options]",
		Root:     command(model.Node),
		Sections: []manual.Section{
			{Title: "DESCRIPTION", Text: model.Help + " What follows are its commands, each with its options."},
			{Title: "SEE ALSO", Text: "quarryd(1)"},
		},
	}
	p.Version, p.Date = manual.Build()
	return p
}

// command is a node of kong's model. What its default command takes it takes
// itself.
func command(n *kong.Node) manual.Command {
	c := manual.Command{Name: n.Name, Help: n.Help, Options: flags(n)}
	if n.DefaultCmd != nil {
		c.Options = append(c.Options, flags(n.DefaultCmd)...)
	}
	for _, child := range n.Children {
		if child.Hidden {
			continue
		}
		sub := command(child)
		sub.Default = child == n.DefaultCmd
		c.Commands = append(c.Commands, sub)
	}
	for _, arg := range n.Positional {
		c.Args = append(c.Args, enum(arg)...)
	}
	return c
}

// flags are those of a node alone.
func flags(n *kong.Node) []manual.Option {
	var opts []manual.Option
	for _, f := range n.Flags {
		if f.Hidden {
			continue
		}
		o := manual.Option{Letter: byte(f.Short), Name: f.Name, Help: f.Help, Values: enum(f.Value)}
		if !f.IsBool() && !f.IsCounter() {
			o.Argument = strings.ToLower(f.FormatPlaceHolder())
			if f.HasDefault && f.Default != "" {
				o.Argument = "value"
				o.Help += " Default: " + f.Default + "."
			}
			if strings.Contains(o.Argument, "int") || strings.Contains(o.Argument, "float") {
				o.Argument = "number" // kong's word for it is the type's name
			}
			if slices.Contains([]string{"file", "dir"}, o.Argument) {
				o.Kind = manual.File
			}
		}
		opts = append(opts, o)
	}
	return opts
}

// enum are the values that a flag or word may have, if it is held to some.
func enum(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return strings.Split(v.Enum, ",")
}
