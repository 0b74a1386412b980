package manual

import (
	"fmt"
	"strings"
)

// zsh is a function for each command, which gives its options to _arguments.
func (p *Program) zsh() string {
	var w strings.Builder
	fmt.Fprintf(&w, "#compdef %s\n", p.Name)
	p.Root.walk(nil, func(path []string, c *Command) {
		fmt.Fprintf(&w, "\n%s() {\n", p.zshFunction(path))
		if len(c.Commands) > 0 {
			w.WriteString("    local curcontext=$curcontext state line\n")
		}
		w.WriteString("    _arguments -s -S")
		if len(c.Commands) > 0 {
			w.WriteString(" -C")
		}
		for i := range c.Options {
			fmt.Fprintf(&w, " \\\n        %s", c.Options[i].zsh())
		}
		switch {
		case len(c.Commands) > 0:
			fmt.Fprintf(&w, " \\\n        %s '*:: :->rest'", bashQuote("1:command:("+strings.Join(c.words(), " ")+")"))
		case len(c.Args) > 0:
			fmt.Fprintf(&w, " \\\n        %s", bashQuote("1:argument:("+strings.Join(c.Args, " ")+")"))
		}
		if len(c.Commands) > 0 {
			w.WriteString(" && return\n    case $line[1] in\n")
			for i := range c.Commands {
				sub := append(path[:len(path):len(path)], c.Commands[i].Name)
				fmt.Fprintf(&w, "    %s) %s ;;\n", c.Commands[i].Name, p.zshFunction(sub))
			}
			w.WriteString("    esac")
		}
		w.WriteString("\n}\n")
	})
	// Sourced, it registers itself; autoloaded, it is the function.
	fmt.Fprintf(&w, "\nif [[ $funcstack[1] == %s ]]; then\n    %s \"$@\"\nelse\n    compdef %s %s\nfi\n",
		p.function(), p.function(), p.function(), p.Name)
	return w.String()
}

// zshFunction is the name of the function for the command at path.
func (p *Program) zshFunction(path []string) string {
	return strings.ReplaceAll(strings.Join(append([]string{p.function()}, path...), "_"), "-", "_")
}

// zsh is the option as _arguments takes it.
func (o *Option) zsh() string {
	text := "[" + strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(o.summary()) + "]"
	if o.Argument != "" {
		text += ":" + strings.ReplaceAll(o.Argument, ":", `\:`) + ":" + o.zshAction()
	}
	var specs []string
	for _, s := range o.spellings() {
		switch {
		case o.Argument == "":
		case strings.HasPrefix(s, "--"):
			s += "="
		default:
			s += "+"
		}
		specs = append(specs, bashQuote("*"+s+text))
	}
	return strings.Join(specs, " ")
}

// zshAction completes the argument of the option.
func (o *Option) zshAction() string {
	switch {
	case o.Kind == List:
		return "_sequence compadd - " + strings.Join(o.Values, " ")
	case len(o.Values) > 0:
		return "(" + strings.Join(o.Values, " ") + ")"
	case o.Kind == File:
		return "_files"
	case o.Kind == User:
		return "_users"
	}
	return " "
}
