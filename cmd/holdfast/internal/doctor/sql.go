package doctor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
)

// database is a SQL database under examination.
type database struct {
	Patient
	*sql.DB
	facts   // settings of the doctor's session, in lower case, and what is asked for
	dialect sqllock.Dialect
	prefix  string // of the tables
	// queryMode stands before the arguments of each statement. It has pgx prepare no statements,
	// because poolers do not allow that.
	queryMode []any
}

// locks, places and meta are the names of the tables.
func (d *database) locks() string  { return d.prefix + "_locks" }
func (d *database) places() string { return d.prefix + "_places" }
func (d *database) meta() string   { return d.prefix + "_meta" }

// databaseCheck returns a check that opens a pool as the driver does, has learn ask for facts, and judges them.
func databaseCheck(
	dialect sqllock.Dialect, queryMode []any, pool func(*url.URL) (*sql.DB, string, error),
	learn func(context.Context, *database), rules []rule,
) Check {
	return func(ctx context.Context, p Patient) []Finding {
		if p.silent() {
			return nil // the lock's finding says so
		}
		db, prefix, err := pool(p.driver)
		if err != nil {
			return nil // likewise
		}
		defer db.Close()
		d := &database{Patient: p, DB: db, dialect: dialect, prefix: prefix, queryMode: queryMode, facts: facts{}}
		d.facts["tables"] = strings.Join([]string{d.locks(), d.places(), d.meta()}, ", ")
		d.facts["prefix"], d.facts["dialect"] = prefix, dialect.String()
		if err := db.PingContext(ctx); err != nil {
			if p.Client == nil {
				return nil // likewise
			}
			return noAnswer("connections", Warning, err) // the lock has one: the server may limit those of this user
		}
		learn(ctx, d)
		d.tryAccess(ctx)
		findings := judge(d.facts, slices.Concat(rules, databaseRules)...)
		if dialect == sqllock.SQLite {
			return findings
		}
		for i, f := range findings {
			forgets := f.Check == "replication" || f.Check == "durability" && (dialect == sqllock.MySQL || d.facts["unlogged"] == "true")
			if forgets && strings.Contains(f.Risk, takenTwice) && p.driver.Query().Get("hf.forget") != "go" {
				if f.Check == "replication" {
					f.Remedy = "stop or fence a primary before another server takes over from it"
				}
				findings[i] = Finding{f.Check, Note, f.Found, "locks of the last moments may be forgotten: their holders have lost, and nothing " +
					"is granted until the longest TTL (hf.maxttl) is over", f.Remedy}
			}
		}
		// What this user may not read is not found.
		clocks, _ := serverClock(ctx, func() (time.Time, error) {
			var micros int64
			err := d.QueryRowContext(ctx, "SELECT "+sqllock.Now(dialect), queryMode...).Scan(&micros)
			return time.UnixMicro(micros), err
		})
		remedy := "let the server have a certificate, and add to the URL: sslmode=verify-full (PostgreSQL), tls=true (MySQL)"
		return slices.Concat(transport(p, has("encrypted")(d.facts), remedy), findings, clocks)
	}
}

// query asks for one row, and keeps its columns as facts of these names. A fact that this user may not read,
// or that is NULL, is missing.
func (d *database) query(ctx context.Context, text string, names ...string) {
	values := make([]sql.NullString, len(names))
	into := make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	if d.QueryRowContext(ctx, text, d.queryMode...).Scan(into...) != nil {
		return
	}
	for i, name := range names {
		if values[i].Valid {
			d.facts[name] = values[i].String
		}
	}
}

// read reads settings: names and values.
func (d *database) read(ctx context.Context, text string) {
	rows, err := d.QueryContext(ctx, text, d.queryMode...)
	if err != nil {
		return
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if rows.Scan(&name, &value) == nil {
			d.facts[strings.ToLower(name)] = value
		}
	}
}

// tryAccess tries what locks do with the tables, on a name that nobody has: nothing changes.
func (d *database) tryAccess(ctx context.Context) {
	where := " WHERE name = 'holdfast-doctor/" + rand.Text() + "'"
	try := func(right, table, text string) {
		if _, err := d.ExecContext(ctx, text+where, d.queryMode...); err != nil {
			d.facts.add("refused", right+" on "+table)
			d.facts["why"] = err.Error()
		}
	}
	for _, table := range []string{d.locks(), d.places(), d.meta()} {
		try("SELECT", table, "SELECT name FROM "+table)
		try("INSERT", table, "INSERT INTO "+table+" SELECT * FROM "+table)
		try("UPDATE", table, "UPDATE "+table+" SET name = name")
		if table != d.meta() {
			try("DELETE", table, "DELETE FROM "+table)
		}
	}
}

// databaseRules judge what every database is asked.
var databaseRules = []rule{
	good("access", "this user may do all that locks need with the tables ${tables}", missing("refused")),
	{
		"access", Warning, func(f facts) bool { return f["refused"] == "DELETE on "+f["prefix"]+"_locks" }, "refused: ${refused} (${why})",
		"the rows of names that nobody uses any more are never removed", grant,
	},
	{"access", Error, nil, "refused: ${refused} (${why})", "locks cannot be taken, kept or given back", grant},
}

const grant = "if the tables are missing, let their owner run the output of: holdfast schema --dialect ${dialect} --tables ${prefix}; " +
	"then GRANT SELECT, INSERT, UPDATE, DELETE on ${tables} to this user"

// What it means that a database forgets what it has acknowledged (P1, P3).
const (
	takenTwice        = "locks of the last moments are forgotten: they can be taken a second time, with tokens that are no higher"
	forgetsAtCrash    = "after a crash of the host " + takenTwice
	forgetsAtFailover = "if a replica takes over, " + takenTwice
)

