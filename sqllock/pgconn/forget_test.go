//go:build soak

package pgconn

import (
	"testing"

	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestForgets: while processes hold names and wait for them, an asynchronous standby that lacks the last commits is
// promoted after the primary was killed; and a server crashes that does not log the tables.
func TestForgets(t *testing.T) {
	faults.Forgets(t, []faults.Way{{Name: "PostgreSQL, a lagging standby, promoted", Start: func(t *testing.T) faults.Forgetful {
		cluster := testserver.StartPostgresCluster(t, "")
		primary, standby, other := cluster.Primary, cluster.Standbys[0], cluster.Standbys[1]
		// Clients know all hosts, and go to the one that takes writes.
		return faults.Forgetful{URL: cluster.URL("postgres"), Forgets: true,
			Lag: func() { cluster.CatchUp(); standby.Stop(); other.Kill() },
			Fail: func() {
				primary.Kill()
				standby.Start()
				standby.Query("SELECT pg_promote()")
			},
		}
	}}, {Name: "PostgreSQL, tables unlogged, crashes", Start: func(t *testing.T) faults.Forgetful {
		server := testserver.StartPostgres(t)
		return faults.Forgetful{URL: server.URL("postgres") + "&hf.durable=no", Forgets: true, Fail: func() { server.Kill(); server.Start() }}
	}}})
}
