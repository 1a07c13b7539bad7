package txlock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastlock/holdfast/internal/sqlerr"
)

// mode is how names are locked.
type mode uint8

const (
	exclusive mode = iota
	shared         // FOR SHARE
	free           // exclusively, if nobody has it: SKIP LOCKED
)

// The statements; {name} is their only argument.
//
// The column turn counts the exclusive locks of a name. By it a transaction A at REPEATABLE READ finds out, when
// it locks the name, that its snapshot is older than the writes of B, which held the lock before. SKIP LOCKED is used
// where NOWAIT is meant, because it is no error to the database: PostgreSQL would end the
// transaction and log it.
const (
	see         = "SELECT turn FROM holdfast_txlock WHERE name = {name}" // the count in the transaction's snapshot
	raise       = "UPDATE holdfast_txlock SET turn = turn + 1 WHERE name = {name}"
	raiseAndSee = raise + " RETURNING turn"
)

// takes lock a row, by mode, and return its count, or no row.
var takes = [...][free + 1]string{
	// An UPDATE locks the row by itself. At REPEATABLE READ it fails, as FOR SHARE does, if
	// the row is newer than the snapshot.
	Postgres: {
		exclusive: raiseAndSee,
		shared:    see + " FOR SHARE",
		free: "UPDATE holdfast_txlock SET turn = turn + 1 WHERE name =" +
			" (SELECT name FROM holdfast_txlock WHERE name = {name} FOR UPDATE SKIP LOCKED) RETURNING turn",
	},
	// MySQL's writes and locking reads see the newest row, whatever the snapshot is. The
	// count is raised later, because a transaction sees its own writes at once.
	MySQL: {
		exclusive: see + " FOR UPDATE",
		shared:    see + " LOCK IN SHARE MODE",
		free:      see + " FOR UPDATE SKIP LOCKED",
	},
	// An UPDATE takes the write lock of the database.
	SQLite: {exclusive: raiseAndSee, shared: raiseAndSee, free: raiseAndSee},
}

// locking is one call.
type locking struct {
	ctx     context.Context
	tx      Tx
	dialect Dialect
	mode    mode

	locked  []string
	counts  []int64  // of those locked
	skipped []string // gave no row: another has it, or there is none
}

// take locks a name, or skips it.
func (l *locking) take(name string) error {
	if slices.Contains(l.locked, name) {
		return nil
	}
	count, err := l.count(takes[l.dialect][l.mode], name)
	switch {
	case errors.Is(err, sql.ErrNoRows) && l.mode != free:
		return ErrUnknown
	case errors.Is(err, sql.ErrNoRows), l.mode == free && sqlerr.Busy(err):
		l.skipped = append(l.skipped, name)
		return nil
	case err != nil:
		return err
	}
	l.locked, l.counts = append(l.locked, name), append(l.counts, count)
	return nil
}

// verify makes sure, once all is locked, that the transaction sees what earlier holders of
// the names have done, and that the skipped names exist. It returns the name for which that
// is not so. In MySQL the first plain SELECT fixes what a transaction sees, so it must come
// after all locks.
func (l *locking) verify() (name string, err error) {
	if l.dialect != MySQL {
		for _, name := range l.skipped {
			if _, err := l.count(see, name); errors.Is(err, sql.ErrNoRows) {
				return name, ErrUnknown
			} else if err != nil {
				return name, err
			}
		}
		return "", nil
	}
	for i, name := range l.locked {
		seen, err := l.count(see, name)
		if errors.Is(err, sql.ErrNoRows) || err == nil && seen != l.counts[i] {
			return name, errOldSnapshot
		} else if err != nil {
			return name, err
		}
	}
	if l.mode == shared {
		return "", nil
	}
	for _, name := range l.locked {
		if _, err := l.tx.ExecContext(l.ctx, l.dialect.Words(raise), l.dialect.NameArg(name)); err != nil {
			return name, err
		}
	}
	return "", nil
}

// errOldSnapshot is ErrConflict, found by ourselves.
var errOldSnapshot = fmt.Errorf("%w: it read before it locked, and its snapshot is older than another's hold", ErrConflict)

// count runs a query for the count of a name.
func (l *locking) count(query, name string) (count int64, err error) {
	err = l.tx.QueryRowContext(l.ctx, l.dialect.Words(query), l.dialect.NameArg(name)).Scan(&count)
	return count, err
}
