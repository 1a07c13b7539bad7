package pgconn

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Tx is a transaction of pgx as packages txlock, optimistic and fence take transactions. It has the methods of the
// pgx.Tx, and is used by one goroutine at a time like that.
type Tx struct{ pgx.Tx }

// FromTx returns a pgx.Tx as packages txlock, optimistic and fence take it:
//
//	tx, err := pool.Begin(ctx)
//	…
//	err = txlock.Postgres.Lock(ctx, pgconn.FromTx(tx), "stock/apple")
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
	r := t.first(ctx, query, args)
	// Only a *sql.DB makes a *sql.Row. This one has no connection, and ends at once.
	db := sql.OpenDB(&r)
	defer db.Close()
	return db.QueryRowContext(context.Background(), "")
}

// first runs a query and keeps its first row.
func (t Tx) first(ctx context.Context, query string, args []any) (r oneRow) {
	formats := pgx.QueryResultFormats{pgx.TextFormatCode}
	rows, err := t.Query(ctx, query, append([]any{formats}, args...)...)
	if err != nil {
		return oneRow{err: err}
	}
	defer rows.Close()
	types := t.Conn().TypeMap()
	for _, field := range rows.FieldDescriptions() {
		r.columns = append(r.columns, field.Name)
	}
	if rows.Next() {
		raw := rows.RawValues()
		for i, field := range rows.FieldDescriptions() {
			r.values = append(r.values, valueOf(types, field, raw[i]))
		}
	}
	rows.Close() // reads the rest
	r.err = rows.Err()
	return r
}

// valueOf converts a column in PostgreSQL's text format to one of database/sql's types.
func valueOf(types *pgtype.Map, field pgconn.FieldDescription, raw []byte) sqldriver.Value {
	if raw == nil {
		return nil
	}
	var err error
	var value sqldriver.Value
	switch field.DataTypeOID {
	case pgtype.BoolOID:
		value, err = decode[bool](types, field, raw)
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID:
		value, err = decode[int64](types, field, raw)
	case pgtype.Float4OID, pgtype.Float8OID:
		value, err = decode[float64](types, field, raw)
	case pgtype.ByteaOID:
		value, err = decode[[]byte](types, field, raw)
	case pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID:
		value, err = decode[time.Time](types, field, raw)
	default:
		return string(raw)
	}
	if err != nil {
		return string(raw) // a time "infinity"
	}
	return value
}

func decode[T any](types *pgtype.Map, field pgconn.FieldDescription, raw []byte) (value T, err error) {
	err = types.Scan(field.DataTypeOID, pgx.TextFormatCode, raw, &value)
	return value, err
}

// oneRow is the result of a query. It is also the database/sql driver whose only result it is.
type oneRow struct {
	columns []string
	values  []sqldriver.Value // nil: there was no row
	err     error             // of the query
}

// Connect implements driver.Connector of database/sql, as Driver does.
func (r *oneRow) Connect(context.Context) (sqldriver.Conn, error) { return rowConn{row: r}, nil }

// Driver returns nothing: nobody asks.
func (r *oneRow) Driver() sqldriver.Driver { return nil }

// Columns implements driver.Rows of database/sql, as Next and Close do.
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

// Close does nothing.
func (r *oneRow) Close() error { return nil }

// rowConn is the connection of the driver oneRow. Nobody prepares or begins anything there.
type rowConn struct {
	sqldriver.Conn
	row *oneRow
}

// QueryContext implements driver.QueryerContext of database/sql.
func (c rowConn) QueryContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if c.row.err != nil {
		return nil, c.row.err
	}
	return c.row, nil
}

// Close does nothing.
func (rowConn) Close() error { return nil }
