package pgconn

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/sqllock"
)

// behindPooler makes a library prepare no statements if there is a pooler between the pool and the server. Where
// the pooler gives each transaction another connection, a statement that pgx has prepared is unknown on the next
// one, or its name is taken there, and nearly all requests fail. A pooler shows by the process number that it tells
// the client: another process of the server carries out the statements.
func behindPooler(ctx context.Context, db *sql.DB, library *sqllock.Library) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error {
		own := c.(*stdlib.Conn).Conn()
		switch own.Config().DefaultQueryExecMode {
		case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
			return nil // nothing is prepared
		}
		var pid uint32
		err := own.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
		if err == nil && pid != own.PgConn().PID() {
			library.Before = []any{pgx.QueryExecModeExec}
			library.Together = nil // pgx prepares what is in a batch
		}
		return err
	})
}
