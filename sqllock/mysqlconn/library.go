package mysqlconn

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net"
	"reflect"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfastlock/holdfast/sqllock"
)

var library = sqllock.Library{Failure: failure, Pending: pending, Learn: learn}

// failure implements Failure of sqllock.Library.
func failure(err error) sqllock.Failure {
	dialling := (*net.OpError)(nil)
	if errors.As(err, &dialling) && dialling.Op == "dial" {
		return sqllock.Refused
	}
	e := (*mysql.MySQLError)(nil)
	if !errors.As(err, &e) {
		return sqllock.Unknown
	}
	switch e.Number {
	case 1205, 1213, 1020, 3572, 1467: // lock wait timeout, deadlock, record changed, nowait, and what InnoDB says of
		// a wait or a deadlock while it takes the next number of AUTO_INCREMENT
		return sqllock.Conflict
	case 1290, 1690, 1792, 1836, 1874, 1036, 1047: // read-only by an option, by our own question, by
		// the transaction, by mode, by InnoDB, a table that is; not in Galera's primary component
		return sqllock.Demoted
	case 1053, 1079, 1080, 1105, 1180, 1317, 1927, 3024, 4031: // shutdown, kill, interruption, an error in the commit
		return sqllock.Unknown
	}
	return sqllock.Refused
}

// The server's status flags of which it tells after each statement.
const (
	statusInTransaction = 1 << 0
	statusAutocommit    = 1 << 1
)

// pending implements Pending of sqllock.Library. The server tells the client library, which tells nobody: its
// connection keeps the last status in an unexported field. Where there is no such field, because another version
// renames it or the pool wraps connections, the server is asked: in a transaction it refuses this statement, which
// otherwise has no effect but on the next one.
func pending(ctx context.Context, conn *sql.Conn) (is bool) {
	known := false
	if conn.Raw(func(c any) error {
		var status uint64
		if status, known = statusOf(c); known {
			is = status&statusInTransaction != 0 || status&statusAutocommit == 0
		}
		return nil
	}) != nil {
		return false // it is closed
	}
	if known {
		return is
	}
	_, err := conn.ExecContext(ctx, "SET TRANSACTION READ WRITE")
	return err != nil
}

// statusOf returns the status that a connection of go-sql-driver/mysql keeps.
func statusOf(c any) (status uint64, ok bool) {
	v := reflect.ValueOf(c)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return 0, false
	}
	field := v.Elem().FieldByName("status")
	if !field.IsValid() || !field.CanUint() {
		return 0, false
	}
	return field.Uint(), true
}

// together implements Together of sqllock.Library: it sends the statements as one text. The pool needs
// multiStatements for that. Package sqllock writes arguments into the texts itself.
func together(ctx context.Context, conn *sql.Conn, statements []sqllock.Statement) error {
	var texts []string
	var results []sqllock.Statement
	for _, s := range statements {
		texts = append(texts, s.Text)
		if s.Changed != nil {
			texts, results = append(texts, "SELECT ROW_COUNT()"), append(results, sqllock.Statement{Into: []any{s.Changed}})
		}
		if s.Into != nil || s.Each != nil {
			results = append(results, s)
		}
	}
	rows, err := conn.QueryContext(ctx, strings.Join(texts, ";\n"))
	if err != nil {
		return err
	}
	defer rows.Close()
	var wrong error
	for i := range results {
		if wrong != nil || i > 0 && !rows.NextResultSet() {
			break
		}
		wrong = results[i].Read(rows)
	}
	for rows.NextResultSet() { // until the last statement has been carried out
	}
	return cmp.Or(rows.Err(), wrong)
}

// learn implements Learn of sqllock.Library: it finds out whether the pool's connections accept several statements as one
// text.
func learn(ctx context.Context, conn *sql.Conn, library *sqllock.Library) error {
	var one, two int
	if together(ctx, conn, []sqllock.Statement{
		{Text: "SELECT 1", Into: []any{&one}},
		{Text: "DO 0"},
		{Text: "SELECT 2", Into: []any{&two}},
	}) == nil && one == 1 && two == 2 {
		library.Together = together
	}
	return nil
}
