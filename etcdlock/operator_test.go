package etcdlock

import (
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfastlock/holdfast/driver"
)

// TestStockShown: an operator sees a stock lock's hold, and can break it.
func TestStockShown(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), &Options{Layout: Stock})
	session, err := concurrency.NewSession(c.main.etcd)
	must(t, err)
	defer session.Close()
	mutex := concurrency.NewMutex(session, "a/b")
	must(t, mutex.Lock(t.Context()))
	if _, err := c.main.etcd.Put(t.Context(), "a/other/data", "x"); err != nil {
		t.Fatal(err)
	}
	var names []string
	for info, err := range c.List(t.Context(), "") {
		must(t, err)
		names = append(names, info.Name)
		if len(info.Holders) != 1 || info.Holders[0].Expires <= 0 {
			t.Fatalf("a stock lock is shown as %+v", info)
		}
		if err := c.Break(t.Context(), info.Name, info.Holders[0].Token); err != nil {
			t.Errorf("P4: breaking a stock lock: %v", err)
		}
	}
	if len(names) != 1 || names[0] != "a/b" {
		t.Errorf("List shows %q", names)
	}
	if info, err := c.Inspect(t.Context(), "a/b"); err != nil || !info.Idle() {
		t.Errorf("P4: after the break: %+v, %v", info, err)
	}
}

// TestTombstoneLeaseRevoked: the lease of tombstones has been revoked. Break, and the release of a hold that
// needs a tombstone, make another.
func TestTombstoneLeaseRevoked(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), nil)
	revoke := func() {
		t.Helper()
		lease, err := c.tombstoneLease(t.Context())
		if err == nil {
			_, err = c.main.etcd.Revoke(t.Context(), clientv3.LeaseID(lease))
		}
		must(t, err)
	}
	broken := take(t, c, request("broken"))
	revoke()
	if err := c.Break(t.Context(), "broken", broken.Token); err != nil {
		t.Errorf("P4: a break: %v", err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{broken})[0]; !errors.Is(r.Err, driver.ErrBroken) {
		t.Errorf("P2: the renewal of a broken hold: %v", r.Err)
	}
	for name, minHold := range map[string]time.Duration{"released": 0, "closed": time.Hour} {
		req := request(name)
		req.MinHold = minHold
		g := take(t, c, req)
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

// TestStrayAfterBreak: a hold with a minimum is broken, and then released, of whose owner a request
// got no answer. When that arrives it must not take the name again (P6).
func TestStrayAfterBreak(t *testing.T) {
	server := shared(t)
	c := dial(t, server.Addrs(), nil)
	req := request("n")
	req.MinHold = time.Hour
	g := take(t, c, req)
	must(t, c.Break(t.Context(), "n", g.Token))
	g.Stray = true
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; !driver.Gone(err) {
		t.Fatalf("the release of a broken hold: %v", err)
	}
	if late, err := c.Try(t.Context(), req); !driver.Gone(err) {
		t.Errorf("P6: a late request of the owner is granted token %d, %v", late.Token, err)
	}
}
