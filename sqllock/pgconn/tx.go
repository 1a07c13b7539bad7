package pgconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Tx is a transaction of pgx as packages txlock, optimistic and fence take transactions. It has the methods of the
// pgx.Tx, and is used by one goroutine at a time like that.
type Tx struct{ pgx.Tx }

// FromTx returns a pgx.Tx as packages txlock, optimistic and fence take it:
//
//	tx, err := pool.Begin(ctx)
//	…
//	err = txlock.Lock(ctx, txlock.Postgres, pgconn.FromTx(tx), "stock/apple")
//
// The caller commits and rolls back tx, as before. What was locked in a nested transaction, which the Begin of a
// pgx.Tx makes of a savepoint, is freed when that is rolled back, and otherwise with the outermost one.
func FromTx(tx pgx.Tx) Tx { return Tx{tx} }

// ExecContext runs a statement, as that of *sql.Tx does. Arguments are pgx's.
func (t Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	return sqldriver.RowsAffected(tag.RowsAffected()), err
}

// QueryRowContext runs a query of which the first row counts, as that of *sql.Tx does. All of it is read before it
// returns, so the row need not be scanned. Arguments are pgx's; the row's values are converted as database/sql
// does.
func (t Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	r := &oneRow{}
	rows, err := t.Query(ctx, query, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err == nil {
		first := rows.Next()
		for i, field := range rows.FieldDescriptions() {
			r.columns = append(r.columns, field.Name)
			if first {
				r.values = append(r.values, valueOf(t.Conn().TypeMap(), field.DataTypeOID, rows.RawValues()[i]))
			}
		}
		rows.Close()
		err = rows.Err()
	}
	r.err = err
	// Only a *sql.DB makes a *sql.Row. This one has no connection, and ends at once.
	db := sql.OpenDB(r)
	defer db.Close()
	return db.QueryRowContext(context.Background(), "")
}

// oneRow is the first row of a query, and the database/sql driver whose only result it is. Nobody asks for more of the
// embedded ones.
type oneRow struct {
	sqldriver.Connector
	sqldriver.Conn
	columns []string
	values  []sqldriver.Value // nil: there was no row
	err     error             // of the query
}

// valueOf converts a column to one of database/sql's types.
func valueOf(types *pgtype.Map, oid uint32, raw []byte) sqldriver.Value {
	if known, ok := types.TypeForOID(oid); ok {
		if value, err := known.Codec.DecodeDatabaseSQLValue(types, oid, pgx.TextFormatCode, raw); err == nil {
			return value
		}
	}
	if raw == nil {
		return nil
	}
	return string(raw)
}

// Connect implements driver.Connector of database/sql.
func (r *oneRow) Connect(context.Context) (sqldriver.Conn, error) { return r, nil }

// QueryContext implements driver.QueryerContext of database/sql.
func (r *oneRow) QueryContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Rows, error) {
	return r, r.err
}

// Columns implements driver.Rows of database/sql, as Next does.
func (r *oneRow) Columns() []string { return r.columns }

// Next copies the row, the first time.
func (r *oneRow) Next(into []sqldriver.Value) error {
	if r.values == nil {
		return io.EOF
	}
	copy(into, r.values)
	r.values = nil
	return nil
}

// Close does nothing, for the connection and its rows.
func (r *oneRow) Close() error { return nil }
