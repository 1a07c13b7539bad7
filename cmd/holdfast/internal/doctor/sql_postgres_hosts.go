package doctor

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/sqllock/pgconn"
)

// postgresRoles are what the hosts of a URL are.
type postgresRoles struct {
	primaries, standbys, readOnly, silent []string
}

// postgresHosts asks each host of a URL with several what it is.
func postgresHosts(ctx context.Context, p Patient) []Finding {
	hosts := strings.Split(p.URL.Host, ",")
	_, u, err := storeurl.Take(p.URL)
	if len(hosts) < 2 || err != nil {
		return nil
	}
	var roles postgresRoles
	for _, host := range hosts {
		standby, readOnly, err := postgresRoleOf(ctx, u, host)
		switch {
		case err != nil:
			roles.silent = append(roles.silent, host)
		case standby:
			roles.standbys = append(roles.standbys, host)
		case readOnly:
			roles.readOnly = append(roles.readOnly, host)
		default:
			roles.primaries = append(roles.primaries, host)
		}
	}
	return judgeRoles(roles)
}

// hostTimeout bounds the questions to one host.
const hostTimeout = 5 * time.Second

// postgresRoleOf asks one host of a URL.
func postgresRoleOf(ctx context.Context, u *url.URL, host string) (standby, readOnly bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	one, query := *u, u.Query()
	query.Del("target_session_attrs")
	one.Host, one.RawQuery = host, query.Encode()
	db, _, err := pgconn.OpenPool(&one)
	if err != nil {
		return false, false, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'",
		pgx.QueryExecModeExec).Scan(&standby, &readOnly)
	return standby, readOnly, err
}

func judgeRoles(r postgresRoles) []Finding {
	f := Finding{Check: "hosts", Severity: Warning}
	var all []string
	for _, role := range []struct {
		is    string
		hosts []string
	}{{"takes writes", r.primaries}, {"standby", r.standbys}, {"read-only", r.readOnly}, {"not reached", r.silent}} {
		if len(role.hosts) > 0 {
			all = append(all, role.is+": "+strings.Join(role.hosts, ", "))
		}
	}
	f.Found = strings.Join(all, "; ")
	switch {
	case len(r.primaries) > 1:
		f.Severity = Error
		f.Risk = "clients that reach different servers exclude each other no more: every lock can be held twice"
		f.Remedy = "stop the one that is not the primary any more (a fail-over must keep the old primary from coming back), " +
			"and guard resources by fencing tokens"
	case len(r.primaries) == 0:
		f.Severity, f.Risk, f.Remedy = Error, "no lock can be taken, renewed or released", "promote a standby"
	case len(r.readOnly) > 0:
		f.Risk = "a server that is no standby and takes no writes has old data, and may be made writable again by mistake"
		f.Remedy = "let it follow the primary (standby.signal, primary_conninfo; pg_rewind)"
	case len(r.silent) > 0:
		f.Risk = "it cannot take over; and where it does not even refuse, each new connection waits 2 s for it (connect_timeout)"
		f.Remedy = "start it, or take it out of the URL"
	default:
		return good(f.Check, "%s", f.Found)
	}
	return []Finding{f}
}

// postgresOneHost finds URLs by which clients do not find the standby that takes over.
func postgresOneHost(ctx context.Context, d *database) []Finding {
	if strings.Contains(d.URL.Host+d.URL.Query().Get("host"), ",") {
		return nil
	}
	n, err := d.replicas(ctx)
	if err != nil || n.all == 0 {
		return nil // postgresReplication says why
	}
	return []Finding{{
		Check: "hosts", Severity: Note, Found: fmt.Sprintf("the URL names one host, and standbys follow it: %d", n.all),
		Risk: "after a fail-over clients reach the new primary only if this name leads there then",
		Remedy: "name all hosts, postgres://a,b,c/database: the one that takes writes is used; or a name that " +
			"follows the primary",
	}}
}

// followers counts the servers that follow one.
type followers struct {
	all, synchronous int
	hidden           int // of which this user may not see whether they are synchronous
}

func (d *database) replicas(ctx context.Context) (n followers, err error) {
	err = d.ask(ctx, "SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), "+
		"count(*) FILTER (WHERE sync_state IS NULL) FROM pg_stat_replication WHERE application_name <> "+
		"'pg_basebackup'", &n.all, &n.synchronous, &n.hidden)
	return n, err
}
