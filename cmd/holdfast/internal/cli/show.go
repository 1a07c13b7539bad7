package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a lock, and who waits for it",
		Long: `Show who holds the lock NAME and who waits for it, in the order of the queue where the
store keeps one. A name that nobody uses is free, which is no error. Control and
invisible characters are written out as in Go. With -o json the object is that of ls.

` + exitCodes,
		Example: `  holdfast show nightly-backup
  holdfast show nightly-backup -o json | jq '.holders[].token'`,
		Args:              nameArgument,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.look(cmd.Context(), func(ctx context.Context, s *store) error {
				info, err := s.Inspect(ctx, args[0])
				if err != nil {
					return operation(err)
				}
				if a.output == "json" {
					return printJSON(toJSON(info))
				}
				return showTables(os.Stdout, info, outputWidth())
			})
		},
	}
}

func showTables(w io.Writer, info holdfast.Info, width int) error {
	state := heldAs(info)
	if info.ClosedFor > 0 {
		state += ", closed for another " + short(info.ClosedFor)
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", escape(info.Name), state); err != nil {
		return err
	}
	if len(info.Holders) > 0 {
		t := &table{columns: []column{
			{title: "HOLDER", shrinks: true}, {title: "HELD", drop: 2}, {title: "TOKEN"}, {title: "FOR", drop: 1}, {title: "EXPIRES", drop: 3},
		}}
		for _, h := range info.Holders {
			t.add(escape(h.Note), ofSlots(h.Mode, h.Permits, info.Slots), strconv.FormatInt(int64(h.Token), 10), short(h.Held), "in "+short(h.Expires))
		}
		fmt.Fprintln(w)
		if err := t.write(w, width); err != nil {
			return err
		}
	}
	if len(info.Waiters) > 0 {
		t := &table{columns: []column{{title: "WAITER", shrinks: true}, {title: "WANTS", drop: 2}, {title: "FOR", drop: 1}}}
		for _, q := range info.Waiters {
			waiting := "-"
			if q.Waiting > 0 {
				waiting = short(q.Waiting)
			}
			t.add(escape(q.Note), ofSlots(q.Mode, q.Permits, info.Slots), waiting)
		}
		fmt.Fprintln(w)
		return t.write(w, width)
	}
	return nil
}
