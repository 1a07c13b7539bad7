package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo"
	_ "github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo/servers" // postgres://, mysql://
)

func (a *app) demoCommand() *cobra.Command {
	var strategies strings.Builder
	names, what := demo.Strategies()
	for i, name := range names {
		const indent = 27
		fmt.Fprintf(&strategies, "  %-*s%s\n", indent-2, name,
			strings.Join(wrapped(what[i], helpWidth-indent), "\n"+strings.Repeat(" ", indent)))
	}
	o := demo.Options{Out: os.Stdout, Progress: os.Stderr}
	cmd := &cobra.Command{
		Use:   "demo [STRATEGY...]",
		Short: "Show a flash sale going wrong without a lock, and right with one",
		Long: `Run a real flash sale: three order services, each a process of its own, sell three
items from an SQL database to a hundred users who want one each. Each strategy is
run a few times. What went wrong is counted in the database afterwards.

The strategies:
` + strategies.String() + `
Nothing is staged: a strategy that should go wrong and did not is shown as that.
Locks are kept in a temporary directory unless --store or ` + storeEnv + ` names a
store. The stock is kept in a file of SQLite. If the store is in PostgreSQL or MySQL,
the stock is there too, in a schema that is created for it and dropped afterwards
(holdfast_demo_...). The demonstration takes about 45 seconds at most.

With -o json it prints one array with an object for each strategy:
    {"strategy", "stock", "sold", "oversold", "user_violations", "seconds",
     "sales_per_second", "stale_refused", "runs", "oversold_runs", ...}

` + exitCodes,
		Example: `  holdfast demo
  holdfast demo none lock -o json
  holdfast demo lock for-update --store postgres://localhost/app
  holdfast demo cron`,
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := a.demoStore()
			if err != nil {
				return err
			}
			if a.quiet {
				o.Progress = nil
			}
			o.Store, o.JSON, o.Strategies = u, a.output == "json", args
			return demonstrate(cmd, func(ctx context.Context) error { return demo.Run(ctx, o) })
		},
	}
	cmd.Flags().Var((*count)(&o.Users), "users", "how many users want an item (default 100)")
	cmd.Flags().Var((*count)(&o.Stock), "stock", "how many items there are (default 3)")
	cmd.Flags().Var((*count)(&o.Services), "services", "how many order services there are (default 3)")
	cmd.Flags().Var((*count)(&o.Repeats), "repeats", "how often each strategy is run at most (default 3)")
	cmd.AddCommand(a.demoCronCommand())
	return cmd
}

func (a *app) demoCronCommand() *cobra.Command {
	o := demo.CronOptions{Out: os.Stdout, Progress: os.Stderr}
	cmd := &cobra.Command{
		Use:   "cron",
		Short: "Show a cron job of three replicas running more than once, and once",
		Long: `Run a job that three replicas start at each tick, by clocks that differ a little. First
they use a plain lock: when a replica with a late clock comes, it is free again. Then
they use a lock with a minimum hold (holdfast run --min-hold).

` + exitCodes,
		Example: `  holdfast demo cron
  holdfast demo cron --ticks 20 -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			u, err := a.demoStore()
			if err != nil {
				return err
			}
			if a.quiet {
				o.Progress = nil
			}
			o.Store, o.JSON = u, a.output == "json"
			return demonstrate(cmd, func(ctx context.Context) error { return demo.Cron(ctx, o) })
		},
	}
	cmd.Flags().Var((*count)(&o.Ticks), "ticks", "how often the job is due (default 12)")
	return cmd
}

// demoStore returns the URL of the store for the demonstration, or "": without a named one it makes its
// own rather than use the default store.
func (a *app) demoStore() (string, error) {
	raw, err := a.namedStore()
	if err != nil || raw == "" {
		return "", err
	}
	_, err = a.parseStore()
	return raw, err
}

// wrapped returns text in lines of at most width characters, if its words are no longer.
func wrapped(text string, width int) []string {
	lines := []string{""}
	for word := range strings.FieldsSeq(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// demonstrate runs a demonstration until it ends or a signal comes, and gives its error an exit
// code.
func demonstrate(cmd *cobra.Command, run func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &exitError{exitSignal + int(syscall.SIGINT), errors.New("interrupted; nothing is left behind")}
	case errors.Is(err, demo.ErrOptions):
		return &exitError{exitUsage, err}
	case fromOutside(err):
		return storeError(err)
	}
	return &exitError{exitInternal, err}
}
