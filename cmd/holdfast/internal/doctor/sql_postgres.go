package doctor

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
)

// postgresChecks are the checks of a PostgreSQL server. All but the last share a pool.
var postgresChecks = append(databaseChecks(sqllock.Postgres, []any{pgx.QueryExecModeExec}, pgconn.OpenPool,
	postgresSettings, postgresTransport, postgresRole, postgresPooler, postgresIsolation, postgresDurability, postgresReplication, postgresOneHost,
	postgresTimeouts, postgresSchemas, postgresKeepalives, postgresConnections, databaseAccess, postgresBloat, databaseClock, databaseLatency), postgresHosts)

// postgresSettings reads the settings of the doctor's session, in PostgreSQL's own units.
func postgresSettings(ctx context.Context, d *database) []Finding {
	d.read(ctx, "SELECT name, setting FROM pg_settings")
	return nil
}

func postgresTransport(ctx context.Context, d *database) []Finding {
	is := false
	d.withConn(ctx, func(_ context.Context, c *pgx.Conn) error {
		_, is = c.PgConn().Conn().(*tls.Conn)
		return nil
	})
	return encrypted(d.Patient, is, "add sslmode=verify-full to the URL, and let the server have a certificate")
}

// withConn calls fn with a connection of pgx.
func (d *database) withConn(ctx context.Context, fn func(context.Context, *pgx.Conn) error) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(c any) error { return fn(ctx, c.(*stdlib.Conn).Conn()) })
}

const oldestPostgres = 120000

// postgresRole finds servers that take no locks.
func postgresRole(_ context.Context, d *database) []Finding {
	const check = "role"
	f := Finding{Check: check, Severity: Error, Risk: "no lock can be taken here"}
	var version int
	fmt.Sscan(d.settings["server_version_num"], &version)
	switch {
	case version < oldestPostgres:
		f.Found, f.Remedy = "this is PostgreSQL "+d.settings["server_version"], "use version 12 or later"
	case d.settings["in_hot_standby"] == "on": // since PostgreSQL 14; the next setting is older
		f.Found, f.Remedy = "this is a standby, which takes no writes",
			"name the primary, or several hosts and target_session_attrs=read-write"
	case d.settings["transaction_read_only"] == "on":
		f.Found = "transactions are read-only here: it is a standby, or default_transaction_read_only is on"
		f.Remedy = "name the primary, or several hosts and target_session_attrs=read-write; or " +
			"ALTER ROLE … SET default_transaction_read_only = off"
	default:
		return good(check, "this is PostgreSQL %s, and it takes writes", d.settings["server_version"])
	}
	return []Finding{f}
}

// postgresPooler finds out, by the process ids of the server's processes, whether there is a pooler
// between this host and the server, and whether it gives each transaction another connection.
func postgresPooler(ctx context.Context, d *database) []Finding {
	const check = "pooler"
	var told, is, other uint32
	err := d.withConn(ctx, func(ctx context.Context, a *pgx.Conn) error {
		told = a.PgConn().PID()
		if err := a.QueryRow(ctx, "SELECT pg_backend_pid()", d.queryMode...).Scan(&is); err != nil {
			return err
		}
		// Two connections at the same time to the server itself have two server processes.
		return d.withConn(ctx, func(ctx context.Context, b *pgx.Conn) error {
			return b.QueryRow(ctx, "SELECT pg_backend_pid()", d.queryMode...).Scan(&other)
		})
	})
	notified := d.Client != nil && d.Client.Caps().Ops.Has(driver.OpNotify)
	switch {
	case err != nil:
		return d.notReadable(check, "the way to the server", err)
	case is == other:
		return []Finding{{
			Check: check, Severity: Warning, Found: "a pooler gives each transaction another connection",
			Risk: "notifications do not arrive, so waiters poll: up to 200 ms more at each " +
				"hand-over, and statements all the time",
			Remedy: "connect locks to PostgreSQL itself, or let the pooler give them connections " +
				"for whole sessions (pgbouncer: pool_mode=session)",
		}}
	case d.Client != nil && !notified:
		return []Finding{{
			Check: check, Severity: Warning, Found: "notifications do not arrive",
			Risk:   "waiters poll: up to 200 ms more at each hand-over, and statements all the time",
			Remedy: "connect locks to PostgreSQL itself, over a connection that stays the same",
		}}
	case told != is:
		return good(check, "there is a pooler, which keeps one connection for a whole session; "+
			"notifications arrive")
	}
	return good(check, "there is no pooler; notifications arrive")
}

func postgresIsolation(_ context.Context, d *database) []Finding {
	const check = "isolation"
	level := d.settings["default_transaction_isolation"]
	if level == "read committed" || level == "read uncommitted" {
		return good(check, "transactions begin at %s", level)
	}
	return []Finding{{
		Check: check, Severity: Note, Found: "transactions begin at " + level,
		Risk: "locks are correct at every level, but if several clients want one name, " +
			"statements fail and are repeated",
		Remedy: "for the role of locks: ALTER ROLE … SET default_transaction_isolation = 'read committed'",
	}}
}

