//go:build soak

package pgconn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// failover is what becomes of locks while another server takes over.
type failover struct {
	*testing.T
	ctx     context.Context
	cluster *testserver.PostgresCluster
	holder  *holdfast.Client
	holds   []*holdfast.Lease // which nobody else wants
	wanted  *holdfast.Lease   // for which the crowd waits

	inside atomic.Int32 // holders of the wanted name that trust their leases
	mu     sync.Mutex
	tokens []holdfast.Token // of the wanted name, in the order of holds
}

// failoverTTL is longer than a fail-over takes here, so that leases outlive it.
const failoverTTL = 30 * time.Second

// failoverCrowd is how many clients wait, each with connections of its own.
const failoverCrowd = 30

// TestFailovers: the primary is killed, or demoted, while clients hold and wait; a standby that has
// all that was acknowledged takes over. All connections go there, holds go on, and waiters get
// theirs with higher tokens. Nobody is stuck.
func TestFailovers(t *testing.T) {
	for _, c := range []struct {
		name, synchronous string
		change            func(*testserver.PostgresCluster)
	}{
		{"killed, with a synchronous standby", "one", func(c *testserver.PostgresCluster) {
			c.Primary.Kill()
			c.Promote(c.Standbys[0])
		}},
		{"read-only, with all its connections", "", func(c *testserver.PostgresCluster) {
			old := c.Primary
			old.Query("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
			for old.Query("SHOW default_transaction_read_only") == "off" { // not before the other sessions know
				time.Sleep(time.Millisecond)
			}
			c.CatchUp()
			c.Promote(c.Standbys[1])
		}},
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
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			f := &failover{T: t, ctx: ctx, cluster: cluster}
			f.holder = f.open("URL")
			f.take()
			waiting := f.queueUp()
			old := cluster.Primary
			started := time.Now()
			c.change(cluster)
			f.holdsGoOn(time.Since(started))
			f.handOver(waiting)
			f.nobodyAt(old)
		})
	}
}

// ways are those to get connections.
var ways = []string{"URL", "*sql.DB", "*pgxpool.Pool"}

// open returns a client over connections of its own.
func (f *failover) open(way string) *holdfast.Client {
	f.Helper()
	url := f.cluster.URL("postgres")
	var d driver.Driver
	var err error
	switch way {
	case "URL":
		d, err = openURL(f.ctx, url)
	case "*sql.DB":
		db, trouble := sql.Open("pgx", url+"&target_session_attrs=read-write")
		if trouble != nil {
			f.Fatal(trouble)
		}
		f.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(4)
		d, err = New(f.ctx, db, nil)
	default:
		pool, trouble := pgxpool.New(f.ctx, url+"&target_session_attrs=read-write&pool_max_conns=4")
		if trouble != nil {
			f.Fatal(trouble)
		}
		f.Cleanup(pool.Close)
		d, err = FromPool(f.ctx, pool, nil)
	}
	if err != nil {
		f.Fatal(err)
	}
	locks, err := holdfast.New(d, &holdfast.ClientOptions{TTL: failoverTTL})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { locks.Close() })
	return locks
}

