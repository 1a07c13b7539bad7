package doctor

import (
	"context"
	"strings"

	"github.com/holdfastlock/holdfast/sqllock"
	"github.com/holdfastlock/holdfast/sqllock/mysqlconn"
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

	unseen("tables", "the tables", "tables that are not InnoDB's forget locks after a crash", "other engines"),
	{
		"tables", Error, has("other engines"), "not all tables are InnoDB's: ${other engines}",
		"after a crash locks are forgotten or the table is damaged, and steps that were rolled back are not undone",
		"ALTER TABLE … ENGINE = InnoDB",
	},
	good("tables", "the tables are InnoDB's"),

	good("isolation", "transactions are ${isolation}; each step of a lock is one statement",
		is("isolation", "READ-COMMITTED", "REPEATABLE-READ")),
	{
		"isolation", Note, nil, "transactions are ${isolation}",
		"locks are correct at every level, but at SERIALIZABLE their reads lock rows too, and steps wait for each other",
		"for locks set transaction_isolation (tx_isolation in MariaDB) to READ-COMMITTED in the URL",
	},

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
	d.set("isolation", d.facts["tx_isolation"]) // MariaDB before 11.1
	d.set("isolation", d.facts["transaction_isolation"])
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
}
