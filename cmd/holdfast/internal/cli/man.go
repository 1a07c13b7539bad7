package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) manCommand() *cobra.Command {
	var list bool
	man := &cobra.Command{
		Use:   "man [COMMAND]",
		Short: "Print the manual page of holdfast, or of one of its commands",
		Long: `Man prints a manual page in the form that man reads. Its text is that of --help. The
pages of a release's archive are those that this command prints.`,
		Example: `  holdfast man run | man -l -
  holdfast man >/usr/local/share/man/man1/holdfast.1`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return pages(cmd.Root()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if list {
				for _, name := range pages(cmd.Root()) {
					fmt.Println(name)
				}
				return nil
			}
			page := cmd.Root()
			if len(args) > 0 {
				found, rest, err := page.Find(args)
				if err != nil || len(rest) > 0 || found == page {
					return usagef("there is no command %q", strings.Join(args, " "))
				}
				page = found
			}
			out := bufio.NewWriter(os.Stdout)
			writeMan(out, page)
			return out.Flush()
		},
	}
	man.Flags().BoolVar(&list, "pages", false, "print the names of the commands that have a page, and no page")
	return man
}

// pages returns the names of the commands that have a page.
func pages(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// writeMan writes the page of a command. Texts are not filled: they have tables.
func writeMan(w *bufio.Writer, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(w, ".TH %s 1 \"\" %s\n", roffWord(strings.ToUpper(name)), roffWord("holdfast "+version().Version))
	fmt.Fprintf(w, ".nh\n.SH NAME\n%s \\- %s\n", roff(name), roff(strings.ToLower(c.Short[:1])+c.Short[1:]))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	section := func(title, text string) {
		if text = strings.Trim(text, "\n"); text != "" {
			fmt.Fprintf(w, ".SH %s\n.nf\n%s\n.fi\n", title, roff(text))
		}
	}
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	section("DESCRIPTION", long)
	writeFlags(w, "OPTIONS", c.NonInheritedFlags())
	writeFlags(w, "OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	section("EXAMPLES", c.Example)
	var see []string
	if c.HasParent() {
		see = append(see, "holdfast(1)")
	}
	for _, sub := range pages(c) {
		see = append(see, name+"-"+sub+"(1)")
	}
	section("SEE ALSO", strings.Join(see, "\n"))
}

func writeFlags(w *bufio.Writer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(w, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		term := "--" + f.Name
		if f.Shorthand != "" {
			term = "-" + f.Shorthand + ", " + term
		}
		if kind != "" {
			term += " " + kind
		}
		fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(term), roff(usage))
	})
}

// roff protects a text from being read as requests, and escapes what is not ASCII.
func roff(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	text = b.String()
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// roffWord protects a word of a request.
func roffWord(word string) string { return `"` + strings.ReplaceAll(roff(word), `"`, `\(dq`) + `"` }
