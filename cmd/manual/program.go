package manual

import (
	"fmt"
	"strings"
)

// A Program is a command line.
type Program struct {
	Name     string
	Short    string // what it is, as after the dash in the list of man pages
	Synopsis string // what follows the name
	Version  string
	Date     string // of the version, 2006-01-02; "" if it is not known
	Root     Command
	Sections []Section
}

// A Command is what one command of a program takes. The program itself is one,
// without a name.
type Command struct {
	Name     string
	Help     string
	Options  []Option
	Commands []Command
	Args     []string // what the words after it may be, if they are few
	Default  bool     // what the command above is without a name: that has the same options
}

// An Option is one flag.
type Option struct {
	Letter   byte     // 0 if it has none
	Name     string   // "" if it has a letter only
	Argument string   // what it takes, "" for nothing
	Help     string   // its lines
	Kind     Kind     // of the argument
	Values   []string // those that the argument may have, if they are few
}

// Kind says how an argument is completed where its values are many.
type Kind uint8

// Kinds of arguments.
const (
	Free Kind = iota // anything: not completed
	File
	User
	List // of values, separated by commas
)

// A Section is prose of the man page: paragraphs, divided by empty lines, and
// then terms.
type Section struct {
	Title string
	Text  string
	Terms []Term
}

// A Term is something with what it means.
type Term struct{ Term, Text string }

// Completion is the script that completes the program's command line in a
// shell: bash, zsh or fish.
func (p *Program) Completion(shell string) (string, error) {
	switch shell {
	case "bash":
		return p.bash(), nil
	case "zsh":
		return p.zsh(), nil
	case "fish":
		return p.fish(), nil
	}
	return "", fmt.Errorf("manual: completion for %s: want one of %s", shell, strings.Join(Shells, ", "))
}

// Shells are those that Completion knows.
var Shells = []string{"bash", "zsh", "fish"}

// walk visits the command and all below it, with the names that lead to each.
func (c *Command) walk(path []string, visit func(path []string, c *Command)) {
	visit(path, c)
	for i := range c.Commands {
		sub := &c.Commands[i]
		sub.walk(append(path[:len(path):len(path)], sub.Name), visit)
	}
}

// words are what the command may be followed by, but options.
func (c *Command) words() []string {
	var words []string
	for i := range c.Commands {
		words = append(words, c.Commands[i].Name)
	}
	return append(words, c.Args...)
}

// spellings are the ways to write the option without its argument.
func (o *Option) spellings() []string {
	var all []string
	if o.Letter != 0 {
		all = append(all, "-"+string(o.Letter))
	}
	if o.Name != "" {
		all = append(all, "--"+o.Name)
	}
	return all
}

// summary is the first line of the help, for a list of options.
func (o *Option) summary() string {
	line, _, _ := strings.Cut(o.Help, "\n")
	return line
}
