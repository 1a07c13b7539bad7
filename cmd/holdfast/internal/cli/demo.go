package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo"
)

func (a *app) demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a flash sale going wrong without a lock, and right with one",
		Long: `Run a real flash sale: four order services, each a process of its own, sell three items from
a file of SQLite to a hundred users. They do so without a lock, with a lock, with a lock whose
holder is stopped in the middle, and once more with the lock's fencing token checked. What went
wrong is counted in the database afterwards; nothing is staged. The locks are kept in a
temporary directory unless --store or ` + storeEnv + ` names a store.

With -o json it prints an array with an object for each strategy:
    {"strategy", "what", "stock", "sold", "oversold", "stale_refused"}

` + exitCodes,
		Example: `  holdfast demo
  holdfast demo --store redis://localhost:6379
  holdfast demo cron --ticks 20 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demonstrate(cmd, demo.Sale, 0) },
	}
	var ticks int
	cron := &cobra.Command{
		Use:   "cron",
		Short: "Show a cron job of three replicas running more than once, and once",
		Long: `Run a job that three replicas start at each tick, by clocks that differ a little. They use a
plain lock, which is free again when a late replica comes, and then a minimum hold.

` + exitCodes,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ticks < 1 {
				return usagef("--ticks is %d: at least 1 is needed", ticks)
			}
			return a.demonstrate(cmd, demo.Cron, ticks)
		},
	}
	cron.Flags().IntVar(&ticks, "ticks", 12, "how often the job is due")
	cmd.AddCommand(cron)
	return cmd
}

// demonstrate runs a demonstration until it ends or a signal comes, and gives its error an exit code. Without
// a named store the demonstration makes its own rather than use the default store.
func (a *app) demonstrate(cmd *cobra.Command, show func(context.Context, demo.Options) error, ticks int) error {
	store, err := a.namedStore()
	if err == nil && store != "" {
		_, err = a.parseStore()
	}
	if err != nil {
		return err
	}
	o := demo.Options{Store: store, JSON: a.output == "json", Out: os.Stdout, Progress: os.Stderr, Ticks: ticks}
	if a.quiet {
		o.Progress = io.Discard
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch err = show(ctx, o); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &exitError{exitSignal + int(syscall.SIGINT), errors.New("interrupted; nothing is left behind")}
	case errors.Is(err, holdfast.ErrUnsupported):
		return &exitError{exitUsage, err}
	case fromOutside(err):
		return storeError(err)
	}
	return &exitError{exitInternal, err}
}
