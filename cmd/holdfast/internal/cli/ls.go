package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

func (a *app) lsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks in use",
		Long: `List the names that are held, waited for or closed, one per line. With PREFIX, list only
names that begin with it. The table escapes control and invisible characters as Go does, and
shows the first holder of each name. Its column UNLESS RENEWED says how long the store would
keep the hold if the holder died now: a holder that is well renews it again and again.
With -o json all holders and waiters are listed.

` + exitCodes,
		Example: `  holdfast ls
  holdfast ls deploy/
  holdfast ls -o json | jq -r 'select(.waiters != []) | .name'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%d arguments are given: at most one is needed, the beginning of the names", len(args))
			}
			return nil
		},
		ValidArgsFunction: a.completeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) == 1 {
				prefix = args[0]
			}
			return a.withStore(cmd.Context(), func(ctx context.Context, s *store) error {
				infos, err := s.list(ctx, prefix)
				if err != nil {
					return operationError(err)
				}
				if a.output == "json" {
					for _, info := range infos {
						if err := printJSON(infoAsJSON(info)); err != nil {
							return err
						}
					}
					return nil
				}
				if len(infos) == 0 {
					a.hint(noLocks(prefix))
					return nil
				}
				return lsTable(infos).write(os.Stdout)
			})
		},
	}
}

// noLocks says that no name in use begins with a prefix.
func noLocks(prefix string) string {
	if prefix == "" {
		return "no locks are in use"
	}
	return fmt.Sprintf("no lock whose name begins with %q is in use", prefix)
}

// list returns the names in use, sorted.
func (s *store) list(ctx context.Context, prefix string) ([]holdfast.Info, error) {
	var infos []holdfast.Info
	for info, err := range s.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(x, y holdfast.Info) int { return cmp.Compare(x.Name, y.Name) })
	return infos, nil
}

func lsTable(infos []holdfast.Info) *table {
	t := newTable("NAME", "HELD", "HOLDER", "TOKEN", "FOR", "UNLESS RENEWED", "WAITING")
	for _, info := range infos {
		held, holder, token, since, ends := stateText(info), "-", "-", "-", "-"
		if len(info.Holders) > 0 {
			h := info.Holders[0]
			holder, token, since, ends = h.Note, tokenText(h), sinceText(h), endsText(h)
		} else if info.ClosedFor > 0 {
			ends = "opens in " + durationText(info.ClosedFor)
		}
		t.add(info.Name, held, holder, token, since, ends, strconv.Itoa(len(info.Waiters)))
	}
	return t
}

// endsText says when a hold ends if its holder does not renew it any more, as far as is known.
func endsText(h driver.Holder) string {
	if h.Expires == 0 {
		return "-"
	}
	return "ends in " + durationText(h.Expires)
}

// sinceText says for how long a hold has been there, as far as is known.
func sinceText(h driver.Holder) string {
	if h.Held == 0 {
		return "-"
	}
	return durationText(h.Held)
}

// tokenText returns the token of a hold, or by what an operator knows it; of the hold of a program that has
// no tokens there is neither.
func tokenText(h driver.Holder) string {
	if h.Token == 0 {
		return "-"
	}
	return strconv.FormatInt(int64(h.Token), 10)
}

// stateText says in a word or two how a name is held.
func stateText(info holdfast.Info) string {
	switch n := len(info.Holders); {
	case n == 0 && info.ClosedFor > 0:
		return "closed"
	case n == 0:
		return "free"
	case info.Holders[0].Mode == driver.Slot:
		permits := 0
		for _, h := range info.Holders {
			permits += h.Permits
		}
		return fmt.Sprintf("%d of %d", permits, info.Slots)
	case n > 1:
		return fmt.Sprintf("%v ×%d", info.Holders[0].Mode, n)
	}
	return info.Holders[0].Mode.String()
}

// completeNames completes names in the shell, from those in use.
func (a *app) completeNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	_ = a.withStore(cmd.Context(), func(ctx context.Context, s *store) error {
		infos, err := s.list(ctx, prefix)
		for _, info := range infos {
			if escape(info.Name) == info.Name { // the others could confuse the terminal
				names = append(names, info.Name)
			}
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
