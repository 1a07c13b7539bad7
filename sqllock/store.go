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

// outlast returns a context that ends some grace after ctx, which has a deadline, and
// for the same reason.
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
func (c *client) request(ctx context.Context, urgency priority, f func(context.Context, *sql.Conn) error) (Failure, error) {
	inner, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	failure, err := c.attempts(inner, urgency, f)
	return failure, ctxerr.Of(ctx, err)
}

func (c *client) attempts(ctx context.Context, urgency priority, f func(context.Context, *sql.Conn) error) (Failure, error) {
	late := ctx
	if c.statements.dialect == SQLite { // no statement there is ended: see local
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

// pause waits before another attempt and reports whether the context goes on. The
// pauses get longer, but not in SQLite, which has no queue for its one lock: there
// whoever asks more often gets it.
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

// local returns the context of a statement: in SQLite one that does not end,
// because nothing there takes long but to be let in, for which we wait ourselves. Others
// cost several switches of goroutines for each statement.
func (c *client) local(ctx context.Context) context.Context {
	if c.statements.dialect == SQLite {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// exec runs a statement and returns how many rows it changed.
func (c *client) exec(ctx context.Context, conn *sql.Conn, q *query, args ...any) (int64, error) {
	result, err := conn.ExecContext(c.local(ctx), q.text, q.bind(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c *client) read(ctx context.Context, conn *sql.Conn, name string) (*snapshot, error) {
	var s snapshot
	q := c.statements.read.bound(name)
	q.Into = s.into()
	return &s, runOne(c.local(ctx), conn, &q)
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
// unless another has changed it meanwhile: then it locks the row, so that whoever is
// slow beside the others has its turn too. It begins with the snapshot first, if
// there is one.
func (c *client) change(ctx context.Context, conn *sql.Conn, name string, first *snapshot, step func(*turn)) error {
	var d decision
	look := func() (err error) {
		if first == nil {
			if first, err = c.read(ctx, conn, name); err != nil {
				return err
			}
		}
		d, err = c.decide(name, first, step)
		return err
	}
	if err := look(); err != nil || d.write == nil {
		return err
	}
	return c.alone(ctx, func(waited bool) error {
		if waited {
			first = nil
			if err := look(); err != nil || d.write == nil {
				return err
			}
		}
		err := runOne(c.local(ctx), conn, d.write)
		switch {
		case err == nil && *d.written > 0:
			c.tellOwn(d.turn)
			return nil
		case err == nil || c.library.judge(err) == Conflict:
			c.crowd(name)
			return c.changeAlone(ctx, conn, name, step)
		}
		return err
	})
}

// decision is what a step makes of a snapshot.
type decision struct {
	*turn
	write   *Statement // writes it unless the row has changed meanwhile; nil: there is nothing to write
	written *int64     // 0 after it if the row has changed
}

// decide lets step change what a snapshot shows.
func (c *client) decide(name string, s *snapshot, step func(*turn)) (decision, error) {
	t, err := c.turn(name, s)
	if err != nil {
		return decision{}, err
	}
	step(t)
	next := t.encode()
	d := decision{turn: t, written: new(int64(1))}
	if next.version = s.version; next == s.row {
		return d, nil
	}
	next.version = max(s.version+1, s.now)
	d.write, err = c.writing(name, s, next, c.news(t), d.written)
	return d, err
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
		Last:    &t.last,
		Granted: func(p *record.Place) { t.winners = append(t.winners, p.Owner) },
	}
	t.settle(t.now, &t.rules)
	return t, nil
}

// writing returns the statement that writes the row, and tells others, if it has the
// version of the snapshot. It sets written to 0 if it has not.
func (c *client) writing(name string, s *snapshot, next row, news []message, written *int64) (*Statement, error) {
	args := []any{
		name, next.version, next.token, next.owner, next.client, next.ttl, next.delay, next.note, next.taken, next.expires, next.record,
	}
	if s.version == 0 {
		w := c.statements.insert.bound(args...)
		w.Changed = written
		return &w, nil
	}
	args = append(args, s.version)
	if c.statements.dialect != Postgres || len(news) == 0 {
		w := c.statements.update.bound(args...)
		w.Changed = written
		return &w, nil
	}
	text, err := json.Marshal(news)
	w := c.statements.tell.bound(append(args, string(text))...)
	w.Into = []any{written}
	return &w, err
}

// message is one for a client that listens.
type message struct {
	Channel string `json:"channel"`
	Payload string `json:"payload"`
}
