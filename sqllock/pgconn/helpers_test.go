package pgconn

import (
	"database/sql"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

var (
	must    = testserver.Must // ends the test at an error
	exec    = sqltest.Exec
	openURL = sqltest.OpenURL
)

// shared returns the PostgreSQL server that the tests of the gate share, without tables.
func shared(t testing.TB) *testserver.Postgres {
	t.Helper()
	return testserver.Shared(t, func(t testing.TB) *testserver.Postgres { return testserver.StartPostgres(t) },
		func(_ testing.TB, server *testserver.Postgres) {
			server.Query("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
		})
}

// openDB returns a pool of its own.
func openDB(t *testing.T, server *testserver.Postgres) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", server.URL("postgres"))
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// awaitListening waits until the drivers of this process listen.
func awaitListening(t *testing.T) {
	t.Helper()
	down := func() (n int) {
		hubs.Lock()
		defer hubs.Unlock()
		for _, h := range hubs.m {
			h.mu.Lock()
			if !h.up {
				n++
			}
			h.mu.Unlock()
		}
		return n
	}
	for end := time.Now().Add(time.Minute); down() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a driver does not listen")
		}
	}
}

// endClients ends the connections of all clients but the one that runs it.
const endClients = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
