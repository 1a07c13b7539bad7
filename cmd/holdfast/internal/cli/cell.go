package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/celllock"
)

func (a *app) cellCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cell",
		Short: "Operate a cell: its members, sessions and backups",
		Long: `Operate a cell, the lock service that 'holdfast serve' runs. The store must be a cell:
--store cell://HOST:PORT, or HOLDFAST_STORE. Name all members in it, and each is looked at.`,
	}
	return withExitCodes(cmd, a.cellStatusCommand(), a.cellMembersCommand(), a.cellAddCommand(), a.cellRemoveCommand(),
		a.cellBackupCommand(), a.cellRestoreCommand(), a.cellSessionsCommand(), a.cellKillCommand())
}

// withExitCodes adds commands of a cell to the one above them, and to their help texts what they exit with.
func withExitCodes(above *cobra.Command, all ...*cobra.Command) *cobra.Command {
	for _, cmd := range all {
		cmd.Long += "\n\n" + cellExitCodes
	}
	above.AddCommand(all...)
	return above
}

// cellStore is a cell that commands speak to as such, and not as a store of locks.
type cellStore struct {
	*cell.Client
	prefix string // of the URL; "" or with a slash at its end
}

// openCell returns a client of the cell that the store URL names. It makes no contact.
func (a *app) openCell() (*cellStore, error) {
	u, err := a.parseStore()
	if err != nil {
		return nil, err
	}
	if u.Scheme != "cell" && u.Scheme != "cells" {
		return nil, usagef("the store is %s: this is for a cell, cell://HOST:PORT", u.Scheme+"://")
	}
	config, prefix, err := celllock.Config(u)
	if err != nil {
		return nil, usagef("the store URL is wrong: %w", err)
	}
	c, err := cell.New(config)
	if err != nil {
		return nil, usagef("the store URL is wrong: %w", err)
	}
	if prefix != "" {
		prefix += "/"
	}
	return &cellStore{c, prefix}, nil
}

// withCell calls a function with a client of the cell, within the time that commands have.
func (a *app) withCell(ctx context.Context, do func(context.Context, *cellStore) error) error {
	c, err := a.openCell()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	return do(ctx, c)
}

// inCell is withCell for a command.
func (a *app) inCell(do func(context.Context, *cellStore, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return a.withCell(cmd.Context(), func(ctx context.Context, c *cellStore) error { return do(ctx, c, args) })
	}
}

// in returns a path as the cell has it, and out one as the user has it.
func (c *cellStore) in(path string) string  { return c.prefix + path }
func (c *cellStore) out(path string) string { return strings.TrimPrefix(path, c.prefix) }

// cellExitCodes is the table for the help texts of cell and files.
const cellExitCodes = `Exit codes:
    0   done
    1   the cell refused: no such file or session, a file of another generation, or one with files
        below it; or a member that the store URL names does not answer or is not well
   64   wrong usage: a flag, an argument, a URL, or something that the principal may not do
   69   the cell cannot be reached or does not work
   70   something else failed on this host`

// cellError returns an error of a call to the cell.
func cellError(err error) error {
	reason := cell.ReasonOf(err)
	is := func(known ...error) bool {
		return slices.ContainsFunc(known, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case err == nil:
		return nil
	case reason == cellv1.Reason_REASON_REFUSED, reason == cellv1.Reason_REASON_SESSION_OVER,
		is(cell.ErrNoNode, cell.ErrChanged, cell.ErrHasChildren):
		return &exitError{exitFailure, err}
	case reason == cellv1.Reason_REASON_FORBIDDEN, reason == cellv1.Reason_REASON_INVALID, is(cell.ErrForbidden):
		return usagef("%w", err)
	}
	return storeError(err)
}

// askWithin is how long a member may take to say how it is.
const askWithin = 3 * time.Second

// statusJSON is the JSON form of a member's status. It is an interface: fields may be added.
type statusJSON struct {
	Address   string `json:"address"`
	Error     string `json:"error,omitempty"`
	Cell      string `json:"cell,omitempty"`
	Member    string `json:"member,omitempty"`
	Leads     bool   `json:"leads"`
	Leader    string `json:"leader,omitempty"`
	Version   string `json:"version,omitempty"`
	Revision  int64  `json:"revision,omitempty"`
	Size      int64  `json:"size,omitempty"`
	SizeInUse int64  `json:"size_in_use,omitempty"`
	Sessions  int32  `json:"sessions"`
	Names     int32  `json:"names"`
	Nodes     int32  `json:"nodes"`
	Shortage  string `json:"shortage,omitempty"`
}

func statusAsJSON(s cell.MemberStatus) statusJSON {
	if s.Err != nil {
		return statusJSON{Address: s.Address, Error: oneLine(s.Err)}
	}
	r := s.Status
	return statusJSON{
		Address: s.Address, Cell: r.Cell, Member: r.Member, Leads: r.Leader == r.Member, Leader: r.Leader, Version: r.Version,
		Revision: r.Revision, Size: r.Size, SizeInUse: r.SizeInUse, Sessions: r.Sessions, Names: r.Names, Nodes: r.Nodes,
		Shortage: r.Shortage,
	}
}

func (a *app) cellStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show how the members are",
		Long: `Ask each member that the store URL names how it is. A member that is behind has a smaller
REVISION than the others.`,
		Example: `  holdfast cell status --store cells://a,b,c`,
		Args:    cobra.NoArgs,
		RunE: a.inCell(func(ctx context.Context, c *cellStore, _ []string) error {
			ctx, cancel := context.WithTimeout(ctx, askWithin)
			defer cancel()
			said := c.Statuses(ctx)
			if err := a.printStatuses(said); err != nil {
				return err
			}
			return unwell(said)
		}),
	}
}

