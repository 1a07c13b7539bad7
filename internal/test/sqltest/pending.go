package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// pendingNames is how many names Pending takes.
const pendingNames = 8

// Pending takes names over a connection that leave has spoilt, as an application or a setting of the
// server may: a hold that is not committed must not be reported as held, and the next connection
// serves. The pool of d is db, which has one connection. Other is a driver of the same store. With
// healthy, leave spoils nothing.
func Pending(t *testing.T, db *sql.DB, d, other driver.Driver, healthy bool, leave func(*sql.Conn)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := db.Conn(ctx)
	must(t, err)
	leave(conn)
	conn.Close()
	held := 0
	var failed error
	for i := range pendingNames {
		req := driver.Request{Name: fmt.Sprintf("%s %d", t.Name(), i), Owner: fmt.Sprintf("%s owner %d", t.Name(), i), TTL: time.Minute}
		_, err := d.Try(ctx, req)
		if err != nil {
			failed = err
			continue
		}
		held++
		req.Owner = fmt.Sprintf("%s other %d", t.Name(), i)
		if _, err := other.Try(ctx, req); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("P1: %s is held and not committed: another is told %v", req.Name, err)
		}
	}
	if least := pendingNames - 1; held < least || healthy && failed != nil {
		t.Errorf("only %d of %d names could be taken: %v", held, pendingNames, failed)
	}
}
