package pgconn

import (
	"database/sql"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// openDB returns a pool of its own.
func openDB(t *testing.T, server *testserver.Postgres) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}
