package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/election"
	"github.com/holdfastlock/holdfast/internal/display"
)

// leaderJSON is the JSON form of a leader. It is an interface: fields may be added, and none
// changes.
type leaderJSON struct {
	Time   string         `json:"time,omitempty"` // when this was seen, with --watch
	Name   string         `json:"name"`
	Vacant bool           `json:"vacant"`
	Value  string         `json:"value,omitempty"`
	Token  holdfast.Token `json:"token,omitempty"`
}

func (a *app) leaderCommand() *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use:   "leader NAME",
		Short: "Show who is elected",
		Long: `Show the value of the leader who holds the office NAME: see elect. If the office is vacant,
nothing is printed, and the exit code is 1; with -o json an object is printed then too.

With --watch the present state is printed, and then each change, until Ctrl-C, each after
the time at which this host saw it. A vacancy is "(vacant)". Control and invisible
characters of values are escaped as in Go. If the store does not answer, that is printed to
the standard error, and the watch goes on.

` + exitCodes,
		Example: `  holdfast leader scheduler
  holdfast leader --watch -o json scheduler | jq -r --unbuffered .value`,
		Args: nameArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch {
				return a.watchLeader(cmd.Context(), args[0])
			}
			return a.withStore(cmd.Context(), func(ctx context.Context, s *store) error {
				l, err := election.New(s.Client, args[0], nil).Leader(ctx)
				if err != nil {
					return operationError(err)
				}
				if a.output == "json" || !l.Vacant {
					err = a.printLeader(args[0], l, time.Time{})
				}
				if err == nil && l.Vacant {
					err = &exitError{exitFailure, nil}
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on, and print every change")
	return cmd
}

// watchLeader prints each change until the user ends it by Ctrl-C.
func (a *app) watchLeader(ctx context.Context, name string) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	failing := false // the store does not answer, and the user has been told
	for l, err := range election.New(s.Client, name, nil).Observe(ctx) {
		switch {
		case errors.Is(err, holdfast.ErrUnsupported):
			return operationError(err)
		case err == nil:
			err = a.printLeader(name, l, time.Now())
			if failing = false; err != nil {
				return err
			}
		case !failing:
			complain(fmt.Errorf("the leader is not known at present: %w", err))
			failing = true
		}
	}
	return nil
}

// printLeader prints a leader, and when it was seen unless that is zero.
func (a *app) printLeader(name string, l election.Leader, seen time.Time) error {
	if a.output == "json" {
		j := leaderJSON{Name: name, Vacant: l.Vacant, Value: l.Value, Token: l.Token}
		if !seen.IsZero() {
			j.Time = seen.Format(time.RFC3339Nano)
		}
		return printJSON(j)
	}
	text := display.Escape(l.Value)
	if l.Vacant {
		text = "(vacant)"
	}
	if !seen.IsZero() {
		text = seen.Format("2006-01-02 15:04:05.000") + "  " + text
	}
	_, err := fmt.Println(text)
	return err
}
