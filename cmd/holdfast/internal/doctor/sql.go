package doctor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/sqllock"
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
		// What this user may not read is not found.
		clocks, _ := serverClock(ctx, func() (time.Time, error) {
			var micros int64
			err := d.QueryRowContext(ctx, "SELECT "+dialect.Now(), queryMode...).Scan(&micros)
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
	try("SELECT", d.meta(), "SELECT name FROM "+d.meta())
	for _, table := range []string{d.locks(), d.places()} {
		try("SELECT", table, "SELECT name FROM "+table)
		try("INSERT", table, "INSERT INTO "+table+" SELECT * FROM "+table)
		try("UPDATE", table, "UPDATE "+table+" SET name = name")
		try("DELETE", table, "DELETE FROM "+table)
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
