package manual

import (
	"fmt"
	"strings"
)

// fish is a list of options, each with the command that it belongs to.
func (p *Program) fish() string {
	var w strings.Builder
	fmt.Fprintf(&w, "# fish completion for %s\n", p.Name)
	if len(p.Root.Commands) > 0 {
		fmt.Fprintf(&w, "function _%s_at\n    set -l path\n    for word in (commandline -opc)[2..]\n        switch \"$path $word\"\n", p.function())
		p.Root.walk(nil, func(path []string, _ *Command) {
			if len(path) > 0 {
				fmt.Fprintf(&w, "            case %s\n                set path %s\n", fishQuote(" "+strings.Join(path, " ")), fishQuote(" "+strings.Join(path, " ")))
			}
		})
		w.WriteString("        end\n    end\n    test \"$path\" = \"$argv[1]\"\nend\n")
	}
	fmt.Fprintf(&w, "complete -c %s -f\n", p.Name)
	p.Root.walk(nil, func(path []string, c *Command) {
		at := ""
		if len(p.Root.Commands) > 0 {
			where := strings.Join(append([]string{""}, path...), " ")
			at = " -n " + fishQuote("_"+p.function()+"_at "+fishQuote(where))
		}
		for i := range c.Commands {
			fmt.Fprintf(&w, "complete -c %s%s -a %s -d %s\n", p.Name, at, c.Commands[i].Name, fishQuote(c.Commands[i].Help))
		}
		if len(c.Args) > 0 {
			fmt.Fprintf(&w, "complete -c %s%s -a %s\n", p.Name, at, fishQuote(strings.Join(c.Args, " ")))
		}
		for i := range c.Options {
			fmt.Fprintf(&w, "complete -c %s%s%s\n", p.Name, at, c.Options[i].fish())
		}
	})
	return w.String()
}

// fish is the option as complete takes it.
func (o *Option) fish() string {
	var text string
	if o.Letter != 0 {
		text += " -s " + string(o.Letter)
	}
	if o.Name != "" {
		text += " -l " + o.Name
	}
	switch {
	case o.Argument == "":
	case o.Kind == List:
		text += " -x -a " + fishQuote("(__fish_append , "+strings.Join(o.Values, " ")+")")
	case len(o.Values) > 0:
		text += " -x -a " + fishQuote(strings.Join(o.Values, " "))
	case o.Kind == File:
		text += " -r -F"
	case o.Kind == User:
		text += " -x -a '(__fish_complete_users)'"
	default:
		text += " -x"
	}
	return text + " -d " + fishQuote(o.summary())
}

// fishQuote is text as one word of fish.
func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
