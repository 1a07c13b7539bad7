package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/cell/server"
	"github.com/holdfastlock/holdfast/celllock"
	"github.com/holdfastlock/holdfast/internal/display"
)

func (a *app) cellCommand() *cobra.Command {
	above := &cobra.Command{
		Use:   "cell",
		Short: "Operate a cell: its members, sessions and backups",
		Long: `Operate a cell, the lock service that 'holdfast serve' runs. The store must be a cell:
--store cell://HOST:PORT, or HOLDFAST_STORE. Name all members in it, and each is looked at.`,
	}
	above.AddCommand(
		a.ofCell(cobra.Command{
			Use: "status", Short: "Show how the members are", Args: cobra.NoArgs,
			Long: `Ask each member that the store URL names how it is. A member that is behind has a smaller
REVISION than the others.`,
		}, a.cellStatus),
		a.ofCell(cobra.Command{
			Use: "members", Short: "List the members", Args: cobra.NoArgs,
			Long: `List the members that the cell has, whether they run or not. One that has not caught up yet
learns, and does not count.`,
		}, func(ctx context.Context, c *cellStore, _ []string) error {
			return a.printMembers(cell.Call(ctx, c.Client, true, cellv1connect.CellClient.Status, &cellv1.StatusRequest{}))
		}),
		a.ofCell(cobra.Command{
			Use: "add PEER-URL", Short: "Make room for another member", Args: oneArgument("the URL at which the other members will find it"),
			Long: `Tell the cell of another member, which the others will find at PEER-URL. Start it then with
'holdfast serve --join'. It counts once it has caught up.

To replace a member whose data are lost, remove it first, and start the new one with an empty
directory.`,
			Example: `  holdfast cell add https://10.0.0.4:7434`,
		}, func(ctx context.Context, c *cellStore, args []string) error {
			added, err := cell.Call(ctx, c.Client, false, cellv1connect.CellClient.Add, &cellv1.AddRequest{PeerUrl: args[0]})
			if err == nil {
				a.hint("start it on its host: holdfast serve --join --name NAME, with --member for each of these and for itself")
			}
			return a.printMembers(added, err)
		}),
		a.ofCell(cobra.Command{
			Use: "remove MEMBER", Short: "Take a member out of the cell", Args: oneArgument("the member's name or id"),
			Long: `Take a member out of the cell for good, by its name or its id. It stops, and its data are of no
more use.`,
		}, func(ctx context.Context, c *cellStore, args []string) error {
			return a.printMembers(cell.Call(ctx, c.Client, false, cellv1connect.CellClient.Remove,
				&cellv1.RemoveRequest{Member: args[0]}))
		}),
		a.cellBackupCommand(), a.cellRestoreCommand(),
		a.ofCell(cobra.Command{
			Use: "sessions", Short: "List the sessions of clients", Args: cobra.NoArgs,
			Long: `List the sessions that clients have with the cell: for how long each has been open, its TTL, how
many locks it holds, and in how many queues it waits.`,
			Example: `  holdfast cell sessions -o json | jq -r 'select(.holds > 100) | .id'`,
		}, a.cellSessions),
		a.ofCell(cobra.Command{
			Use: "kill SESSION", Short: "End a session", Args: oneArgument("the session's id, which 'holdfast cell sessions' shows"),
			Long: `End a session: its holds are lost, and open when their lock-delay is over. Its client is told at
once if the cell can reach it. If not, it trusts its locks until its TTL is over.`,
		}, func(ctx context.Context, c *cellStore, args []string) error {
			// Not repeated: a second call would not find what the first has ended.
			_, err := cell.Call(ctx, c.Client, false, cellv1connect.SessionsClient.Kill, &cellv1.KillRequest{Id: args[0]})
			return err
		}),
	)
	return above
}

// cellStore is a cell that commands speak to as such, and not as a store of locks.
type cellStore struct {
	*cell.Client
	prefix string // of the URL; "" or with a slash at its end
}

// in returns a path as the cell has it, and out one as the user has it.
func (c *cellStore) in(path string) string  { return c.prefix + path }
func (c *cellStore) out(path string) string { return strings.TrimPrefix(path, c.prefix) }

