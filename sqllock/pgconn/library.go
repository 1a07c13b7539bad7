package pgconn

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/sqllock"
)

func libraryFor(l listener) sqllock.Library {
	return sqllock.Library{Failure: failure, Listen: l.listen, Together: together, Demoted: demoted, Pending: pending, Leave: l.leave}
}

// failure implements Failure of sqllock.Library.
func failure(err error) sqllock.Failure {
	if connecting := (*pgconn.ConnectError)(nil); errors.As(err, &connecting) {
		return sqllock.Refused
	}
	if pgconn.SafeToRetry(err) {
		return sqllock.Conflict
	}
	e := (*pgconn.PgError)(nil)
	if !errors.As(err, &e) {
		return sqllock.Unknown
	}
	switch e.Code {
	case "25006": // read-only transaction: a standby, or a server that was demoted
		return sqllock.Demoted
	case "40001", "40P01", "55P03", "25P03": // serialization failure, deadlock, lock not available; we stood still in a transaction
		return sqllock.Conflict
	case "40003", "57P01", "57P02", "57P05": // completion unknown, the end of the connection
		return sqllock.Unknown
	}
	switch e.Code[:min(2, len(e.Code))] {
	case "", "08", "58", "XX": // connection, system, internal
		return sqllock.Unknown
	}
	return sqllock.Refused
}

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
	if s.Into != nil || s.Each != nil {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		return s.Read(rows)
	}
	tag, err := results.Exec()
	if err == nil && s.Changed != nil {
		*s.Changed = tag.RowsAffected()
	}
	return err
}

// demoted implements Demoted of sqllock.Library. Servers from PostgreSQL 14 on tell it, beside the answer to any
// statement. A pooler may tell what was true when it connected, so the server is asked before it is believed.
func demoted(ctx context.Context, conn *sql.Conn) bool {
	is := false
	conn.Raw(func(c any) error {
		own := c.(*stdlib.Conn).Conn()
		if told := own.PgConn().ParameterStatus; told("in_hot_standby") == "on" || told("default_transaction_read_only") == "on" {
			is = !takesWrites(ctx, own)
		}
		return nil
	})
	return is
}

// pending implements Pending of sqllock.Library. The server tells it after each statement.
func pending(_ context.Context, conn *sql.Conn) (is bool) {
	conn.Raw(func(c any) error {
		is = c.(*stdlib.Conn).Conn().PgConn().TxStatus() != 'I'
		return nil
	})
	return is
}

// leave implements Leave of sqllock.Library. It closes the connection below database/sql, because a pool of pgx
// would take it back. The hub may listen at the same server, where nothing is told.
func (l listener) leave(conn *sql.Conn) {
	conn.Raw(func(c any) error {
		closeConn(c.(*stdlib.Conn).Conn())
		return nil
	})
	hubs.Lock()
	h := hubs.m[keyOf(l.config)]
	hubs.Unlock()
	if h != nil {
		h.leaveServer()
	}
}

// takesWrites reports whether the server is still there, and takes writes.
func takesWrites(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var readOnly string
	err := conn.QueryRow(ctx, "SHOW transaction_read_only", pgx.QueryExecModeExec).Scan(&readOnly)
	return err == nil && readOnly == "off"
}

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
