//go:build soak

package doctor

import (
	"context"
	"net"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // for sqlAdmin

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
)

// mysqlAlone runs the check that a want names.
func mysqlAlone(t *testing.T, rawURL string, w want) {
	t.Helper()
	alone(t, rawURL, databaseChecks(sqllock.MySQL, nil, mysqlconn.OpenPool, mysqlSettings, map[string]func(context.Context, *database) []Finding{
		"role": mysqlRole, "tables": mysqlTables, "live clock": mysqlLiveClock, "isolation": mysqlIsolation, "durability": mysqlDurability,
		"replication": mysqlReplication, "timeouts": mysqlTimeouts, "connections": mysqlConnections, "access": databaseAccess,
	}[w.check]), w)
}

// inOrder are the arguments of a server as it should be.
var inOrder = []string{"--innodb-flush-log-at-trx-commit=1", "--server-id=1", "--log-bin=binlog", "--binlog-format=ROW"}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t, inOrder...)
	onMySQL(t, server, "tx_isolation")
	mysqlAlone(t, server.URL()+"?max_statement_time=0.5", want{"timeouts", Warning, "max_statement_time is 500ms"})

	// A replica, with a clock that stands still during a statement.
	replica := testserver.StartMariaDB(t, "--server-id=2", "--sysdate-is-now", "--max-connections=10")
	do := sqlAdmin(t, "mysql", "root@tcp("+replica.Addr+")/test")
	host, port, _ := net.SplitHostPort(server.Addr)
	do("CHANGE MASTER TO MASTER_HOST = '" + host + "', MASTER_PORT = " + port + ", MASTER_USER = 'root', MASTER_USE_GTID = no")
	do("START SLAVE")
	await(t, "the replica", func() bool {
		return count(t, "mysql", "root@tcp("+server.Addr+")/test", "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'") == 1
	})
	mysqlAlone(t, server.URL(), want{"replication", Warning, "replicas that follow: 1"})
	do("STOP SLAVE")
	mysqlAlone(t, replica.URL(), want{"live clock", Warning, "--sysdate-is-now"})
	mysqlAlone(t, replica.URL(), want{"replication", OK, "no binary log"})
	for range 7 {
		sqlAdmin(t, "mysql", "root@tcp("+replica.Addr+")/test")("SELECT 1")
	}
	mysqlAlone(t, replica.URL(), want{"connections", Warning, "of 10 connections"})
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	onMySQL(t, testserver.StartMySQL(t, inOrder...), "transaction_isolation")
}

// onMySQL has what is the same for both.
func onMySQL(t *testing.T, server *testserver.MySQL, isolation string) {
	here := server.URL()
	do := sqlAdmin(t, "mysql", "root@tcp("+server.Addr+")/test")
	allGood(t, examine(t, here+"?hf.prefix=billing/"), "transport", "role", "tables", "live clock", "isolation", "durability", "replication",
		"timeouts", "keepalives", "connections", "access", "bloat", "server clock")
	for params, w := range map[string]want{
		isolation + "=%27SERIALIZABLE%27": {"isolation", Note, "SERIALIZABLE"},
		"autocommit=0":                    {"role", Error, "autocommit"},
		"wait_timeout=5":                  {"timeouts", Warning, "wait_timeout is 5s"},
	} {
		mysqlAlone(t, here+"?"+params, w)
	}
	prepared(t, here+"?hf.tables=isam")
	do("ALTER TABLE isam_locks ENGINE = MyISAM")
	mysqlAlone(t, here+"?hf.tables=isam", want{"tables", Error, "isam_locks is MyISAM"})
	for set, w := range map[string]want{
		"innodb_flush_log_at_trx_commit = 2 DEFAULT 1": {"durability", Warning, "is 2"},
		"binlog_format = 'STATEMENT' DEFAULT 'ROW'":    {"replication", Warning, "STATEMENT"},
		"read_only = ON DEFAULT OFF":                   {"role", Error, "read-only"},
	} {
		name, values, _ := strings.Cut(set, " = ")
		bad, usual, _ := strings.Cut(values, " DEFAULT ")
		do("SET GLOBAL " + name + " = " + bad)
		mysqlAlone(t, here, w)
		do("SET GLOBAL " + name + " = " + usual)
	}
	do("CREATE USER few@localhost")
	do("GRANT ALL ON test.* TO few@localhost")
	do("ALTER USER few@localhost WITH MAX_USER_CONNECTIONS 1")
	mysqlAlone(t, strings.Replace(here, "root@", "few@", 1)+"?hf.tables=few", want{"connections", Warning, "refuses another one"})
	mysqlAccess(t, server, do)
	t.Run("clocks", func(t *testing.T) {
		sqlClocks(t, server.Addr, databaseChecks(sqllock.MySQL, nil, mysqlconn.OpenPool, databaseClock), func(addr string) string { return strings.Replace(here, server.Addr, addr, 1) })
	})
}

// mysqlAccess takes every right away in turn.
func mysqlAccess(t *testing.T, server *testserver.MySQL, do func(string)) {
	do("CREATE USER clerk@localhost IDENTIFIED BY '" + password + "'")
	do("CREATE DATABASE shop") // in MariaDB the database test belongs to all
	ours := strings.Replace(server.URL(), "/test", "/shop", 1)
	prepared(t, ours)
	as := strings.Replace(ours, "root@", "clerk:"+password+"@", 1)
	do("GRANT SELECT, INSERT, UPDATE, DELETE ON shop.holdfast_meta TO clerk@localhost")
	rights := []string{"SELECT", "INSERT", "UPDATE", "DELETE"}
	do("GRANT " + strings.Join(rights, ", ") + " ON shop.holdfast_locks TO clerk@localhost")
	mysqlAlone(t, as, want{"access", Error, "on holdfast_places"})
	do("GRANT " + strings.Join(rights, ", ") + " ON shop.holdfast_places TO clerk@localhost")
	mysqlAlone(t, as, want{"access", OK, "may do all"})
	for _, right := range rights {
		severity := Error
		if right == "DELETE" {
			severity = Warning
		}
		do("REVOKE " + right + " ON shop.holdfast_locks FROM clerk@localhost")
		mysqlAlone(t, as, want{"access", severity, right + " on holdfast_locks"})
		do("GRANT " + right + " ON shop.holdfast_locks TO clerk@localhost")
	}
}
