package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/display"
)

func (a *app) lsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks in use",
		Long: `List the names that are held, waited for or closed, one per line. With PREFIX, list only
names that begin with it. The table shows the first holder of each name. Its column UNLESS
RENEWED says how long the store would keep the hold if the holder died now: a holder that is
well renews it again and again. FOR is since when it has been there: in etcd and ZooKeeper since it
began to wait. Control and invisible characters are escaped as in Go. With -o json all holders
and waiters are listed.

` + exitCodes,
		Example: `  holdfast ls
  holdfast ls deploy/
  holdfast ls -o json | jq -r 'select(.waiters != []) | .name'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "")
			return a.withStore(cmd.Context(), func(ctx context.Context, s *store) error {
				infos, err := s.list(ctx, prefix)
				if err != nil {
					return operationError(err)
				}
				return a.printList(infos, prefix)
			})
		},
	}
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

func (a *app) printList(infos []holdfast.Info, prefix string) error {
	l := a.list("NAME", "HELD", "HOLDER", "TOKEN", "FOR", "UNLESS RENEWED", "WAITING")
	for _, info := range infos {
		row := []string{"-", "-", "-", "-"}
		if len(info.Holders) > 0 {
			row = holderCells(info.Holders[0])
		} else if info.ClosedFor > 0 {
			row[3] = "opens in " + display.Duration(info.ClosedFor)
		}
		l.add(infoAsJSON(info), info.Name, display.State(info), row[0], row[1], row[2], row[3], strconv.Itoa(len(info.Waiters)))
	}
	if prefix != "" {
		return l.print(fmt.Sprintf("no lock whose name begins with %q is in use", prefix))
	}
	return l.print("no locks are in use")
}

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a lock, and who waits for it",
		Long: `Show who holds the lock NAME and who waits for it, in the order of the queue if the store
keeps one. A name that nobody uses is free, which is no error. The columns are those of ls, and
with -o json the object is the same.

` + exitCodes,
		Example: `  holdfast show nightly-backup
  holdfast show nightly-backup -o json | jq '.holders[].token'`,
		Args: nameArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd.Context(), func(ctx context.Context, s *store) error {
				info, err := s.Inspect(ctx, args[0])
				if err != nil {
					return operationError(err)
				}
				if a.output == "json" {
					return printJSON(infoAsJSON(info))
				}
				return a.printInfo(info)
			})
		},
	}
}

func (a *app) printInfo(info holdfast.Info) error {
	state := display.State(info)
	if info.ClosedFor > 0 {
		state += ", closed for another " + display.Duration(info.ClosedFor)
	}
	if _, err := fmt.Printf("%s: %s\n", display.Escape(info.Name), state); err != nil {
		return err
	}
	holders := a.list("HOLDER", "HELD", "TOKEN", "FOR", "UNLESS RENEWED")
	for _, h := range info.Holders {
		cells := holderCells(h)
		holders.add(nil, cells[0], display.Mode(h.Mode, h.Permits, info.Slots), cells[1], cells[2], cells[3])
	}
	waiters := a.list("WAITER", "WANTS", "FOR")
	for _, q := range info.Waiters {
		waiters.add(nil, q.Note, display.Mode(q.Mode, q.Permits, info.Slots), display.Duration(q.Waiting))
	}
	for _, l := range []*list{holders, waiters} {
		if len(l.rows) == 1 {
			continue
		}
		fmt.Println()
		if err := l.print(""); err != nil {
			return err
		}
	}
	return nil
}

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
		Args: nameArgument,
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
	var holders []string
	for _, h := range info.Holders {
		if h.Token == t {
			return &exitError{exitFailure, fmt.Errorf("nothing was broken: the hold on %q with token %d has just ended", name, t)}
		}
		cells := holderCells(h)
		holders = append(holders, fmt.Sprintf("%q has held it for %s, with token %s", h.Note, cells[2], cells[1]))
	}
	if holders == nil {
		return &exitError{exitFailure, fmt.Errorf("nothing was broken: nobody holds %q", name)}
	}
	return &exitError{exitFailure, fmt.Errorf("nothing was broken: no hold on %q has the token %d: %s", name, t, strings.Join(holders, ", "))}
}

// printBroken prints the hold that was broken.
func (a *app) printBroken(info holdfast.Info, t holdfast.Token) error {
	broken := driver.Holder{Token: t}
	if i := slices.IndexFunc(info.Holders, func(h driver.Holder) bool { return h.Token == t }); i >= 0 {
		broken = info.Holders[i]
	}
	if a.output == "json" {
		return printJSON(struct {
			Name   string     `json:"name"`
			Broken holderJSON `json:"broken"`
		}{info.Name, holderAsJSON(broken)})
	}
	_, err := fmt.Printf("broke %s: %s, held by %s for %s, token %d\n",
		display.Escape(info.Name), display.Mode(broken.Mode, broken.Permits, info.Slots), display.Escape(broken.Note), display.Duration(broken.Held), t)
	return err
}

// holderCells returns a hold's note, its token, for how long it has been there, and when it ends if its
// holder does not renew it any more, as far as these are known.
func holderCells(h driver.Holder) []string {
	cells := []string{h.Note, "-", display.Duration(h.Held), "-"}
	if h.Token != 0 {
		cells[1] = fmt.Sprint(h.Token)
	}
	if h.Expires != 0 {
		cells[3] = "ends in " + display.Duration(h.Expires)
	}
	return cells
}

// The JSON form of a name's state. It is an interface: fields may be added, and none changes.
type (
	infoJSON struct {
		Name      string       `json:"name"`
		Mode      string       `json:"mode,omitempty"` // in which it is held, or wanted by waiters
		Slots     int          `json:"slots,omitempty"`
		Holders   []holderJSON `json:"holders"`
		Waiters   []waiterJSON `json:"waiters"`
		ClosedFor seconds      `json:"closed_for_seconds,omitempty"`
	}
	holderJSON struct { // without the owner: whoever knows an owner could release the hold
		Mode    string         `json:"mode"`
		Permits int            `json:"permits,omitempty"`
		Token   holdfast.Token `json:"token"`
		Note    string         `json:"note"`
		Held    seconds        `json:"held_seconds"`
		Expires seconds        `json:"expires_seconds"`
	}
	waiterJSON struct {
		Mode    string  `json:"mode"`
		Permits int     `json:"permits,omitempty"`
		Note    string  `json:"note"`
		Waiting seconds `json:"waiting_seconds"`
	}
)

// seconds is a duration in JSON: a number, rounded to milliseconds.
type seconds float64

func inSeconds(d time.Duration) seconds { return seconds(d.Round(time.Millisecond).Seconds()) }

func infoAsJSON(info holdfast.Info) infoJSON {
	j := infoJSON{Name: info.Name, Slots: info.Slots, ClosedFor: inSeconds(info.ClosedFor), Holders: []holderJSON{}, Waiters: []waiterJSON{}}
	for _, h := range info.Holders {
		j.Holders = append(j.Holders, holderAsJSON(h))
		j.Mode = j.Holders[0].Mode
	}
	for _, w := range info.Waiters {
		j.Waiters = append(j.Waiters, waiterJSON{w.Mode.String(), w.Permits, w.Note, inSeconds(w.Waiting)})
		j.Mode = cmp.Or(j.Mode, w.Mode.String())
	}
	return j
}

func holderAsJSON(h driver.Holder) holderJSON {
	return holderJSON{h.Mode.String(), h.Permits, h.Token, h.Note, inSeconds(h.Held), inSeconds(h.Expires)}
}
