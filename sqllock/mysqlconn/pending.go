package mysqlconn

import (
	"context"
	"database/sql"
	"reflect"
)

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
