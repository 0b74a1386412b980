package manual

import (
	"fmt"
	"strings"
)

// Page is the program's man page, for section 1.
func (p *Program) Page() string {
	var w strings.Builder
	fmt.Fprintf(&w, ".TH %s 1 \"%s\" %s\n", strings.ToUpper(p.Name), p.Date, quoted(strings.TrimSpace(p.Name+" "+p.Version)))
	fmt.Fprintf(&w, ".ad l\n.nh\n.SH NAME\n%s \\- %s\n", escape(p.Name), escape(p.Short))
	fmt.Fprintf(&w, ".SH SYNOPSIS\n.B %s\n%s\n", escape(p.Name), escape(p.Synopsis))
	rest := p.Sections
	if len(rest) > 0 && rest[0].Title == "DESCRIPTION" {
		rest[0].write(&w)
		rest = rest[1:]
	}
	p.Root.walk(nil, func(path []string, c *Command) {
		switch {
		case len(path) == 0 && len(c.Options) > 0:
			w.WriteString(".SH OPTIONS\n")
		case len(path) == 0:
		case c.Default:
			return // the options stand above
		default:
			fmt.Fprintf(&w, ".SH %s\n", quoted(strings.ToUpper(strings.Join(append([]string{p.Name}, path...), " "))))
			writeText(&w, c.Help)
		}
		for i := range c.Options {
			c.Options[i].write(&w)
		}
	})
	for i := range rest {
		rest[i].write(&w)
	}
	return w.String()
}

func (o *Option) write(w *strings.Builder) {
	var heads []string
	for _, s := range o.spellings() {
		head := `\fB` + escape(s) + `\fR`
		switch {
		case o.Argument == "":
		case strings.HasPrefix(s, "--"):
			head += `=\fI` + escape(o.Argument) + `\fR`
		default:
			head += ` \fI` + escape(o.Argument) + `\fR`
		}
		heads = append(heads, head)
	}
	fmt.Fprintf(w, ".TP\n%s\n", strings.Join(heads, ", "))
	for line := range strings.Lines(o.Help) {
		// A line that is itself a flag, with its text beside it.
		if flag, text, ok := strings.Cut(line, "  "); ok && strings.HasPrefix(flag, "-") {
			fmt.Fprintf(w, ".TP\n\\fB%s\\fR\n", escape(flag))
			writeText(w, text)
			continue
		}
		if !strings.HasPrefix(o.Help, line) {
			w.WriteString(".br\n")
		}
		writeText(w, line)
	}
	if len(o.Values) > 0 && o.Kind != List {
		w.WriteString(".br\n")
		writeText(w, "One of "+strings.Join(o.Values, ", ")+".")
	}
}

func (s *Section) write(w *strings.Builder) {
	fmt.Fprintf(w, ".SH %s\n", quoted(s.Title))
	for i, paragraph := range strings.Split(strings.TrimSpace(s.Text), "\n\n") {
		switch {
		case paragraph == "":
			continue
		case i > 0:
			w.WriteString(".PP\n")
		}
		writeText(w, paragraph)
	}
	for _, t := range s.Terms {
		fmt.Fprintf(w, ".TP\n.B %s\n", escape(t.Term))
		writeText(w, t.Text)
	}
}

// sourceColumns is how long lines of the page's source get.
const sourceColumns = 72

// writeText writes text in lines of the source; the formatter fills them anew.
func writeText(w *strings.Builder, text string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > sourceColumns {
			fmt.Fprintf(w, "%s\n", escape(line))
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	fmt.Fprintf(w, "%s\n", escape(line))
}

// escape makes text stand for itself. A long word may be broken after a comma.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `, `, `, `, `,`, `,\:`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// quoted is text as one argument of a macro.
func quoted(text string) string {
	return `"` + strings.ReplaceAll(escape(text), `"`, `\(dq`) + `"`
}
