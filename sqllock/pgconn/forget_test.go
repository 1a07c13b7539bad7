//go:build soak

package pgconn

import (
	"testing"

	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestForgets: an asynchronous standby that lacks the last commits is promoted after the primary was killed, while
// processes hold names and wait for them.
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
	}}})
}
