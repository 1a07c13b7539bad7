package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/election"
)

// leaderJSON is who leads, in JSON. It is an interface: fields are only added.
type leaderJSON struct {
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
		Long: `Show the value of the leader who holds the office NAME: see elect. If it is vacant nothing
is written, and the exit code is 1; with -o json that too is an object.

With --watch each change is written when it is learnt, the present state first, until
Ctrl-C; a vacancy is "(vacant)". Control and invisible characters of values are written
out as in Go. If the store does not answer this is told on the standard error, and the watch goes on.

Exit codes:
    0   there is a leader
    1   there is none
   64   wrong usage: a flag, a name, a URL, or something that the store cannot do
   69   the store cannot be reached or does not work`,
		Example: `  holdfast leader scheduler
  holdfast leader --watch -o json scheduler | jq -r --unbuffered .value`,
		Args:              nameArgument,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if watch {
				return a.watchLeader(cmd.Context(), args[0])
			}
			return a.look(cmd.Context(), func(ctx context.Context, s *store) error {
				l, err := election.New(s.Client, args[0], nil).Leader(ctx)
				if err != nil {
					return operation(err)
				}
				if a.output == "json" || !l.Vacant {
					if err := a.printLeader(args[0], l); err != nil {
						return err
					}
				}
				if l.Vacant {
					return &exitError{exitFailure, nil}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on, and write every change")
	return cmd
}

// watchLeader writes each change until the user has seen enough.
func (a *app) watchLeader(ctx context.Context, name string) error {
	s, err := a.open(ctx, holdfast.Events{})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	troubled := false
	for l, err := range election.New(s.Client, name, nil).Observe(ctx) {
		switch {
		case errors.Is(err, holdfast.ErrUnsupported):
			return operation(err)
		case err != nil:
			if !troubled {
				complain(fmt.Errorf("who leads is not known at present: %w", err))
			}
			troubled = true
			continue
		}
		troubled = false
		if err := a.printLeader(name, l); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) printLeader(name string, l election.Leader) error {
	if a.output == "json" {
		return printJSON(leaderJSON{name, l.Vacant, l.Value, l.Token})
	}
	text := escape(l.Value)
	if l.Vacant {
		text = "(vacant)"
	}
	_, err := fmt.Println(text)
	return err
}
