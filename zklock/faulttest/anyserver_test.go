//go:build soak

package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestAnyServer shows what the driver says that it cannot prevent where the leader takes no clients: a follower
// goes on to answer a holder whose session the leader ends, so two holders trust their leases at the same time.
// TestPausedLeader and TestOneCutOffFromTheLeader show that they do not where it takes clients.
func TestAnyServer(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{
		Members: 3, TickTime: tick, SyncLimit: 30 * time.Second, NoLeaderClients: true, Between: true,
	})
	leader, followers := z.Leader(), z.Followers()
	near, far := followers[0], followers[1]
	for _, c := range []struct {
		name  string
		fault driver.Fault
		spoil func()
		heal  func()
	}{
		{"a follower is cut off from the leader", driver.Partition, func() { z.Silence(far) }, func() { z.Heal(far) }},
		// Its first act is to end the sessions that it has not heard of. What it has decided takes a moment
		// to get to the holder: here it takes longer.
		{"the leader stands still", driver.StorePause, func() {
			leader.Pause()
			time.Sleep(2 * ttl)
			far.Clients.Hold(chaos.ToClient, "")
			leader.Resume()
		}, func() { far.Clients.Heal() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			one, two := client(t, far.Addr), client(t, near.Addr)
			verdict := one.Caps().Guarantees.Faults[c.fault]
			if verdict.Exclusion != driver.Breaks || verdict.Tokens != driver.Keeps {
				t.Errorf("the driver says of %q: exclusion %v, tokens %v", c.fault, verdict.Exclusion, verdict.Tokens)
			}
			// The holder renews so often that it need not write to do so. On a busy machine it may be too late for
			// that, and then it learns in time.
			const attempts = 5
			for i := range attempts {
				if beside(t, one, two, ttl, c.spoil, c.heal) {
					return
				}
				t.Logf("attempt %d did not show it", i+1)
			}
			t.Error("the driver says that this breaks exclusion, and it did not")
		})
	}
}

// beside spoils something, and reports whether the second client got the name while the first one, whose server
// goes on to answer what it reads, trusted its lease.
func beside(t *testing.T, one, two *holdfast.Client, ttl time.Duration, spoil, heal func()) bool {
	t.Helper()
	first, err := one.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	must(t, err)
	stop, stopped, holds := make(chan struct{}), make(chan struct{}), make(chan faults.Hold, 2)
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				renewing, cancel := context.WithTimeout(context.Background(), ttl)
				_ = first.Renew(renewing) // it may be lost
				cancel()
			}
		}
	}()
	go func() { holds <- faults.Watch(first, stop, nil) }()
	spoil()
	second, err := two.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	must(t, err)
	if second.Token() <= first.Token() {
		t.Errorf("P3: token %d after %d", second.Token(), first.Token())
	}
	go func() { holds <- faults.Watch(second, stop, nil) }()
	time.Sleep(50 * time.Millisecond)
	close(stop)
	found := faults.Overlaps([]faults.Hold{<-holds, <-holds})
	heal()
	<-stopped
	t.Log(found)
	first.ReleaseNow()
	if err := second.Release(); err != nil {
		t.Error(err)
	}
	return len(found) > 0
}
