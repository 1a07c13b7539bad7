package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/quorum"
)

func (a *app) redlockCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redlock",
		Short: "Set up a Redlock: several servers that vote",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "init URL",
		Short: "Say that the servers of a Redlock have just been set up",
		Long: `Say that the servers of a Redlock have just been set up. A server that has restarted may
have forgotten who holds which lock, so it does not count until the longest TTL is over
(hf.maxttl in the URL, by default 30s). Servers that are new look the same: without init the
first lock waits for that time.

All servers must answer, and none may show a lock. Never do this while the servers are in use:
if one of them has forgotten a lock, another may get that lock beside its holder.

` + exitCodes,
		Example: `  holdfast redlock init redlock://redis1,redis2,redis3,redis4,redis5`,
		Args:    oneArgument("the URL of all servers"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := parseURL(args[0])
			switch {
			case err != nil:
				return err
			case u.Scheme != "redlock":
				return usagef("the scheme is %s: only the servers of redlock:// are set up so", u.Scheme)
			}
			_, rest, err := storeurl.Take(u)
			if err != nil {
				return usagef("the store URL is wrong: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), openWithin)
			defer cancel()
			d, err := driver.Open(ctx, rest)
			if err != nil {
				return storeError(err)
			}
			if err := errors.Join(quorum.Init(ctx, d), d.Close()); err != nil {
				return storeError(err)
			}
			_, err = fmt.Println("All servers count from now on.")
			return err
		},
	})
	return cmd
}