// The shortest timeouts that do not harm locks.
const (
	shortestStatement = time.Second
	shortestIdle      = 30 * time.Second // an idle listener asks the server sooner
)

// postgresTimeouts finds timeouts that end what locks need.
func postgresTimeouts(_ context.Context, d *database) []Finding {
	const check = "timeouts"
	f := Finding{Check: check, Severity: Warning, Remedy: "for the role of locks: ALTER ROLE … " +
		"SET the timeout = 0, or longer"}
	ms := func(name string) time.Duration { return d.period(name, time.Millisecond) }
	for _, name := range []string{"statement_timeout", "transaction_timeout"} {
		if at := ms(name); at > 0 && at < shortestStatement {
			f.Found = fmt.Sprintf("%s is %v", name, at)
			f.Risk = "statements that wait for a busy server are ended, and renewals with them: " +
				"locks are lost under load"
			return []Finding{f}
		}
	}
	if at := ms("idle_session_timeout"); at > 0 && at < shortestIdle {
		f.Found = fmt.Sprintf("idle_session_timeout is %v", at)
		f.Risk = "the connection that listens is ended whenever nothing happens: hand-overs are " +
			"missed until it listens again"
		return []Finding{f}
	}
	return good(check, "statement_timeout %v, lock_timeout %v, "+
		"idle_in_transaction_session_timeout %v, idle_session_timeout %v: none ends what locks need",
		ms("statement_timeout"), ms("lock_timeout"), ms("idle_in_transaction_session_timeout"), ms("idle_session_timeout"))
}

// postgresSchemas finds tables of the same name in several schemas: each is a store of its own.
func postgresSchemas(ctx context.Context, d *database) []Finding {
	const check = "schema"
	schema, prefix, named := strings.Cut(d.prefix, ".")
	if !named {
		prefix = d.prefix
	}
	rows, err := d.QueryContext(ctx, "SELECT n.nspname, pg_table_is_visible(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"+
		" WHERE c.relname = '"+prefix+"_meta' AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' ORDER BY n.nspname", d.queryMode...)
	if err != nil {
		return d.notReadable(check, "the schemas", err)
	}
	defer rows.Close()
	var others []string
	for rows.Next() {
		var name string
		var visible bool
		if err := rows.Scan(&name, &visible); err != nil {
			return d.notReadable(check, "the schemas", err)
		}
		switch {
		case named && name == schema:
		case !named && visible:
			schema = name
		default:
			others = append(others, name)
		}
	}
	switch {
	case rows.Err() != nil:
		return d.notReadable(check, "the schemas", rows.Err())
	case schema == "":
		return nil // the finding on access says so
	case len(others) == 0:
		return good(check, "the tables are in schema %s, and no other schema has tables of this name", schema)
	case named:
		return good(check, "the URL names schema %s; other schemas have stores of their own: %s", schema, strings.Join(others, ", "))
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found: fmt.Sprintf("by the search_path of this role the tables are in schema %s; other schemas have tables of the same name: %s",
			schema, strings.Join(others, ", ")),
		Risk:   "roles with other search_paths use those: both hold one name at the same time",
		Remedy: "let all URLs name the schema, for example hf.tables=" + schema + "." + prefix + ", and drop the tables that nobody uses",
	}}
}

func postgresKeepalives(_ context.Context, d *database) []Finding {
	return []Finding{judgeKeepalives(onThisHost(d.URL.Hostname()), d.period("tcp_keepalives_idle", time.Second), d.period("tcp_user_timeout", time.Millisecond))}
}

// longestSilence is after how long the server should ask a silent client whether it is still there.
const longestSilence = 10 * time.Minute

func judgeKeepalives(local bool, idle, unacknowledged time.Duration) Finding {
	f := Finding{Check: "keepalives", Severity: OK}
	switch {
	case local:
		f.Found = "the server is on this host: it learns at once of clients that end"
	case idle > longestSilence:
		f.Severity = Note
		f.Found = fmt.Sprintf("the server asks clients after %v of silence whether they are "+
			"there (tcp_keepalives_idle); tcp_user_timeout is %v", idle, unacknowledged)
		f.Risk = "the connections of hosts that vanish stay open for as long, and may use up " +
			"max_connections; their locks end by the TTL all the same"
		f.Remedy = "set tcp_keepalives_idle to 60 s, say"
	default:
		f.Found = fmt.Sprintf("the server asks clients after %v of silence whether they are there", idle)
	}
	return f
}

func postgresConnections(ctx context.Context, d *database) []Finding {
	var used, limit, reserved int
	if err := d.ask(ctx, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = "+
		"'client backend'", &used); err != nil {
		return d.notReadable("connections", "the connections", err)
	}
	fmt.Sscan(d.settings["max_connections"], &limit)
	fmt.Sscan(d.settings["superuser_reserved_connections"], &reserved)
	return []Finding{judgeConnections(used, limit-reserved)}
}
