package doctor

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/sqllock"
)

// database is a SQL database under examination.
type database struct {
	Patient
	*sql.DB
	dialect sqllock.Dialect
	prefix  string // of the tables
	// queryMode stands before the arguments of each statement. It has pgx prepare no statements,
	// because poolers do not allow that.
	queryMode []any
	settings  map[string]string
}

// locks, places and meta are the names of the tables.
func (d *database) locks() string  { return d.prefix + "_locks" }
func (d *database) places() string { return d.prefix + "_places" }
func (d *database) meta() string   { return d.prefix + "_meta" }

// databaseChecks returns a check that opens a pool as the driver does, and runs the checks.
func databaseChecks(
	dialect sqllock.Dialect, queryMode []any, pool func(*url.URL) (*sql.DB, string, error),
	checks ...func(context.Context, *database) []Finding,
) []Check {
	return []Check{func(ctx context.Context, p Patient) []Finding {
		if p.silent() {
			return nil // the lock's finding says so
		}
		_, u, err := storeurl.Take(p.URL)
		if err != nil {
			return nil // the lock's finding says why
		}
		db, prefix, err := pool(u)
		if err != nil {
			return nil // the lock's finding says why
		}
		defer db.Close()
		if err := db.PingContext(ctx); err != nil {
			return noConnection(p, err)
		}
		d := &database{
			Patient: p, DB: db, dialect: dialect, prefix: prefix, queryMode: queryMode,
			settings: map[string]string{},
		}
		var findings []Finding
		for _, check := range checks {
			findings = append(findings, check(ctx, d)...)
		}
		return findings
	}}
}

// noConnection is the finding if the doctor gets no connection. If the lock's client has one, the
// server limits the connections of this user.
func noConnection(p Patient, err error) []Finding {
	if p.Client == nil {
		return nil // the lock's finding says why
	}
	return []Finding{{
		Check: "connections", Severity: Warning, Found: fmt.Sprintf("the lock has a connection, "+
			"and the server refuses another one: %v", err),
		Risk: "renewals wait for whatever else is under way on the same connection, and may " +
			"come too late; nothing else was checked here",
		Remedy: "let this user have more connections at a time: locks need two, and in " +
			"PostgreSQL one more to listen; in a program with a pool of its own see to SetMaxOpenConns too",
	}}
}

// ask scans the one row of a statement's result.
func (d *database) ask(ctx context.Context, text string, into ...any) error {
	return d.QueryRowContext(ctx, text, d.queryMode...).Scan(into...)
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
			d.settings[strings.ToLower(name)] = value
		}
	}
}

// period returns a setting as a duration, or 0 if it is not known or off.
func (d *database) period(name string, unit time.Duration) time.Duration {
	var n float64
	fmt.Sscan(d.settings[name], &n)
	return time.Duration(n * float64(unit))
}

// notReadable is the finding if the database does not let this user read something.
func (d *database) notReadable(check, what string, err error) []Finding {
	return []Finding{{
		Check: check, Severity: Note, Found: fmt.Sprintf("not seen: %s: %v", what, err),
		Risk:   "what is wrong there is not found",
		Remedy: "ask the database's administrator, or run doctor as a user who may read it",
	}}
}

// databaseClock compares the server's clock with this host's.
func databaseClock(ctx context.Context, d *database) []Finding {
	read := func() (time.Time, error) {
		var micros int64
		err := d.ask(ctx, "SELECT "+d.dialect.Now(), &micros)
		return time.UnixMicro(micros), err
	}
	first, err := readClock(read)
	if err != nil {
		return d.notReadable("server clock", "the server's clock", err)
	}
	select {
	case <-time.After(clockInterval - driver.HostClock.Now().Sub(first.end)):
	case <-ctx.Done():
	}
	second, err := readClock(read)
	if err != nil {
		return d.notReadable("server clock", "the server's clock", err)
	}
	return []Finding{judgeServerClock(first, second)}
}

// databaseLatency measures renewals, commits included, because those must be in time.
func databaseLatency(ctx context.Context, d *database) []Finding {
	if d.Client == nil {
		return nil // the lock's finding says why
	}
	lease, err := d.Client.Mutex("holdfast-doctor/"+rand.Text(), &holdfast.Options{Note: "holdfast doctor"}).TryAcquire(ctx)
	if err != nil {
		return nil // likewise
	}
	defer lease.Release()
	f, err := latency("renewals", func() error { return lease.Renew(ctx) })
	if err != nil {
		return nil // likewise
	}
	return []Finding{f}
}