// mysqlChecks are the checks of a MariaDB or MySQL server.
var mysqlChecks = []Check{databaseCheck(sqllock.MySQL, nil, mysqlconn.OpenPool, learnMySQL, mysqlRules)}

// mysqlRules judge the variables of the doctor's session, by their names, and what else was asked.
var mysqlRules = []rule{
	{
		"role", Error, func(f facts) bool { return f["read_only"] == "ON" || f["innodb_read_only"] == "ON" },
		"the server is read-only, as a replica is", noLock, "name the primary",
	},
	{
		"role", Error, is("autocommit", "OFF"), "autocommit is off in this user's sessions", noLock,
		"remove autocommit=0 from the URL, or from init_connect on the server",
	},
	good("role", "this is ${program} ${version}, and it takes writes"),

	{
		"sessions", Warning, is("own session", "false"), "between two statements of a connection another session of the server answers: a proxy shares them",
		"waiters cannot block in GET_LOCK, and poll: their turn comes up to a quarter of a second late",
		"name the server itself, or let the proxy give each client a session of its own",
	},
	good("sessions", "waiters block in GET_LOCK until their turn comes", has("own session")),

	unseen("tables", "the tables", "tables that are not InnoDB's forget locks after a crash", "other engines"),
	{
		"tables", Error, has("other engines"), "not all tables are InnoDB's: ${other engines}",
		"after a crash locks are forgotten or the table is damaged, and steps that were rolled back are not undone",
		"ALTER TABLE … ENGINE = InnoDB",
	},
	good("tables", "the tables are InnoDB's"),

	good("durability", "commits are on disk when they are acknowledged", is("innodb_flush_log_at_trx_commit", "1")),
	{
		"durability", Warning, nil,
		"innodb_flush_log_at_trx_commit is ${innodb_flush_log_at_trx_commit}: commits are not on disk when they are acknowledged",
		forgetsAtCrash, "set innodb_flush_log_at_trx_commit = 1",
	},

	{
		"replication", Warning, func(f facts) bool { return f.number("wsrep_cluster_size") > 1 || f["wsrep_on"] == "ON" },
		"this is a Galera cluster of ${wsrep_cluster_size} nodes",
		"locks are not tested on one; clients on different nodes get conflicts at the commit, and may read old data",
		"let all clients of locks use the same node",
	},
	good("replication", "there is no binary log, so no replica can take over with old data", is("log_bin", "OFF", "")),
	{
		"replication", Warning, is("binlog_format", "STATEMENT"),
		"binlog_format is STATEMENT: replicas run the statements again, by their own clocks",
		"a replica that takes over has other times and tokens: locks end early or late there, and tokens may be no higher than before",
		"set binlog_format = ROW",
	},
	unseen("replication", "the replicas", forgetsAtFailover, "replicas"),
	good("replication", "there is a binary log, and as far as this user may see no replica reads it", is("replicas", "0")),
	good("replication", "commits wait until a replica has them; replicas that follow: ${replicas}",
		is("semi-synchronous", "ON"), is("wait point", "AFTER_SYNC"), is("sync_binlog", "1")),
	{
		"replication", Warning, nil, "replicas that follow: ${replicas}, and commits are acknowledged before they have them " +
			"(semi-synchronous: ${semi-synchronous}, wait point ${wait point}, sync_binlog ${sync_binlog})", forgetsAtFailover,
		"turn semi-synchronous replication on, with a long timeout, wait point AFTER_SYNC and sync_binlog = 1; " +
			"or guard what must not break by fencing tokens in this same database",
	},
}

// learnMySQL asks for what mysqlRules judge.
func learnMySQL(ctx context.Context, d *database) {
	d.read(ctx, "SHOW STATUS WHERE Variable_name IN "+
		"('Ssl_cipher', 'wsrep_cluster_size', 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')")
	d.read(ctx, "SHOW VARIABLES")
	text := d.facts["version"]
	d.facts["program"] = "MySQL"
	if strings.Contains(text, "MariaDB") {
		d.facts["program"] = "MariaDB"
	}
	d.facts["version"], _, _ = strings.Cut(text, "-")
	d.facts["semi-synchronous"] = "OFF"
	for _, kind := range []string{"master", "source"} {
		d.set("semi-synchronous", d.facts["rpl_semi_sync_"+kind+"_status"])
		d.set("wait point", d.facts["rpl_semi_sync_"+kind+"_wait_point"])
	}
	d.query(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'", "replicas")
	schema, prefix := "DATABASE()", d.prefix
	if s, rest, two := strings.Cut(d.prefix, "."); two {
		schema, prefix = "'"+s+"'", rest
	}
	d.query(ctx, "SELECT COALESCE(GROUP_CONCAT(CONCAT(table_name, ' is ', engine)), '') FROM information_schema.tables WHERE table_schema = "+schema+
		" AND table_name IN ('"+prefix+"_locks', '"+prefix+"_places', '"+prefix+"_meta') AND engine <> 'InnoDB'", "other engines")
	d.set("encrypted", d.facts["ssl_cipher"])
	if conn, err := d.Conn(ctx); err == nil {
		name, own := "'holdfast-doctor-"+rand.Text()+"'", false
		_, err = conn.ExecContext(ctx, "DO GET_LOCK("+name+", 0)")
		if err == nil && conn.QueryRowContext(ctx, "SELECT COALESCE(IS_USED_LOCK("+name+") = CONNECTION_ID(), 0)").Scan(&own) == nil {
			d.facts["own session"] = strconv.FormatBool(own)
		}
		conn.ExecContext(ctx, "DO RELEASE_LOCK("+name+")")
		conn.Close()
	}
}
