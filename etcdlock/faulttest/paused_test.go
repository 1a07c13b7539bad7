//go:build soak

package faulttest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestPausedLeader stops the leader for longer than leases last, while a hundred clients renew theirs at the others. When
// it goes on, etcd may have it end leases that its successor has extended: the table of guarantees says that exclusion
// breaks. How often that was so is logged. What is promised is tested: tokens grow, and the first holder learns of its loss.
func TestPausedLeader(t *testing.T) {
	const clients, ttl = 100, 3 * time.Second
	c := startCluster(t, testserver.EtcdOptions{Election: quick})
	for round := range testserver.Long(1, 3) {
		leader, _ := c.leader(-1)
		var others []string
		for i, m := range c.Members {
			if i != leader {
				others = append(others, m.Addr)
			}
		}
		open := func() *holdfast.Client {
			locks, err := holdfast.Open(t.Context(), "etcd://"+strings.Join(others, ","))
			if err != nil {
				t.Error(err)
				return nil
			}
			t.Cleanup(func() { locks.Close() })
			return locks
		}
		name := func(i int) string { return fmt.Sprintf("%d of round %d", i, round) }
		leases := make([]*holdfast.Lease, clients)
		var taking sync.WaitGroup
		for i := range clients {
			taking.Go(func() {
				if locks := open(); locks != nil {
					var err error
					if leases[i], err = locks.Mutex(name(i), &holdfast.Options{TTL: ttl}).TryAcquire(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		taking.Wait()
		next := open()
		if t.Failed() {
			return
		}
		c.Members[leader].Pause()
		c.leader(leader)
		time.Sleep(3 * ttl)
		c.Members[leader].Resume()
		second := 0
		for end := time.Now().Add(ttl); time.Now().Before(end); {
			for i, first := range leases {
				if first == nil {
					continue
				}
				lease, err := next.Mutex(name(i), nil).TryAcquire(t.Context())
				if err != nil {
					continue
				}
				if first.Err() == nil {
					second++
				}
				if lease.Token() <= first.Token() {
					t.Errorf("P3: %s: token %d after %d", name(i), lease.Token(), first.Token())
				}
				ctx, cancel := context.WithTimeout(t.Context(), ttl)
				select {
				case <-first.Done():
				case <-ctx.Done():
					t.Errorf("P2: %s: its first holder does not learn within the TTL that it has lost", name(i))
				}
				cancel()
				lease.Release()
				leases[i] = nil
			}
		}
		t.Logf("round %d: %d of %d names had two holders", round, second, clients)
	}
}
