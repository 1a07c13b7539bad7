package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// postgresDurability finds settings by which acknowledged holds can be lost.
func postgresDurability(ctx context.Context, d *database) []Finding {
	const check = "durability"
	f := Finding{
		Check: check, Severity: Warning,
		Risk: "after a crash of the host the locks of the last moments are forgotten: they can " +
			"be taken a second time, with tokens that are no higher",
	}
	var unlogged bool
	err := d.ask(ctx, "SELECT count(*) > 0 FROM pg_class WHERE relpersistence = 'u' AND oid IN "+
		"(to_regclass('"+d.locks()+"'), to_regclass('"+d.meta()+"'))", &unlogged)
	switch {
	case err != nil:
		return d.notReadable(check, "the tables", err)
	case unlogged:
		f.Severity = Error
		f.Found, f.Remedy = "the tables are unlogged: after a crash they are empty", "ALTER TABLE … SET LOGGED"
	case d.settings["fsync"] == "off":
		f.Found, f.Remedy = "fsync is off: commits are not on disk when they are acknowledged", "turn fsync on"
	case d.settings["full_page_writes"] == "off":
		f.Found, f.Remedy = "full_page_writes is off: a page that was half written is not repaired",
			"turn full_page_writes on"
	case d.settings["synchronous_commit"] == "off":
		f.Found, f.Remedy = "synchronous_commit is off: commits are acknowledged before they "+
			"are on disk", "for the role of locks: ALTER ROLE … SET synchronous_commit = on"
	default:
		return good(check, "commits are on disk when they are acknowledged")
	}
	return []Finding{f}
}

// postgresReplication checks what would be lost by a fail-over.
func postgresReplication(ctx context.Context, d *database) []Finding {
	const check = "replication"
	replicas, err := d.replicas(ctx)
	if err != nil {
		return d.notReadable(check, "the replicas", err)
	}
	names, commit := d.settings["synchronous_standby_names"], d.settings["synchronous_commit"]
	waits := names != "" && commit != "local" && commit != "off"
	switch {
	case waits && replicas.synchronous+replicas.hidden == 0:
		return []Finding{{
			Check: check, Severity: Error,
			Found: fmt.Sprintf("commits wait for a replica (synchronous_standby_names %q), and none of those "+
				"follows; replicas that follow: %d", names, replicas.all),
			Risk:   "no lock is taken, renewed or released until one comes",
			Remedy: "start the replica, let its application_name be one of those names, or empty synchronous_standby_names",
		}}
	case replicas.all == 0:
		return good(check, "no replica follows, so none can take over with old data")
	case waits && replicas.synchronous > 0 && replicas.synchronous < replicas.all:
		return []Finding{{
			Check: check, Severity: Note,
			Found: fmt.Sprintf("commits wait for replicas (synchronous_standby_names %q): %d of the %d that follow may be asked",
				names, replicas.synchronous, replicas.all),
			Risk:   "if another one takes over, locks of the last moments before are forgotten: they can be taken a second time",
			Remedy: "promote only replicas that commits have waited for, as Patroni's synchronous_mode does",
		}}
	case waits:
		return good(check, "commits wait for replicas (%s); replicas that follow: %d", names, replicas.all)
	}
	return []Finding{{
		Check: check, Severity: Warning,
		Found: fmt.Sprintf("replicas that follow: %d, and commits do not wait for them "+
			"(synchronous_commit %q, synchronous_standby_names %q)", replicas.all, commit, names),
		Risk: "if a replica takes over, locks of the last moments before are forgotten: they " +
			"can be taken a second time, with tokens that are no higher",
		Remedy: "name replicas in synchronous_standby_names and have synchronous_commit on; or " +
			"guard what must not break by fencing tokens in this same database",
	}}
}

// postgresBloat checks for dead rows, and for what prevents their removal.
func postgresBloat(ctx context.Context, d *database) []Finding {
	const check = "bloat"
	var live, dead, size int64
	var off bool
	var oldest float64
	if err := errors.Join(
		d.ask(ctx, "SELECT coalesce(sum(n_live_tup), 0), coalesce(sum(n_dead_tup), 0), "+
			"coalesce(sum(pg_total_relation_size(relid)), 0)::bigint"+
			" FROM pg_stat_user_tables WHERE relid = to_regclass('"+d.locks()+"')", &live, &dead, &size),
		d.ask(ctx, "SELECT count(*) > 0 FROM pg_class WHERE oid = "+
			"to_regclass('"+d.locks()+"') AND 'autovacuum_enabled=false' = ANY (reloptions)", &off),
		d.ask(ctx, "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), "+
			"0)::float8 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL", &oldest),
	); err != nil {
		return d.notReadable(check, "the tables' state", err)
	}
	return []Finding{judgeBloat(d.locks(), live, dead, size, off || d.settings["autovacuum"] == "off", time.Duration(oldest*float64(time.Second)))}
}

// From here on there is a warning; autovacuum begins at 1,000 dead rows.
const (
	muchDead       = 50_000
	longestReading = 10 * time.Minute
)

func judgeBloat(table string, live, dead, size int64, off bool, oldest time.Duration) Finding {
	f := Finding{
		Check: "bloat", Severity: Warning,
		Found: fmt.Sprintf("%s has %d rows, %d dead ones and %d MiB", table, live, dead, size>>20),
		Risk: "each step of a lock leaves a dead row behind: unless they are removed the table " +
			"grows, and locks become slower and slower",
	}
	switch {
	case off:
		f.Found += "; autovacuum is off"
		f.Remedy = "turn autovacuum on, for this table at least"
	case oldest > longestReading:
		f.Found += fmt.Sprintf("; a transaction has been open for %v, and until it ends no dead "+
			"row is removed", oldest.Round(time.Second))
		f.Remedy = "end it (pg_stat_activity says whose it is), and set idle_in_transaction_session_timeout"
	case dead > muchDead && dead > 10*live:
		f.Remedy = "VACUUM " + table + "; and see why autovacuum does not: a replication slot or " +
			"a prepared transaction that nobody ends, or too few workers"
	default:
		f.Severity, f.Risk = OK, ""
	}
	return f
}