func (a *app) printStatuses(said []cell.MemberStatus) error {
	l := a.list("ADDRESS", "MEMBER", "STATE", "REVISION", "SIZE", "SESSIONS", "LOCKS", "FILES", "VERSION")
	for _, s := range said {
		row := []string{s.Address, "", "does not answer"}
		if r := s.Status; s.Err == nil {
			state := "follows " + r.Leader
			if r.Leader == r.Member {
				state = "leads"
			} else if r.Leader == "" {
				state = "no leader"
			}
			row = []string{s.Address, r.Member, state, fmt.Sprint(r.Revision), sizeText(r.Size),
				fmt.Sprint(r.Sessions), fmt.Sprint(r.Names), fmt.Sprint(r.Nodes), r.Version}
		}
		if err := l.add(statusAsJSON(s), row...); err != nil {
			return err
		}
	}
	return l.print("")
}

// unwell is the error of members that do not answer, have no leader, or have too little space.
func unwell(said []cell.MemberStatus) error {
	var silent, headless, short []string
	var last error
	for _, s := range said {
		switch {
		case s.Err != nil:
			silent, last = append(silent, s.Address), s.Err
		case s.Status.Leader == "":
			headless = append(headless, s.Address)
		case s.Status.Shortage != "":
			short = append(short, s.Status.Shortage)
		}
	}
	switch {
	case len(silent) == len(said):
		return storeError(fmt.Errorf("no member answers: %w", last))
	case len(silent) > 0:
		return &exitError{exitFailure, fmt.Errorf("no answer from %s: %w", strings.Join(silent, ", "), last)}
	case len(headless) > 0:
		return &exitError{exitFailure, fmt.Errorf("%s know no leader: a majority of the members must run", strings.Join(headless, ", "))}
	case len(short) > 0:
		return &exitError{exitFailure, fmt.Errorf("nobody gets anything new: %s", strings.Join(short, "; "))}
	}
	return nil
}

// sizeText returns a number of bytes in a form that is easy to read.
func sizeText(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func (a *app) cellMembersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "members",
		Short: "List the members",
		Long: `List the members that the cell has, whether they run or not. One that has not caught up yet
learns, and does not count.`,
		Example: `  holdfast cell members`,
		Args:    cobra.NoArgs,
		RunE: a.inCell(func(ctx context.Context, c *cellStore, _ []string) error {
			r, err := cell.Ask(ctx, c.Client, true, func(ctx context.Context, m *cell.Member) (*cellv1.StatusResponse, error) {
				return m.Cell.Status(ctx, &cellv1.StatusRequest{})
			})
			if err != nil {
				return cellError(err)
			}
			return a.printMembers(r.Members)
		}),
	}
}

// memberJSON is the JSON form of a member. It is an interface: fields may be added.
type memberJSON struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peer_url"`
	Learner bool   `json:"learner,omitempty"`
}

func (a *app) printMembers(members []*cellv1.Member) error {
	l := a.list("MEMBER", "PEER URL", "STATE", "ID")
	for _, m := range members {
		state := "counts"
		switch {
		case m.Name == "":
			state = "to be started"
		case m.Learner:
			state = "learns"
		}
		if err := l.add(memberJSON{m.Id, m.Name, m.PeerUrl, m.Learner}, m.Name, m.PeerUrl, state, m.Id); err != nil {
			return err
		}
	}
	return l.print("")
}

