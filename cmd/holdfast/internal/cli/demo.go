package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo"
)

// demoStore is the store that a demonstration was asked to use, or "" for one
// of its own: it never uses the user's default one.
func (a *app) demoStore() string { return cmp.Or(a.store, os.Getenv(storeEnv)) }

func (a *app) demoCommand() *cobra.Command {
	var strategies strings.Builder
	names, what := demo.Strategies()
	for i, name := range names {
		fmt.Fprintf(&strategies, "  %-24s %s\n", name, what[i])
	}
	o := demo.Options{Out: os.Stdout, Progress: os.Stderr}
	cmd := &cobra.Command{
		Use:   "demo [STRATEGY...]",
		Short: "Show a flash sale going wrong without a lock, and right with one",
		Long: `Run a flash sale for real: three order services as processes of their own, a
hundred users who want one item each, three items in stock, in an SQL database.
Each way to sell is run a few times, and counted from the database afterwards.

The ways to sell:
` + strategies.String() + `
Nothing is staged: a way that did not go wrong this time says so, with its odds.
Locks are kept in a directory of the demonstration's own unless --store or
` + storeEnv + ` names a store. The stock is kept in a file of SQLite; if the store is in
PostgreSQL or MySQL, it is there too, in a schema that is made for it and dropped
afterwards (holdfast_demo_...). It takes at most about 45 seconds.

With -o json it prints one array with an object for each way:
    {"strategy", "stock", "sold", "oversold", "user_violations", "seconds",
     "sales_per_second", "stale_refused", "runs", "oversold_runs", ...}

` + exitCodes,
		Example: `  holdfast demo
  holdfast demo none lock -o json
  holdfast demo lock for-update --store postgres://localhost/app
  holdfast demo cron`,
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Store, o.JSON, o.Strategies = a.demoStore(), a.output == "json", args
			return demonstrate(cmd, func(cmd *cobra.Command) error { return demo.Run(cmd.Context(), o) })
		},
	}
	cmd.Flags().IntVar(&o.Users, "users", 0, "how many users want an item (default 100)")
	cmd.Flags().IntVar(&o.Stock, "stock", 0, "how many items there are (default 3)")
	cmd.Flags().IntVar(&o.Services, "services", 0, "how many order services there are (default 3)")
	cmd.Flags().IntVar(&o.Repeats, "repeats", 0, "how often each way is run at most (default 3)")
	cmd.AddCommand(a.demoCronCommand())
	return cmd
}

func (a *app) demoCronCommand() *cobra.Command {
	o := demo.CronOptions{Out: os.Stdout, Progress: os.Stderr}
	cmd := &cobra.Command{
		Use:   "cron",
		Short: "Show a cron job of three replicas running more than once, and once",
		Long: `Run a job for real that three replicas start at each tick, on clocks that differ a
little: behind a plain lock, which is free again when the slowest replica comes, and
behind one with a minimum hold (holdfast run --min-hold).

` + exitCodes,
		Example: `  holdfast demo cron
  holdfast demo cron --ticks 20 -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Store, o.JSON = a.demoStore(), a.output == "json"
			return demonstrate(cmd, func(cmd *cobra.Command) error { return demo.Cron(cmd.Context(), o) })
		},
	}
	cmd.Flags().IntVar(&o.Ticks, "ticks", 0, "how often the job is due (default 12)")
	return cmd
}

// demonstrate runs a demonstration until it ends or a signal comes, which it
// then tells as a shell would.
func demonstrate(cmd *cobra.Command, run func(*cobra.Command) error) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	cmd.SetContext(ctx)
	err := run(cmd)
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
