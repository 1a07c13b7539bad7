package sqllock

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// requestTimeout bounds each request, besides its context.
const requestTimeout = 10 * time.Second

// snapshot is what the server said of one name at one time.
type snapshot struct {
	row
	now int64
}

// into are the destinations of the columns now and those of the row.
func (s *snapshot) into() []any { return append([]any{&s.now}, s.fields()...) }

// request runs f on a connection of the pool, again where it came to nothing
// because of another at the same time. It returns Refused with an error of f that
// says that nothing was done, and with those of the pool.
func (c *client) request(ctx context.Context, f func(context.Context, *sql.Conn) error) (Failure, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for attempt := 0; ; attempt++ {
		if err := c.alive(ctx); err != nil {
			return Refused, err
		}
		conn, err := c.db.Conn(ctx)
		if err != nil {
			return Refused, err
		}
		err = f(ctx, conn)
		conn.Close()
		if err == nil {
			return Refused, nil
		}
		if err == errChanged {
			return Refused, errors.Join(err, ctx.Err())
		}
		if failure := c.library.judge(err); failure != Conflict {
			return failure, err
		}
		if !c.pause(ctx, attempt) {
			return Refused, err
		}
	}
}

// errChanged says that a row was changed between its reading and its writing, each
// time until the context ended.
var errChanged = errors.New("the row was changed by others again and again")

// pause waits before another attempt, for the longer the more there were, and
// reports whether the context goes on.
func (c *client) pause(ctx context.Context, attempt int) bool {
	if attempt == 0 {
		return ctx.Err() == nil
	}
	longest := min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond)
	select {
	case <-time.After(time.Duration(rand.Int64N(int64(longest)))):
		return true
	case <-ctx.Done():
		return false
	}
}

// exec runs a statement and returns how many rows it changed.
func (c *client) exec(ctx context.Context, conn *sql.Conn, q *query, args ...any) (int64, error) {
	result, err := conn.ExecContext(ctx, q.text, q.bind(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c *client) read(ctx context.Context, conn *sql.Conn, name string) (snapshot, error) {
	var s snapshot
	q := &c.statements.read
	err := conn.QueryRowContext(ctx, q.text, q.bind([]any{name})...).Scan(s.into()...)
	return s, err
}

// turn is one attempt at changing a name.
type turn struct {
	*state
	now     driver.Instant
	rules   record.Rules
	winners []string // owners that were granted out of the queue
	broken  *record.Hold
}

// change lets step change the state of a name, which is settled, and writes it
// unless another has changed it meanwhile: then it begins again. It begins with
// the snapshot first, if there is one.
func (c *client) change(ctx context.Context, conn *sql.Conn, name string, first *snapshot, step func(*turn)) error {
	for attempt := 0; ; attempt++ {
		s := first
		if s == nil {
			fresh, err := c.read(ctx, conn, name)
			if err != nil {
				return err
			}
			s = &fresh
		}
		first = nil
		t, err := c.turn(name, s)
		if err != nil {
			return err
		}
		step(t)
		done, err := c.write(ctx, conn, name, s, t)
		if done || err != nil {
			return err
		}
		if !c.pause(ctx, attempt) {
			return errChanged
		}
	}
}

// turn settles the state that a snapshot shows.
func (c *client) turn(name string, s *snapshot) (*turn, error) {
	st, err := s.decode(name)
	if err != nil {
		return nil, err
	}
	t := &turn{state: st, now: instant(s.now)}
	t.rules = record.Rules{
		Poll:    c.caps.PollInterval(),
		Token:   func() driver.Token { t.last = max(t.last+1, driver.Token(s.now)); return t.last },
		Granted: func(p *record.Place) { t.winners = append(t.winners, p.Owner) },
	}
	t.settle(t.now, &t.rules)
	return t, nil
}

// write writes what a turn made of a snapshot, and reports false if another was
// quicker.
func (c *client) write(ctx context.Context, conn *sql.Conn, name string, s *snapshot, t *turn) (bool, error) {
	next := t.encode()
	next.version = s.version
	if next == s.row {
		return true, nil
	}
	next.version = max(s.version+1, s.now)
	args := []any{
		name, next.version, next.token, next.owner, next.client, next.ttl, next.delay, next.note, next.taken, next.expires, next.record,
	}
	if s.version == 0 {
		n, err := c.exec(ctx, conn, &c.statements.insert, args...)
		return n == 1, err
	}
	args = append(args, s.version)
	if news := c.news(t); c.statements.dialect == Postgres && len(news) > 0 {
		return c.writeAndTell(ctx, conn, args, news)
	}
	n, err := c.exec(ctx, conn, &c.statements.update, args...)
	return n == 1, err
}

// message is one for a client that listens.
type message struct {
	Channel string `json:"channel"`
	Payload string `json:"payload"`
}

func (c *client) writeAndTell(ctx context.Context, conn *sql.Conn, args []any, news []message) (bool, error) {
	text, err := json.Marshal(news)
	if err != nil {
		return false, err
	}
	q := &c.statements.tell
	var told int
	err = conn.QueryRowContext(ctx, q.text, q.bind(append(args, string(text)))...).Scan(&told)
	return told > 0, err
}