// ofCell makes a command of one that does something with the cell of the store URL. Nothing has been sent to the
// cell yet when do is called. The context ends after the time that commands have.
func (a *app) ofCell(cmd cobra.Command, do func(context.Context, *cellStore, []string) error) *cobra.Command {
	cmd.Long += "\n\n" + exitCodes
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		u, err := a.parseStore()
		if err != nil {
			return err
		}
		if u.Scheme != "cell" && u.Scheme != "cells" {
			return usagef("the store is %s: this is for a cell, cell://HOST:PORT", u.Scheme+"://")
		}
		c, prefix, err := celllock.Cell(u)
		if err != nil {
			return usagef("the store URL is wrong: %w", err)
		}
		defer c.Close()
		if prefix != "" {
			prefix += "/"
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), openWithin)
		defer cancel()
		return cellError(do(ctx, &cellStore{c, prefix}, args))
	}
	return &cmd
}

// cellError gives an error of a call to the cell its exit code.
func cellError(err error) error {
	reason := cell.ReasonOf(err)
	among := func(known ...error) bool {
		return slices.ContainsFunc(known, func(target error) bool { return errors.Is(err, target) })
	}
	switch {
	case err == nil, is[*exitError](err), is[*fs.PathError](err): // of the output
		return err
	case reason == cellv1.Reason_REASON_REFUSED, reason == cellv1.Reason_REASON_SESSION_OVER,
		among(cell.ErrNoNode, cell.ErrChanged, cell.ErrHasChildren):
		return &exitError{exitFailure, err}
	case reason == cellv1.Reason_REASON_FORBIDDEN, reason == cellv1.Reason_REASON_INVALID, among(cell.ErrForbidden):
		return usagef("%w", err)
	}
	return storeError(err)
}

// askWithin is how long a member may take to say how it is.
const askWithin = 3 * time.Second

// cellStatus prints how each member is. It fails if one does not answer, has no leader, or has too little space.
func (a *app) cellStatus(ctx context.Context, c *cellStore, _ []string) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	l := a.list("ADDRESS", "MEMBER", "STATE", "REVISION", "SIZE", "SESSIONS", "LOCKS", "FILES", "VERSION")
	var wrong []string
	answers := false
	for _, s := range c.Statuses(ctx) {
		leads, row := s.GetLeader() != "" && s.GetLeader() == s.GetMember(), []string{s.Address, "", "does not answer"}
		if s.Error != "" {
			wrong = append(wrong, "no answer from "+s.Address+": "+flat(s.Error))
		} else {
			answers = true
			state := "follows " + s.Leader
			if leads {
				state = "leads"
			} else if s.Leader == "" {
				state = "no leader"
				wrong = append(wrong, s.Address+" knows no leader: a majority of the members must run")
			}
			if s.Shortage != "" {
				wrong = append(wrong, "nobody gets anything new: "+s.Shortage)
			}
			row = []string{s.Address, s.Member, state, fmt.Sprint(s.Revision), sizeText(s.Size),
				fmt.Sprint(s.Sessions), fmt.Sprint(s.Names), fmt.Sprint(s.Nodes), s.Version}
		}
		l.add(struct {
			cell.MemberStatus
			Leads bool `json:"leads"`
		}{s, leads}, row...)
	}
	if err := l.print(""); err != nil || wrong == nil {
		return err
	}
	err := errors.New(strings.Join(wrong, "; "))
	if !answers {
		return storeError(err)
	}
	return &exitError{exitFailure, err}
}

