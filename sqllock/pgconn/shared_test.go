package pgconn

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// shared returns the PostgreSQL server that the tests of the gate share, without tables.
func shared(t testing.TB) *testserver.Postgres {
	t.Helper()
	return testserver.Shared(t, func(t testing.TB) *testserver.Postgres { return testserver.StartPostgres(t) },
		func(_ testing.TB, server *testserver.Postgres) {
			server.Query("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
		})
}
