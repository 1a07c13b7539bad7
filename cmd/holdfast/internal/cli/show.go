package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a lock, and who waits for it",
		Long: `Show who holds the lock NAME and who waits for it, in the order of the queue if the store
keeps one. A name that nobody uses is free, which is no error. UNLESS RENEWED says how long
the store would keep the hold if the holder died now: a holder that is well renews it again
and again. Control and invisible characters are escaped as in Go. With -o json the object is
the same as that of ls.

` + exitCodes,
		Example: `  holdfast show nightly-backup
  holdfast show nightly-backup -o json | jq '.holders[].token'`,
		Args:              nameArgument,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd.Context(), func(ctx context.Context, s *store) error {
				info, err := s.Inspect(ctx, args[0])
				if err != nil {
					return operationError(err)
				}
				if a.output == "json" {
					return printJSON(infoAsJSON(info))
				}
				return showTables(os.Stdout, info)
			})
		},
	}
}

func showTables(w io.Writer, info holdfast.Info) error {
	state := stateText(info)
	if info.ClosedFor > 0 {
		state += ", closed for another " + durationText(info.ClosedFor)
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", escape(info.Name), state); err != nil {
		return err
	}
	if len(info.Holders) > 0 {
		t := newTable("HOLDER", "HELD", "TOKEN", "FOR", "UNLESS RENEWED")
		for _, h := range info.Holders {
			t.add(h.Note, modeText(h.Mode, h.Permits, info.Slots), tokenText(h),
				sinceText(h), endsText(h))
		}
		fmt.Fprintln(w)
		if err := t.write(w); err != nil {
			return err
		}
	}
	if len(info.Waiters) > 0 {
		t := newTable("WAITER", "WANTS", "FOR")
		for _, q := range info.Waiters {
			waiting := "-"
			if q.Waiting > 0 {
				waiting = durationText(q.Waiting)
			}
			t.add(q.Note, modeText(q.Mode, q.Permits, info.Slots), waiting)
		}
		fmt.Fprintln(w)
		return t.write(w)
	}
	return nil
}
