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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app has the flags that all commands share.
type app struct {
	store  string        // --store
	output string        // --output
	quiet  bool          // --quiet
	wait   time.Duration // --wait of the commands that ask a store once
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
	root := &cobra.Command{
		Use:     "holdfast",
		Version: version().String(),
		Short:   "Locks that many processes and hosts share",
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
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case a.store == "" && cmd.Flags().Changed("store"):
				return usagef("--store is empty: name a store by its URL, or leave --store out")
			case a.output != "table" && a.output != "json":
				return usagef("--output is %q: table and json are known", a.output)
			case a.wait <= 0:
				return usagef("-w is %v: it must be positive", a.wait)
			}
			return nil
		},
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.store, "store", "", "`URL` of the store (default: $"+storeEnv+", else this user's own)")
	flags.StringVarP(&a.output, "output", "o", "table",
		"output `format`: table, for people, or json, one object per line")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "say less: no hints, no progress; run says nothing if the lock is held, and doctor of nothing that is ok")
	root.Flags().Bool("version", false, "print the version, as the command version does")
	root.SetVersionTemplate("{{.Version}}\n")
	root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(
		a.runCommand(), a.electCommand(), a.bounded(a.leaderCommand()),
		a.bounded(a.lsCommand()), a.bounded(a.showCommand()), a.bounded(a.breakCommand()), a.consoleCommand(),
		a.demoCommand(), a.bounded(a.doctorCommand()), a.schemaCommand(),
		a.serveCommand(), a.cellCommand(), a.filesCommand(), a.versionCommand(),
	)
	root.InitDefaultCompletionCmd()
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args, c.DisableFlagsInUseLine, c.SuggestionsMinimumDistance = onlyCommands, true, 2
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages ", "Flags.FlagUsagesWrapped 100 "))
	return root
}

// flagError says what is wrong with a flag's value, without the words of the library that parses it.
func flagError(_ *cobra.Command, err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return usagef("%w", err)
	}
	flag, needed := invalid.GetFlag(), errors.Unwrap(err).Error()
	switch flag.Value.Type() {
	case "bool":
		needed = "true or false is needed"
	case "duration":
		needed = "a duration looks like 500ms, 30s, 5m or 2h"
	case "int", "int64":
		needed = "a whole number is needed, at most 2^63-1"
	}
	return usagef("--%s is %q: %s", flag.Name, invalid.GetValue(), needed)
}

// onlyCommands refuses the arguments of a command that has only commands below it: cobra would print its help, and end
// well.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
		hint = "; did you mean " + strings.Join(s, " or ") + "?"
	}
	return usagef("unknown command %q%s", args[0], hint)
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
	Version  string `json:"version"` // of the module, as Go has recorded it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (v versionJSON) String() string { return "holdfast " + v.Version + " " + v.Go + " " + v.Platform }

func version() versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = info.Main.Version
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.output == "json" {
				return printJSON(version())
			}
			_, err := fmt.Println(version())
			return err
		},
	}
}
