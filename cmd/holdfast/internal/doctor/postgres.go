package doctor

import (
	"context"
	"crypto/tls"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
)

// postgresChecks are the checks of a PostgreSQL server, and of all hosts of its URL.
var postgresChecks = []Check{
	databaseCheck(sqllock.Postgres, []any{pgx.QueryExecModeExec}, pgconn.OpenPool, learnPostgres, postgresRules),
	postgresHosts,
}

// postgresRules judge the settings of the doctor's session, by their names, and what else was asked.
var postgresRules = []rule{
	{
		"role", Error, is("transaction_read_only", "on"),
		"transactions are read-only here: this is a standby, or default_transaction_read_only is on", noLock,
		"name the primary, or several hosts and target_session_attrs=read-write; or ALTER ROLE … SET default_transaction_read_only = off",
	},
	good("role", "this is PostgreSQL ${server_version}, and it takes writes"),

	unseen("durability", "the tables", "unlogged tables are empty after a crash", "unlogged"),
	{
		"durability", Error, is("unlogged", "true"), "the tables are unlogged: after a crash they are empty",
		forgetsAtCrash, "if locks must outlast a crash: ALTER TABLE … SET LOGGED, while no program uses them",
	},
	{
		"durability", Warning, func(f facts) bool { return f["fsync"] == "off" || f["full_page_writes"] == "off" },
		"fsync is ${fsync}, full_page_writes ${full_page_writes}: commits are not safe on disk when they are acknowledged",
		forgetsAtCrash, "turn both on",
	},
	{
		"durability", Warning, is("synchronous_commit", "off"), "synchronous_commit is off: commits are not on disk when they are acknowledged",
		forgetsAtCrash, "for the role of locks: ALTER ROLE … SET synchronous_commit = on",
	},
	good("durability", "commits are on disk when they are acknowledged"),

	unseen("replication", "the replicas", forgetsAtFailover, "replicas"),
	{
		"replication", Error, all(commitsWait, is("may be synchronous", "0")),
		"commits wait for a replica of ${synchronous_standby_names}, and none of those follows; replicas that follow: ${replicas}",
		"no lock is taken, renewed or released until one comes",
		"start the replica, let its application_name be one of those names, or empty synchronous_standby_names",
	},
	good("replication", "no replica follows, so none can take over with old data", is("replicas", "0")),
	{
		"replication", Note, all(commitsWait, has("synchronous"), less("synchronous", "replicas")),
		"commits wait for replicas (${synchronous_standby_names}): ${synchronous} of the ${replicas} that follow may be asked",
		"if another one takes over, " + takenTwice,
		"promote only replicas that commits have waited for, as Patroni's synchronous_mode does",
	},
	good("replication", "commits wait for replicas (${synchronous_standby_names}); replicas that follow: ${replicas}", commitsWait),
	{
		"replication", Warning, nil, "replicas that follow: ${replicas}, and commits do not wait for them " +
			`(synchronous_commit "${synchronous_commit}", synchronous_standby_names "${synchronous_standby_names}")`, forgetsAtFailover,
		"name replicas in synchronous_standby_names and have synchronous_commit on; " +
			"or guard what must not break by fencing tokens in this same database",
	},

	unseen("schema", "the schemas", "roles with other search_paths may use other tables", "other schemas"),
	elsewhere("schema", all(missing("schema"), missing("named schema"))), // no tables: the finding on access says so
	good("schema", "the tables are in schema ${schema}, and no other schema has tables of this name", is("other schemas", "")),
	good("schema", "the URL names schema ${named schema}; other schemas have stores of their own: ${other schemas}",
		has("named schema")),
	{
		"schema", Warning, nil, "by the search_path of this role the tables are in schema ${schema}; " +
			"other schemas have tables of the same name: ${other schemas}",
		"roles with other search_paths use those: both hold one name at the same time",
		"let all URLs name the schema, for example hf.tables=${schema}.${prefix}, and drop the tables that nobody uses",
	},
}

