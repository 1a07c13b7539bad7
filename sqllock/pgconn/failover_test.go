//go:build soak

package pgconn

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// openLocks opens a client of a cluster, which ends with the test.
func openLocks(t *testing.T, cluster *testserver.PostgresCluster) *holdfast.Client {
	t.Helper()
	locks, err := holdfast.Open(t.Context(), goes(cluster))
	must(t, err)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// goes is the URL of a cluster that grants at once after a fail-over.
func goes(cluster *testserver.PostgresCluster) string {
	return cluster.URL("postgres") + "&hf.forget=go"
}

// readOnly makes the primary read-only, with all its connections, and then promotes a standby.
func readOnly(cluster *testserver.PostgresCluster, next *testserver.Postgres) {
	old := cluster.Primary
	old.Query("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	for old.Query("SHOW default_transaction_read_only") == "off" { // not before the other sessions know
		time.Sleep(time.Millisecond)
	}
	cluster.CatchUp()
	cluster.Promote(next)
}

// TestFailovers: the primary is killed, or demoted, while clients hold and wait; a standby that has all that was
// acknowledged takes over. All connections go there, a hold goes on, tokens grow, and nobody is stuck.
func TestFailovers(t *testing.T) {
	const ttl = 30 * time.Second // longer than a fail-over takes here, so that leases outlive it
	for _, c := range []struct {
		name, synchronous string
		change            func(*testserver.PostgresCluster)
	}{
		{"killed, with a synchronous standby", "one", func(c *testserver.PostgresCluster) {
			c.Primary.Kill()
			c.Promote(c.Standbys[0])
		}},
		{"read-only, with all its connections", "", func(c *testserver.PostgresCluster) { readOnly(c, c.Standbys[1]) }},
		{"restarted as a standby", "ANY 1 (one, two)", func(c *testserver.PostgresCluster) {
			old := c.Primary
			c.CatchUp()
			old.Stop() // it sends all that it has to the standbys first
			c.Promote(c.Standbys[0])
			c.Follow(old)
			old.Start()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := testserver.StartPostgresCluster(t, c.synchronous)
			old := cluster.Primary
			h := faults.Harness{URL: func(string) string { return goes(cluster) }} // nothing is forgotten
			faults.Under(t, h, "", ttl, func() { c.change(cluster) })
			nobodyAt(t, old)
		})
	}
}

// nobodyAt waits until no client has a connection to the old primary, if that runs.
func nobodyAt(t *testing.T, old *testserver.Postgres) {
	t.Helper()
	const ours = " FROM pg_stat_activity WHERE application_name = 'holdfast'"
	for end := time.Now().Add(time.Minute); old.Running() && old.Query("SELECT count(*)"+ours) != "0"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("connections to the old primary stay: %s", old.Query("SELECT state, query"+ours))
		}
	}
}

// TestLostCommit: a standby takes over that lacks the last commit, because commits wait for none, or
// for another one. With hf.forget=go it gives a name that is held: two clients believe that they hold it, which
// Guarantees say. The guard stops the first one. What the standby has received it keeps.
func TestLostCommit(t *testing.T) {
	for name, synchronous := range map[string]string{"asynchronous": "", "another standby is synchronous": "two"} {
		t.Run(name, func(t *testing.T) {
			cluster := testserver.StartPostgresCluster(t, synchronous)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			first := openLocks(t, cluster)
			hold := func(locks *holdfast.Client, name string) (*holdfast.Lease, error) {
				return locks.Mutex(name, nil).TryAcquire(ctx)
			}
			if _, err := hold(first, "known"); err != nil {
				t.Fatal(err)
			}
			cluster.CatchUp()
			standby, other := cluster.Standbys[0], cluster.Standbys[1]
			standby.Stop()
			lost, err := hold(first, "lost")
			must(t, err)
			cluster.Primary.Kill()
			other.Kill()
			standby.Start()
			standby.Query("SELECT pg_promote()")
			if n := standby.Query("SELECT count(*) FROM holdfast_locks"); n != "1" {
				t.Fatalf("the standby has received %s rows; the test wants the last commit to be lost", n)
			}

			second := openLocks(t, cluster)
			if _, err := hold(second, "known"); !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("P1: a hold that the standby had received was granted again: %v", err)
			}
			again, err := hold(second, "lost")
			if err != nil {
				t.Fatalf("a hold that the standby had not received was refused: %v", err)
			}
			if err := lost.Err(); err != nil {
				t.Fatalf("the first holder knows already: %v", err)
			}
			says := second.Caps().Guarantees.Faults[driver.Failover]
			if says.Exclusion != driver.Breaks || says.Tokens != driver.Breaks {
				t.Errorf("Guarantees promise %+v of a fail-over that gave two holds", says)
			}

			// Both act. The guard, in the same database, has seen the second one.
			standby.Query(fence.Schema(fence.Postgres))
			db := openDB(t, standby)
			admit := func(token driver.Token) error {
				tx, err := db.BeginTx(ctx, nil)
				must(t, err)
				defer tx.Rollback()
				return errors.Join(fence.AdmitTx(ctx, fence.Postgres, tx, "lost", token, driver.Exclusive), tx.Commit())
			}
			if err := admit(again.Token()); err != nil {
				t.Errorf("the guard refuses the second holder: %v", err)
			}
			if err := admit(lost.Token()); !errors.Is(err, fence.ErrStale) {
				t.Errorf("the guard does not stop the first holder: %v", err)
			}
			for lost.Renew(ctx) != nil && lost.Err() == nil {
				if ctx.Err() != nil {
					t.Fatal("P2: the first holder is neither renewed nor told that it has lost")
				}
				time.Sleep(10 * time.Millisecond)
			}
			if lost.Err() == nil {
				t.Error("P2: a hold that the store does not have was renewed")
			}
		})
	}
}

// TestStandbyOnly: a URL whose only server takes no writes is refused, and the error says why.
func TestStandbyOnly(t *testing.T) {
	primary := testserver.StartPostgres(t)
	dial(t, primary, nil).Close() // makes the tables
	standby := primary.Replica("one")
	for name, url := range map[string]string{
		"one host":                   standby.URL("postgres"),
		"one host, which is checked": standby.URL("postgres") + "&target_session_attrs=read-write",
		"several hosts":              strings.Replace(standby.URL("postgres"), standby.Addr, standby.Addr+","+standby.Addr, 1),
	} {
		d, err := openURL(t.Context(), url)
		if err == nil {
			d.Close()
			t.Errorf("%s: a standby was accepted", name)
		} else if !strings.Contains(err.Error(), "takes no writes") && !strings.Contains(err.Error(), "read only") {
			t.Errorf("%s: the error does not say why: %v", name, err)
		}
	}
}
