//go:build soak

package faulttest

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestOneCutOffFromTheLeader cuts one holder off from the leader for longer than its session, though not
// from the followers. They would answer it, but only the leader knows whether its session lives: the holder
// trusts its lease no longer when another has the name.
func TestOneCutOffFromTheLeader(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: tick})
	leader := z.Leader()
	own := chaos.StartProxy(t, leader.Addr)
	addrs := []string{own.Addr}
	for _, m := range z.Followers() {
		addrs = append(addrs, m.Addr)
	}
	one, two := client(t, strings.Join(addrs, ",")), client(t, z.Addrs())
	first, err := one.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan faults.Hold, 1)
	go func() { watched <- faults.Watch(first, nil, nil) }()
	own.Cut()
	second, err := two.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	at := driver.HostClock.Now()
	if err != nil {
		t.Fatal(err)
	}
	if hold := <-watched; hold.Until > at || hold.Lost == "" {
		t.Errorf("P1: the holder trusted its lease for %v beside the next one (lost: %q)", hold.Until.Sub(at), hold.Lost)
	}
	if second.Token() <= first.Token() {
		t.Errorf("P3: token %d after %d", second.Token(), first.Token())
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
	own.Heal()
	again, err := one.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	if err != nil {
		t.Fatalf("P7: with the leader again: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
}

// TestClocks sets the servers' wall clocks, which decide nothing: no lease is lost, and the name of one that
// is held stays closed.
func TestClocks(t *testing.T) {
	t.Parallel() // it waits most of the time
	const ttl = time.Second
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: tick, Clock: true})
	one, two := client(t, z.Addrs()), client(t, z.Addrs())
	first, err := one.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		for _, m := range z.Members {
			m.Clock.Set(ahead)
		}
		time.Sleep(2 * ttl)
		if err := first.Err(); err != nil {
			t.Fatalf("P1: clocks were set by %v, and a lease is lost: %v", ahead, err)
		}
		if _, err := two.Mutex("n", &holdfast.Options{TTL: ttl}).TryAcquire(within(t)); err == nil {
			t.Fatalf("P1: clocks were set by %v, and another has the name", ahead)
		}
	}
	if err := first.Release(); err != nil {
		t.Error(err)
	}
	next, err := two.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if next.Token() <= first.Token() {
		t.Errorf("P3: token %d after %d", next.Token(), first.Token())
	}
	if err := next.Release(); err != nil {
		t.Error(err)
	}
}
