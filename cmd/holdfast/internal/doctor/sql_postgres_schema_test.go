//go:build soak

package doctor

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
)

// TestPostgresSchemas: tables of the same name in two schemas are two stores.
func TestPostgresSchemas(t *testing.T) {
	t.Parallel()
	here := testserver.StartPostgres(t).URL("postgres")
	do := sqlAdmin(t, "pgx", here)
	check := func(params string, w want) {
		t.Helper()
		alone(t, here+params, databaseChecks(sqllock.Postgres, []any{pgx.QueryExecModeExec}, pgconn.OpenPool, postgresSchemas), w)
	}
	prepared(t, here)
	check("", want{"schema", OK, "no other schema"})
	do("CREATE SCHEMA other; SET search_path = other; " + sqllock.Postgres.Schema("") + "; RESET search_path")
	check("", want{"schema", Warning, "in schema public; other schemas have tables of the same name: other"})
	check("&hf.tables=other.holdfast", want{"schema", OK, "names schema other"})
}