func (a *app) cellAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "add PEER-URL",
		Short: "Make room for another member",
		Long: `Tell the cell of another member, which the others will find at PEER-URL. Start it then with
'holdfast serve --join'. It counts once it has caught up.

To replace a member whose data are lost, remove it first, and start the new one with an empty
directory.`,
		Example: `  holdfast cell add https://10.0.0.4:7434`,
		Args:    oneArgument("the URL at which the other members will find it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeMembers(cmd.Context(), func(ctx context.Context, m *cell.Member) ([]*cellv1.Member, error) {
				r, err := m.Cell.Add(ctx, &cellv1.AddRequest{PeerUrl: args[0]})
				if err == nil {
					a.hint("start it on its host: holdfast serve --join --name NAME, with --member for each of these and for itself")
				}
				return r.GetMembers(), err
			})
		},
	}
}

func (a *app) cellRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove MEMBER",
		Short: "Take a member out of the cell",
		Long: `Take a member out of the cell for good, by its name or its id. It stops, and its data are of no
more use.`,
		Example: `  holdfast cell remove c`,
		Args:    oneArgument("the member's name or id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeMembers(cmd.Context(), func(ctx context.Context, m *cell.Member) ([]*cellv1.Member, error) {
				r, err := m.Cell.Remove(ctx, &cellv1.RemoveRequest{Member: args[0]})
				return r.GetMembers(), err
			})
		},
	}
}

// changeMembers makes a call that changes the members, and prints them.
func (a *app) changeMembers(ctx context.Context, call func(context.Context, *cell.Member) ([]*cellv1.Member, error)) error {
	return a.withCell(ctx, func(ctx context.Context, c *cellStore) error {
		members, err := cell.Ask(ctx, c.Client, false, call)
		if err != nil {
			return cellError(err)
		}
		return a.printMembers(members)
	})
}

// sessionJSON is the JSON form of a session. It is an interface: fields may be added.
type sessionJSON struct {
	ID          string `json:"id"`
	Principal   string `json:"principal,omitempty"`
	Note        string `json:"note,omitempty"`
	TTLMS       int64  `json:"ttl_ms"`
	LockDelayMS int64  `json:"lock_delay_ms,omitempty"`
	OpenMS      int64  `json:"open_ms"`
	Holds       int32  `json:"holds"`
	Places      int32  `json:"places"`
}

func (a *app) cellSessionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions of clients",
		Long: `List the sessions that clients have with the cell: for how long each has been open, its TTL, how
many locks it holds, and in how many queues it waits.`,
		Example: `  holdfast cell sessions
  holdfast cell sessions -o json | jq -r 'select(.holds > 100) | .id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withCell(cmd.Context(), a.listSessions)
		},
	}
}

func (a *app) listSessions(ctx context.Context, c *cellStore) error {
	l := a.list("SESSION", "PRINCIPAL", "NOTE", "OPEN FOR", "TTL", "HOLDS", "PLACES")
	for after, more := "", true; more; {
		r, err := cell.Ask(ctx, c.Client, true, func(ctx context.Context, m *cell.Member) (*cellv1.SessionsListResponse, error) {
			return m.Sessions.List(ctx, &cellv1.SessionsListRequest{After: after})
		})
		if err != nil {
			return cellError(err)
		}
		for _, s := range r.Sessions {
			after = s.Id
			open, ttl := s.Open.AsDuration(), s.Ttl.AsDuration()
			object := sessionJSON{
				s.Id, s.Principal, s.Note, ttl.Milliseconds(), s.LockDelay.AsDuration().Milliseconds(), open.Milliseconds(), s.Holds, s.Places,
			}
			err := l.add(object, s.Id, s.Principal, s.Note, durationText(open), durationText(ttl), fmt.Sprint(s.Holds), fmt.Sprint(s.Places))
			if err != nil {
				return err
			}
		}
		more = r.More && len(r.Sessions) > 0
	}
	return l.print("there are no sessions")
}

func (a *app) cellKillCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kill SESSION",
		Short: "End a session",
		Long: `End a session: its holds are lost, and open when their lock-delay is over. Its client is told at
once if the cell can reach it. If not, it trusts its locks until its TTL is over.`,
		Example: `  holdfast cell kill 5a2b3c4d5e6f7080`,
		Args:    oneArgument("the session's id, which 'holdfast cell sessions' shows"),
		RunE: a.inCell(func(ctx context.Context, c *cellStore, args []string) error {
			// It is parked as far as the client goes: a second call would not find what a slow first one has ended.
			return cellError(c.DoParked(ctx, func(ctx context.Context, m *cell.Member) error {
				_, err := m.Sessions.Kill(ctx, &cellv1.KillRequest{Id: args[0]})
				return err
			}))
		}),
	}
}
