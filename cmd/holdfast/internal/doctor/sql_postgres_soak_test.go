//go:build soak

package doctor

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // for sqlAdmin

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
)

// postgresAlone runs the check that a want names.
func postgresAlone(t *testing.T, rawURL string, w want) {
	t.Helper()
	alone(t, rawURL, databaseChecks(sqllock.Postgres, []any{pgx.QueryExecModeExec}, pgconn.OpenPool, postgresSettings, map[string]func(context.Context, *database) []Finding{
		"isolation": postgresIsolation, "role": postgresRole, "durability": postgresDurability, "timeouts": postgresTimeouts,
		"access": databaseAccess, "pooler": postgresPooler, "connections": postgresConnections, "server clock": databaseClock, "bloat": postgresBloat,
		"replication": postgresReplication,
	}[w.check]), w)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t, "fsync=on", "autovacuum_naptime=1h", "password_encryption=scram-sha-256")
	here := server.URL("postgres")
	do := sqlAdmin(t, "pgx", here)
	allGood(t, examine(t, here+"&hf.prefix=billing/"), "transport", "role", "pooler", "isolation", "durability", "replication", "timeouts",
		"keepalives", "connections", "schema", "access", "bloat", "server clock")

	for params, w := range map[string]want{
		"default_transaction_isolation=serializable": {"isolation", Note, "serializable"},
		"default_transaction_read_only=on":           {"role", Error, "read-only"},
		"synchronous_commit=off":                     {"durability", Warning, "synchronous_commit"},
		"statement_timeout=500":                      {"timeouts", Warning, "statement_timeout is 500ms"},
		"idle_session_timeout=5000":                  {"timeouts", Warning, "idle_session_timeout is 5s"},
	} {
		postgresAlone(t, here+"&"+params, w)
	}
	for tables, c := range map[string]struct {
		spoil string
		want  want
	}{
		"unlogged": {"ALTER TABLE unlogged_locks SET UNLOGGED", want{"durability", Error, "unlogged"}},
		"unswept":  {"ALTER TABLE unswept_locks SET (autovacuum_enabled = false)", want{"bloat", Warning, "autovacuum is off"}},
		"dead": {"INSERT INTO dead_locks SELECT n::text, 0, 0, '', '', 0, 0, '', 0, 0, '', 0 FROM generate_series(1, 60000) AS n;" +
			" DELETE FROM dead_locks", want{"bloat", Warning, "dead ones"}},
	} {
		prepared(t, here+"&hf.tables="+tables)
		do(c.spoil)
		if tables == "dead" { // the server counts them a moment later
			await(t, "the dead rows", func() bool {
				return count(t, "pgx", here, "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE relname = 'dead_locks'") > muchDead
			})
		}
		postgresAlone(t, here+"&hf.tables="+tables, c.want)
	}
	sqlClocks(t, server.Addr, databaseChecks(sqllock.Postgres, []any{pgx.QueryExecModeExec}, pgconn.OpenPool, databaseClock), func(addr string) string { return strings.Replace(here, server.Addr, addr, 1) })
	postgresAccess(t, here, do)
}

