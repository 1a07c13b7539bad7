//go:build soak

package pgconn

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestForgets: an asynchronous standby that lacks the last commits is promoted after the primary was killed.
func TestForgets(t *testing.T) {
	sqltest.Forgets(t, "a standby is promoted", func(t *testing.T) sqltest.Forgetful {
		cluster := testserver.StartPostgresCluster(t, "")
		primary, standby, other := cluster.Primary, cluster.Standbys[0], cluster.Standbys[1]
		// Clients know all hosts, and go to the one that takes writes.
		return sqltest.Forgetful{
			URL: cluster.URL("postgres"),
			Lag: func() { cluster.CatchUp(); standby.Stop(); other.Kill() },
			Forget: func() {
				primary.Kill()
				standby.Start()
				standby.Query("SELECT pg_promote()")
			},
		}
	})
}
