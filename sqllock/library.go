package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"slices"
)

// Library is what this package needs to know of the SQL driver behind a *sql.DB. The packages beside this one have
// it ready.
type Library struct {
	// Failure judges an error of a statement. Required.
	Failure func(error) Failure

	// Learn completes the library by what a connection of the pool shows, when the driver is opened. nil: there is
	// nothing to learn.
	Learn func(ctx context.Context, conn *sql.Conn, library *Library) error

	// Listen subscribes to a channel that it chooses, over a connection of its own, and returns at once. Until stop
	// has returned it calls receive with each notification, one at a time; receive does not block.
	//
	// When Listen has subscribed, and each time that it has done so again, it calls receive with "", because
	// notifications may have been lost before. If it cannot, it calls receive with "lost " and the reason, once: the
	// driver polls until the call with "".
	//
	// For PostgreSQL; nil: waiters poll.
	Listen func(receive func(payload string)) (channel string, stop func())

	// Together runs two or more statements one after the other on a connection, in one round trip, and returns the
	// first error. nil: each is a round trip.
	Together func(ctx context.Context, conn *sql.Conn, statements []Statement) error

	// Before are arguments that stand before those of each statement outside of Together: they tell the SQL driver
	// how to send it. nil: none.
	Before []any

	// Pool is what has the connections, if that is another pool below db. Drivers over the same one share the
	// connection of renewals. nil: db.
	Pool any

	// Stats returns what db.Stats does, of Pool. nil: db.Stats.
	Stats func() sql.DBStats

	// Demoted reports whether the server that a connection leads to takes no writes, as far as the server tells
	// without being asked. What is read there may be old. nil: it never tells.
	Demoted func(ctx context.Context, conn *sql.Conn) bool

	// Pending reports whether a connection is in a transaction, or does not commit each statement by itself. It is
	// called after each request. nil: that cannot be.
	Pending func(ctx context.Context, conn *sql.Conn) bool

	// Leave closes a connection to a server that takes no writes, so that no pool hands it out again. nil: as
	// database/sql does.
	Leave func(conn *sql.Conn)

	// Idle is how many idle connections db keeps: they are closed when one leads to a server that takes no writes. 0:
	// they are the caller's.
	Idle int

	// Close closes db. It is called when the last driver over the pool is closed, or could not be made. nil: the
	// pool stays open, it is the caller's.
	Close func() error
}

// Failure is what an error says of the outcome of a request.
type Failure uint8

// The failures.
const (
	Unknown  Failure = iota // it may have been carried out
	Refused                 // it has not been carried out, and repeating it is of no use
	Conflict                // it has not been carried out, because of another at the same time: repeat it
	Demoted                 // it has not been carried out, because the server takes no writes (any more): repeat it elsewhere
)

// judge returns what an error says. Without one nothing that was asked for is left to do: Refused.
func (l *Library) judge(err error) Failure {
	if err == nil {
		return Refused
	}
	if err == errChanged || err == errUnbegun || errors.Is(err, sqldriver.ErrBadConn) { // a connection of the pool that had ended before
		return Conflict
	}
	return l.Failure(err)
}

// Statement is a statement with its arguments, and where its results go.
type Statement struct {
	Text    string
	Args    []any
	Into    []any  // destinations of the columns of its one row; nil: its rows do not matter
	Changed *int64 // gets the number of changed rows; nil: it does not matter. Not with Into
	// Each is called for each row of the result, with a function that scans it. nil: its rows do not matter. Not
	// with the other two.
	Each func(scan func(into ...any) error) error
}

// Rows are the rows of a statement's result: *sql.Rows, and what is like them.
type Rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}

// Read takes the result of a statement that has Into or Each.
func (s *Statement) Read(rows Rows) error {
	n, each := 0, s.Each
	if s.Into != nil {
		each = func(scan func(...any) error) error { return scan(s.Into...) }
	}
	for ; rows.Next(); n++ {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil || n > 0 || s.Into == nil {
		return err
	}
	return sql.ErrNoRows
}

// together runs statements one after the other, in one round trip where the library can.
func (c *client) together(ctx context.Context, conn *sql.Conn, statements []Statement) (err error) {
	if c.library.Together != nil && len(statements) > 1 {
		return c.library.Together(ctx, conn, statements)
	}
	for i := 0; i < len(statements) && err == nil; i++ {
		err = c.runOne(ctx, conn, &statements[i])
	}
	return err
}

func (c *client) runOne(ctx context.Context, conn *sql.Conn, s *Statement) error {
	args := slices.Concat(c.library.Before, s.Args)
	if s.Into != nil || s.Each != nil {
		rows, err := conn.QueryContext(ctx, s.Text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return s.Read(rows)
	}
	result, err := conn.ExecContext(ctx, s.Text, args...)
	if err == nil && s.Changed != nil {
		*s.Changed, err = result.RowsAffected()
	}
	return err
}
