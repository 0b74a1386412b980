package manual

import (
	"fmt"
	"strings"
)

// bash is a function that reads the words before the cursor: which command
// they have come to, and whether the last of them is an option that waits for
// its argument. In bash = is a word of its own.
func (p *Program) bash() string {
	var w strings.Builder
	name := p.function()
	fmt.Fprintf(&w, "# bash completion for %s\n%s() {\n", p.Name, name)
	w.WriteString(`    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= i
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    COMPREPLY=()
`)
	if len(p.Root.Commands) > 0 {
		w.WriteString("    for ((i = 1; i < COMP_CWORD; i++)); do\n        case \"$path ${COMP_WORDS[i]}\" in\n")
		p.Root.walk(nil, func(path []string, _ *Command) {
			if len(path) > 0 {
				fmt.Fprintf(&w, "        %s) path=%s ;;\n", bashQuote(" "+strings.Join(path, " ")), bashQuote(" "+strings.Join(path, " ")))
			}
		})
		w.WriteString("        esac\n    done\n")
	}
	w.WriteString("    case \"$path $prev\" in\n")
	p.Root.walk(nil, func(path []string, c *Command) {
		for i := range c.Options {
			if c.Options[i].Argument != "" {
				c.Options[i].writeBash(&w, path)
			}
		}
	})
	w.WriteString("    esac\n    case $path in\n")
	p.Root.walk(nil, func(path []string, c *Command) {
		at := ""
		if len(path) > 0 {
			at = " " + strings.Join(path, " ")
		}
		words := c.words()
		for i := range c.Options {
			for _, s := range c.Options[i].spellings() {
				if c.Options[i].Argument != "" && strings.HasPrefix(s, "--") {
					s += "="
				}
				words = append(words, s)
			}
		}
		fmt.Fprintf(&w, "    %s) COMPREPLY=($(compgen -W %s -- \"$cur\")) ;;\n", bashQuote(at), bashQuote(strings.Join(words, " ")))
	})
	fmt.Fprintf(&w, "    esac\n    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace\n}\ncomplete -F %s %s\n", name, p.Name)
	return w.String()
}

// writeBash writes what completes the argument of the option.
func (o *Option) writeBash(w *strings.Builder, path []string) {
	var patterns []string
	for _, s := range o.spellings() {
		patterns = append(patterns, bashQuote(strings.Join(append([]string{""}, append(path, s)...), " ")))
	}
	values := bashQuote(strings.Join(o.Values, " "))
	action := "return"
	switch {
	case o.Kind == List:
		action = "COMPREPLY=($(compgen -P \"${cur%\"${cur##*,}\"}\" -W " + values + " -- \"${cur##*,}\")); compopt -o nospace; return"
	case len(o.Values) > 0:
		action = "COMPREPLY=($(compgen -W " + values + " -- \"$cur\")); return"
	case o.Kind == File:
		action = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"); return"
	case o.Kind == User:
		action = "COMPREPLY=($(compgen -u -- \"$cur\")); return"
	}
	fmt.Fprintf(w, "    %s) %s ;;\n", strings.Join(patterns, " | "), action)
}

// function is the name of the program's completion function.
func (p *Program) function() string { return "_" + strings.ReplaceAll(p.Name, "-", "_") }

// bashQuote is text as one word of bash or zsh.
func bashQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