// postgresAccess takes every right away in turn.
func postgresAccess(t *testing.T, here string, do func(string)) {
	do("CREATE ROLE clerk LOGIN PASSWORD '" + password + "'")
	as := strings.Replace(here, "postgres@", "clerk:"+password+"@", 1)
	do("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	postgresAlone(t, as+"&hf.tables=absent", want{"access", Error, "absent_locks"})
	do(sqllock.Postgres.Schema("given"))
	prepared(t, here+"&hf.tables=given")
	grant := "GRANT SELECT, INSERT, UPDATE, DELETE ON given_locks, given_places, given_meta TO clerk"
	do(grant)
	expect(t, examine(t, as+"&hf.tables=given"), want{"access", OK, "may do all"}, want{"lock", OK, ""})
	for right, severity := range map[string]Severity{
		"SELECT on given_meta": Error, "SELECT on given_locks": Error, "INSERT on given_locks": Error, "UPDATE on given_locks": Error, "DELETE on given_locks": Warning,
	} {
		do("REVOKE " + strings.Replace(right, " on ", " ON ", 1) + " FROM clerk")
		postgresAlone(t, as+"&hf.tables=given", want{"access", severity, right})
		do(grant)
	}
}

func TestPostgresReplication(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	do := sqlAdmin(t, "pgx", server.URL("postgres"))
	replica := server.Replica("standby")
	follows := "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
	await(t, "the replica", func() bool { return count(t, "pgx", server.URL("postgres"), follows) == 1 })
	expect(t, examine(t, server.URL("postgres")), want{"replication", Warning, "do not wait"}, want{"durability", Warning, "fsync"})
	expect(t, examine(t, replica.URL("postgres")), want{"role", Error, "standby"}, want{"lock", Error, ""})
	expect(t, examine(t, server.URL("postgres")), want{"hosts", Note, "one host"})
	do("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
	do("SELECT pg_reload_conf()")
	await(t, "the setting", func() bool {
		return count(t, "pgx", server.URL("postgres"), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'async'") == 1 &&
			count(t, "pgx", server.URL("postgres"), "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = 'nobody'") == 1
	})
	postgresAlone(t, server.URL("postgres"), want{"replication", Error, "none of those"})
	do("ALTER SYSTEM SET synchronous_standby_names = '*'")
	do("SELECT pg_reload_conf()")
	await(t, "the setting", func() bool {
		return count(t, "pgx", server.URL("postgres"), "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = '*'") == 1 &&
			count(t, "pgx", server.URL("postgres"), "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == 1
	})
	postgresAlone(t, server.URL("postgres"), want{"replication", OK, "commits wait"})
	postgresAlone(t, server.URL("postgres")+"&synchronous_commit=local", want{"replication", Warning, `synchronous_commit "local"`})
	replica.Kill()
	await(t, "the end of the replica", func() bool { return count(t, "pgx", server.URL("postgres"), follows) == 0 })
	postgresAlone(t, server.URL("postgres"), want{"replication", Error, "none of those"})
}

// TestPostgresHosts: the roles of all hosts of a URL.
func TestPostgresHosts(t *testing.T) {
	t.Parallel()
	cluster := testserver.StartPostgresCluster(t, "FIRST 1 (one, two)")
	primary, one, two := cluster.Primary, cluster.Standbys[0], cluster.Standbys[1]
	all := cluster.URL("postgres")
	expect(t, examine(t, all), want{"hosts", OK, "takes writes: " + primary.Addr + "; standby: " + one.Addr + ", " + two.Addr},
		want{"role", OK, "takes writes"}, want{"replication", Note, "1 of the 2"})
	standbys := strings.Replace(one.URL("postgres"), one.Addr, one.Addr+","+two.Addr, 1)
	expect(t, examine(t, standbys), want{"hosts", Error, "standby: "}, want{"lock", Error, "read only"})
	two.Kill()
	expect(t, examine(t, all), want{"hosts", Warning, "not reached: " + two.Addr})
	primary.Query("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()") // else its commits wait
	one.Query("SELECT pg_promote()")
	expect(t, examine(t, all), want{"hosts", Error, "takes writes: " + primary.Addr + ", " + one.Addr})
}

func TestPostgresPooler(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t)
	pooler := func(mode string) string { return testserver.StartPgbouncer(t, server, mode).URL("postgres") }
	postgresAlone(t, pooler("session"), want{"pooler", OK, "a whole session"})
	expect(t, examine(t, pooler("transaction")), want{"pooler", Warning, "each transaction"}, want{"access", OK, ""}, want{"lock", OK, ""})
}

func TestPostgresConnections(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t, "max_connections=20", "max_wal_senders=2")
	db, err := sql.Open("pgx", server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for range 12 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	postgresAlone(t, server.URL("postgres"), want{"connections", Warning, "of 17 connections"})
	do := sqlAdmin(t, "pgx", server.URL("postgres"))
	do("CREATE ROLE few LOGIN CONNECTION LIMIT 2")
	do("GRANT ALL ON SCHEMA public TO few")
	postgresAlone(t, strings.Replace(server.URL("postgres"), "postgres@", "few@", 1)+"&hf.tables=few", want{"connections", Warning, "refuses another one"})
}
