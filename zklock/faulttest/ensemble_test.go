//go:build soak

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/zklock"
)

// TestEnsemble does to three servers what can happen to them. TTLs are so long that no lease may be
// lost: a majority is always there soon enough.
func TestEnsemble(t *testing.T) {
	t.Parallel() // it waits most of the time
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: tick, MaxSession: time.Minute, Between: true, Clock: true})
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
		{"wall clocks are set", func() {
			for i, by := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour} {
				z.Members[i].Clock.Set(by)
			}
		}},
		// A server that cannot write its log serves nobody any more. A follower stays, a leader's process ends.
		{"the disk of a follower is full", func() {
			m := z.Followers()[0]
			m.FillDisk()
			for end := time.Now().Add(30 * time.Second); m.Mode() != ""; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("a server whose disk is full serves on")
				}
			}
			m.Kill()
			m.Start()
		}},
		{"the disk of the leader is full", func() {
			m := z.Leader()
			m.FillDisk()
			z.NewLeader(m)
			m.Kill()
			m.Start()
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
			faults.Under(t, faults.Harness{URL: url}, z.Addrs(), 20*time.Second, fault.spoil)
		})
	}
	t.Run("two are killed", func(t *testing.T) { twoKilled(t, z) })
}

func client(t testing.TB, addrs string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(within(t), url(addrs))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// says asserts that an error is that of a context that has ended, and says what each server said.
func says(t *testing.T, what string, err error, z *testserver.ZooKeeper) {
	t.Helper()
	t.Logf("%s: %v", what, err)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, zklock.ErrNoQuorum) {
		t.Errorf("%s without a majority: the error is not that of a context that has ended, for want of a majority: %v", what, err)
	}
	for _, m := range z.Members {
		if err == nil || !strings.Contains(err.Error(), m.Addr) {
			t.Errorf("%s without a majority: the error does not say what %s said: %v", what, m.Addr, err)
		}
	}
}

// twoKilled leaves one server of three: nothing is granted, and the error says why. The holder trusts
// its lease no longer than its TTL, and everything goes on when the others are back.
func twoKilled(t *testing.T, z *testserver.ZooKeeper) {
	const ttl = 2 * time.Second
	c := client(t, z.Addrs())
	held, err := c.Mutex("held", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	must(t, err)
	waiting, cancel := context.WithTimeout(context.Background(), 3*ttl)
	defer cancel()
	waited := make(chan error, 1)
	waiter := client(t, z.Addrs())
	go func() {
		_, err := waiter.Mutex("held", &holdfast.Options{TTL: ttl}).Acquire(waiting)
		waited <- err
	}()
	for info := (holdfast.Info{}); len(info.Waiters) == 0; time.Sleep(10 * time.Millisecond) {
		if info, err = c.Inspect(within(t), "held"); err != nil {
			t.Fatal(err)
		}
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
	var asking sync.WaitGroup
	for what, ask := range map[string]func(context.Context) (*holdfast.Lease, error){
		"acquire":                     c.Mutex("free", &holdfast.Options{TTL: ttl}).Acquire,
		"acquire a name that is held": c.Mutex("held", &holdfast.Options{TTL: ttl}).Acquire,
		"open": func(ctx context.Context) (*holdfast.Lease, error) {
			_, err := holdfast.Open(ctx, url(z.Addrs()))
			return nil, err
		},
	} {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			lease, err := ask(ctx)
			if err == nil {
				t.Errorf("P1: %s: granted without a majority: %v", what, lease)
			} else if errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("%s: the name is said to be held: %v", what, err)
			}
			says(t, what, err, z)
		})
	}
	asking.Wait()
	says(t, "wait", <-waited, z)
	for _, m := range dead {
		m.Begin()
	}
	z.Leader()
	for _, name := range []string{"free", "held"} {
		// On a busy machine a leader loses its followers again soon after they have come back, and an acquire that
		// reaches nobody says so.
		ctx := within(t)
		lease, err := c.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(ctx)
		for errors.Is(err, zklock.ErrNoQuorum) && ctx.Err() == nil {
			lease, err = c.Mutex(name, &holdfast.Options{TTL: ttl}).Acquire(ctx)
		}
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
	t.Parallel() // it waits most of the time
	for i := range testserver.Long(1, 3) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: tick})
			for range testserver.Long(2, 4) {
				pausedLeader(t, z)
			}
		})
	}
}

func pausedLeader(t *testing.T, z *testserver.ZooKeeper) {
	t.Helper()
	const ttl = time.Second
	var old *testserver.ZooKeeperMember
	var one *holdfast.Client
	var first *holdfast.Lease
	for ctx := within(t); first == nil; { // on a busy machine another may be elected before the client is at the leader
		old = z.Leader()
		one = client(t, old.Addr)
		lease, err := one.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(ctx)
		if err == nil && one.Caps().Guarantees.Faults[driver.StorePause].Exclusion != driver.Breaks {
			first = lease
			break
		}
		if one.Close(); ctx.Err() != nil {
			t.Fatal(err)
		}
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
	must(t, <-granted)
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
