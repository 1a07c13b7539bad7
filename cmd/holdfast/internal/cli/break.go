package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

func (a *app) breakCommand() *cobra.Command {
	var token int64
	cmd := &cobra.Command{
		Use:   "break NAME --token T",
		Short: "End somebody's hold on a lock",
		Long: `End the hold on NAME that has the token T, and print which hold was broken. Show and ls
print the token. A later hold than the one that you saw has another token, and is never
broken: then the exit code is 1, and who holds NAME now is printed.

The lock is free at once. holdfast run and elect learn of the break within a second, and
kill their command. Other programs learn of it from the store, or at their next renewal (with
the default TTL within 10s), and those with Redisson when they release it. Until then two
holders may run. So break a hold only if its holder is dead, or if the resource checks tokens.

` + exitCodes,
		Example: `  holdfast show deploy/shop
  holdfast break deploy/shop --token 1718031337123456`,
		Args:              nameArgument,
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, t := args[0], holdfast.Token(token)
			switch {
			case !cmd.Flags().Changed("token"):
				return usagef("the token of the hold to break is missing: " +
					"see holdfast show, and give it by --token")
			case t <= 0:
				return usagef("--token is %d: no hold has such a token; see holdfast show", t)
			}
			return a.withStore(cmd.Context(), func(ctx context.Context, s *store) error {
				// Before the break: afterwards the hold is gone.
				info, err := s.Inspect(ctx, name)
				if err != nil {
					return operationError(err)
				}
				err = s.Break(ctx, name, t)
				if errors.Is(err, holdfast.ErrNotHeld) {
					return notBroken(name, t, info)
				}
				if err != nil {
					return operationError(err)
				}
				return a.printBroken(info, t)
			})
		},
	}
	cmd.Flags().Int64Var(&token, "token", 0, "the `token` of the hold to break")
	return cmd
}

// notBroken says that no hold has the token, and who holds the name now.
func notBroken(name string, t holdfast.Token, info holdfast.Info) error {
	why := fmt.Sprintf("nobody holds %q", name)
	for i, h := range info.Holders {
		cells := holderCells(h)
		text := fmt.Sprintf("%q has held it for %s, with token %s", h.Note, cells[2], cells[1])
		if h.Token == 0 {
			text = fmt.Sprintf("%q has it, without a token: it cannot be broken", h.Note)
		}
		switch {
		case h.Token == t: // it ended after the name was inspected
			return &exitError{exitFailure, fmt.Errorf("nothing was broken: the hold on %q with token %d has just ended", name, t)}
		case i == 0:
			why = fmt.Sprintf("no hold on %q has the token %d: %s", name, t, text)
		default:
			why += ", " + text
		}
	}
	return &exitError{exitFailure, errors.New("nothing was broken: " + why)}
}

// printBroken prints the hold that was broken.
func (a *app) printBroken(info holdfast.Info, t holdfast.Token) error {
	broken := driver.Holder{Token: t}
	for _, h := range info.Holders {
		if h.Token == t {
			broken = h
		}
	}
	if a.output == "json" {
		return printJSON(struct {
			Name   string     `json:"name"`
			Broken holderJSON `json:"broken"`
		}{info.Name, holderAsJSON(broken)})
	}
	_, err := fmt.Printf("broke %s: %s, held by %s for %s, token %d\n",
		escape(info.Name), modeText(broken.Mode, broken.Permits, info.Slots), escape(broken.Note), durationText(broken.Held), t)
	return err
}