// sizeText returns a number of bytes in a form that is easy to read.
func sizeText(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%d KiB", (n+1023)>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// printMembers prints the members that a call has answered with. Their JSON form is that of the API.
func (a *app) printMembers(answer interface{ GetMembers() []*cellv1.Member }, err error) error {
	if err != nil {
		return err
	}
	l := a.list("MEMBER", "PEER URL", "STATE", "ID")
	for _, m := range answer.GetMembers() {
		state := "counts"
		switch {
		case m.Name == "":
			state = "to be started"
		case m.Learner:
			state = "learns"
		}
		l.add(m, m.Name, m.PeerUrl, state, m.Id)
	}
	return l.print("")
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

func (a *app) cellSessions(ctx context.Context, c *cellStore, _ []string) error {
	l := a.list("SESSION", "PRINCIPAL", "NOTE", "OPEN FOR", "TTL", "HOLDS", "PLACES")
	for after, more := "", true; more; {
		r, err := cell.Call(ctx, c.Client, true, cellv1connect.SessionsClient.List, &cellv1.SessionsListRequest{After: after})
		if err != nil {
			return err
		}
		for _, s := range r.Sessions {
			after = s.Id
			open, ttl, delay := s.Open.AsDuration(), s.Ttl.AsDuration(), s.LockDelay.AsDuration()
			l.add(
				sessionJSON{s.Id, s.Principal, s.Note, ttl.Milliseconds(), delay.Milliseconds(), open.Milliseconds(), s.Holds, s.Places},
				s.Id, s.Principal, s.Note, display.Duration(open), display.Duration(ttl), fmt.Sprint(s.Holds), fmt.Sprint(s.Places),
			)
		}
		more = r.More && len(r.Sessions) > 0
	}
	return l.print("there are no sessions")
}

func (a *app) cellBackupCommand() *cobra.Command {
	return a.ofCell(cobra.Command{
		Use: "backup FILE", Short: "Write all that the cell has to a file", Args: oneArgument("the file to write"),
		Long: `Write all that the cell has, as it is at one instant, to a new FILE, or to the standard output if
FILE is -. 'holdfast cell restore' makes a cell of it. Whoever reads the file learns the contents of
all nodes, but no secret of a session.`,
		Example: `  holdfast cell backup /var/backups/cell-$(date +%F)`,
	}, func(ctx context.Context, c *cellStore, args []string) (err error) {
		to, left, written := os.Stdout, int64(-1), int64(0)
		if name := args[0]; name != "-" {
			if to, err = os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
				return usagef("%w", err)
			}
			defer func() {
				if failed := errors.Join(to.Sync(), to.Close()); err == nil && failed != nil {
					err = &exitError{exitInternal, failed}
				}
				if err != nil { // restore refuses a file that is not whole, if this does not remove it
					os.Remove(name)
					return
				}
				a.hint(fmt.Sprintf("%s: %s", name, sizeText(written)))
			}()
		}
		ctx = context.WithoutCancel(ctx) // it takes as long as it takes
		return c.Do(ctx, false, func(ctx context.Context, m *cell.Member) error {
			stream, err := m.Cell.Backup(ctx, &cellv1.BackupRequest{})
			if err != nil {
				return err
			}
			defer stream.Close()
			for stream.Receive() {
				n, err := to.Write(stream.Msg().Chunk)
				if written += int64(n); err != nil {
					return &exitError{exitInternal, err}
				}
				left = stream.Msg().Left
			}
			if err := stream.Err(); err != nil || left != 0 {
				return errors.Join(fmt.Errorf("the backup of %s is not whole", m.Address), err)
			}
			return nil
		})
	})
}

func (a *app) cellRestoreCommand() *cobra.Command {
	var c server.Config
	var revision int64
	cmd := &cobra.Command{
		Use: "restore FILE", Short: "Make a new cell of a backup", Args: oneArgument("the backup"),
		Long: `Make the data of a member of a new cell out of a backup, and print the revision at which the cell
begins. Its --data must not be there yet. Do it for each member, with the same --member, and for
all but the first with the --revision that the first one printed. Then start them with
'holdfast serve' and the same --name, --data and --member.

The new cell has the files of the backup that belong to no session, and no locks. Its tokens are
larger than any before. Start it when the longest TTL and lock-delay of the old cell are over.

` + exitCodes,
		Example: `  holdfast cell restore /var/backups/cell --name b --data /var/lib/holdfast --revision 281474000 \
    --member a=https://10.0.0.1:7434 --member b=https://10.0.0.2:7434 \
    --member c=https://10.0.0.3:7434`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := setData(&c); err != nil {
				return err
			}
			begins, err := server.Restore(c, args[0], revision)
			switch {
			case errors.Is(err, server.ErrConfig):
				return usagef("%w", err)
			case err != nil:
				return &exitError{exitFailure, err}
			case a.output == "json":
				return printJSON(map[string]int64{"revision": begins})
			}
			_, err = fmt.Println(begins)
			return err
		},
	}
	memberFlags(cmd, &c)
	cmd.Flags().Int64Var(&revision, "revision", 0, "the `revision` that the first member's restore has printed")
	return cmd
}

// memberFlags adds the flags that say which member of which cell is meant.
func memberFlags(cmd *cobra.Command, c *server.Config) {
	flags := cmd.Flags()
	flags.StringVar(&c.Name, "name", "one", "the member's `name` in its cell")
	flags.StringVar(&c.Data, "data", "", "`directory` for all that the member keeps")
	flags.StringToStringVar(&c.Members, "member", nil, "`name=URL` of each member of a new cell, for the others")
}

// setData sets where a member keeps its data, if nothing says that.
func setData(c *server.Config) error {
	if c.Data == "" {
		dir, err := stateDir()
		if err != nil {
			return usagef("--data is missing: %w", err)
		}
		c.Data = filepath.Join(dir, "cell")
	}
	return nil
}
