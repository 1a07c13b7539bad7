package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
)

// mysqlChecks are the checks of a MariaDB or MySQL server. They share a pool.
var mysqlChecks = databaseChecks(sqllock.MySQL, nil, mysqlconn.OpenPool,
	mysqlSettings, mysqlTransport, mysqlRole, mysqlTables, mysqlLiveClock, mysqlIsolation, mysqlDurability, mysqlReplication,
	mysqlTimeouts, mysqlKeepalives, mysqlConnections, databaseAccess, mysqlBloat, databaseClock, databaseLatency)

// mysqlSettings reads the variables of the doctor's session, and counters of the server.
func mysqlSettings(ctx context.Context, d *database) []Finding {
	d.read(ctx, "SHOW STATUS WHERE Variable_name IN ('Ssl_cipher', 'Threads_connected', "+
		"'wsrep_cluster_size', 'Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')")
	d.read(ctx, "SHOW VARIABLES")
	return nil
}

func mysqlTransport(_ context.Context, d *database) []Finding {
	return encrypted(d.Patient, d.settings["ssl_cipher"] != "", "add tls=true to the URL, and "+
		"let the server have a certificate")
}

// mysqlRole finds servers that take no locks.
func mysqlRole(_ context.Context, d *database) []Finding {
	const check = "role"
	text := d.settings["version"]
	program, oldest := "MySQL", release{8, 0, 0}
	if strings.Contains(text, "MariaDB") {
		program, oldest = "MariaDB", release{10, 6, 0}
	}
	f := Finding{Check: check, Severity: Error, Risk: "no lock can be taken here"}
	v, ok := parseRelease(text)
	switch {
	case ok && v.before(oldest):
		f.Severity, f.Risk = Warning, "locks have not been tested there, and may fail"
		f.Found, f.Remedy = fmt.Sprintf("this is %s %s", program, text), fmt.Sprintf("use %d.%d or later", oldest[0], oldest[1])
	case d.settings["read_only"] == "ON", d.settings["innodb_read_only"] == "ON":
		f.Found, f.Remedy = "the server is read-only, as a replica is", "name the primary"
	case d.settings["autocommit"] == "OFF":
		f.Found, f.Remedy = "autocommit is off in this user's sessions",
			"remove autocommit=0 from the URL, or from init_connect on the server"
	default:
		number, _, _ := strings.Cut(text, "-")
		return good(check, "this is %s %s, and it takes writes", program, number)
	}
	return []Finding{f}
}

// mysqlLiveClock finds servers on which SYSDATE does not change during a statement.
func mysqlLiveClock(ctx context.Context, d *database) []Finding {
	const check = "live clock"
	var ran int64
	err := d.ask(ctx, "SELECT TIMESTAMPDIFF(MICROSECOND, b.at, SYSDATE(6)) FROM (SELECT "+
		"SYSDATE(6) AS at, SLEEP(0.02) AS pause LIMIT 1) AS b", &ran)
	switch {
	case err != nil:
		return d.notReadable(check, "the server's clock", err)
	case ran < 10_000:
		return []Finding{{
			Check: check, Severity: Warning,
			Found:  "SYSDATE does not change during a statement: the server runs with --sysdate-is-now",
			Risk:   "a statement that waited for a row uses the time when it began: locks that ended meanwhile count as held",
			Remedy: "start the server without --sysdate-is-now",
		}}
	}
	return good(check, "a statement that has waited uses the time when it goes on")
}

func mysqlIsolation(_ context.Context, d *database) []Finding {
	const check = "isolation"
	level := d.settings["transaction_isolation"]
	if level == "" {
		level = d.settings["tx_isolation"] // MariaDB before 11.1
	}
	if level == "READ-COMMITTED" || level == "REPEATABLE-READ" {
		return good(check, "transactions are %s; each step of a lock is one statement", level)
	}
	return []Finding{{
		Check: check, Severity: Note, Found: "transactions are " + level,
		Risk: "locks are correct at every level, but at SERIALIZABLE their reads lock rows " +
			"too, and steps wait for each other",
		Remedy: "for locks set transaction_isolation (tx_isolation in MariaDB) to READ-COMMITTED in the URL",
	}}
}

// mysqlTimeouts finds timeouts that end what locks need.
func mysqlTimeouts(_ context.Context, d *database) []Finding {
	const check = "timeouts"
	wait, lock := d.period("wait_timeout", time.Second), d.period("innodb_lock_wait_timeout", time.Second)
	statement := d.period("max_statement_time", time.Second) // MariaDB's, for all statements
	f := Finding{Check: check, Severity: Warning}
	switch {
	case statement > 0 && statement < shortestStatement:
		f.Found = fmt.Sprintf("max_statement_time is %v", statement)
		f.Risk = "statements that wait for a busy server are ended, and renewals with them: " +
			"locks are lost under load"
		f.Remedy = "set max_statement_time = 0 for locks, in the URL or for their user"
	case wait > 0 && wait < shortestIdle:
		f.Found = fmt.Sprintf("wait_timeout is %v: connections that are idle for so long are closed", wait)
		f.Risk = "after each pause locks connect anew, which takes time, and may be refused when it matters"
		f.Remedy = "set wait_timeout to some minutes, on the server or in the URL"
	default:
		return good(check, "wait_timeout %v, innodb_lock_wait_timeout %v: neither ends what locks need", wait, lock)
	}
	return []Finding{f}
}

func mysqlKeepalives(_ context.Context, d *database) []Finding {
	return []Finding{judgeIdle(onThisHost(d.URL.Hostname()), d.period("wait_timeout", time.Second))}
}

// judgeIdle judges for how long the server keeps idle connections.
func judgeIdle(local bool, wait time.Duration) Finding {
	f := Finding{Check: "keepalives", Severity: OK}
	switch {
	case local:
		f.Found = "the server is on this host: it learns at once of clients that end"
	case wait > longestSilence:
		f.Severity = Note
		f.Found = fmt.Sprintf("the server keeps connections for up to %v of silence "+
			"(wait_timeout), unless its host finds out sooner", wait)
		f.Risk = "the connections of hosts that vanish stay open for as long, and may use up " +
			"max_connections; their locks end by the TTL all the same"
		f.Remedy = "set wait_timeout to 10 minutes, say: locks close theirs after a minute without use"
	default:
		f.Found = fmt.Sprintf("the server ends connections after %v of silence", wait)
	}
	return f
}

func mysqlConnections(_ context.Context, d *database) []Finding {
	var used, limit int
	_, err1 := fmt.Sscan(d.settings["threads_connected"], &used)
	_, err2 := fmt.Sscan(d.settings["max_connections"], &limit)
	if err := errors.Join(err1, err2); err != nil {
		return d.notReadable("connections", "the connections", err)
	}
	return []Finding{judgeConnections(used, limit)}
}
