package sqllock

import (
	"context"
	"database/sql"
)

// Statement is a statement with its arguments, and where its results go.
type Statement struct {
	Text    string
	Args    []any
	Into    []any  // destinations of the columns of its one row; nil: its rows do not matter
	Changed *int64 // gets the number of changed rows; nil: it does not matter. Not with Into
	// Each is called for each row of the result, with a function that scans it. nil: its rows do
	// not matter. Not with the other two.
	Each func(scan func(into ...any) error) error
	done func() // called after the last row
}

// together runs statements one after the other, in one round trip where the
// library can.
func (c *client) together(ctx context.Context, conn *sql.Conn, statements []Statement) error {
	ctx = c.statementContext(ctx)
	if c.library.Together != nil {
		err := c.library.Together(ctx, conn, statements)
		for i := range statements {
			if err == nil && statements[i].done != nil {
				statements[i].done()
			}
		}
		return err
	}
	for i := range statements {
		if err := runOne(ctx, conn, &statements[i]); err != nil {
			return err
		}
	}
	return nil
}

func runOne(ctx context.Context, conn *sql.Conn, s *Statement) error {
	if s.Each != nil {
		return runEach(ctx, conn, s)
	}
	if s.Into != nil {
		return conn.QueryRowContext(ctx, s.Text, s.Args...).Scan(s.Into...)
	}
	result, err := conn.ExecContext(ctx, s.Text, s.Args...)
	if err == nil && s.Changed != nil {
		*s.Changed, err = result.RowsAffected()
	}
	return err
}

func runEach(ctx context.Context, conn *sql.Conn, s *Statement) error {
	rows, err := conn.QueryContext(ctx, s.Text, s.Args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := s.Each(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if s.done != nil {
		s.done()
	}
	return nil
}