// databaseAccess tries what locks do with the tables, and rolls it back.
func databaseAccess(ctx context.Context, d *database) []Finding {
	const check = "access"
	row := "'holdfast-doctor/" + rand.Text() + "'"
	var refused, why []string
	for _, try := range []struct{ right, table, text string }{
		{"SELECT", d.meta(), "SELECT name FROM " + d.meta() + " WHERE name = " + row},
		{"SELECT", d.locks(), "SELECT name FROM " + d.locks() + " WHERE name = " + row},
		{"INSERT", d.locks(), "INSERT INTO " + d.locks() + " (name, version, token, owner, " +
			"client, ttl, delay, note, taken, expires, extra, crowd) VALUES (" +
			row + ", 0, 0, '', '', 0, 0, '', 0, 0, '', 0)"},
		{"UPDATE", d.locks(), "UPDATE " + d.locks() + " SET version = 0 WHERE name = " + row},
		{"DELETE", d.locks(), "DELETE FROM " + d.locks() + " WHERE name = " + row},
		{"SELECT", d.places(), "SELECT name FROM " + d.places() + " WHERE name = " + row},
		{"INSERT", d.places(), "INSERT INTO " + d.places() + " (name, owner, tokens, joined, " +
			"asked, ends, request) VALUES (" + row + ", '', 0, 0, 0, 0, '')"},
		{"UPDATE", d.places(), "UPDATE " + d.places() + " SET ends = 0 WHERE name = " + row},
		{"DELETE", d.places(), "DELETE FROM " + d.places() + " WHERE name = " + row},
	} {
		if err := d.attempt(ctx, try.text); err != nil {
			refused = append(refused, try.right+" on "+try.table)
			why = append(why, err.Error())
		}
	}
	if refused == nil {
		return good(check, "this user may do all that locks need with the tables %s, %s and %s",
			d.locks(), d.places(), d.meta())
	}
	severity, risk := Error, "locks cannot be taken, kept or given back"
	if len(refused) == 1 && refused[0] == "DELETE on "+d.locks() {
		severity, risk = Warning, "the rows of names that nobody uses any more are never removed"
	}
	return []Finding{{
		Check: check, Severity: severity,
		Found: fmt.Sprintf("refused: %s (%s)", strings.Join(refused, ", "), why[0]), Risk: risk,
		Remedy: fmt.Sprintf("if the tables are missing, let their owner run the output of: "+
			"holdfast schema --dialect %s --tables %s; then GRANT SELECT, INSERT, UPDATE, DELETE "+
			"on %s, %s and %s to this user",
			d.dialect, d.prefix, d.locks(), d.places(), d.meta()),
	}}
}

// attempt runs a statement and rolls it back.
func (d *database) attempt(ctx context.Context, text string) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, text, d.queryMode...)
	if undone := tx.Rollback(); err == nil && !errors.Is(undone, sql.ErrTxDone) {
		err = undone
	}
	return err
}

// connectionShare is the part of the connections that may be in use without a warning.
const connectionShare = 0.8

func judgeConnections(used, limit int) Finding {
	f := Finding{Check: "connections", Severity: OK, Found: fmt.Sprintf("%d of %d connections "+
		"are in use", used, limit)}
	if float64(used) > connectionShare*float64(limit) {
		f.Severity = Warning
		f.Risk = "when there are no more, clients that lost their connection cannot renew, and lose their locks"
		f.Remedy = "raise max_connections, or let programs use smaller pools: locks need two " +
			"connections, and in PostgreSQL one more to listen"
	}
	return f
}

// encrypted checks that the connection is encrypted, or stays on this host.
func encrypted(p Patient, isEncrypted bool, remedy string) []Finding {
	const check = "transport"
	host := p.URL.Hostname()
	switch {
	case onThisHost(host):
		return good(check, "the server is on this host, so nothing crosses a network")
	case isEncrypted:
		return good(check, "the connection to %s is encrypted", host)
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found:  fmt.Sprintf("%s is another host, and the connection to it is not encrypted", host),
		Risk:   "anyone on the network can read the password, and take or break locks",
		Remedy: remedy,
	}}
}
