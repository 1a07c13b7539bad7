package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
)

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
