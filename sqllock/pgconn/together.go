package pgconn

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/sqllock"
)

// together implements Together of sqllock.Library by pgx's pipeline.
func together(ctx context.Context, conn *sql.Conn, statements []sqllock.Statement) error {
	return conn.Raw(func(c any) error {
		var batch pgx.Batch
		for _, s := range statements {
			batch.Queue(s.Text, s.Args...)
		}
		results := c.(*stdlib.Conn).Conn().SendBatch(ctx, &batch)
		for _, s := range statements {
			if err := collect(results, s); err != nil {
				results.Close() // the same error
				return err
			}
		}
		return results.Close()
	})
}

func collect(results pgx.BatchResults, s sqllock.Statement) error {
	if s.Each != nil {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := s.Each(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	if s.Into != nil {
		return results.QueryRow().Scan(s.Into...)
	}
	tag, err := results.Exec()
	if err == nil && s.Changed != nil {
		*s.Changed = tag.RowsAffected()
	}
	return err
}
