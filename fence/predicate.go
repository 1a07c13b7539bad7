package fence

import (
	"database/sql"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
)

// Predicate guards a row that holds its own marks, in the [Columns], by two
// pieces of the caller's own UPDATE:
//
//	UPDATE account SET balance = …, <Set> WHERE id = … AND <Where>
//
// Set adopts the token, Where refuses a stale one, and [Predicate.Check] tells
// from the result which of the two happened. The rules for transactions at
// [Dialect] apply. After this statement the row is locked, and the rest of the
// transaction needs no guard. A single UPDATE that reads nothing beforehand may be
// a transaction of its own.
//
// The first touch may be a read: then the UPDATE sets nothing but the marks,
// and the SELECT comes after it in the same transaction (or, in PostgreSQL and
// SQLite, RETURNING is part of it).
type Predicate struct {
	Set   string // an assignment, for the SET clause
	Where string // a condition, for the WHERE clause
	// Arg is the argument of Set and of Where, an int64. Each of them has one
	// placeholder: in PostgreSQL both have the same number, so Arg is given
	// once; elsewhere each is a question mark, and Arg is given at the place of
	// each.
	Arg any

	dialect Dialect
	stale   StaleError
}

// Predicate returns the pieces for a token. In PostgreSQL the placeholder is
// $n; elsewhere n is not used. It returns [ErrNoToken] or [ErrInvalid] for a token
// that can never be admitted.
func (d Dialect) Predicate(token driver.Token, mode driver.Mode, n int) (Predicate, error) {
	if err := checkToken(token, mode); err != nil {
		return Predicate{}, err
	}
	greatest, set, where := "GREATEST", "?", "?"
	switch d {
	case Postgres:
		if n < 1 {
			return Predicate{}, fmt.Errorf("fence: placeholder $%d: they are numbered from 1", n)
		}
		set = fmt.Sprintf("$%d", n)
		where = set
	case MySQL:
		set = "LAST_INSERT_ID(?)" // for Check
	case SQLite:
		greatest = "MAX"
	default:
		return Predicate{}, d.unknown()
	}
	p := Predicate{
		Set:     "exclusive_mark = " + set,
		Where:   greatest + "(exclusive_mark, shared_mark) <= " + where,
		Arg:     int64(token),
		dialect: d,
		stale:   StaleError{Token: token, Mode: mode},
	}
	if mode == driver.Shared {
		p.Set = "shared_mark = " + greatest + "(shared_mark, " + set + ")"
		p.Where = "exclusive_mark <= " + where
	}
	return p, nil
}

// Check returns nil if the UPDATE found its row and the row admitted the token.
// Otherwise it returns a *StaleError without Mark: the token is stale, or there
// is no such row.
//
// In MySQL the number of affected rows does not tell, because a row that
// already holds what is set does not count (unless the connection asks for
// found rows). There Set passes the token through LAST_INSERT_ID, which is
// evaluated for every row that Where lets through and comes back with the
// result. It changes what the session's LAST_INSERT_ID() returns.
func (p Predicate) Check(result sql.Result) error {
	if p.dialect == MySQL {
		id, err := result.LastInsertId()
		if err != nil {
			return fmt.Errorf("fence: %w", err)
		}
		if id == int64(p.stale.Token) {
			return nil
		}
	} else {
		rows, err := result.RowsAffected()
		if err != nil {
			return fmt.Errorf("fence: %w", err)
		}
		if rows > 0 {
			return nil
		}
	}
	stale := p.stale
	return &stale
}
