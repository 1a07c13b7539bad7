package pgconn

import (
	"database/sql"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/sqltest"
)

// TestPending: a hold that is not committed is never reported as held. pgx's pool finds a transaction
// that is left open when it hands a connection out. The library may be older, or another.
func TestPending(t *testing.T) {
	server := shared(t)
	db, err := sql.Open("pgx", server.URL("postgres"))
	must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	other := dial(t, server, nil)
	defer other.Close()
	sqltest.Pending(t, db, d, other, false, func(conn *sql.Conn) {
		if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil {
			t.Error(err)
		}
	})
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	if pending(t.Context(), conn) {
		t.Error("a new connection is taken for one in a transaction")
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN"); err != nil || !pending(t.Context(), conn) {
		t.Errorf("a connection in a transaction is not known for one: %v", err)
	}
}
