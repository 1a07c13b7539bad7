package etcdlock

import (
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestTombstoneLeaseRevoked: the lease of tombstones has been revoked. Break, and the release of a hold that
// needs a tombstone, make another.
func TestTombstoneLeaseRevoked(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	c := dial(t, server.Addrs(), nil)
	defer c.Close()
	take := func(name string, minHold time.Duration) driver.Grant {
		t.Helper()
		g, err := c.Try(t.Context(), driver.Request{Name: name, Owner: "owner of " + name, TTL: time.Hour, MinHold: minHold, Tokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	revoke := func() {
		t.Helper()
		lease, err := c.tombstoneLease(t.Context())
		if err == nil {
			_, err = c.etcd.Revoke(t.Context(), clientv3.LeaseID(lease))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	broken := take("broken", 0)
	revoke()
	if err := c.Break(t.Context(), "broken", broken.Token); err != nil {
		t.Errorf("P4: a break: %v", err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{broken})[0]; !errors.Is(r.Err, driver.ErrBroken) {
		t.Errorf("P2: the renewal of a broken hold: %v", r.Err)
	}
	for name, minHold := range map[string]time.Duration{"released": 0, "closed": time.Hour} {
		g := take(name, minHold)
		g.Stray = true
		revoke()
		err := c.Release(t.Context(), []driver.Grant{g})[0]
		if err != nil { // as package holdfast does
			err = c.Release(t.Context(), []driver.Grant{g})[0]
		}
		if err != nil {
			t.Errorf("P4: %s: a release, repeated: %v", name, err)
		}
	}
}