// take takes locks, exclusive and shared.
func (f *failover) take() {
	f.Helper()
	lock := func(l *holdfast.Lock) *holdfast.Lease {
		lease, err := l.Acquire(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		return lease
	}
	for i := range 4 {
		f.holds = append(f.holds, lock(f.holder.Mutex(fmt.Sprint("held/", i), nil)), lock(f.holder.RWMutex(fmt.Sprint("read/", i), nil).Read))
	}
	f.wanted = lock(f.holder.Mutex("wanted", nil))
	f.tokens = append(f.tokens, f.wanted.Token())
	f.inside.Add(1)
}

// queueUp lets the crowd wait for the wanted name. What it returns waits until all have had it.
func (f *failover) queueUp() (all *sync.WaitGroup) {
	f.Helper()
	all = &sync.WaitGroup{}
	for i := range failoverCrowd {
		locks := f.open(ways[i%len(ways)])
		all.Go(func() {
			lease, err := locks.Mutex("wanted", nil).Acquire(f.ctx)
			if err != nil {
				f.Errorf("P7: a waiter after the fail-over: %v", err)
				return
			}
			f.mu.Lock()
			f.tokens = append(f.tokens, lease.Token())
			f.mu.Unlock()
			if n := f.inside.Add(1); n != 1 {
				f.Errorf("P1: %d clients hold one name", n)
			}
			f.inside.Add(-1)
			if err := lease.Release(); err != nil {
				f.Errorf("P4: a release after the fail-over: %v", err)
			}
		})
	}
	for info := (holdfast.Info{}); len(info.Waiters) < failoverCrowd; time.Sleep(10 * time.Millisecond) {
		var err error
		if info, err = f.holder.Inspect(f.ctx, "wanted"); err != nil {
			f.Fatal(err)
		}
	}
	return all
}

// holdsGoOn renews all leases. If the fail-over was quicker than their TTL none may be lost, and none
// can be taken by another.
func (f *failover) holdsGoOn(took time.Duration) {
	f.Helper()
	f.Logf("the fail-over took %v", took.Round(time.Millisecond))
	other := f.open("URL")
	for _, lease := range append(f.holds, f.wanted) {
		for lease.Renew(f.ctx) != nil && lease.Err() == nil && f.ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		if f.ctx.Err() != nil {
			f.Fatalf("P2: the lease on %s is neither renewed nor lost", lease.Name())
		}
		if err := lease.Err(); err != nil && took < failoverTTL/3 {
			f.Errorf("P1: the lease on %s was lost, though all that was acknowledged is there: %v", lease.Name(), err)
		}
		if _, err := other.Mutex(lease.Name(), nil).TryAcquire(f.ctx); err == nil && lease.Err() == nil {
			f.Errorf("P1: %s is held twice after the fail-over", lease.Name())
		}
	}
}

// handOver releases the wanted name. All that wait for it must have it, in turn.
func (f *failover) handOver(waiting *sync.WaitGroup) {
	f.Helper()
	f.inside.Add(-1)
	if err := f.wanted.Release(); err != nil && !errors.Is(err, holdfast.ErrUncertain) {
		f.Errorf("P4: a release after the fail-over: %v", err)
	}
	waiting.Wait()
	for i := range len(f.tokens) - 1 {
		if f.tokens[i+1] <= f.tokens[i] {
			f.Errorf("P3: a token is %d after %d", f.tokens[i+1], f.tokens[i])
		}
	}
}

// nobodyAt waits until no client of a URL has a connection to the old primary, if that runs. Pools of
// the caller's keep theirs until they are used.
func (f *failover) nobodyAt(old *testserver.Postgres) {
	f.Helper()
	if !old.Running() {
		return
	}
	for old.Query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'") != "0" {
		if f.ctx.Err() != nil {
			f.Fatalf("connections to the old primary stay: %s",
				old.Query("SELECT state, query FROM pg_stat_activity WHERE application_name = 'holdfast'"))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestLostCommit: a standby takes over that lacks the last commit, because commits wait for none, or
// for another one. It gives a name that is held: two clients believe that they hold it, which
// Guarantees say. The guard stops the first one. What the standby has received it keeps.
func TestLostCommit(t *testing.T) {
	for name, synchronous := range map[string]string{"asynchronous": "", "another standby is synchronous": "two"} {
		t.Run(name, func(t *testing.T) {
			cluster := testserver.StartPostgresCluster(t, synchronous)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			f := &failover{T: t, ctx: ctx, cluster: cluster}
			first := f.open("URL")
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
			if err != nil {
				t.Fatal(err)
			}
			cluster.Primary.Kill()
			other.Kill()
			standby.Start()
			standby.Query("SELECT pg_promote()")
			if n := standby.Query("SELECT count(*) FROM holdfast_locks"); n != "1" {
				t.Fatalf("the standby has received %s rows; the test wants the last commit to be lost", n)
			}

			second := f.open("URL")
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
			standby.Query(fence.Postgres.Schema())
			db := openDB(t, standby)
			admit := func(token driver.Token) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				return errors.Join(fence.Postgres.Admit(ctx, tx, "lost", token, driver.Exclusive), tx.Commit())
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

// TestOpenedAfterDemotion: all clients of a process are idle while the server becomes read-only and another
// one takes over. So nobody notices that notifications come from the old one no more. A client that is
// opened then gets them from the new one.
func TestOpenedAfterDemotion(t *testing.T) {
	cluster := testserver.StartPostgresCluster(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := &failover{T: t, ctx: ctx, cluster: cluster}
	idle := f.open("URL")
	old := cluster.Primary
	old.Query("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	for old.Query("SHOW default_transaction_read_only") == "off" {
		time.Sleep(time.Millisecond)
	}
	cluster.CatchUp()
	cluster.Promote(cluster.Standbys[0])
	if caps := f.open("URL").Caps(); strings.Contains(caps.Guarantees.Summary, "Notifications do not arrive") {
		t.Errorf("no notifications: %s", caps.Guarantees.Summary)
	}
	if _, err := idle.Mutex("x", nil).TryAcquire(ctx); err != nil {
		t.Errorf("the client that was idle: %v", err)
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
