package faulttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestEnsemble does to three servers what can happen to them. TTLs are so long that no lease may be
// lost: a majority is always there soon enough.
func TestEnsemble(t *testing.T) {
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: tick, MaxSession: time.Minute, Between: true})
	const election = 500 * time.Millisecond
	for _, fault := range []struct {
		name  string
		spoil func()
	}{
		{"a follower is killed", func() {
			m := z.Followers()[0]
			m.Kill()
			time.Sleep(election)
			m.Start()
		}},
		{"the leader is killed", func() {
			m := z.Leader()
			m.Kill()
			z.NewLeader(m)
			m.Start()
		}},
		{"the leader stands still", func() {
			m := z.Leader()
			m.Pause()
			z.NewLeader(m)
			time.Sleep(election)
			m.Resume()
		}},
		{"the leader is cut off from the others", func() {
			m := z.Leader()
			z.Cut(m)
			z.NewLeader(m)
			time.Sleep(election)
			z.Heal(m)
		}},
		{"clients are cut off from the leader", func() {
			m := z.Leader()
			m.Clients.Cut()
			time.Sleep(election)
			m.Clients.Heal()
		}},
		{"clients are cut off from all", func() {
			for _, m := range z.Members {
				m.Clients.Cut()
			}
			time.Sleep(election)
			for _, m := range z.Members {
				m.Clients.Heal()
			}
		}},
		{"all are killed and started again", func() {
			for _, m := range z.Members {
				m.Kill()
			}
			for _, m := range z.Members {
				m.Begin()
			}
			z.Leader()
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			faults.Under(t, faults.Harness{URL: url}, z.Addrs(), 20*time.Second, func(steady *holdfast.Lease) {
				fault.spoil()
				ctx := within(t)
				err := steady.Renew(ctx)
				for err != nil && steady.Err() == nil && ctx.Err() == nil {
					time.Sleep(20 * time.Millisecond)
					err = steady.Renew(ctx)
				}
				if err != nil {
					t.Errorf("P2: a lease did not outlive what the ensemble outlives: %v", err)
				}
			})
		})
	}
	t.Run("two are killed", func(t *testing.T) { twoKilled(t, z) })
}

func client(t testing.TB, addrs string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(within(t), url(addrs))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// twoKilled leaves one server of three: nothing is granted, and the error says why. The holder trusts
// its lease no longer than its TTL, and everything goes on when the others are back.
func twoKilled(t *testing.T, z *testserver.ZooKeeper) {
	const ttl = 2 * time.Second
	c := client(t, z.Addrs())
	held, err := c.Mutex("held", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	if err != nil {
		t.Fatal(err)
	}
	leader := z.Leader()
	dead := []*testserver.ZooKeeperMember{leader, z.Followers()[0]}
	for _, m := range dead {
		m.Kill()
	}
	killed := driver.HostClock.Now()
	select {
	case <-held.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("P2: a lease is trusted without a majority")
	}
	if err := held.Err(); err == nil {
		t.Error("P2: a lease is trusted without a majority")
	}
	t.Logf("the holder knew %v after the death of a majority", driver.HostClock.Now().Sub(killed))
	ctx, cancel := context.WithTimeout(within(t), time.Second)
	defer cancel()
	lease, err := c.Mutex("free", &holdfast.Options{TTL: ttl}).Acquire(ctx)
	if err == nil {
		t.Fatalf("P1: granted without a majority: %v", lease)
	}
	if errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("the name is said to be held: %v", err)
	}
	t.Logf("the error: %v", err)
	if _, err := holdfast.Open(ctx, url(z.Addrs())); err == nil {
		t.Error("opened without a majority")
	}
	for _, m := range dead {
		m.Begin()
	}
	z.Leader()
	for _, name := range []string{"free", "held"} {
		lease, err := c.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(within(t))
		if err != nil {
			t.Fatalf("P7: with a majority again: %v", err)
		}
		lease.Release()
	}
}

// TestPausedLeader lets the leader stand still for longer than the session. Another one takes over and
// ends the session of a holder that knows no server but the old one. The next holder gets the name only
// when the first one trusts its lease no more, although the old leader goes on, and answers, before it
// learns of the new one.
func TestPausedLeader(t *testing.T) {
	const ttl = time.Second
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: tick})
	for range testserver.Long(2, 10) {
		old := z.Leader()
		one := client(t, old.Addr)
		first, err := one.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
		if err != nil {
			t.Fatal(err)
		}
		watched := make(chan faults.Hold, 1)
		go func() { watched <- faults.Watch(first, nil, nil) }()
		old.Pause()
		z.NewLeader(old)
		var rest []string
		for _, m := range z.Members {
			if m != old {
				rest = append(rest, m.Addr)
			}
		}
		two := client(t, strings.Join(rest, ","))
		var second *holdfast.Lease
		var at driver.Instant
		granted := make(chan error, 1)
		go func() {
			var err error
			second, err = two.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
			at = driver.HostClock.Now()
			granted <- err
		}()
		time.Sleep(2 * ttl)
		old.Resume()
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
		hold := <-watched
		if hold.Until > at || hold.Lost == "" {
			t.Errorf("P1: the holder trusted its lease for %v beside the next one (lost: %q)", hold.Until.Sub(at), hold.Lost)
		}
		if second.Token() <= first.Token() {
			t.Errorf("P3: token %d after %d", second.Token(), first.Token())
		}
		if err := second.Release(); err != nil {
			t.Error(err)
		}
		one.Close()
		two.Close()
	}
}
