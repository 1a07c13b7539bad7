// Package cli is the command line of holdfast: its commands, flags, exit codes
// and outputs, which are an interface, and documented by the help texts.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app has the flags that all commands share.
type app struct {
	store  string // --store
	output string // --output
	quiet  bool   // --quiet
}

// Main runs the command line and returns the exit code.
func Main(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(context.Background())
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		// Other errors are cobra's: unknown commands, flags and arguments.
		exit = &exitError{exitUsage, err}
		if path, ok := errors.AsType[*fs.PathError](err); ok && path.Path == os.Stdout.Name() {
			exit.code = exitInternal // the disk of the output is full
		}
	}
	if exit.err != nil {
		complain(exit.err)
		if exit.code == exitUsage {
			tell(fmt.Sprintf("See '%s --help'.\n", cmd.CommandPath()))
		}
	}
	return exit.code
}

// helpWidth is the greatest width of a line of help, in columns.
const helpWidth = 100

// hint tells people at the standard error what is no error, unless --quiet is given.
func (a *app) hint(text string) {
	if !a.quiet {
		complain(errors.New(text))
	}
}

// complain writes an error to the standard error, on one line.
func complain(err error) { tell(fmt.Sprintf("holdfast: %s\n", oneLine(err))) }

// readWithin is how long tell waits for whoever reads the standard error.
const readWithin = time.Second

// tell writes a text to the standard error. If nobody reads that, the text is dropped, or comes late: run
// and elect must not hang with a lock, or after its loss, because a pipe is full or a terminal stands still.
func tell(text string) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		io.WriteString(os.Stderr, text)
	}()
	select {
	case <-told:
	case <-time.After(readWithin):
	}
}

func newRoot() *cobra.Command {
	a := &app{}
	version := false
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "Locks that many processes and hosts share",
		Long: `Holdfast takes locks in a store that many processes, and many hosts, share.

The store is a URL, given by --store or by HOLDFAST_STORE: file:///dir,
redis://user:password@host:6379, redis+sentinel://host1,host2,host3/PRIMARY,
redis+cluster://host1,host2,host3, redlock://host1,host2,host3, etcd://host1,host2,host3,
zk://host1,host2,host3/prefix, cell://host1,host2,host3/prefix, sqlite:///file,
postgres://user:password@host/database, or the same with mysql or mariadb. A URL with a password
belongs in HOLDFAST_STORE, because ps shows arguments to everybody. The default is a directory of
this user on this host, $XDG_STATE_HOME/holdfast/locks or ~/.local/state/holdfast/locks: enough to
keep the jobs of one host apart.

` + exitCodes + `
  The command run has more: see 'holdfast run --help'.

Without a command this text is printed, with exit code 0.`,
		Example: `  holdfast run nightly-backup -- /usr/local/bin/backup
  holdfast ls
  holdfast show nightly-backup`,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Args:                       cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if version {
				return a.printVersion()
			}
			return helpOrUnknown(cmd, args)
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case a.store == "" && cmd.Flags().Changed("store"):
				return usagef("--store is empty: name a store by its URL, or leave --store out")
			case a.output != "table" && a.output != "json":
				return usagef("--output is %q: table and json are known", a.output)
			}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "`URL` of the store (default: $"+storeEnv+", else this user's own)")
	flags.StringVarP(&a.output, "output", "o", "table",
		"output `format`: table, for people, or json, one object per line")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "say less: no hints, no progress; run says nothing if the "+
		"lock is held, and doctor of nothing that is ok")
	root.Flags().BoolVar(&version, "version", false, "print the version, as the command version does")
	root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(
		a.runCommand(), a.electCommand(), a.leaderCommand(),
		a.lsCommand(), a.showCommand(), a.breakCommand(),
		a.demoCommand(), a.doctorCommand(), a.schemaCommand(), a.redlockCommand(),
		a.serveCommand(), a.cellCommand(), a.filesCommand(), a.versionCommand(),
	)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	refuseUnknown(root)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", helpWidth)))
	return root
}

// flagError says what is wrong with a flag's value, without the words of the library that parses it.
func flagError(_ *cobra.Command, err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return usagef("%w", err)
	}
	flag := invalid.GetFlag()
	switch {
	case flag.Value.Type() == "bool":
		err = errors.New("true or false is needed")
	case flag.Value.Type() == "duration":
		err = errors.New("a duration looks like 500ms, 30s, 5m or 2h")
	case errors.Is(err, strconv.ErrRange):
		err = errors.New("the number is out of range")
	case errors.Is(err, strconv.ErrSyntax):
		err = errors.New("a whole number is needed")
	default:
		err = errors.Unwrap(err)
	}
	return usagef("--%s is %q: %w", flag.Name, invalid.GetValue(), err)
}

// unknownCommand returns an error with suggestions.
func unknownCommand(cmd *cobra.Command, name string) error {
	hint := ""
	if s := cmd.SuggestionsFor(name); len(s) > 0 {
		hint = "; did you mean " + strings.Join(s, " or ") + "?"
	}
	return usagef("unknown command %q%s", name, hint)
}

// helpOrUnknown is what a command does that only has commands below it.
func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

// refuseUnknown makes a command that does not exist wrong usage, as in "cell nosuch" and "help nosuch": cobra would
// print some help, and end well.
func refuseUnknown(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch show := c.Run; {
		case c.Name() == "help":
			c.RunE = func(cmd *cobra.Command, args []string) error {
				if of, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return unknownCommand(of, args[len(args)-max(len(rest), 1)])
				}
				show(cmd, args)
				return nil
			}
		case c.HasSubCommands() && !c.Runnable():
			c.Args, c.DisableFlagsInUseLine, c.SuggestionsMinimumDistance = cobra.ArbitraryArgs, true, 2
			c.RunE = helpOrUnknown
		}
	}
}

// oneArgument asks for exactly one argument.
func oneArgument(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("%d arguments are given: one is needed, %s", len(args), what)
		}
		return nil
	}
}

// nameArgument asks for exactly one argument, the name of a lock.
func nameArgument(cmd *cobra.Command, args []string) error {
	if err := oneArgument("the name of a lock")(cmd, args); err != nil {
		return err
	}
	return checkName(args[0])
}

// versionJSON is the program's version in JSON.
type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.printVersion() },
	}
}

func (a *app) printVersion() error {
	v := version()
	if a.output == "json" {
		return printJSON(v)
	}
	text := "holdfast " + v.Version
	switch {
	case v.Modified:
		text += " (" + v.Revision + ", modified)"
	case v.Revision != "":
		text += " (" + v.Revision + ")"
	}
	_, err := fmt.Printf("%s %s %s\n", text, v.Go, v.Platform)
	return err
}

func version() versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
