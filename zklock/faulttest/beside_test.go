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
	"github.com/holdfastlock/holdfast/internal/test/testserver"
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
	must(t, err)
	watched := make(chan faults.Hold, 1)
	go func() { watched <- faults.Watch(first, nil, nil) }()
	own.Cut()
	second, err := two.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	at := driver.HostClock.Now()
	must(t, err)
	if hold := <-watched; hold.Until > at || hold.Lost == "" {
		t.Errorf("P1: the holder trusted its lease for %v beside the next one (lost: %q)", hold.Until.Sub(at), hold.Lost)
	}
	if second.Token() <= first.Token() {
		t.Errorf("P3: token %d after %d", second.Token(), first.Token())
	}
	must(t, second.Release())
	own.Heal()
	again, err := one.Mutex("n", &holdfast.Options{TTL: ttl}).Acquire(within(t))
	if err != nil {
		t.Fatalf("P7: with the leader again: %v", err)
	}
	must(t, again.Release())
}
