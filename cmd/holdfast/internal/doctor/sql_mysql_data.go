package doctor

import (
	"context"
	"fmt"
	"strings"
)

// mysqlTables finds tables that do not use InnoDB.
func mysqlTables(ctx context.Context, d *database) []Finding {
	const check = "tables"
	var others int
	var names *string
	err := d.ask(ctx, "SELECT COUNT(*), GROUP_CONCAT(CONCAT(table_name, ' is ', engine)) FROM "+
		"information_schema.tables WHERE "+d.ofTables()+
		" AND engine <> 'InnoDB'", &others, &names)
	switch {
	case err != nil:
		return d.notReadable(check, "the tables", err)
	case others > 0:
		return []Finding{{
			Check: check, Severity: Error, Found: "not all tables are InnoDB's: " + *names,
			Risk:   "after a crash locks are forgotten or the table is damaged, and steps that were rolled back are not undone",
			Remedy: "ALTER TABLE … ENGINE = InnoDB",
		}}
	}
	return good(check, "the tables are InnoDB's")
}

// ofTables is the condition for the tables of locks in information_schema.
func (d *database) ofTables() string {
	schema, place := "DATABASE()", d.prefix
	if s, rest, two := strings.Cut(d.prefix, "."); two {
		schema, place = "'"+s+"'", rest
	}
	return "table_schema = " + schema + " AND table_name IN ('" + place + "_locks', '" + place + "_places', '" + place + "_meta')"
}

// mysqlDurability finds settings by which acknowledged holds can be lost.
func mysqlDurability(_ context.Context, d *database) []Finding {
	const check = "durability"
	if at := d.settings["innodb_flush_log_at_trx_commit"]; at != "1" {
		return []Finding{{
			Check: check, Severity: Warning,
			Found: "innodb_flush_log_at_trx_commit is " + at + ": commits are acknowledged before they are on disk",
			Risk: "after a crash of the host the locks of the last second are forgotten: they " +
				"can be taken a second time, with tokens that are no higher",
			Remedy: "set innodb_flush_log_at_trx_commit = 1",
		}}
	}
	return good(check, "commits are on disk when they are acknowledged")
}

// mysqlReplication checks what would be lost by a fail-over.
func mysqlReplication(ctx context.Context, d *database) []Finding {
	const check = "replication"
	var nodes, replicas int
	fmt.Sscan(d.settings["wsrep_cluster_size"], &nodes)
	if nodes > 1 || d.settings["wsrep_on"] == "ON" {
		return []Finding{{
			Check: check, Severity: Warning, Found: fmt.Sprintf("this is a Galera cluster of %d nodes", nodes),
			Risk: "locks are not tested on one; clients on different nodes get conflicts at " +
				"the commit, and may read old data",
			Remedy: "let all clients of locks use the same node",
		}}
	}
	if d.settings["log_bin"] != "ON" {
		return good(check, "there is no binary log, so no replica can take over with old data")
	}
	if d.settings["binlog_format"] == "STATEMENT" {
		return []Finding{{
			Check: check, Severity: Warning,
			Found:  "binlog_format is STATEMENT: replicas run the statements again, by their own clocks",
			Risk:   "a replica that takes over has other times and tokens: locks end early or late there, and tokens may be no higher than before",
			Remedy: "set binlog_format = ROW",
		}}
	}
	if err := d.ask(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE "+
		"'Binlog Dump%'", &replicas); err != nil {
		return d.notReadable(check, "the replicas", err)
	}
	waits := d.settings["rpl_semi_sync_master_status"] == "ON" || d.settings["rpl_semi_sync_source_status"] == "ON"
	point := d.settings["rpl_semi_sync_master_wait_point"] + d.settings["rpl_semi_sync_source_wait_point"]
	switch {
	case replicas == 0:
		return good(check, "there is a binary log, and as far as this user may see no replica reads it")
	case waits && point == "AFTER_SYNC" && d.settings["sync_binlog"] == "1":
		return good(check, "commits wait until a replica has them; replicas that follow: %d", replicas)
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found: fmt.Sprintf("replicas that follow: %d, and commits are acknowledged before they "+
			"have them (semi-synchronous: %t, wait point %q, sync_binlog %s)",
			replicas, waits, point, d.settings["sync_binlog"]),
		Risk: "if a replica takes over, locks of the last moments before are forgotten: they " +
			"can be taken a second time, with tokens that are no higher",
		Remedy: "turn semi-synchronous replication on, with a long timeout, wait point " +
			"AFTER_SYNC and sync_binlog = 1; or guard what must not break by fencing tokens in " +
			"this same database",
	}}
}

// mysqlBloat checks the size of the tables, and how many old versions of rows the server keeps.
func mysqlBloat(ctx context.Context, d *database) []Finding {
	const check = "bloat"
	var rows, size, history int64
	if err := d.ask(ctx, "SELECT COALESCE(SUM(table_rows), 0), COALESCE(SUM(data_length), 0) "+
		"FROM information_schema.tables WHERE "+d.ofTables(), &rows, &size); err != nil {
		return d.notReadable(check, "the tables' state", err)
	}
	// A user who may not read it gets no warning about it.
	d.ask(ctx, "SELECT COALESCE(MAX(count), 0) FROM information_schema.innodb_metrics WHERE name "+
		"= 'trx_rseg_history_len'", &history)
	return []Finding{judgeHistory(d.locks(), rows, size, history)}
}

// From here on there is a warning: old transactions, bytes, and bytes for each row.
const (
	muchUndone = 1_000_000
	muchData   = 256 << 20
	bigRow     = 64 << 10
)

func judgeHistory(table string, rows, size, history int64) Finding {
	f := Finding{
		Check: "bloat", Severity: Warning,
		Found: fmt.Sprintf("%s has about %d rows and %d MiB; the server keeps %d old "+
			"transactions for readers", table, rows, size>>20, history),
		Risk: "locks become slower and slower",
	}
	switch {
	case history > muchUndone:
		f.Remedy = "end the transaction that has been open for long: information_schema.innodb_trx says whose it is"
	case size > muchData && size > rows*bigRow:
		f.Remedy = "OPTIMIZE TABLE " + table + ", while few locks are used"
	default:
		f.Severity, f.Risk = OK, ""
	}
	return f
}