// commitsWait holds if commits wait until a replica has them.
func commitsWait(f facts) bool {
	return f["synchronous_standby_names"] != "" && f["synchronous_commit"] != "local" && f["synchronous_commit"] != "off"
}

// learnPostgres asks for what postgresRules judge.
func learnPostgres(ctx context.Context, d *database) {
	d.read(ctx, "SELECT name, setting FROM pg_settings") // in PostgreSQL's own units
	if conn, err := d.Conn(ctx); err == nil {
		_ = conn.Raw(func(c any) error {
			if _, is := c.(*stdlib.Conn).Conn().PgConn().Conn().(*tls.Conn); is {
				d.facts["encrypted"] = "yes"
			}
			return nil
		})
		conn.Close()
	}
	d.query(ctx, "SELECT count(*) > 0 FROM pg_class WHERE relpersistence = 'u' AND oid IN "+
		"(to_regclass('"+d.locks()+"'), to_regclass('"+d.meta()+"'))", "unlogged")
	// Of some replicas this user may not see whether they are synchronous.
	d.query(ctx, "SELECT count(*), nullif(count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), 0), "+
		"count(*) FILTER (WHERE sync_state IS NULL OR sync_state IN ('sync', 'quorum')) "+
		"FROM pg_stat_replication WHERE application_name <> 'pg_basebackup'",
		"replicas", "synchronous", "may be synchronous")
	// Tables of the same name in several schemas are stores of their own (P1).
	ours, prefix := "pg_table_is_visible(c.oid)", d.prefix
	if schema, rest, named := strings.Cut(d.prefix, "."); named {
		ours, prefix, d.facts["named schema"] = "n.nspname = '"+schema+"'", rest, schema
	}
	d.query(ctx, "SELECT min(n.nspname) FILTER (WHERE "+ours+"), "+
		"coalesce(string_agg(n.nspname, ', ' ORDER BY n.nspname) FILTER (WHERE NOT "+ours+"), '')"+
		" FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"+
		" WHERE c.relname = '"+prefix+"_meta' AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'", "schema", "other schemas")
}

// hostRules judge what the hosts of a URL are.
var hostRules = []rule{
	{
		"hosts", Error, func(f facts) bool { return strings.Contains(f["takes writes"], ", ") }, "${roles}",
		"clients that reach different servers exclude each other no more: every lock can be held twice",
		"stop the one that is not the primary any more, and see that no fail-over lets it come back; guard resources by fencing tokens",
	},
	{"hosts", Error, missing("takes writes"), "${roles}", "no lock can be taken, renewed or released", "promote a standby"},
	good("hosts", "${roles}"),
}

// postgresHosts asks each host of a URL with several what it is.
func postgresHosts(ctx context.Context, p Patient) []Finding {
	hosts := strings.Split(p.URL.Host, ",")
	if len(hosts) < 2 {
		return nil
	}
	f := facts{}
	for _, host := range hosts {
		f.add(postgresRole(ctx, p.driver, host), host)
	}
	for _, role := range []string{"takes writes", "standby", "read-only", "not reached"} {
		if f[role] != "" {
			f["roles"] += "; " + role + ": " + f[role]
		}
	}
	f["roles"] = strings.TrimPrefix(f["roles"], "; ")
	return judge(f, hostRules...)
}

// postgresRole asks one host of a URL what it is.
func postgresRole(ctx context.Context, u *url.URL, host string) (role string) {
	const unreached = "not reached"
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	one, query := *u, u.Query()
	query.Del("target_session_attrs")
	one.Host, one.RawQuery = host, query.Encode()
	db, _, err := pgconn.OpenPool(&one)
	if err != nil {
		return unreached
	}
	defer db.Close()
	const ask = "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' " +
		"WHEN current_setting('transaction_read_only') = 'on' THEN 'read-only' ELSE 'takes writes' END"
	if db.QueryRowContext(ctx, ask, pgx.QueryExecModeExec).Scan(&role) != nil {
		return unreached
	}
	return role
}
