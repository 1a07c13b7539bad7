package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
)

// Library is what this package needs to know of the SQL driver behind a
// *sql.DB. The packages beside this one have it ready.
type Library struct {
	// Failure judges an error of a statement. Required.
	Failure func(error) Failure

	// Listen calls hear with each notification on a channel that it chooses, one at
	// a time, until stop is called; it returns when the server has confirmed. The
	// channel may be that of other drivers of this process too. It uses a connection
	// of its own, not one of the pool. When that is lost it listens again, for as
	// long as it takes, and then calls hear with "", because notifications may have
	// been lost meanwhile. If it cannot listen again at once it calls hear with "lost "
	// and why, once: from then on until "" the driver looks by itself. hear does not block. After stop has returned it is not
	// called any more. For PostgreSQL; nil: waiters poll.
	Listen func(ctx context.Context, hear func(payload string)) (channel string, stop func(), err error)

	// Together runs statements one after the other on a connection, in one round
	// trip, and returns the first error. nil: each is a round trip.
	Together func(ctx context.Context, conn *sql.Conn, statements []Statement) error

	// Before are arguments that stand before those of each statement, by which the
	// SQL driver is told how to send it. nil: none. Together gets them too.
	Before []any

	// Close is called when the driver is closed, or could not be made. nil: the
	// pool stays open, it is the caller's.
	Close func() error
}

// Failure is what an error says of a statement, each of which is a transaction of
// its own.
type Failure uint8

// The failures.
const (
	Unknown  Failure = iota // it may have been carried out
	Refused                 // it has not been carried out, nor would it be if it were repeated
	Conflict                // it has not been carried out, because of another at the same time: repeat it
)

// judge returns what an error says.
func (l *Library) judge(err error) Failure {
	if errors.Is(err, sqldriver.ErrBadConn) { // a connection of the pool that had ended before
		return Conflict
	}
	return l.Failure(err)
}
