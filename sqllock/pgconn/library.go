package pgconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/sqllock"
)

// libraryFor returns what package sqllock needs to know of a pool that connects by now.
func libraryFor(now configure) sqllock.Library {
	return sqllock.Library{
		Failure: failure, Together: together, Demoted: demoted, Pending: pending,
		Leave: func(conn *sql.Conn) { below(conn, closeConn) }, // a pool of pgx would take it back from database/sql
		Learn: func(ctx context.Context, conn *sql.Conn, library *sqllock.Library) error {
			return below(conn, func(own *pgx.Conn) error { return learn(ctx, own, now, library) })
		},
	}
}

// below runs f on pgx's connection below one of database/sql.
func below(conn *sql.Conn, f func(*pgx.Conn) error) error {
	return conn.Raw(func(c any) error {
		own, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the pool's driver is not pgx's stdlib: %T", c)
		}
		return f(own.Conn())
	})
}

// learn implements Learn of sqllock.Library: it subscribes to notifications, unless there is a pooler between the pool
// and the server. Where a pooler gives each transaction another connection it swallows them. Nor are statements prepared
// there: one that pgx has prepared is unknown on the next connection, or its name is taken. A pooler shows by the process
// number that it tells the client: another process of the server carries out the statements.
func learn(ctx context.Context, own *pgx.Conn, now configure, library *sqllock.Library) error {
	var pid uint32
	err := own.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&pid)
	mode, key := own.Config().DefaultQueryExecMode, keyOf(own.Config())
	switch {
	case err != nil:
	case pid == own.PgConn().PID():
		library.Listen = func(receive func(string)) (string, func()) { return listen(key, now, receive) }
	case mode != pgx.QueryExecModeExec && mode != pgx.QueryExecModeSimpleProtocol:
		library.Before = []any{pgx.QueryExecModeExec}
		library.Together = nil // pgx prepares what is in a batch
	}
	return err
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
	return below(conn, func(own *pgx.Conn) error {
		var batch pgx.Batch
		for _, s := range statements {
			batch.Queue(s.Text, s.Args...)
		}
		results := own.SendBatch(ctx, &batch)
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
	below(conn, func(own *pgx.Conn) error {
		if told := own.PgConn().ParameterStatus; told("in_hot_standby") == "on" || told("default_transaction_read_only") == "on" {
			is = !takesWrites(ctx, own)
		}
		return nil
	})
	return is
}

// pending implements Pending of sqllock.Library. The server tells it after each statement.
func pending(_ context.Context, conn *sql.Conn) (is bool) {
	below(conn, func(own *pgx.Conn) error {
		is = own.PgConn().TxStatus() != 'I'
		return nil
	})
	return is
}

// takesWrites reports whether the server is still there, and takes writes.
func takesWrites(ctx context.Context, conn *pgx.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var readOnly string
	err := conn.QueryRow(ctx, "SHOW transaction_read_only", pgx.QueryExecModeExec).Scan(&readOnly)
	return err == nil && readOnly == "off"
}
