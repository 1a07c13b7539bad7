package sqllock

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/record"
)

// requestTimeout bounds each request, besides its context.
const requestTimeout = 10 * time.Second

// grace is for how long a statement may go on after its context has ended: as a
// rule its outcome is known then, and its connection, which most libraries close
// otherwise, can be kept.
const grace = 250 * time.Millisecond

// outlast returns a context that ends the grace period after ctx, for the same reason. ctx
// has a deadline.
func outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	end, _ := ctx.Deadline()
	late, cancel := context.WithDeadline(context.WithoutCancel(ctx), end.Add(grace))
	stop := context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled && late.Err() == nil {
			timer := time.AfterFunc(grace, cancel)
			context.AfterFunc(late, func() { timer.Stop() })
		}
	})
	return late, func() { stop(); cancel() }
}

// snapshot is the row of one name, and the server's time when it was read.
type snapshot struct {
	row
	now int64
}

// into are the destinations of the columns now and those of the row.
func (s *snapshot) into() []any { return append([]any{&s.now}, s.fields()...) }

// onConn is what a request does on its connection.
type onConn func(context.Context, *sql.Conn) error

// request runs f on a connection of the pool, and again if it failed because others were at
// work at the same time. If nothing was done, also for want of a connection, it returns
// Refused beside the error.
func (c *client) request(ctx context.Context, urgency priority, f onConn) (Failure, error) {
	inner, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	failure, err := c.repeat(inner, urgency, f)
	return failure, ctxerr.Of(ctx, err)
}

func (c *client) repeat(ctx context.Context, urgency priority, f onConn) (Failure, error) {
	late := ctx
	if c.statements.dialect == SQLite { // no statement is ended there: see statementContext
		late = context.WithValue(ctx, priorityKey{}, urgency)
	} else {
		var cancel context.CancelFunc
		late, cancel = outlast(ctx)
		defer cancel()
	}
	for attempt := 0; ; attempt++ {
		if err := c.alive(ctx); err != nil {
			return Refused, err
		}
		connected, err := c.pool.with(ctx, urgency, c.library.judge, func(conn *sql.Conn) error { return f(late, conn) })
		if err == nil {
			return Refused, nil
		}
		switch failure := c.library.judge(err); {
		case err == errChanged && ctx.Err() != nil:
			return Refused, errors.Join(err, ctx.Err())
		case err == errChanged, failure == Conflict:
		case connected:
			return failure, err
		default:
			return Refused, err // nothing was sent
		}
		if !c.pause(ctx, attempt) {
			return Refused, err
		}
	}
}

// errChanged says that others were quicker until the context ended.
var errChanged = errors.New("others were quicker to write again and again")

// pause waits before another attempt and reports whether the context goes on. The pauses
// get longer, but not in SQLite, where the one that asks most often gets the lock.
func (c *client) pause(ctx context.Context, attempt int) bool {
	if attempt == 0 {
		return ctx.Err() == nil
	}
	longest := min(time.Millisecond<<min(attempt, 6), 50*time.Millisecond)
	if c.statements.dialect == SQLite {
		longest = 2 * time.Millisecond
	}
	select {
	case <-time.After(rand.N(longest)):
		return true
	case <-ctx.Done():
		return false
	}
}

// statementContext returns the context of a statement. In SQLite it never ends: a statement
// there takes no time but that of waiting for the lock, which this package does itself, and
// a context that can end costs several switches of goroutines for each statement.
func (c *client) statementContext(ctx context.Context) context.Context {
	if c.statements.dialect == SQLite {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// exec runs a statement and returns how many rows it changed.
func (c *client) exec(ctx context.Context, conn *sql.Conn, q *query, args ...any) (int64, error) {
	result, err := conn.ExecContext(c.statementContext(ctx), q.text, q.bind(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c *client) read(ctx context.Context, conn *sql.Conn, name string) (*snapshot, error) {
	var s snapshot
	q := c.statements.read.bound(name)
	q.Into = s.into()
	return &s, runOne(c.statementContext(ctx), conn, &q)
}

// attempt is one attempt at changing a name.
type attempt struct {
	*state
	now     driver.Instant
	rules   record.Rules
	winners []string // owners that were granted out of the queue
	broken  *record.Hold
}

// change lets step change the settled state of a name, and writes it unless the row has
// changed meanwhile. Then it locks the row and does the same again, so a slow client
// succeeds beside quick ones. It begins with the snapshot first, if that is not nil.
func (c *client) change(ctx context.Context, conn *sql.Conn, name string, first *snapshot, step func(*attempt)) error {
	var d decision
	decide := func() (err error) {
		if first == nil {
			if first, err = c.read(ctx, conn, name); err != nil {
				return err
			}
		}
		d, err = c.decide(name, first, step)
		return err
	}
	if err := decide(); err != nil || d.write == nil {
		return err
	}
	return c.withWriterLock(ctx, func(waited bool) error {
		if waited {
			first = nil
			if err := decide(); err != nil || d.write == nil {
				return err
			}
		}
		err := runOne(c.statementContext(ctx), conn, d.write)
		switch {
		case err == nil && *d.written > 0:
			c.afterWrite(d.attempt)
			return nil
		case err == nil || c.library.judge(err) == Conflict:
			c.noteCollision(name)
			return c.changeInTransaction(ctx, conn, name, step)
		}
		return err
	})
}

// decision is what a step makes of a snapshot.
type decision struct {
	*attempt
	write   *Statement // writes the row unless it has changed meanwhile; nil: nothing changes
	written *int64     // 0, after write, if the row had changed
}

// decide lets step change the state that a snapshot shows.
func (c *client) decide(name string, s *snapshot, step func(*attempt)) (decision, error) {
	a, err := c.newAttempt(name, s)
	if err != nil {
		return decision{}, err
	}
	step(a)
	next := a.encode()
	d := decision{attempt: a, written: new(int64(1))}
	if next.version = s.version; next == s.row {
		return d, nil
	}
	next.version = max(s.version+1, s.now)
	d.write, err = c.writing(name, s, next, c.messages(a), d.written)
	return d, err
}

// newAttempt settles the state that a snapshot shows.
func (c *client) newAttempt(name string, s *snapshot) (*attempt, error) {
	st, err := s.decode(name)
	if err != nil {
		return nil, err
	}
	a := &attempt{state: st, now: instant(s.now)}
	a.rules = record.Rules{
		Poll:    c.caps.PollInterval(),
		Last:    &a.last,
		Granted: func(p *record.Place) { a.winners = append(a.winners, p.Owner) },
	}
	a.settle(a.now, &a.rules)
	return a, nil
}

// writing returns the statement that writes the row and notifies others, if the row has
// still the version of the snapshot. If not, the statement sets written to 0.
func (c *client) writing(name string, s *snapshot, next row, messages []message, written *int64) (*Statement, error) {
	args := []any{
		name, next.version, next.token, next.owner, next.client, next.ttl, next.delay, next.note, next.taken, next.expires, next.record,
	}
	if s.version == 0 {
		w := c.statements.insert.bound(args...)
		w.Changed = written
		return &w, nil
	}
	args = append(args, s.version)
	if c.statements.dialect != Postgres || len(messages) == 0 {
		w := c.statements.update.bound(args...)
		w.Changed = written
		return &w, nil
	}
	text, err := json.Marshal(messages)
	w := c.statements.tell.bound(append(args, string(text))...)
	w.Into = []any{written}
	return &w, err
}

// message is a notification for a client that listens.
type message struct {
	Channel string `json:"channel"`
	Payload string `json:"payload"`
}
